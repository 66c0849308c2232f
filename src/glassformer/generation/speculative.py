"""Speculative decoding: a small model guesses some tokens ahead, the large one checks them all in one step.

The choice of a token is a function of the scores, the seed and the position (sampling.py). So the large model
need not be asked whether it *could* have drawn a guess: it draws, at every guessed position, with the random
numbers of that position, and the guesses are right as far as they are what it drew. What is written is, token
by token, what the large model writes alone with the same seed. Its distribution is the same because the text
is; only the time differs.

The small model draws its guesses with the same random numbers. Where both models agree on the probabilities
they then agree on the token, also when it is drawn: that is what makes guesses right.

    1  the small model reads what it has not read yet and draws g guesses, one after the other
    2  the large model reads the last token and the guesses as one piece, and draws after each of them
    3  its own draws are the text, up to and with the first that differs from the guess
    4  both forget what they have read behind that
"""

from glassformer.core.errors import UsageError
from glassformer.generation import sampling
from glassformer.generation.engine import CHUNK, ROWS, Engine, Row
from glassformer.generation.pages import PagedStep
from glassformer.generation.step import Piece, Slot, Step

GUESSES = 4


class SpeculativeEngine(Engine):
    """An engine with a second, smaller model of the same vocabulary.

    Texts with wishes that need to be asked about every token (penalties, forms, probabilities, taps) are
    written the ordinary way; what they become is the same either way.
    """

    def __init__(
        self, step: Step, draft: Step, *, guesses: int = GUESSES, rows: int = ROWS, chunk: int = CHUNK
    ):
        super().__init__(step, rows=rows, chunk=chunk)
        if draft.vocab != step.vocab:
            raise UsageError(
                f"a draft with a vocabulary of {draft.vocab} cannot guess for one of {step.vocab}: expected "
                "two runs with one tokenizer"
            )
        for one in (step, draft):
            if not isinstance(one, PagedStep):
                raise UsageError(
                    "guesses that were wrong must be forgotten, and a recurrent or window model cannot: "
                    "expected two transformers"
                )
        self.draft, self.guesses = draft, guesses
        self.guessed = self.right = 0  # so far
        self._drafts: dict[Row, Slot] = {}

    def _step(self, rows: list[Row]) -> None:
        fitting = [row for row in rows if row.is_plain and self._guesses_for(row) > 0]
        others = [row for row in rows if row not in fitting]
        if others:
            super()._step(others)
        for row in fitting:
            self._write_ahead(row)

    def _guesses_for(self, row: Row) -> int:
        """As many as there is room for: in the text that was asked for, and in both contexts."""
        assert row.slot is not None
        left = row.request.tokens - row.handle.written - 1
        rooms = [left, self.guesses]
        for limit in (self.step.limit, self.draft.limit):
            if limit is not None:
                rooms.append(limit - (len(row.ids) - row.start))
        return min(rooms)

    def _write_ahead(self, row: Row) -> None:
        guesses = self._guess(row, self._guesses_for(row))
        slot, sampler, at = row.slot, row.request.sampler, len(row.ids)
        assert slot is not None
        if not guesses or not self.step.reserve(slot, len(guesses) + 1):
            super()._step([row])
            return
        before = slot.length
        scores = self.step.scores([Piece(slot, [*row.next(1), *guesses], len(guesses) + 1)])
        positions = range(at, at + len(guesses) + 1)
        drawn: list[int] = sampling.choose(scores, [sampler] * len(positions), positions).tolist()
        right = next((i for i, guess in enumerate(guesses) if guess != drawn[i]), len(guesses))
        self.guessed, self.right = self.guessed + len(guesses), self.right + right
        self.step.forget(slot, before + 1 + right)
        draft = self._drafts[row]
        self.draft.forget(draft, min(draft.length, at - row.start + right))
        for token in drawn[: right + 1]:
            self._deliver(row, token)
            if row.handle.ending is not None:
                return

    def _guess(self, row: Row, count: int) -> list[int]:
        """So many tokens by the small model; none if it has no room."""
        ids = row.ids[row.start :]
        slot = self._drafts.get(row)
        if slot is None:
            slot = self._drafts[row] = self.draft.open(ids)
        unread = ids[slot.length :]
        if not self.draft.reserve(slot, len(unread) + count):
            return []
        for start in range(0, len(unread) - 1, self.chunk):
            self.draft.scores([Piece(slot, unread[start : min(start + self.chunk, len(unread) - 1)], 0)])
        guesses: list[int] = []
        token = ids[-1]
        for i in range(count):
            (token,) = self.draft.choose([Piece(slot, [token])], [row.request.sampler], [len(row.ids) + i])
            guesses.append(token)
        self.draft.publish(slot, ids)
        return guesses

    def _close(self, row: Row) -> None:
        super()._close(row)
        if (slot := self._drafts.pop(row, None)) is not None:
            self.draft.close(slot)
