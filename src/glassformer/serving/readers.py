"""Texts for runs that read some: what a request may give, and never a path."""

from glassformer.serving.asked import check_most, refuse
from glassformer.serving.limits import Limits
from glassformer.serving.models import Loaded


def check_reads_text(loaded: Loaded) -> None:
    """A run on images takes the paths of files; from a request it takes nothing."""
    if loaded.run.config.model.patch:
        raise refuse(
            "model", f"'{loaded.name}' reads images, and a request can give texts alone", "wrong_task"
        )


def check_texts(given: str | list[str], limits: Limits) -> list[str]:
    """One text or several, each of a size."""
    texts = [given] if isinstance(given, str) else given
    if not texts:
        raise refuse("text", "an empty list: expected a text, or several")
    check_most("text", len(texts), limits.prompts, " texts")
    for text in texts:
        check_most("text", len(text), limits.characters, " characters in one text")
    return texts
