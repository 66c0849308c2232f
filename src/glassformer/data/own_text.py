"""The user's own text: a file, a folder, a pattern or standard input, before and after it has splits."""

import dataclasses
from pathlib import Path

from glassformer.core.errors import DataError
from glassformer.core.files import whole_path
from glassformer.data.images import is_image
from glassformer.data.packed import PackedText, is_packed
from glassformer.data.sources import Corpus, Span, make_corpus
from glassformer.data.splits import Division, Rule, Undivided, by_name, sort
from glassformer.data.text_files import files_under, read_facts, spool_standard_input


@dataclasses.dataclass
class OwnText:
    """Text files, read once and found to be text."""

    name: str
    path: Path
    documents: list[Span]
    digests: dict[str, str]
    text_digests: dict[str, str]
    warnings: list[str]

    @property
    def undivided(self) -> Undivided:
        return Undivided(sum(map(len, self.documents)), lambda: self.documents)

    def original_division(self, valid: float, test: float) -> Division:
        return by_name(self.documents, valid, test)

    def divided(self, division: Division, rule: Rule) -> Corpus:
        splits = sort(self.documents, division)
        corpus = make_corpus(
            self.name, splits, division.words, self.digests, self.warnings, self.text_digests
        )
        return dataclasses.replace(corpus, path=self.path, split=rule)


def open_text(source: str) -> OwnText:
    """The text files that a SOURCE names; what is no text is left out of a folder, and else refused."""
    warnings: list[str] = []
    if source == "-":
        paths = [spool_standard_input()]
        names = [paths[0].name]
    else:
        paths, names = files_under(source)
    documents: list[Span] = []
    digests: dict[str, str] = {}
    text_digests: dict[str, str] = {}
    skipped: list[str] = []
    for name, path in zip(names, paths, strict=True):
        try:
            facts = read_facts(path, "standard input" if source == "-" else name)
        except DataError:
            if len(paths) == 1 or is_packed(path):
                raise
            skipped.append(name)
            continue
        digests[name], text_digests[name] = facts.digest, facts.text_digest
        place = PackedText(path) if is_packed(path) else path
        documents.append(Span(name, place, facts.start, facts.size, facts.content))
    if skipped:
        sample = ", ".join(skipped[:3]) + (", …" if len(skipped) > 3 else "")
        warnings.append(f"{len(skipped)} files are not UTF-8 text and were left out: {sample}")
    if not documents:
        images = " For the labels of its images say --task classify." if any(map(is_image, paths)) else ""
        raise DataError(
            f"{source} holds no text: expected at least one UTF-8 file that is not empty.{images}"
        )
    path = whole_path(paths[0] if source == "-" else source)
    return OwnText(source, path, documents, digests, text_digests, warnings)
