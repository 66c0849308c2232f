"""The engine: many texts at once, one step after the other. Handles ids, never text.

A turn of its loop:

    1  admit    waiting requests get a slot, as long as there are rows and room for their keys
    2  read     prompts, all but their last token, in chunks, so that nobody waits long for a long one
    3  write    one step for all texts that have read everything but one token: each gets its next token
    4  retire   what has ended, was cancelled or went wrong leaves; its room is free for the next

Requests join and leave between steps. What a text becomes does not depend on its neighbours, nor on the turn
in which it came: its random numbers are functions of its seed and of positions (noise.py). A text whose
context is full drops its older half and goes on from the rest, or ends (`Request.slides`).

When there is no room for one position more, the text that came last gives its room back and waits; it goes on
later by reading what it has written so far, to the same end.

Letters: R rows, V vocabulary.
"""

import threading
from collections import deque
from collections.abc import Sequence

import torch
from torch import Tensor

from glassformer.generation import sampling
from glassformer.generation.plain import start_of
from glassformer.generation.request import (
    Choice,
    Ending,
    Handle,
    Request,
    Written,
    check_request,
    no_numbers,
    no_room,
    written,
)
from glassformer.generation.sampling import Said
from glassformer.generation.step import Piece, Slot, Step
from glassformer.models.tap import Tap, off

ROWS = 64  # texts that are written at once
CHUNK, SHORT = 512, 64  # tokens of prompts that are read between two steps; while others are being written


class Row:
    """A text that is being read or written."""

    def __init__(self, handle: Handle):
        self.handle, self.request = handle, handle.request
        self.ids = list(handle.request.ids)
        self.slot: Slot | None = None
        self.start = 0  # the token at the slot's first position
        self.tap: Tap = off
        self.said: Said | None = None
        if self.request.sampler.weighs:
            self.said = Said(frozenset(self.ids))
        self.scored: list[Written] = []  # tokens of the prompt, where they are wanted
        self.scores_prompt = self.request.scores_prompt  # until they have been told
        request = self.request
        special = (self.said, request.constraint, request.new_tap, request.likeliest, request.on_choice)
        self.is_plain = not self.request.forced and all(wish is None for wish in special)

    @property
    def unread(self) -> int:
        assert self.slot is not None
        return len(self.ids) - self.start - self.slot.length

    def next(self, count: int) -> list[int]:
        """The next tokens to read."""
        assert self.slot is not None
        at = self.start + self.slot.length
        return self.ids[at : at + count]


