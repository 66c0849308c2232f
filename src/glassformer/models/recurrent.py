"""Recurrent models: what is known of the past is one vector, carried from position to position.

    x₁ ──► cell ──► x₂ ──► cell ──► …      one step after the other, in time linear in T
            ▲  h₁ ───────►▲  h₂ ───►

The state can be carried from one piece of a text to the next, so such a model has no limit of context;
gradients end where a piece begins (truncated back-propagation). Two directions read the sequence from both
ends, which only makes sense where all of it is there: for classifying, tagging and encoding.

Letters: B batch, T positions, C model width, H hidden width of a direction.
"""

import warnings

import torch
from torch import Tensor, nn

from glassformer.config.model import ModelConfig
from glassformer.models.attention import CrossAttention
from glassformer.models.cells import CELLS, Parts, unroll
from glassformer.models.dropout import DROPOUTS, drop
from glassformer.models.model import Body
from glassformer.models.state import Memory, refuse_ragged
from glassformer.models.tap import Tap, inside, off

FUSED = {"rnn": (nn.RNN, torch.rnn_tanh), "gru": (nn.GRU, torch.gru), "lstm": (nn.LSTM, torch.lstm)}
"""name → PyTorch's module, which holds the weights, and its kernel, which takes weights of any origin"""


class RecurrentState:
    """The hidden state of every layer, None before the first position."""

    def __init__(self, layers: int, memory: Memory | None = None):
        self.layers: list[Parts | None] = [None] * layers
        self.length, self.memory = 0, memory

    def select(self, rows: Tensor) -> None:
        self.layers = [None if parts is None else tuple(p[rows] for p in parts) for parts in self.layers]
        if self.memory is not None:
            self.memory = self.memory.select(rows)

    def state_dict(self) -> dict[str, Tensor]:
        return {f"{i}.{j}": p for i, parts in enumerate(self.layers) for j, p in enumerate(parts or ())}

    def load_state_dict(self, tensors: dict[str, Tensor]) -> None:
        for i in range(len(self.layers)):
            parts = [p for name, p in sorted(tensors.items()) if name.startswith(f"{i}.")]
            self.layers[i] = tuple(parts) or None


class Recurrence(nn.Module):
    """One layer in one direction, with a learned initial state.

    In training a share `dropout` of U, the weights from hidden state to hidden state, is left out, the same
    ones at every position of a batch (DropConnect, Merity et al. 2017). Numbers of the state itself cannot be
    left out one position after the other: what is remembered would be gone within a few of them.
    """

    may_idle = True  # the initial state has no part in a batch that goes on from another

    def __init__(self, kind: str, inputs: int, hidden: int, dropout: float = 0.0):
        super().__init__()
        self.cell, self.gates, parts = CELLS[kind]
        module, self.kernel = FUSED[kind]
        self.fused, self.dropout = module(inputs, hidden, batch_first=True), dropout
        self.start = nn.ParameterList(nn.Parameter(torch.zeros(hidden)) for _ in range(parts))
        if kind == "lstm":  # it remembers at first, until it has learned what to forget
            with torch.no_grad():
                self.fused.bias_ih_l0[hidden : 2 * hidden].fill_(1.0)

    def fused_parts(self) -> dict[Tensor, tuple[int, ...]]:
        rows = (self.fused.hidden_size,) * self.gates
        return {self.fused.weight_ih_l0: rows, self.fused.weight_hh_l0: rows}

    def begin(self, batch: int) -> Parts:
        return tuple(s.expand(batch, -1) for s in self.start)

    def weights(self) -> list[Tensor]:
        """W, U and the two biases, as a batch takes them."""
        f = self.fused
        U = drop(f.weight_hh_l0, self.dropout) if self.training else f.weight_hh_l0
        return [f.weight_ih_l0, U, f.bias_ih_l0, f.bias_hh_l0]

    def forward(self, x: Tensor, state: Parts) -> tuple[Tensor, Parts]:
        """Outputs (B, T, H) and the state after the last position, by PyTorch's fused kernel."""
        given = [p.to(x.dtype)[None].contiguous() for p in state]
        start = given if len(given) > 1 else given[0]
        with warnings.catch_warnings():  # weights of which some are left out are no longer side by side
            warnings.filterwarnings("ignore", "RNN module weights are not part")
            # With biases; one layer, without the kernel's dropout; in one direction, the batch first.
            outputs, *after = self.kernel(x, start, self.weights(), True, 1, 0.0, self.training, False, True)
        return outputs, tuple(p[0] for p in after)

    def by_formula(self, x: Tensor, state: Parts) -> tuple[Tensor, Parts]:
        """The same, cell by cell. Twin of `forward`."""
        return unroll(self.cell, x, state, *self.weights())


