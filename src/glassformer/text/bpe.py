"""Byte-pair encoding, from scratch.

Text is first cut into pieces by a pattern (a word with its leading blank, a number, a run of signs), so that
no token reaches across words. Then, starting from single bytes, the most frequent pair of neighbours becomes
a new token, again and again:

    l o w   l o w   l o w e r      most frequent pair: l o  →  lo
    lo w    lo w    lo w e r       most frequent pair: lo w →  low
    low     low     low e r

Learning gives an ordered list of merges. Encoding new text replays it: within each piece, the pair that was
learned earliest is merged first.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from heapq import heapify, heappop, heappush
from itertools import pairwise
from typing import Any

import regex

from glassformer.errors import TokenizerError
from glassformer.text import hf_format
from glassformer.text.tokenizer import END_OF_TEXT, Tokenizer

Pair = tuple[int, int]

# How text is cut before merging. Both are written so that Python's `regex` and the engine of Hugging Face
# tokenizers agree on them.
PATTERNS = {
    "gpt4": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+",
    "gpt2": r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
}


class BPE(Tokenizer):
    """Byte-level BPE: 256 bytes, then one entry per merge, then the special tokens."""

    kind = "bpe"
    _cache_limit = 1 << 19  # pieces whose ids are remembered

    def __init__(
        self,
        entries: Sequence[bytes],
        merges: Sequence[Pair],
        pattern: str = PATTERNS["gpt4"],
        specials: Sequence[str] = (END_OF_TEXT,),
    ):
        super().__init__(entries, specials)
        id_of = {entry: i for i, entry in enumerate(self.entries)}
        self.merges = [(int(a), int(b)) for a, b in merges]
        self.pattern = pattern
        self._pattern = regex.compile(pattern)
        self._byte_id = [id_of[bytes([b])] for b in range(256)]
        # pair → (rank, id of the merged token)
        self._rank = {
            (a, b): (rank, id_of[self.entries[a] + self.entries[b]])
            for rank, (a, b) in enumerate(self.merges)
        }
        self._cache: dict[str, list[int]] = {}

    @classmethod
    def train(
        cls,
        texts: Iterable[str],
        vocab: int,
        *,
        pattern: str = "gpt4",
        specials: Sequence[str] = (END_OF_TEXT,),
        min_frequency: int = 2,
    ) -> "BPE":
        """Learn merges until the vocabulary, special tokens included, has `vocab` entries.

        `pattern` is a name in `PATTERNS` or a regular expression. Fewer entries come out when no pair is
        left that occurs `min_frequency` times.
        """
        if vocab < 256 + len(specials):
            raise TokenizerError(
                f"a byte-level vocabulary needs at least {256 + len(specials)} entries "
                f"(256 bytes and {len(specials)} special), not {vocab}"
            )
        pattern = PATTERNS.get(pattern, pattern)
        find = regex.compile(pattern)
        counts: Counter[str] = Counter()
        for text in texts:
            counts.update(find.findall(text))
        merges = learn_merges(counts, vocab - 256 - len(specials), min_frequency)
        entries = [bytes([b]) for b in range(256)]
        for a, b in merges:
            entries.append(entries[a] + entries[b])
        return cls(entries, merges, pattern, specials)

    def cut(self, text: str | bytes) -> list[int]:
        # Bytes that are no UTF-8 travel through the pattern as escaped code points and come out unharmed.
        errors = "surrogatepass"
        if isinstance(text, bytes):
            text, errors = text.decode(errors="surrogateescape"), "surrogateescape"
        ids: list[int] = []
        cache = self._cache
        for piece in self._pattern.findall(text):
            known = cache.get(piece) if errors == "surrogatepass" else None
            if known is None:
                known = self.merge(piece.encode(errors=errors))
                if errors == "surrogatepass":
                    if len(cache) >= self._cache_limit:
                        cache.clear()
                    cache[piece] = known
            ids += known
        return ids

    def merge(self, piece: bytes) -> list[int]:
        """The ids of one piece: merge the earliest-learned pair wherever it stands, until none is left."""
        ids = [self._byte_id[b] for b in piece]
        none = (len(self.merges), -1)
        while len(ids) > 1:
            pairs = set(pairwise(ids))
            best = min(pairs, key=lambda pair: self._rank.get(pair, none))
            if best not in self._rank:
                break
            ids = replace_pair(ids, best, self._rank[best][1])
        return ids

    def to_json(self) -> dict[str, Any]:
        return hf_format.byte_level(self.entries, self.merges, self.pattern, self.specials)

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> "BPE":
        specials = hf_format.special_names(content)
        vocab: dict[str, int] = content["model"]["vocab"]
        ordinary = sorted((t for t in vocab if t not in specials), key=vocab.__getitem__)
        entries = [hf_format.from_signs(token) for token in ordinary]
        id_of = {token: i for i, token in enumerate(ordinary)}
        merges = [m.split(" ") if isinstance(m, str) else m for m in content["model"]["merges"]]
        return cls(entries, [(id_of[a], id_of[b]) for a, b in merges], _pattern_of(content), specials)


def replace_pair(ids: list[int], pair: Pair, merged: int) -> list[int]:
    """Every occurrence of `pair`, from the left, replaced by `merged`: a a a → aa a."""
    out: list[int] = []
    i = 0
    while i < len(ids):
        if i + 1 < len(ids) and ids[i] == pair[0] and ids[i + 1] == pair[1]:
            out.append(merged)
            i += 2
        else:
            out.append(ids[i])
            i += 1
    return out


def learn_merges(counts: Counter[str], wanted: int, min_frequency: int = 2) -> list[Pair]:
    """The merges, most frequent pair first; among equals the pair with the smaller ids.

    1. Every distinct piece becomes a list of byte ids with the number of times it occurred.
    2. Count all neighbouring pairs, and note in which pieces each occurs.
    3. Take the most frequent pair. The heap may hold an outdated count for it: then put it back corrected.
    4. Merge it in the pieces where it occurs, and correct the counts of the pairs this makes and unmakes.
    """
    words = [(list(piece.encode(errors="surrogatepass")), n) for piece, n in counts.items()]
    count: Counter[Pair] = Counter()
    where: defaultdict[Pair, set[int]] = defaultdict(set)
    for w, (ids, n) in enumerate(words):
        for pair in pairwise(ids):
            count[pair] += n
            where[pair].add(w)
    heap = [(-n, pair) for pair, n in count.items()]
    heapify(heap)
    merges: list[Pair] = []
    while len(merges) < wanted and heap:
        n, pair = heappop(heap)
        if -n != count[pair]:
            if count[pair] > 0:
                heappush(heap, (-count[pair], pair))
            continue
        if -n < max(min_frequency, 1):
            break
        new = 256 + len(merges)
        merges.append(pair)
        changed: set[Pair] = set()
        for w in where.pop(pair):
            ids, times = words[w]
            merged = replace_pair(ids, pair, new)
            for old in pairwise(ids):
                count[old] -= times
            for fresh in pairwise(merged):
                count[fresh] += times
                if new in fresh:
                    changed.add(fresh)
                    where[fresh].add(w)
            words[w] = (merged, times)
        del count[pair]
        for fresh in changed:
            heappush(heap, (-count[fresh], fresh))
    return merges


def _pattern_of(content: dict[str, Any]) -> str:
    """The split pattern of a `tokenizer.json`; byte-level pre-tokenizers without one use GPT-2's."""
    pre = content.get("pre_tokenizer") or {}
    for step in pre.get("pretokenizers", [pre]):
        if step.get("type") == "Split" and "Regex" in step.get("pattern", {}):
            return step["pattern"]["Regex"]
        if step.get("type") == "ByteLevel" and step.get("use_regex", True):
            return PATTERNS["gpt2"]
    raise TokenizerError("this BPE tokenizer is not byte-level, or cuts text in a way that is not supported")
