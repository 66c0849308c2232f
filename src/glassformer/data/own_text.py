"""The user's own text: a file, a folder, a pattern or standard input, before and after it has splits."""

import dataclasses
from pathlib import Path

from glassformer.core.errors import DataError
from glassformer.core.files import whole_path
from glassformer.data.images import is_image
from glassformer.data.newlines import Newlines
from glassformer.data.sources import Corpus, Span, make_corpus
from glassformer.data.splits import Division, Rule, Undivided, by_name, sort
from glassformer.data.taking import Taking
from glassformer.data.text_files import files_under, spool_standard_input


@dataclasses.dataclass
class OwnText:
    """Text files, read once and found to be text."""

    name: str
    path: Path
    documents: list[Span]
    digests: dict[str, str]
    text_digests: dict[str, str]
    taking: Taking

    @property
    def undivided(self) -> Undivided:
        return Undivided(sum(map(len, self.documents)), lambda: self.documents)

    def original_division(self, valid: float, test: float) -> Division:
        return by_name(self.documents, valid, test)

    def divided(self, division: Division, rule: Rule) -> Corpus:
        splits = sort(self.documents, division)
        corpus = make_corpus(
            self.name, splits, division.words, self.digests, self.taking.warnings(), self.text_digests
        )
        return dataclasses.replace(
            corpus, path=self.path, split=rule, notes=self.taking.notes(), skipped=self.taking.skipped
        )


def open_text(source: str, newlines: Newlines) -> OwnText:
    """The text files that a SOURCE names; what is no text is left out of a folder, and else refused."""
    if source == "-":
        paths = [spool_standard_input()]
        names = [paths[0].name]
    else:
        paths, names = files_under(source)
    documents: list[Span] = []
    digests: dict[str, str] = {}
    text_digests: dict[str, str] = {}
    taking = Taking(several=len(paths) > 1)
    for name, path in zip(names, paths, strict=True):
        facts = taking.read(path, "standard input" if source == "-" else name, newlines)
        if facts is None:
            continue
        digests[name], text_digests[name] = facts.digest, facts.text_digest
        documents.append(Span(name, facts.place, facts.start, facts.size, facts.content))
    if not documents:
        images = " For the labels of its images say --task classify." if any(map(is_image, paths)) else ""
        raise DataError(
            f"{source} holds no text: expected at least one UTF-8 file that is not empty.{images}"
            + "".join(f" {line}." for line in taking.warnings())
        )
    path = whole_path(paths[0] if source == "-" else source)
    return OwnText(source, path, documents, digests, text_digests, taking)
