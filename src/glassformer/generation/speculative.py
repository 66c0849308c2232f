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
        guesses = self._guess([row for row in rows if row.is_plain])
        others = [row for row in rows if row not in guesses]
        if others:
            super()._step(others)
        if guesses:
            self._check(guesses)

    def _most(self, row: Row) -> int:
        """As many guesses as there is room for: in the text that was asked for, and in both contexts."""
        rooms = [row.request.tokens - row.handle.written - 1, self.guesses]
        for limit in (self.step.limit, self.draft.limit):
            if limit is not None:
                rooms.append(limit - (len(row.ids) - row.start))
        return min(rooms)

    def _guess(self, rows: list[Row]) -> dict[Row, list[int]]:
        """Tokens ahead of the texts that the small model has read by now; it reads others meanwhile."""
        budget, guesses = self.chunk, dict[Row, list[int]]()
        try:
            for row in [row for row in rows if self._most(row) > 0]:
                slot = self._drafts.get(row)
                if slot is None:
                    slot = self._drafts[row] = self.draft.open(row.ids[row.start :])
                unread = row.ids[row.start + slot.length :]
                count = min(len(unread) - 1, budget)
                if not self.draft.reserve(slot, len(unread) + self._most(row)):
                    continue
                if count:
                    self.draft.scores([Piece(slot, unread[:count], 0)])
                    budget -= count
                    self.draft.publish(slot, row.ids, row.start)
                assert row.slot is not None
                if count == len(unread) - 1 and self.step.reserve(row.slot, self._most(row) + 1):
                    guesses[row] = []
            for i in range(self.guesses):
                going = [row for row in guesses if i < self._most(row)]
                if not going:
                    break
                pieces = [Piece(self._drafts[row], [(guesses[row] or row.ids)[-1]]) for row in going]
                positions = [len(row.ids) + i for row in going]
                chosen = self.draft.choose(pieces, [row.request.sampler for row in going], positions)
                for row, token in zip(going, chosen, strict=True):
                    guesses[row].append(max(token, 0))  # one that could not be chosen is just wrong
        except Exception:  # a draft that fails is no reason for a text to
            for row in rows:
                self._drop_draft(row)
            return {}
        return guesses

    def _check(self, guesses: dict[Row, list[int]]) -> None:
        """Read all guesses at once, and keep what the large model draws itself."""
        pieces: list[Piece] = []
        for row, guessed in guesses.items():
            assert row.slot is not None
            pieces.append(Piece(row.slot, [*row.next(1), *guessed], len(guessed) + 1))
        before = [piece.slot.length for piece in pieces]
        scores = self.step.scores(pieces)
        first = 0
        for (row, guessed), piece, length in zip(guesses.items(), pieces, before, strict=True):
            count, at = len(guessed) + 1, len(row.ids)
            positions = range(at, at + count)
            own = sampling.choose(scores[first : first + count], [row.request.sampler] * count, positions)
            drawn: list[int] = own.tolist()
            first += count
            right = next((i for i, guess in enumerate(guessed) if guess != drawn[i]), len(guessed))
            self.guessed, self.right = self.guessed + len(guessed), self.right + right
            self.step.forget(piece.slot, length + 1 + right)
            draft = self._drafts[row]
            self.draft.forget(draft, min(draft.length, at - row.start + right))
            for token in drawn[: right + 1]:
                self._deliver(row, token)
                if row.handle.ending is not None or row.handle.cancelled:
                    break

    def _close(self, row: Row) -> None:
        super()._close(row)
        self._drop_draft(row)

    def _drop_draft(self, row: Row) -> None:
        if (slot := self._drafts.pop(row, None)) is not None:
            self.draft.close(slot)
