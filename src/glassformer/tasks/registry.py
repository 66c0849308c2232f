"""The job of a task, by its name."""

from glassformer.tasks.labels import ClassifyTask, TagTask
from glassformer.tasks.language_model import LanguageTask, MaskedTask
from glassformer.tasks.task import Task
from glassformer.tasks.translator import TranslateTask

TASKS: dict[str, type[Task]] = {
    j.name: j for j in (LanguageTask, MaskedTask, ClassifyTask, TagTask, TranslateTask)
}
