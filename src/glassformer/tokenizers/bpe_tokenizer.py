"""The tokenizer of byte-pair encoding: the algorithm of bpe.py with a vocabulary, a pattern, a file format.

Where there is enough text to be worth it, the compiled loops of fast/ take over; the ids are the same
(`engine`: auto, plain or compiled).
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property, partial
from random import Random
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from glassformer.core.errors import TokenizerError
from glassformer.tokenizers import fast
from glassformer.tokenizers import formats as hf_format
from glassformer.tokenizers.bpe import BYTES, Pair, learn_merges, merge_randomly, merge_steps, merges_of
from glassformer.tokenizers.counting import (
    FORMS,
    LONG_PIECE,
    MOST_PIECES,
    UNIT,
    Engine,
    Form,
    Text,
    count_pieces,
    normalize,
    peek,
)
from glassformer.tokenizers.patterns import PATTERNS, Splitter, pattern_named
from glassformer.tokenizers.tokenizer import END_OF_TEXT, Span, Tokenizer, to_bytes

if TYPE_CHECKING:
    from glassformer.tokenizers.fast.encoder import Encoder


LONG_SAMPLE = 256  # bytes of a piece that are merged at random together


class BPE(Tokenizer):
    """Byte-level BPE: 256 bytes, then one entry per merge, then the special tokens."""

    kind = "bpe"
    engine: Engine = "auto"
    _cache_limit = 1 << 19  # pieces whose ids are remembered

    def __init__(
        self,
        entries: Sequence[bytes],
        merges: Sequence[Pair],
        pattern: str = PATTERNS["gpt4"],
        specials: Sequence[str] = (END_OF_TEXT,),
        normalization: Form = "none",
    ):
        super().__init__(entries, specials)
        id_of = {entry: i for i, entry in enumerate(self.entries)}
        self.merges = [(int(a), int(b)) for a, b in merges]
        self.splitter = Splitter(pattern)
        self.normalization: Form = normalization
        self._byte_id = [id_of[b] for b in BYTES]
        # pair → (rank, id of the merged token)
        self._rank = {
            (a, b): (rank, id_of[self.entries[a] + self.entries[b]])
            for rank, (a, b) in enumerate(self.merges)
        }
        self._check_order()
        for name in self.specials:
            if name.encode() in id_of:
                raise TokenizerError(
                    f"the special token '{name}' is an ordinary entry too: give it another name"
                )
        self._cache: dict[str, list[int]] = {}
        self._done = 0  # bytes that plain Python has encoded so far

    @classmethod
    def train(
        cls,
        texts: Iterable[Text | tuple[Text, float]],
        vocab: int,
        *,
        pattern: str = "gpt4",
        specials: Sequence[str] = (END_OF_TEXT,),
        min_frequency: int = 2,
        alphabet: str = "",
        ties: Literal["bytes", "signs"] = "bytes",
        normalization: Form = "none",
        most_pieces: int = MOST_PIECES,
        threads: int | None = None,
        engine: Engine = "auto",
        progress: Callable[[str, int], None] = lambda what, n: None,
    ) -> "BPE":
        """Learn merges until the vocabulary, special tokens included, has `vocab` entries.

        texts          strings or bytes, each by itself; or (text, weight): weight 2 is as if it came twice
        pattern        a name in `PATTERNS`, or a regular expression
        min_frequency  a pair that occurs more rarely is not merged; fewer entries come out then
        alphabet       characters that get an entry of their own before anything is learned
        ties           of equally frequent pairs the one with smaller ids comes first. Ids of single bytes
                       follow their values (`bytes`, as in rustbpe) or GPT-2's stand-ins for them (`signs`,
                       as in Hugging Face tokenizers)
        normalization  nfc, nfd, nfkc or nfkd, done before everything else; `none` loses nothing
        most_pieces    distinct pieces held in memory; beyond that the rarest are dropped (compiled engine)
        progress       called with "bytes" or "merges" and how many more are done; with "dropped" and what
                       was left out for want of memory
        """
        _check_options(texts, locals())
        least = 256 + len(specials)
        if vocab < least:
            raise TokenizerError(
                f"a byte-level vocabulary needs at least {least} entries "
                f"(256 bytes and {len(specials)} special), not {vocab}"
            )
        splitter = Splitter(pattern_named(pattern))
        entries = sorted(BYTES, key=hf_format.to_signs) if ties == "signs" else list(BYTES)
        initial = merges_of(alphabet, entries)
        counts = count_pieces(
            texts, splitter, normalization, most_pieces, threads, engine, partial(progress, "bytes")
        )
        max_merges = vocab - least
        if isinstance(counts, dict):
            merges = learn_merges(counts, max_merges, min_frequency * UNIT, initial, entries)
        else:
            from glassformer.tokenizers.fast.learner import learn

            progress("dropped", counts.dropped // UNIT)
            merges = learn(
                counts, entries, max_merges, min_frequency * UNIT, initial, lambda n: progress("merges", n)
            )
        for a, b in merges:
            entries.append(entries[a] + entries[b])
        return cls(entries, merges, splitter.pattern, specials, normalization)

    @property
    def pattern(self) -> str:
        """The regular expression that cuts text before anything is merged."""
        return self.splitter.pattern

    def history(self, piece: Text) -> list[list[int]]:
        """How one piece is put together: its single bytes, then its ids after each merge."""
        return list(merge_steps(self._single(to_bytes(piece)), self._rank))

    def histories(self, text: Text) -> list[list[list[int]]]:
        """The same for each piece of a text."""
        pieces = self.splitter.pieces(to_bytes(normalize(text, self.normalization)))
        return [self.history(piece.encode(errors="surrogateescape")) for piece in pieces]

    def cut(self, text: Text) -> list[int]:
        text = normalize(text, self.normalization)
        if self._is_compiled(len(text)):
            return self._fast.encode_list(to_bytes(text))
        return self._plain(text)

    def _plain(self, text: Text) -> list[int]:
        ids: list[int] = []
        cache = self._cache
        for piece in self.splitter.pieces(to_bytes(text)):
            piece_ids = cache.get(piece)
            if piece_ids is None:
                if len(piece) > LONG_PIECE and self.engine == "auto" and self.splitter.automaton is not None:
                    return self._fast.encode_list(to_bytes(text))
                if len(cache) >= self._cache_limit:
                    cache.clear()
                steps = merge_steps(self._single(piece.encode(errors="surrogateescape")), self._rank)
                piece_ids = cache[piece] = deque(steps, maxlen=1)[0]
            ids += piece_ids
        return ids

    def _single(self, data: bytes) -> list[int]:
        return [self._byte_id[b] for b in data]

    def sample(self, text: str, dropout: float, seed: int | Random | None = None) -> list[int]:
        """A random way to cut (BPE-dropout), for training: merges are passed over with this probability."""
        if not 0 <= dropout <= 1:
            raise TokenizerError(f"dropout: expected a probability from 0 to 1, not {dropout}")
        random = seed if isinstance(seed, Random) else Random(seed)
        ids: list[int] = []
        for piece in self.splitter.pieces(to_bytes(normalize(text, self.normalization))):
            single = self._single(piece.encode(errors="surrogateescape"))
            size = len(single) if dropout == 0 else LONG_SAMPLE
            for start in range(0, len(single), size or 1):
                ids += merge_randomly(single[start : start + size], self._rank, dropout, random)
        return ids

    def array(self, text: Text, threads: int | None = None) -> np.ndarray:
        text = normalize(text, self.normalization)
        if self._is_compiled(len(text)):
            return self._fast.encode(to_bytes(text), threads)
        return np.array(self._plain(text), np.int32)

    def arrays(self, texts: Iterable[Text], threads: int | None = None) -> Iterator[np.ndarray]:
        many, texts = peek(texts, len, self.engine)
        if many and self.splitter.automaton is not None:
            return self._fast.stream((to_bytes(normalize(t, self.normalization)) for t in texts), threads)
        return super().arrays(texts, threads)

    def spans(self, text: str) -> list[Span]:
        return super().spans(str(normalize(text, self.normalization)))

    def _is_compiled(self, size: int) -> bool:
        """Whether the next text goes to the compiled loops: it is long, or many have come before it."""
        self._done += size
        enough = self.engine == "compiled" or fast.worthwhile(size) or fast.worthwhile_to_load(self._done)
        return self.engine != "plain" and enough and self.splitter.automaton is not None

    @cached_property
    def _fast(self) -> "Encoder":
        from glassformer.tokenizers.fast.encoder import Encoder

        merged = [self._rank[pair][1] for pair in self.merges]
        return Encoder(self.splitter, self.merges, merged, self._byte_id)

    def _check_order(self) -> None:
        """A merge may only use what earlier ones have made; then "earliest first" has one meaning."""
        rank_of = {merged: rank for rank, merged in self._rank.values()}
        for (a, b), (rank, _) in self._rank.items():
            if max(rank_of.get(a, -1), rank_of.get(b, -1)) >= rank:
                raise TokenizerError(
                    f"merge {rank + 1}, {self.entries[a]!r} with {self.entries[b]!r}, uses an entry that "
                    "only a later merge makes: these merges are not in the order in which they were learned"
                )

    def to_json(self) -> dict[str, Any]:
        return hf_format.byte_level(
            self.entries, self.merges, self.pattern, self.specials, self.normalization
        )

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> "BPE":
        specials = hf_format.special_names(content)
        vocab: dict[str, int] = content["model"]["vocab"]
        ordinary = sorted((t for t in vocab if t not in specials), key=vocab.__getitem__)
        entries = [hf_format.from_signs(token) for token in ordinary]
        id_of = {token: i for i, token in enumerate(ordinary)}
        merges = [m.split(" ") if isinstance(m, str) else m for m in content["model"]["merges"]]
        pairs = [(id_of[a], id_of[b]) for a, b in merges]
        return cls(entries, pairs, hf_format.pattern_of(content), specials, hf_format.normal_form(content))


def _check_options(texts: object, options: dict[str, Any]) -> None:
    """One message that names the option, what it was and what it may be."""
    if isinstance(texts, str | bytes):
        raise TokenizerError("texts: expected several, in a list for example, not one string: give [text]")

    def whole(value: object, least: int) -> bool:
        return isinstance(value, int) and value >= least

    threads, specials = options["threads"], options["specials"]
    rules: dict[str, tuple[bool, str]] = {
        "vocab": (whole(options["vocab"], 1), "a whole number"),
        "min_frequency": (whole(options["min_frequency"], 1), "a whole number from 1 on"),
        "most_pieces": (whole(options["most_pieces"], 1), "a whole number from 1 on"),
        "threads": (threads is None or whole(threads, 1), "a whole number from 1 on, or None"),
        "pattern": (isinstance(options["pattern"], str), "a name or a regular expression"),
        "alphabet": (isinstance(options["alphabet"], str), "a string of characters"),
        "specials": (isinstance(specials, Sequence) and not isinstance(specials, str), "a list of names"),
        "ties": (options["ties"] in ("bytes", "signs"), "bytes or signs"),
        "engine": (options["engine"] in ("auto", "plain", "compiled"), "auto, plain or compiled"),
        "normalization": (options["normalization"] in FORMS, ", ".join(FORMS)),
    }
    for name, (is_valid, expected) in rules.items():
        if not is_valid:
            raise TokenizerError(f"{name}: expected {expected}, not {options[name]!r}")
