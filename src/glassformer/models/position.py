"""How a model knows the order of its tokens. Attention by itself sees a set.

A position scheme acts in one of three places, and leaves the other two alone:

    embed    adds a vector to each token's embedding   (sinusoidal, learned)
    rotate   turns queries and keys                    (RoPE)
    bias     lowers the scores of distant keys         (ALiBi)

Where the tokens stand is a tensor of positions, (1, T) if all sequences of a batch agree, else (B, T).

Letters: B batch, H heads, T query positions, S key positions, C model width, D head width.
"""

import torch
from torch import Tensor, nn


class Position(nn.Module):
    """No position at all, and the interface of the others."""

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        """x (B, T, C), token embeddings at `positions` (1 or B, T)."""
        return x

    def rotate(self, x: Tensor, positions: Tensor) -> Tensor:
        """x (B, H, T, D), queries or keys at `positions` (1 or B, T)."""
        return x

    def bias(self, queries: Tensor, keys: Tensor) -> Tensor | None:
        """What to add to the scores, (1 or B, H, T, S), of queries at (1 or B, T) and keys at (S)."""
        return None


class Learned(Position):
    """One vector per position, a parameter like the token embedding."""

    def __init__(self, context: int, width: int):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(context, width))

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        return x + self.weight[positions]


class Sinusoidal(Position):
    """The 2017 paper's: sin and cos of the position at C/2 wavelengths from 2π to 10000·2π.

    The embeddings are multiplied by √C first, as in the paper, so that the table does not drown them.
    A buffer, not a parameter: it moves with the model to a device, but is neither trained nor saved.
    """

    table: Tensor

    def __init__(self, context: int, width: int, base: float = 10000.0):
        super().__init__()
        angle = _angles(context, width, base)
        table = torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(1)[:, :width]
        self.register_buffer("table", table.float(), persistent=False)
        self.scale = width**0.5  # of the embeddings

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        return x * self.scale + self.table[positions]


class Rotary(Position):
    """RoPE: each pair of features (i, i + D/2) is turned by an angle that grows with the position.

    A query at t and a key at s then meet at an angle that depends on t − s alone.
    """

    cos: Tensor
    sin: Tensor

    def __init__(self, context: int, head_width: int, base: float = 10000.0):
        super().__init__()
        angle = _angles(context, head_width, base)
        cos, sin = angle.cos().float(), angle.sin().float()  # (context, D/2)
        self.register_buffer("cos", torch.cat([cos, cos], dim=-1), persistent=False)  # (context, D)
        self.register_buffer("sin", torch.cat([-sin, sin], dim=-1), persistent=False)

    def rotate(self, x: Tensor, positions: Tensor) -> Tensor:
        """(left, right) to (left cos − right sin, right cos + left sin), both halves in one go."""
        cos, sin = (t[positions][:, None].to(x.dtype) for t in (self.cos, self.sin))  # (1 or B, 1, T, D)
        return x * cos + x.roll(x.shape[-1] // 2, dims=-1) * sin


class Alibi(Position):
    """ALiBi: each head subtracts its slope times the distance between query and key."""

    slopes: Tensor

    def __init__(self, heads: int):
        super().__init__()
        slopes = 2.0 ** (-8.0 * torch.arange(1, heads + 1) / heads)
        self.register_buffer("slopes", slopes, persistent=False)

    def bias(self, queries: Tensor, keys: Tensor) -> Tensor:
        distance = (queries[:, None, :, None] - keys).abs()  # (1 or B, 1, T, S)
        return -self.slopes[:, None, None] * distance


def _angles(context: int, width: int, base: float) -> Tensor:
    """The angle of every position at every frequency, (context, ⌈width/2⌉), in double precision."""
    frequency = base ** (-torch.arange(0, width, 2, dtype=torch.float64) / width)
    return torch.arange(context, dtype=torch.float64)[:, None] * frequency
