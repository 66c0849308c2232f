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

import codecs
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import cached_property
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import regex

from glassformer.core.errors import TokenizerError
from glassformer.core.files import write_atomically
from glassformer.core.strict_json import dump_json
from glassformer.tokenizers import formats as hf_format

END_OF_TEXT = "<|endoftext|>"
MASK = "<|mask|>"  # what hides a token in masked language modelling
UNKNOWN = "<unk>"


class Span(NamedTuple):
    """A token and where it stands: bytes of the UTF-8 text, and characters (all that it has a part of)."""

    id: int
    bytes: tuple[int, int]
    characters: tuple[int, int]


class Tokenizer(ABC):
    """Text to ids and back. Subclasses say how ordinary text is cut; special tokens are handled here."""

    kind: ClassVar[str]
    separator: ClassVar[bytes] = b""  # what decoding puts between two tokens

    def __init__(self, entries: Sequence[bytes], specials: Sequence[str] = (END_OF_TEXT,)):
        self.entries = list(entries)  # the bytes that each ordinary id stands for
        self.specials = {name: len(self.entries) + i for i, name in enumerate(specials)}
        if "" in self.specials or len(self.specials) < len(specials):
            raise TokenizerError(f"special tokens need names, each its own: {', '.join(map(repr, specials))}")

    @abstractmethod
    def cut(self, text: str | bytes) -> list[int]:
        """The ids of ordinary text, in which no special token is looked for."""

    @abstractmethod
    def to_json(self) -> dict[str, Any]:
        """The tokenizer in the Hugging Face `tokenizer.json` format."""

    @classmethod
    @abstractmethod
    def from_json(cls, content: dict[str, Any]) -> Self:
        """A tokenizer of this kind from what `to_json` gave, or another program in the same format."""

    def __len__(self) -> int:
        return len(self.entries) + len(self.specials)

    @property
    def eot_id(self) -> int | None:
        """The id of the mark between documents, if there is one."""
        return self.specials.get(END_OF_TEXT)

    def encode(self, text: str | bytes, specials: Collection[str] | bool = ()) -> list[int]:
        """Ids of `text`. Only the special tokens named in `specials` (True: all) are recognised inside it."""
        if isinstance(specials, bool):
            specials = self.specials if specials else ()
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

    def array(self, text: str | bytes, threads: int | None = None) -> np.ndarray:
        """Ids of ordinary text as int32; where it pays, on several threads (all cores unless told)."""
        return np.array(self.cut(text), np.int32)

    def arrays(self, texts: Iterable[str | bytes], threads: int | None = None) -> Iterator[np.ndarray]:
        """Ids of each text, in order, while they are read."""
        return (self.array(text) for text in texts)

    def encode_batch(self, texts: Iterable[str | bytes], threads: int | None = None) -> list[list[int]]:
        """Ids of many ordinary texts."""
        if isinstance(texts, str | bytes):
            raise TokenizerError("expected several texts, in a list for example, not one string: give [text]")
        return [ids.tolist() for ids in self.arrays(texts, threads)]

    def spans(self, text: str) -> list[Span]:
        """The tokens of ordinary text and where each stands (in its normal form, where there is one)."""
        ids = self.cut(text)
        ends = accumulate((len(self.token_bytes(i)) for i in ids), initial=0)
        return _with_characters(text, list(zip(ids, pairwise(ends), strict=True)))

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

    def decode_stream(self, ids: Iterable[int]) -> Iterator[str]:
        """The text of ids as they come, never half a character; what stays half at the end shows as �."""
        decoding = Decoding(self)
        for token in ids:
            if text := decoding.feed(token):
                yield text
        if rest := decoding.flush():
            yield rest

    def __repr__(self) -> str:
        return f"<{self.kind} tokenizer, {len(self)} entries>"

    def show(self, text: str) -> list[str]:
        """The pieces that `text` is cut into, each as readable text."""
        return [to_text(self.token_bytes(i)) for i in self.encode(text)]

    def dumps(self) -> bytes:
        """The content of `tokenizer.json`."""
        return dump_json(self.to_json(), ensure_ascii=False, indent=1).encode(errors="backslashreplace")

    def save(self, path: str | Path) -> None:
        """Write `tokenizer.json`, which `tokenizers.Tokenizer.from_file` reads too."""
        if Path(path).is_dir() or not Path(path).absolute().parent.is_dir():
            raise TokenizerError(
                f"{path} cannot be written: expected the name of a file in a folder that exists"
            )
        write_atomically(Path(path), self.dumps())


class Decoding:
    """Ids to text one by one: what is certain by now, never half a character."""

    def __init__(self, tokenizer: Tokenizer, after: bool = False):
        """`after`: the text continues another."""
        self._tokenizer, self._started = tokenizer, after
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def feed(self, token: int) -> str:
        data = self._tokenizer.token_bytes(token)
        between = self._tokenizer.separator if self._started else b""
        self._started = True
        return self._decoder.decode(between + data)

    def flush(self) -> str:
        """What stayed half, shown as �, when no more ids come."""
        return self._decoder.decode(b"", final=True)


def _with_characters(text: str, tokens: list[tuple[int, tuple[int, int]]]) -> list[Span]:
    """Spans in bytes, with the characters they touch."""
    starts = list(accumulate((len(to_bytes(c)) for c in text), initial=0))  # of each character, and the end
    return [
        Span(i, (a, b), (bisect_right(starts, a) - 1, bisect_right(starts, max(a, b - 1))))
        for i, (a, b) in tokens
    ]


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
