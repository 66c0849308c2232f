"""Language modelling: at every position, the token that comes next (teacher forcing).

Models with a limit of context learn from windows in random order. Models without one read contiguous streams
and carry their state from batch to batch; gradients end where a batch begins (truncated back-propagation).

Letters: B batch, T positions, V vocabulary.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from glassformer.core.errors import UsageError
from glassformer.data.batches import Streams, windows_of
from glassformer.data.shards import Blend, Tokens
from glassformer.models.model import LanguageModel
from glassformer.models.state import Carried
from glassformer.models.tap import Tap, off
from glassformer.objectives.loss import calm_loss, summed_loss
from glassformer.objectives.objective import Batch, Stateless


def language_modelling(
    model: LanguageModel,
    tokens: Tokens,
    context: int,
    rows: int,
    seed: int,
    penalties: tuple[float, float] = (0.0, 0.0),
) -> "LanguageModelling | StreamModelling":
    """The objective in the form that suits a model; `rows` is the number of sequences in a batch, `penalties`
    are for models that read streams."""
    if model.limit is not None:
        return LanguageModelling(tokens, context, seed)
    if isinstance(tokens, Blend):
        raise UsageError(
            "data.mix: this model reads its text as streams that go on from batch to batch, and they cannot "
            "be mixed. Choose model.family transformer or window, or put the sources into one folder."
        )
    return StreamModelling(model, tokens, context, rows, seed, penalties)


class NextToken(Stateless):
    """What both forms share: every position has a token to get right."""

    name = "language"

    def __init__(self, tokens: Tokens):
        self.bytes_per_target: float | None = tokens.bytes_per_token

    def targets(self, batch: Batch) -> int:
        """How many predictions the loss of a batch is a sum of."""
        return batch["targets"].numel()

    def tokens(self, batch: Batch) -> int:
        """How many tokens the model reads in a batch."""
        return batch["inputs"].numel()


class LanguageModelling(NextToken):
    """Next tokens, in windows of `context` tokens that are drawn anew in every epoch."""

    def __init__(self, tokens: Tokens, context: int, seed: int):
        super().__init__(tokens)
        self.windows = windows_of(tokens, context, seed)

    def batch(self, first: int, count: int) -> Batch:
        """The examples from number `first` on, in the order that the seed gives."""
        ids = torch.from_numpy(self.windows.read(first, count))
        return {"inputs": ids[:, :-1], "targets": ids[:, 1:]}

    def loss(
        self, model: Callable[..., Tensor], batch: Batch, smoothing: float = 0.0, tap: Tap = off
    ) -> Tensor:
        """The sum of the losses of all targets, in nats."""
        targets = (batch["targets"], smoothing)
        return model(batch["inputs"], tap=tap, readout=summed_loss, readout_args=targets)


class StreamModelling(NextToken):
    """The same on contiguous streams. A batch is handed over in one piece or in equal parts, of which each
    goes on from the state of its own streams; a break may change how many parts there are.
    """

    def __init__(
        self,
        model: LanguageModel,
        tokens: Tokens,
        context: int,
        rows: int,
        seed: int,
        penalties: tuple[float, float] = (0.0, 0.0),
    ):
        """`model` is asked for empty states only. `penalties`: on how large the last vectors are, and on how
        much they change from one position to the next (Merity, McCann and Socher 2017)."""
        super().__init__(tokens)
        self.penalties = penalties
        self.new_state = model.new_state
        self.streams = Streams(tokens, context, rows, seed)
        self._kept: dict[int, dict[str, Tensor]] = {}  # the state of a part, by its first stream
        self._taken_up: dict[str, Tensor] = {}  # the state of all streams, after a break

    def batch(self, first: int, count: int) -> Batch:
        ids = torch.from_numpy(self.streams.read(first, count))
        fresh = torch.tensor(self.streams.fresh(first))
        row = torch.tensor(first % self.streams.rows)
        return {"inputs": ids[:, :-1], "targets": ids[:, 1:], "fresh": fresh, "row": row}

    def loss(
        self, model: Callable[..., Tensor], batch: Batch, smoothing: float = 0.0, tap: Tap = off
    ) -> Tensor:
        row = int(batch["row"])
        state = self._state(row, len(batch["inputs"]), bool(batch["fresh"]))
        readout, args = summed_loss, (batch["targets"], smoothing)
        if any(self.penalties):
            readout, args = calm_loss, (*args, *self.penalties)
        loss = model(batch["inputs"], state=state, tap=tap, readout=readout, readout_args=args)
        self._keep(row, state)
        return loss

    def state_dict(self) -> dict[str, Tensor]:
        return {
            f"row {row}/{name}": tensor for row, kept in self._kept.items() for name, tensor in kept.items()
        }

    def load_state_dict(self, tensors: dict[str, Tensor]) -> None:
        self._kept = {}
        parts: dict[str, dict[int, Tensor]] = {}
        for key, tensor in tensors.items():
            place, _, name = key.partition("/")
            # Before there were rows, the parts of a batch were numbered.
            row = int(place[4:]) if place.startswith("row ") else int(place) * len(tensor)
            parts.setdefault(name, {})[row] = tensor
        self._taken_up = {name: torch.cat([p[row] for row in sorted(p)]) for name, p in parts.items()}

    def _state(self, row: int, count: int, fresh: bool) -> Carried:
        """The state of streams row … row+count−1."""
        state = self.new_state(count)
        assert isinstance(state, Carried)
        if fresh:
            return state
        if row in self._kept:
            state.load_state_dict({name: tensor.clone() for name, tensor in self._kept[row].items()})
            return state
        if self._taken_up:
            state.load_state_dict(
                {name: tensor[row : row + count].clone() for name, tensor in self._taken_up.items()}
            )
        return state

    @torch.no_grad()
    def _keep(self, row: int, state: Carried) -> None:
        """Where it lies stays the same, so that a step that is recorded finds it there."""
        kept = self._kept.setdefault(row, {})
        for name, tensor in state.state_dict().items():
            place = kept.get(name)
            if place is None or place.shape != tensor.shape or place.dtype != tensor.dtype:
                kept[name] = tensor.detach().clone()
            else:
                place.copy_(tensor)
