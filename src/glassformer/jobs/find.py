"""The job of a task, by its name."""

from glassformer.jobs.job import Job
from glassformer.jobs.labels import ClassifyJob, TagJob
from glassformer.jobs.language import LanguageJob, MaskedJob
from glassformer.jobs.translate import TranslateJob

JOBS: dict[str, type[Job]] = {j.name: j for j in (LanguageJob, MaskedJob, ClassifyJob, TagJob, TranslateJob)}