class Engine:
    """Texts from one model, for any number of threads: whoever turns it moves all of them on."""

    def __init__(self, step: Step, *, rows: int = ROWS, chunk: int = CHUNK):
        self.step, self.rows, self.chunk = step, rows, chunk
        self.running: list[Row] = []
        self.waiting: deque[Row] = deque()
        self._inbox: deque[Row] = deque()  # what other threads have brought
        self._came = threading.Event()
        self._turning = threading.RLock()

    def __len__(self) -> int:
        """Texts that are here: written, waiting, just brought."""
        return len(self.running) + len(self.waiting) + len(self._inbox)

    def submit(self, request: Request) -> Handle:
        check_request(request, self.step)
        handle = Handle(request)
        self._inbox.append(Row(handle))
        self._came.set()
        return handle

    def write(self, request: Request) -> Handle:
        """Write one text, here and now."""
        handle = self.submit(request)
        while handle.ending is None:
            self.turn()
        if handle.error is not None:
            raise handle.error
        return handle

    def wait(self, seconds: float) -> None:
        """Until a request comes, or so long."""
        self._came.wait(seconds)

    def turn(self) -> bool:
        """One step; whether there is more to do."""
        with self._turning:
            self._came.clear()
            while self._inbox:
                self.waiting.append(self._inbox.popleft())
            self._drop_cancelled()
            self._admit()
            self._read()
            self._write()
            return len(self) > 0

    def end_all(self, error: Exception | None = None) -> None:
        """End everything that is there, for good."""
        with self._turning:
            while self._inbox:
                self.waiting.append(self._inbox.popleft())
            for row in [*self.running, *self.waiting]:
                self._end(row, Ending.CANCELLED if error is None else Ending.FAILED, error)

    # 1 admit

    def _drop_cancelled(self) -> None:
        for row in [row for row in (*self.running, *self.waiting) if row.handle.cancelled]:
            self._end(row, Ending.CANCELLED)

    def _admit(self) -> None:
        for row in list(self.waiting):
            if len(self.running) >= self.rows:
                return
            if self._is_read_by_another(row):
                continue
            try:
                self._open(row)
            except Exception as error:  # a tap that cannot be made, a step that cannot be opened
                self._end(row, Ending.FAILED, error)
            if row.slot is None:
                continue
            if not self.step.reserve(row.slot, row.unread):
                self._close(row)
                if self.running:
                    return
                self._end(row, Ending.FAILED, no_room())
                continue
            self.waiting.remove(row)
            self.running.append(row)
            if row.handle.written == 0:
                row.handle.shared = row.slot.length

    def _is_read_by_another(self, row: Row) -> bool:
        """Whether the beginning of this text is just being read for another: that is worth the wait."""
        return any(
            other.slot is not None
            and other.unread > 1
            and other.slot.shares
            and _shares(row.request)
            and other.start == 0
            and _common(row.ids, other.ids) >= other.slot.length + self.step.size
            for other in self.running
        )

    def _open(self, row: Row) -> None:
        """A slot for a text, from where it stands; one that is full slides, or ends."""
        beyond = start_of(len(row.ids) - row.start, self.step.limit)
        if beyond and not row.request.slides:
            self._end(row, Ending.FULL)
            return
        row.start += beyond
        row.slot, row.scored = self.step.open(row.ids[row.start :], _shares(row.request)), []
        row.slot.source = row.request.source
        if row.request.new_tap is not None:
            row.tap = row.request.new_tap(row.start)

    def _piece(self, row: Row, count: int, scored: int) -> Piece:
        """The next tokens of a text."""
        assert row.slot is not None
        if self.step.reads_anew and row.request.new_tap is not None:
            row.tap = row.request.new_tap(row.start)
        return Piece(row.slot, row.next(count), scored, row.tap)

    # 2 read

    def _read(self) -> None:
        """What prompts there are, as far as one turn goes; whoever came first is served first."""
        others = any(row.slot is not None and row.unread == 1 and row.handle.written for row in self.running)
        budget = min(self.chunk, SHORT) if others else self.chunk
        rows, counts = list[Row](), list[int]()
        for row in [row for row in self.running if row.slot is not None and row.unread > 1]:
            if budget <= 0:
                break
            rows.append(row)
            counts.append(min(row.unread - 1, budget))
            budget -= counts[-1]
        if rows:
            self._read_chunks(rows, counts)

    def _read_chunks(self, rows: list[Row], counts: list[int]) -> None:
        """So many tokens of each prompt, together; if that goes wrong, one by one, so that only those end
        that it goes wrong for. Whoever may have been read by then is read again from its start.
        """
        starts = [row.slot.length for row in rows if row.slot is not None]
        wanted = [count if row.scores_prompt else 0 for row, count in zip(rows, counts, strict=True)]
        try:
            pieces = [self._piece(*piece) for piece in zip(rows, counts, wanted, strict=True)]
            scores = self.step.scores(pieces).split(wanted)
        except Exception as error:
            if len(rows) == 1:
                self._end(rows[0], Ending.FAILED, error)
                return
            for row, count, start in zip(rows, counts, starts, strict=True):
                untouched = row.slot is not None and row.slot.length == start
                if (untouched or self._reopen(row)) and row.unread > 1:
                    self._read_chunks([row], [min(row.unread - 1, count)])
            return
        for row, told in zip(rows, scores, strict=True):
            assert row.slot is not None
            try:
                if len(told):
                    self._score(row, told)
            except Exception as error:
                self._end(row, Ending.FAILED, error)
                continue
            self.step.publish(row.slot, row.ids, row.start)
            if row.scores_prompt and row.unread == 1:
                self._tell_prompt(row)

    def _score(self, row: Row, scores: Tensor) -> None:
        assert row.slot is not None
        end = row.start + row.slot.length + 1
        row.scored += written(scores, row.ids[end - len(scores) : end], row.request.likeliest or 0)

    def _tell_prompt(self, row: Row) -> None:
        row.scores_prompt = False
        try:
            row.request.on_prompt([Written(row.ids[0]), *row.scored])
        except Exception as error:
            self._end(row, Ending.FAILED, error)
            return
        if row.request.tokens == 0:
            self._end(row, Ending.LENGTH)

    # 3 write

    def _write(self) -> None:
        for row in [row for row in self.running if row.scores_prompt and row.slot and row.unread == 1]:
            self._tell_prompt(row)  # a prompt of one token: nothing stands before it
        ready = [row for row in self.running if row.slot is not None and row.unread == 1]
        for row in ready:
            if row.slot is not None:  # it may have had to make room for another
                try:
                    self._make_room(row)
                except Exception as error:
                    self._end(row, Ending.FAILED, error)
        rows = [row for row in ready if row.slot is not None and row.unread == 1]
        if not rows:
            return
        try:
            self._step(rows)
        except Exception as error:
            if len(rows) == 1:
                self._end(rows[0], Ending.FAILED, error)
            else:
                self._one_by_one(rows)

    def _make_room(self, row: Row, positions: int = 1) -> None:
        """For so many positions more, if need be after sliding, or at the cost of who came last."""
        assert row.slot is not None
        if self.step.limit is not None and row.slot.length >= self.step.limit:
            self._close(row)
            self._open(row)  # it reads its newer half from the next turn on
            positions = row.unread if row.slot is not None else 0
        while row.slot is not None and not self.step.reserve(row.slot, positions):
            last = self.running[-1]
            if len(self.running) == 1:
                self._end(row, Ending.FAILED, no_room())
                return
            self._close(last)
            self.running.remove(last)
            self.waiting.appendleft(last)

    def _step(self, rows: list[Row]) -> None:
        pieces = [self._piece(row, 1, 1) for row in rows]
        positions = [len(row.ids) for row in rows]
        samplers = [row.request.sampler for row in rows]
        if all(row.is_plain for row in rows):
            chosen = self.step.choose(pieces, samplers, positions)
            for row, token in zip(rows, chosen, strict=True):
                self._deliver(row, token)
            return
        raw = self.step.scores(pieces)
        self._choose(rows, raw, samplers, positions)

    def _choose(
        self, rows: list[Row], raw: Tensor, samplers: list[sampling.Sampler], positions: list[int]
    ) -> None:
        """Rows with wishes of their own: each row's scores are weighed and limited, then all are drawn."""
        weighed, failed = raw.float().clone(), list[Row]()
        for i, row in enumerate(rows):
            try:
                if row.said is not None:
                    weighed[i] = sampling.weigh(raw[i], row.request.sampler, row.said)
                constraint = row.request.constraint
                if constraint is not None and (allowed := constraint.allowed()) is not None:
                    weighed[i].masked_fill_(~torch.from_numpy(allowed).to(raw.device), float("-inf"))
            except Exception as error:  # of one text alone
                self._end(row, Ending.FAILED, error)
                failed.append(row)
        tokens = sampling.choose(weighed, samplers, positions).tolist()
        for i, row in enumerate(rows):
            done = row.handle.written
            tokens[i] = row.request.forced[done] if done < len(row.request.forced) else tokens[i]
        told = _tell(rows, raw, tokens)
        for i, (row, token) in enumerate(zip(rows, tokens, strict=True)):
            if row in failed:
                continue
            try:
                if row.request.on_choice is not None and token >= 0:
                    row.request.on_choice(Choice(raw[i], weighed[i], positions[i], token))
            except Exception as error:
                self._end(row, Ending.FAILED, error)
                continue
            self._deliver(row, token, told.get(i))

    def _one_by_one(self, rows: list[Row]) -> None:
        """After a step that went wrong: only the text it went wrong for is ended."""
        for row in [row for row in rows if row.handle.ending is None]:
            if not self._reopen(row):
                continue
            try:
                if row.unread > 1:
                    self.step.scores([self._piece(row, row.unread - 1, 0)])
                self._step([row])
            except Exception as error:
                self._end(row, Ending.FAILED, error)

    def _reopen(self, row: Row) -> bool:
        """After a step that went wrong: what of it has reached a slot is not known, so that is given back."""
        if row.handle.ending is not None:
            return False
        try:
            self._close(row)
            self._open(row)
            if row.slot is not None and not self.step.reserve(row.slot, row.unread):
                raise no_room()
        except Exception as error:
            self._end(row, Ending.FAILED, error)
        return row.slot is not None

    # 4 retire

    def _deliver(self, row: Row, token: int, told: Written | None = None) -> None:
        """One more token of a text, and whether it goes on."""
        request, handle = row.request, row.handle
        assert row.slot is not None
        if token < 0:
            self._end(row, Ending.FAILED, no_numbers())
            return
        row.ids.append(token)
        handle.written += 1
        if row.said is not None:
            row.said.written[token] += 1
        self.step.publish(row.slot, row.ids, row.start)
        try:
            goes_on = request.on_token(told or Written(token)) is not False
            if request.constraint is not None:
                goes_on = request.constraint.accept(token) and goes_on
        except Exception as error:
            self._end(row, Ending.FAILED, error)
            return
        if token == request.end:
            self._end(row, Ending.MARK)
        elif not goes_on:
            self._end(row, Ending.TOLD)
        elif handle.written >= request.tokens:
            self._end(row, Ending.LENGTH)

    def _close(self, row: Row) -> None:
        if row.slot is not None:
            self.step.close(row.slot)
            row.slot = None

    def _end(self, row: Row, ending: Ending, error: Exception | None = None) -> None:
        """Once and for all; what its listener makes of it is nobody else's trouble."""
        if row.handle.ending is not None:
            return
        self._close(row)
        if row in self.running:
            self.running.remove(row)
        if row in self.waiting:
            self.waiting.remove(row)
        row.handle.error = error
        row.handle.ending = ending
        try:
            row.request.on_end(row.handle)
        except Exception as raised:
            row.handle.error = row.handle.error or raised


def _tell(rows: list[Row], raw: Tensor, tokens: list[int]) -> dict[int, Written]:
    """How likely each token was, of the rows that want to know: those that want as much in one go."""
    told = dict[int, Written]()
    wanted = [row.request.likeliest for row in rows]
    for likeliest in {count for count in wanted if count is not None}:
        some = [i for i, token in enumerate(tokens) if wanted[i] == likeliest and token >= 0]
        if some:
            found = written(raw[some], [tokens[i] for i in some], likeliest)
            told |= dict(zip(some, found, strict=True))
    return told


def _shares(request: Request) -> bool:
    """Whether a text may begin with what was read for others: not if its prompt is to be seen or changed, nor
    beside a source, on which everything depends."""
    return request.new_tap is None and not request.scores_prompt and request.source is None


def _common(one: Sequence[int], other: Sequence[int]) -> int:
    """How many tokens two texts have in common from the first on."""
    return next(
        (i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other))
    )
