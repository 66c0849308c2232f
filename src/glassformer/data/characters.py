"""Which characters a training text has: of any other a model can know nothing."""

from collections.abc import Iterable

MOST_BYTES = 1 << 26  # of text that is looked at; more would take longer than it is worth


def characters_of(texts: Iterable[str]) -> str:
    """All different ones, in order; halves of characters are none."""
    found: set[str] = set()
    for text in texts:
        found |= set(text)
    return "".join(sorted(c for c in found if not "\ud800" <= c <= "\udfff"))
