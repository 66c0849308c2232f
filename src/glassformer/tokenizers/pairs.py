"""Character pairs with a shortlist of whole words: what was tried before byte-pair encoding ("C2").

Frequent words stay whole; every other word falls into pairs of characters. Blanks and signs stand alone:

    asinine situation   →   as in in e · situation          ("situation" is on the shortlist)
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import regex

from glassformer.tokenizers import formats as hf_format
from glassformer.tokenizers.tokenizer import END_OF_TEXT, UNKNOWN, Span, to_bytes
from glassformer.tokenizers.vocabulary import Vocabulary, is_text

WORD = r"[\p{L}\p{M}\p{Nd}\p{Pc}]"


class Pairs(Vocabulary):
    """Whole words of a shortlist, and pairs of characters for all others."""

    kind, unknown_as = "pairs", "\ufffd"
    pattern = rf"{WORD}{{1,2}}|[\s\S]"

    def __init__(
        self,
        pieces: Sequence[str],
        shortlist: Sequence[str],
        specials: Sequence[str] = (END_OF_TEXT,),
    ):
        """`pieces` are pairs and single signs; `shortlist` are the words that stay whole."""
        super().__init__([*pieces, *shortlist], specials)
        self.short = {word: len(pieces) + i for i, word in enumerate(shortlist)}
        self._word = regex.compile(rf"{WORD}+|[\s\S]")

    @classmethod
    def train(
        cls, texts: Iterable[str], vocab: int | None = None, specials: Sequence[str] = (END_OF_TEXT,)
    ) -> "Pairs":
        """All pairs and signs of the text; what `vocab` leaves free goes to the most frequent words."""
        word = regex.compile(rf"{WORD}+|[\s\S]")
        counts: Counter[str] = Counter()
        for text in texts:
            counts.update(word.findall(text))
        pairs: Counter[str] = Counter()
        for w, n in counts.items():
            for piece in regex.findall(cls.pattern, w):
                if is_text(piece):
                    pairs[piece] += n
        room = None if vocab is None else vocab - 1 - len(specials)
        pieces = sorted(pairs, key=lambda p: (-pairs[p], p))[:room]
        free = None if room is None else room - len(pieces)
        long = (w for w in counts if len(w) > 2 and is_text(w) and w != UNKNOWN)
        shortlist = sorted(long, key=lambda w: (-counts[w], w))[:free]
        return cls(sorted(pieces), sorted(shortlist), specials)

    def cut(self, text: str | bytes) -> list[int]:
        if isinstance(text, bytes):
            text = text.decode(errors="replace")
        ids: list[int] = []
        for word in self._word.findall(text):
            whole = self.short.get(word)
            ids += super().cut(word) if whole is None else [whole]
        return ids

    def spans(self, text: str) -> list[Span]:
        spans: list[Span] = []
        for match in self._word.finditer(text):
            whole = self.short.get(match[0])
            size = len(to_bytes(match[0]))
            inner = (
                [Span(whole, (0, size), (0, len(match[0])))] if whole is not None else super().spans(match[0])
            )
            at = spans[-1].bytes[1] if spans else 0
            for token, (a, b), (c, d) in inner:
                spans.append(Span(token, (at + a, at + b), (match.start() + c, match.start() + d)))
        return spans

    def to_json(self) -> dict[str, Any]:
        """A dictionary of pairs; the shortlist as added tokens that match whole words only."""
        content = super().to_json()
        content["added_tokens"] = [
            {
                "id": number,
                "content": word,
                "single_word": True,
                "lstrip": False,
                "rstrip": False,
                "normalized": False,
                "special": False,
            }
            for word, number in self.short.items()
        ] + content["added_tokens"]
        return content

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> "Pairs":
        shortlist = [t["content"] for t in content["added_tokens"] if not t["special"]]
        vocab: dict[str, int] = content["model"]["vocab"]
        whole = {*shortlist, UNKNOWN}
        pieces = sorted((p for p in vocab if p not in whole), key=vocab.__getitem__)
        return cls(pieces, shortlist, hf_format.special_names(content))
