"""The tokenizer interface, and the ways of cutting text that byte-pair encoding replaced.

A tokenizer turns text into ids and ids into text, and knows nothing of tensors. Its vocabulary holds ordinary
entries first and special tokens (such as the mark between documents) last. Special tokens are never made from
user text unless the caller names them.

    kind    cuts text into           what it cannot express
    byte    UTF-8 bytes              nothing: lossless for any text and any bytes
    bpe     learned pieces (bpe.py)  nothing: lossless likewise
    char    characters               a character not seen in training becomes <unk>, shown as � when decoded
    word    words between blanks     a word not in the dictionary becomes <unk>; blanks become single spaces
    pairs   words of a shortlist,    a pair or sign not seen in training becomes <unk>
            else character pairs (pairs.py)

Python strings may hold lone surrogates, which no UTF-8 text can: byte and bpe encode them as the three bytes
that UTF-8 would use (`surrogatepass`) and decode them back; char and word treat them as unknown.
"""

import json
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Self

import regex

from glassformer.errors import TokenizerError
from glassformer.files import write_atomically
from glassformer.text import hf_format

END_OF_TEXT = "<|endoftext|>"
MASK = "<|mask|>"  # what hides a token in masked language modelling
UNKNOWN = "<unk>"


class Tokenizer(ABC):
    """Text to ids and back. Subclasses say how ordinary text is cut; special tokens are handled here."""

    kind: ClassVar[str]
    separator: ClassVar[bytes] = b""  # what decoding puts between two tokens

    def __init__(self, entries: Sequence[bytes], specials: Sequence[str] = (END_OF_TEXT,)):
        self.entries = list(entries)  # the bytes that each ordinary id stands for
        self.specials = {name: len(self.entries) + i for i, name in enumerate(specials)}

    @abstractmethod
    def cut(self, text: str | bytes) -> list[int]:
        """The ids of ordinary text, in which no special token is looked for."""

    @abstractmethod
    def to_json(self) -> dict[str, Any]:
        """The tokenizer in the Hugging Face `tokenizer.json` format."""

    @classmethod
    @abstractmethod
    def from_json(cls, content: dict[str, Any]) -> Self: ...

    def __len__(self) -> int:
        return len(self.entries) + len(self.specials)

    @property
    def end_of_text(self) -> int | None:
        """The id of the mark between documents, if there is one."""
        return self.specials.get(END_OF_TEXT)

    def encode(self, text: str | bytes, specials: Collection[str] = ()) -> list[int]:
        """Ids of `text`. Only the special tokens named in `specials` are recognised inside it."""
        unknown = [name for name in specials if name not in self.specials]
        if unknown:
            raise TokenizerError(f"no special token {unknown[0]!r}; there are: {', '.join(self.specials)}")
        if not specials:
            return self.cut(text)
        if isinstance(text, bytes):
            raise TokenizerError("special tokens are looked for in text, not in bytes")
        ids: list[int] = []
        longest_first = sorted(specials, key=len, reverse=True)
        for part in regex.split(f"({'|'.join(map(regex.escape, longest_first))})", text):
            ids += [self.specials[part]] if part in specials else self.cut(part)
        return ids

    @cached_property
    def _bytes_of(self) -> list[bytes]:
        return [*self.entries, *(name.encode() for name in self.specials)]

    def token_bytes(self, token: int) -> bytes:
        """The bytes that one id stands for (a special token's name)."""
        if not 0 <= token < len(self):
            raise TokenizerError(f"id {token} is outside the vocabulary of {len(self)} entries")
        return self._bytes_of[token]

    def decode_bytes(self, ids: Iterable[int], specials: bool = True) -> bytes:
        """The exact bytes of `ids`; `specials=False` leaves special tokens out."""
        first_special = len(self.entries)
        return self.separator.join(self.token_bytes(i) for i in ids if specials or i < first_special)

    def decode(self, ids: Iterable[int], specials: bool = True) -> str:
        """The text of `ids`; bytes that are not UTF-8 show as �."""
        return to_text(self.decode_bytes(ids, specials))

    def show(self, text: str) -> list[str]:
        """The pieces that `text` is cut into, each as readable text."""
        return [to_text(self.token_bytes(i)) for i in self.encode(text)]

    def save(self, path: str | Path) -> None:
        """Write `tokenizer.json`, which `tokenizers.Tokenizer.from_file` reads too."""
        write_atomically(Path(path), json.dumps(self.to_json(), ensure_ascii=False, indent=1))


def to_text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        pass
    try:
        return data.decode(errors="surrogatepass")
    except UnicodeDecodeError:
        return data.decode(errors="replace")


def to_bytes(text: str | bytes) -> bytes:
    return text if isinstance(text, bytes) else text.encode(errors="surrogatepass")


class Byte(Tokenizer):
    """The 256 bytes of UTF-8: the smallest vocabulary that can say everything."""

    kind = "byte"

    def __init__(self, specials: Sequence[str] = (END_OF_TEXT,)):
        super().__init__([bytes([b]) for b in range(256)], specials)

    def cut(self, text: str | bytes) -> list[int]:
        return list(to_bytes(text))

    def to_json(self) -> dict[str, Any]:
        return hf_format.byte_level(self.entries, merges=[], pattern=None, specials=self.specials)

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> "Byte":
        return cls(hf_format.special_names(content))


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
        taken = {UNKNOWN, *specials}
        kept = sorted((p for p in counts if p not in taken and is_text(p)), key=lambda p: (-counts[p], p))
        return cls(sorted(kept[:room]), specials)

    def cut(self, text: str | bytes) -> list[int]:
        if isinstance(text, bytes):
            text = text.decode(errors="replace")
        return [self.ids.get(piece, self.unknown) for piece in self._pattern.findall(text)]

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
