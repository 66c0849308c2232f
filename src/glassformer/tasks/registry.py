"""The tasks there are, by name (how to add one: see the folder's docstring)."""

from torch import nn

from glassformer.config.model import ModelConfig
from glassformer.config.schema import check_task
from glassformer.tasks.classifier import ClassifyTask
from glassformer.tasks.language_model import LanguageTask
from glassformer.tasks.masked_model import MaskedTask
from glassformer.tasks.tagger import TagTask
from glassformer.tasks.task import Task
from glassformer.tasks.translator import TranslateTask

TASKS: dict[str, type[Task]] = {
    kind.name: kind for kind in (LanguageTask, MaskedTask, ClassifyTask, TagTask, TranslateTask)
}


def find_task(name: str) -> type[Task]:
    """The task of a name."""
    check_task(name)
    return TASKS[name]


def make_model(task: str, config: ModelConfig) -> nn.Module:
    """A new model for a task, its weights drawn from torch's generator."""
    return find_task(task).build(config)
