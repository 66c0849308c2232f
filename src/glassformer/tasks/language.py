"""Language modelling: at every position, the token that comes next (teacher forcing).

Models with a limit of context learn from windows in random order. Models without one read contiguous streams
and carry their state from batch to batch; gradients end where a batch begins (truncated back-propagation).

Letters: B batch, T positions, V vocabulary.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from glassformer.models.cache import Carried
from glassformer.models.model import LanguageModel
from glassformer.models.tap import Tap, off
from glassformer.tasks.task import Batch, Stateless, cross_entropy
from glassformer.text.batches import Streams, Windows
from glassformer.text.shards import Tokens


def language_modelling(
    model: LanguageModel, tokens: Tokens, context: int, rows: int, seed: int
) -> "LanguageModelling | StreamModelling":
    """The task in the form that suits a model; `rows` is the number of sequences in a batch."""
    if model.limit is not None:
        return LanguageModelling(tokens, context, seed)
    return StreamModelling(model, tokens, context, rows, seed)


class NextToken(Stateless):
    """What both forms share: every position has a token to get right."""

    name = "language"

    def __init__(self, tokens: Tokens):
        self.bytes_per_target: float | None = tokens.bytes / max(1, len(tokens))

    def targets(self, batch: Batch) -> int:
        return batch["targets"].numel()

    def tokens(self, batch: Batch) -> int:
        return batch["inputs"].numel()


class LanguageModelling(NextToken):
    def __init__(self, tokens: Tokens, context: int, seed: int):
        super().__init__(tokens)
        self.windows = Windows(tokens, context, seed)

    def batch(self, first: int, count: int) -> Batch:
        ids = torch.from_numpy(self.windows.read(first, count))
        return {"inputs": ids[:, :-1], "targets": ids[:, 1:]}

    def loss(
        self, model: Callable[..., Tensor], batch: Batch, smoothing: float = 0.0, tap: Tap = off
    ) -> Tensor:
        return cross_entropy(model(batch["inputs"], tap=tap), batch["targets"], smoothing)


class StreamModelling(NextToken):
    """The same on contiguous streams. A batch is handed over in one piece or in equal parts, in order."""

    def __init__(self, model: LanguageModel, tokens: Tokens, context: int, rows: int, seed: int):
        """`model` is asked for empty states only."""
        super().__init__(tokens)
        self.new_state = model.new_state
        self.streams = Streams(tokens, context, rows, seed)
        self._states: dict[int, Carried] = {}  # by the part of the batch
        self._turn = 0

    def batch(self, first: int, count: int) -> Batch:
        ids = torch.from_numpy(self.streams.read(first, count))
        fresh = torch.tensor(self.streams.fresh(first))
        return {"inputs": ids[:, :-1], "targets": ids[:, 1:], "fresh": fresh}

    def loss(
        self, model: Callable[..., Tensor], batch: Batch, smoothing: float = 0.0, tap: Tap = off
    ) -> Tensor:
        rows = len(batch["inputs"])
        state = self._states.get(self._turn)
        if state is None or bool(batch["fresh"]):
            state = self._empty(rows)
        state.detach()
        loss = cross_entropy(model(batch["inputs"], state=state, tap=tap), batch["targets"], smoothing)
        self._states[self._turn] = state
        self._turn = (self._turn + 1) % max(1, self.streams.rows // rows)
        return loss

    def carried(self) -> dict[str, Tensor]:
        return {
            f"{turn}/{name}": tensor
            for turn, state in self._states.items()
            for name, tensor in state.tensors().items()
        }

    def carry_on(self, tensors: dict[str, Tensor]) -> None:
        self._turn, self._states = 0, {}
        for turn in sorted({int(name.partition("/")[0]) for name in tensors}):
            own = {n.partition("/")[2]: t for n, t in tensors.items() if n.startswith(f"{turn}/")}
            self._states[turn] = self._empty(len(next(iter(own.values()))))
            self._states[turn].load(own)

    def _empty(self, rows: int) -> Carried:
        state = self.new_state(rows)
        assert isinstance(state, Carried)
        return state