class RecurrentStack(Body):
    """Embedding and recurrent layers; with two directions each has half of the width.

    In the decoder of a translator, the last layer's output looks into the memory, and both are joined:
    tanh(W [context; h]). The state there starts from the mean of the memory.
    """

    compiles = False  # the fused kernels are opaque to it

    def __init__(
        self,
        config: ModelConfig,
        embedding: nn.Module,
        layers: int | None = None,
        directions: int = 1,
        cross: CrossAttention | None = None,
    ):
        super().__init__()
        self.limit, self.width = None, config.width
        self.embedding_std = config.width**-0.5
        self.embedding = embedding
        dropout = DROPOUTS[config.dropout_over]
        self.embedding_dropout = dropout(config.dropout_of("embedding"))
        self.dropout = dropout(config.dropout_of("residual"))
        hidden = config.width // directions
        self.blocks = nn.ModuleList(
            nn.ModuleList(
                Recurrence(config.family, config.width, hidden, config.recurrent_dropout)
                for _ in range(directions)
            )
            for _ in range(layers or config.layers)
        )
        self.cross = cross
        if cross is not None:
            # Large enough for first scores of some tenths. From zero, all that comes back at first is how
            # frequent each token is, the same at every position, and it drives every tanh to its end before
            # anything else is learned.
            self.unembedding_std = 4 * config.width**-0.5
            self.combine = nn.Linear(2 * config.width, config.width)
            parts = CELLS[config.family][2]
            self.bridge = nn.ModuleList(
                nn.Linear(config.width, parts * config.width) for _ in range(config.layers)
            )

    def forward(
        self,
        inputs: Tensor,
        padding_mask: Tensor | None = None,
        state: RecurrentState | None = None,
        tap: Tap = off,
        memory: Memory | None = None,
    ) -> Tensor:
        refuse_ragged(state, padding_mask)
        state = state if state is not None else self.new_state(len(inputs), memory=memory)
        x = tap("embed", self.embedding_dropout(self.embedding(inputs)))
        backwards = (
            _reversal(inputs.shape[1], padding_mask, x.device) if len(self._directions(0)) == 2 else None
        )
        for i in range(len(self.blocks)):
            forward, *backward = self._directions(i)
            out, after = forward(x, state.layers[i] or self._begin(i, len(x), state.memory))
            state.layers[i] = after
            for layer in backward:
                assert backwards is not None
                other, _ = layer(_reorder(x, backwards), layer.begin(len(x)))
                out = torch.cat([out, _reorder(other, backwards)], dim=-1)
            x = tap(f"{i}.resid", self.dropout(out))
        state.length += inputs.shape[1]
        if self.cross is not None and state.memory is not None:
            context = self.cross(x, state.memory, None, inside(tap, "cross"))
            x = torch.tanh(self.combine(torch.cat([context, x], dim=-1)))
        return tap("final", x)

    def new_state(
        self, batch: int, capacity: int | None = None, memory: Memory | None = None
    ) -> RecurrentState:
        return RecurrentState(len(self.blocks), memory)

    def _directions(self, i: int) -> list[Recurrence]:
        return [layer for layer in self.blocks[i].children() if isinstance(layer, Recurrence)]

    def _begin(self, i: int, batch: int, memory: Memory | None) -> Parts:
        if self.cross is None or memory is None:
            return self._directions(i)[0].begin(batch)
        states, padding_mask = memory.states, memory.padding_mask
        there = (
            torch.ones(states.shape[:2], device=states.device)
            if padding_mask is None
            else padding_mask.float()
        )
        weights = (there / there.sum(dim=1, keepdim=True)).to(states.dtype)
        mean = torch.einsum("bs,bsc->bc", weights, states)
        return tuple(torch.tanh(self.bridge[i](mean)).split(self.width, dim=-1))


def _reversal(T: int, padding_mask: Tensor | None, device: torch.device) -> Tensor:
    """Where each position goes when the tokens are reversed and the padding stays: (B, T) or (1, T)."""
    place = torch.arange(T, device=device)[None]
    if padding_mask is None:
        return T - 1 - place
    length = padding_mask.sum(dim=1, keepdim=True)
    return torch.where(place < length, length - 1 - place, place)


def _reorder(x: Tensor, index: Tensor) -> Tensor:
    return x.gather(1, index[..., None].expand(len(x), -1, x.shape[-1]))
