"""The exceptions that a user can meet. Each says what was wrong, what was expected and what to do."""

from pathlib import Path

from glassformer.core.wording import worded


class GlassformerError(Exception):
    """Something the user can mend; the command line prints it without a traceback and exits with 1."""

    exit_code = 1

    def __str__(self) -> str:
        """In the words of whoever is spoken to: `--out` on the command line, `out=` in Python."""
        return worded(super().__str__())


class UsageError(GlassformerError):
    """A setting, name or combination that cannot be: exit code 2."""

    exit_code = 2


class DataError(GlassformerError):
    """Text that is missing, empty, unreadable or too short."""


class TokenizerError(GlassformerError):
    """A tokenizer file or id that cannot be used."""


class RunError(GlassformerError):
    """A run directory that is missing, broken, of another version, or in the way."""


class DiskError(GlassformerError):
    """A file could not be written; what was there before is untouched."""


class DivergedError(GlassformerError):
    """NaN or infinity in training; the update was not applied."""


class Interrupted(GlassformerError):  # noqa: N818 - an event, not a fault
    """Stopped by a signal after everything was saved: exit code 128 and its number (130 for SIGINT)."""

    def __init__(self, message: str, signal_number: int):
        super().__init__(message)
        self.exit_code = 128 + signal_number


def closest(name: str, known: list[str], folder: Path | None = None) -> str:
    """' Did you mean …?' for a mistyped name, or nothing; of names in a folder, with their path."""
    from difflib import get_close_matches

    near = get_close_matches(name, known, n=1, cutoff=0.55)
    return f" Did you mean '{folder / near[0] if folder else near[0]}'?" if near else ""
