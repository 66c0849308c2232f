"""Dictionaries of whole pieces, characters or words; what is not in the dictionary becomes `<unk>`."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, Self

import regex

from glassformer.tokenizers import formats as hf_format
from glassformer.tokenizers.tokenizer import END_OF_TEXT, UNKNOWN, Span, Tokenizer, to_bytes


class Vocabulary(Tokenizer):
    """A fixed list of pieces found by a pattern; a piece that is not in the list becomes `<unk>`."""

    pattern: ClassVar[str]
    unknown_as: ClassVar[str]  # how an unknown piece shows when decoded

    def __init__(self, pieces: Sequence[str], specials: Sequence[str] = (END_OF_TEXT,)):
        self.pieces = list(pieces)
        super().__init__([*(p.encode() for p in pieces), self.unknown_as.encode()], specials)
        self.ids = {piece: i for i, piece in enumerate(self.pieces)}
        self.unknown = len(self.pieces)
        self._pattern = regex.compile(self.pattern)

    @classmethod
    def train(
        cls, texts: Iterable[str], vocab: int | None = None, specials: Sequence[str] = (END_OF_TEXT,)
    ) -> Self:
        """The most frequent pieces, at most `vocab` entries in all; ties go to the smaller string."""
        pattern = regex.compile(cls.pattern)
        counts: Counter[str] = Counter()
        for text in texts:
            counts.update(pattern.findall(text))
        room = None if vocab is None else max(0, vocab - 1 - len(specials))
        reserved = {UNKNOWN, *specials}
        pieces = sorted(
            (p for p in counts if p not in reserved and is_text(p)), key=lambda p: (-counts[p], p)
        )
        return cls(sorted(pieces[:room]), specials)

    def cut(self, text: str | bytes) -> list[int]:
        if isinstance(text, bytes):
            text = text.decode(errors="replace")
        return [self.ids.get(piece, self.unknown) for piece in self._pattern.findall(text)]

    def spans(self, text: str) -> list[Span]:
        spans: list[Span] = []
        byte, character = 0, 0
        for match in self._pattern.finditer(text):
            byte += len(to_bytes(text[character : match.start()]))
            character = match.end()
            size = len(to_bytes(match[0]))
            spans.append(Span(self.ids.get(match[0], self.unknown), (byte, byte + size), match.span()))
            byte += size
        return spans

    def to_json(self) -> dict[str, Any]:
        vocab = {**self.ids, UNKNOWN: self.unknown}
        joined = "" if self.separator == b"" else None
        return hf_format.word_level(vocab, UNKNOWN, self.pattern, joined, self.specials)

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> Self:
        vocab: dict[str, int] = content["model"]["vocab"]
        pieces = sorted((p for p in vocab if p != UNKNOWN), key=vocab.__getitem__)
        return cls(pieces, hf_format.special_names(content))


class Char(Vocabulary):
    """One id per character seen in training."""

    kind, pattern, unknown_as = "char", r"[\s\S]", "\ufffd"


class Word(Vocabulary):
    """A dictionary of whole words, as before subwords: what stands between blanks, and each end of line."""

    kind, pattern, unknown_as, separator = "word", r"\S+|\n", UNKNOWN, b" "


def is_text(piece: str) -> bool:
    """False for lone surrogates, which no file can hold."""
    return not any("\ud800" <= c <= "\udfff" for c in piece)
