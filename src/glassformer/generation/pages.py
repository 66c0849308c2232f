"""Where keys and values lie: pages of a few positions each, handed out, shared and taken back.

A text's positions need not lie side by side: a slot has a list of pages, and position p is in page
`pages[p // size]`. So there is one pool for all texts, none needs room for its longest possible length, and
texts that begin alike share the pages of their beginning:

    1  a full page is known by the hash of its tokens and of all tokens before them
    2  a new text takes the longest chain of known pages that its own tokens lead along
    3  a page counts its users; without any it is kept for the next text that begins so, until room is needed,
       and the one that was used longest ago goes first

A page that is not full has one user, so nobody ever writes into what another one reads.
"""

from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import replace
from hashlib import blake2b

import numpy as np
import torch
from torch import Tensor

from glassformer.generation.sampling import Sampler
from glassformer.generation.step import Piece, Slot

SIZE = 16  # positions of a page


class Pages:
    """The bookkeeping of a pool: which page is free, who uses which, what is in it."""

    def __init__(self, count: int, size: int = SIZE):
        self.count, self.size = count, size
        self.users = [0] * count
        self._untouched = 0  # pages from here on were never used: they are handed out side by side
        self._free: list[int] = []  # used before, and nothing worth keeping in them
        self._known: dict[bytes, int] = {}
        self._hash_of: dict[int, bytes] = {}
        self._kept: OrderedDict[int, None] = OrderedDict()  # known pages without users, oldest first

    @property
    def available(self) -> int:
        return self.count - self._untouched + len(self._free) + len(self._kept)

    def take(self) -> int | None:
        """A page for one user; None if all are in use."""
        if self._free:
            page = self._free.pop()
        elif self._untouched < self.count:
            page = self._untouched
            self._untouched += 1
        elif self._kept:
            page, _ = self._kept.popitem(last=False)
            self._forget(page)
        else:
            return None
        self.users[page] = 1
        return page

    def share(self, page: int) -> None:
        """One user more."""
        if self.users[page] == 0:
            self._kept.pop(page)
        self.users[page] += 1

    def release(self, page: int) -> None:
        """One user less."""
        self.users[page] -= 1
        assert self.users[page] >= 0, "a page was given back twice"
        if self.users[page] == 0:
            if page in self._hash_of:
                self._kept[page] = None
            else:
                self._free.append(page)

    def publish(self, page: int, name: bytes) -> None:
        """Let others find a full page; of two with the same content, the first is kept."""
        if name not in self._known and page not in self._hash_of:
            self._known[name], self._hash_of[page] = page, name

    def find(self, name: bytes) -> int | None:
        return self._known.get(name)

    def _forget(self, page: int) -> None:
        del self._known[self._hash_of.pop(page)]


def chain(before: bytes, ids: Sequence[int]) -> bytes:
    """What a full page is known by: its tokens, and what the page before it is known by."""
    return blake2b(np.asarray(ids, np.int64).tobytes(), key=before, digest_size=16).digest()


class PagedStep(ABC):
    """The part of a step that keeps the books: for models whose memory is a list of positions."""

    reads_anew = False
    limit: int | None
    device = torch.device("cpu")

    def __init__(self, vocab: int, limit: int, pages: int, size: int = SIZE):
        self.vocab, self.limit = vocab, limit
        self.pages = Pages(pages, size)
        self.size = size

    @property
    def source_vocab(self) -> int | None:
        """Of sources, which the compiled steps have not."""
        return None

    @property
    def source_limit(self) -> int | None:
        return None

    def open(self, ids: Sequence[int], shares: bool = True) -> Slot:
        slot = Slot(shares=shares)
        if not shares:
            return slot
        name, size = b"", self.size
        for start in range(0, len(ids) - size, size):  # the last token is always read: its scores are wanted
            name = chain(name, ids[start : start + size])
            page = self.pages.find(name)
            if page is None:
                break
            self.pages.share(page)
            slot.pages.append(page)
            slot.hashes.append(name)
            slot.length += size
        return slot

    def reserve(self, slot: Slot, positions: int) -> bool:
        needed = -(-(slot.length + positions) // self.size) - len(slot.pages)
        if needed > self.pages.available:
            return False
        for _ in range(needed):
            page = self.pages.take()
            assert page is not None
            slot.pages.append(page)
        return True

    def fork(self, slot: Slot) -> Slot:
        """Full pages are shared, a page that is not is copied; raises MemoryError if there is no room."""
        full = slot.length // self.size
        other = replace(slot, pages=slot.pages[:full], hashes=slot.hashes[:full])
        for page in other.pages:
            self.pages.share(page)
        if slot.length % self.size:
            page = self.pages.take()
            if page is None:
                self.close(other)
                raise MemoryError("no page is free for another text")
            other.pages.append(page)
            self.copy_page(slot.pages[full], page)
        return other

    def forget(self, slot: Slot, length: int) -> None:
        """Pages behind the new end are given back; what was published is full and stays so."""
        keep = -(-length // self.size)
        assert length >= len(slot.hashes) * self.size, "what others may be reading cannot be cut"
        assert length % self.size == 0 or self.pages.users[slot.pages[keep - 1]] == 1, "it is written to next"
        for page in slot.pages[keep:]:
            self.pages.release(page)
        del slot.pages[keep:]
        slot.length = length

    def close(self, slot: Slot) -> None:
        for page in slot.pages:
            self.pages.release(page)
        slot.pages.clear()
        slot.hashes.clear()
        slot.length = 0

    def publish(self, slot: Slot, ids: Sequence[int], start: int = 0) -> None:
        """Let others begin with what this slot has read, which is `ids` from `start` on."""
        if not slot.shares:
            return
        for i in range(len(slot.hashes), min(slot.length, len(ids) - start) // self.size):
            first = start + i * self.size
            name = chain(slot.hashes[-1] if slot.hashes else b"", ids[first : first + self.size])
            self.pages.publish(slot.pages[i], name)
            slot.hashes.append(name)

    @abstractmethod
    def copy_page(self, source: int, target: int) -> None: ...

    @abstractmethod
    def scores(self, pieces: Sequence[Piece]) -> Tensor: ...

    @abstractmethod
    def choose(
        self, pieces: Sequence[Piece], samplers: Sequence[Sampler], positions: Sequence[int]
    ) -> list[int]: ...
