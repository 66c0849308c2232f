"""What of a folder was taken for text, and what was left out: a person is told both, by kind and by name."""

from collections import Counter
from pathlib import Path

from glassformer.data.newlines import Newlines
from glassformer.data.packed import is_packed
from glassformer.data.text_files import NotTextError, TextFacts, read_facts

NAMED = 10  # files left out that are named; of more the kinds are counted
KINDS = 12  # kinds of files that are counted apart


class Taking:
    """Files, as one after another is looked at."""

    def __init__(self, several: bool):
        self.several = several  # a file that is named alone is read or refused
        self.taken: Counter[str] = Counter()
        self.left_out: list[tuple[str, NotTextError]] = []

    def add(self, path: Path) -> None:
        """One more that was taken."""
        self.taken[kind_of_name(path.name)] += 1

    def read(self, path: Path, name: str, newlines: Newlines) -> TextFacts | None:
        """What a text file is known by; None: it is no text, and is left out."""
        try:
            facts = read_facts(path, name, newlines)
        except NotTextError as error:
            if not self.several or is_packed(path):
                raise
            self.left_out.append((name, error))
            return None
        self.add(path)
        return facts

    @property
    def skipped(self) -> list[str]:
        """All that was left out, each with the reason."""
        return [f"{name}: {error.kind}" for name, error in self.left_out]

    def notes(self) -> list[str]:
        """Which kinds were taken, of a folder or pattern that has more than one file."""
        if not self.several or not self.taken:
            return []
        return [f"{self.taken.total():,} files are taken for text: {_counted(self.taken)}"]

    def warnings(self) -> list[str]:
        if not self.left_out:
            return []
        files = "1 file is" if len(self.left_out) == 1 else f"{len(self.left_out):,} files are"
        texts_first = sorted(self.left_out, key=lambda entry: not entry[1].remedy)
        named = ", ".join(f"{name} ({error.kind})" for name, error in texts_first[:NAMED])
        if len(self.left_out) > NAMED:
            kinds = Counter(kind_of_name(name) for name, _ in self.left_out)
            named += f", …; in all {_counted(kinds)}; the data.json of a run lists them all"
        remedy = next((f". {error.remedy}" for _, error in texts_first if error.remedy), "")
        return [f"{files} not UTF-8 text and left out: {named}{remedy}"]


def kind_of_name(name: str) -> str:
    return Path(name).suffix.lower() or "without an ending"


def _counted(kinds: Counter[str]) -> str:
    """12 .txt, 3 .md; the rarest together."""
    common = kinds.most_common(KINDS)
    rest = kinds.total() - sum(count for _, count in common)
    return ", ".join(f"{count:,} {kind}" for kind, count in common) + (f", {rest:,} others" if rest else "")
