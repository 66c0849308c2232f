"""Byte-pair encoding, from scratch: the whole algorithm in plain Python.

Text is first cut into pieces by a pattern (patterns.py: a word with its leading blank, a number, a run of
signs). Then, starting from single bytes, the most frequent pair of neighbours becomes a new token, again
and again:

    l o w   l o w   l o w e r      most frequent pair: l o  →  lo
    lo w    lo w    lo w e r       most frequent pair: lo w →  low
    low     low     low e r

Learning (`learn_merges`) gives an ordered list of merges. Encoding new text (`merge_steps`) replays it:
within each piece, the pair that was learned earliest is merged first.

The tokenizer around it is in bpe_tokenizer.py. The folder fast/ does the same as this file with compiled
loops on all cores.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from heapq import heapify, heappop, heappush
from itertools import pairwise
from random import Random

Pair = tuple[int, int]
Ranks = Mapping[Pair, tuple[int, int]]  # pair → its rank (when it was learned), the id that it becomes
BYTES = [bytes([b]) for b in range(256)]


def learn_merges(
    counts: Mapping[bytes, int],
    max_merges: int,
    min_count: int = 2,
    initial: Sequence[Pair] = (),
    entries: Sequence[bytes] = BYTES,
) -> list[Pair]:
    """The merges, most frequent pair first; among equals the pair with the smaller ids.

    1. Every distinct piece becomes a list of ids, one per byte, with the number of times it occurred.
    2. Count all neighbouring pairs, and note in which pieces each occurs.
    3. Take the most frequent pair. The heap may hold an outdated count for it: then put it back corrected.
    4. Merge it in the pieces where it occurs, and correct the counts of the pairs this makes and unmakes.

    `entries` are the single bytes in the order of their ids, `initial` pairs to merge before all others.
    """
    id_of = {entry[0]: i for i, entry in enumerate(entries)}
    words = [([id_of[b] for b in piece], n) for piece, n in counts.items()]
    count: Counter[Pair] = Counter()
    where: defaultdict[Pair, set[int]] = defaultdict(set)
    for w, (ids, n) in enumerate(words):
        for pair in pairwise(ids):
            count[pair] += n
            where[pair].add(w)
    heap = [(-n, pair) for pair, n in count.items()]
    heapify(heap)
    merges: list[Pair] = []
    while len(merges) < max_merges and (heap or len(merges) < len(initial)):
        if len(merges) < len(initial):
            pair = initial[len(merges)]
        else:
            n, pair = heappop(heap)
            if -n != count[pair]:
                if count[pair] > 0:
                    heappush(heap, (-count[pair], pair))
                continue
            if -n < max(min_count, 1):
                break
        new = 256 + len(merges)
        merges.append(pair)
        new_pairs: set[Pair] = set()
        for w in where.pop(pair, ()):
            ids, times = words[w]
            merged = replace_pair(ids, pair, new)
            for old in pairwise(ids):
                count[old] -= times
            for fresh in pairwise(merged):
                count[fresh] += times
                if new in fresh:
                    new_pairs.add(fresh)
                    where[fresh].add(w)
            words[w] = (merged, times)
        del count[pair]
        for fresh in new_pairs:
            heappush(heap, (-count[fresh], fresh))
    return merges


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


def merge_steps(ids: list[int], ranks: Ranks) -> Iterator[list[int]]:
    """The ids of a piece: single bytes first, then after each merge of its earliest-learned pair."""
    yield ids
    never = (len(ranks), -1)
    while len(ids) > 1:
        best = min(set(pairwise(ids)), key=lambda pair: ranks.get(pair, never))
        if best not in ranks:
            break
        ids = replace_pair(ids, best, ranks[best][1])
        yield ids


def merge_randomly(ids: list[int], ranks: Ranks, dropout: float, random: Random) -> list[int]:
    """BPE-dropout: at every step each possible merge is passed over with probability `dropout`."""
    ids = list(ids)
    while True:
        candidates = ((*ranks[pair], i) for i, pair in enumerate(pairwise(ids)) if pair in ranks)
        draws = [merge for merge in candidates if random.random() >= dropout]
        if not draws:
            return ids
        _, merged, i = min(draws)
        ids[i : i + 2] = [merged]


def merges_of(alphabet: str, entries: Sequence[bytes]) -> list[Pair]:
    """The merges that make each of these characters one token, in the order given."""
    id_of = {entry: i for i, entry in enumerate(entries)}
    merges: list[Pair] = []
    for character in dict.fromkeys(alphabet):
        data = character.encode(errors="surrogatepass")
        for k in range(2, len(data) + 1):
            if data[:k] not in id_of:
                merges.append((id_of[data[: k - 1]], id_of[data[k - 1 : k]]))
                id_of[data[:k]] = 255 + len(merges)
    return merges
