"""The job of a task, by its name."""

from glassformer.tasks.labels import ClassifyJob, TagJob
from glassformer.tasks.language_model import LanguageJob, MaskedJob
from glassformer.tasks.task import Job
from glassformer.tasks.translator import TranslateJob

JOBS: dict[str, type[Job]] = {j.name: j for j in (LanguageJob, MaskedJob, ClassifyJob, TagJob, TranslateJob)}
