"""The recurrent cells, written out: one step from a hidden state to the next.

    rnn    h' = tanh(W x + U h + b)
    gru    r, z = σ(…), σ(…);  n = tanh(W x + r ⊙ (U h));  h' = (1 − z) ⊙ n + z ⊙ h
    lstm   i, f, o = σ(…), σ(…), σ(…);  g = tanh(…);  c' = f ⊙ c + i ⊙ g;  h' = o ⊙ tanh(c')

W, U and the two biases hold the gates one above the other, in the order and shapes of PyTorch's own modules,
whose fused kernels are the fast path (recurrent.py); `unroll` is its slow twin.

Letters: B batch, T positions, C input width, H hidden width, G gates.
"""

from collections.abc import Callable

import torch
from torch import Tensor

Parts = tuple[Tensor, ...]  # the state of one layer: (h), or (h, c) for the LSTM; each (B, H)
Cell = Callable[[Tensor, Parts, Tensor, Tensor, Tensor, Tensor], Parts]


def rnn(x: Tensor, state: Parts, W: Tensor, U: Tensor, b_x: Tensor, b_h: Tensor) -> Parts:
    (h,) = state
    return (torch.tanh(x @ W.T + b_x + h @ U.T + b_h),)


def gru(x: Tensor, state: Parts, W: Tensor, U: Tensor, b_x: Tensor, b_h: Tensor) -> Parts:
    (h,) = state
    xr, xz, xn = (x @ W.T + b_x).chunk(3, dim=-1)
    hr, hz, hn = (h @ U.T + b_h).chunk(3, dim=-1)
    reset, update = torch.sigmoid(xr + hr), torch.sigmoid(xz + hz)
    new = torch.tanh(xn + reset * hn)
    return ((1 - update) * new + update * h,)


def lstm(x: Tensor, state: Parts, W: Tensor, U: Tensor, b_x: Tensor, b_h: Tensor) -> Parts:
    h, c = state
    i, f, g, o = (x @ W.T + b_x + h @ U.T + b_h).chunk(4, dim=-1)
    c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
    return torch.sigmoid(o) * torch.tanh(c), c


CELLS: dict[str, tuple[Cell, int, int]] = {"rnn": (rnn, 1, 1), "gru": (gru, 3, 1), "lstm": (lstm, 4, 2)}
"""name → the cell, how many gates its matrices hold, how many tensors its state has"""


def unroll(
    cell: Cell, x: Tensor, state: Parts, W: Tensor, U: Tensor, b_x: Tensor, b_h: Tensor
) -> tuple[Tensor, Parts]:
    """The cell at each position in turn: outputs (B, T, H) and the state after the last."""
    outputs: list[Tensor] = []
    for t in range(x.shape[1]):
        state = cell(x[:, t], state, W, U, b_x, b_h)
        outputs.append(state[0])
    return torch.stack(outputs, dim=1), state
