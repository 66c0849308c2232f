"""The ladder to attention: each rung can be trained in place of the next, to see what the next one adds.

    similarity   A = softmax(x xᵀ)           out = A x           nothing to learn: a token looks at its likes
    projected    A = softmax(Ux (Ux)ᵀ)       out = A x           which features the likeness is about
    query-key    A = softmax(U_q x (U_k x)ᵀ) out = A x           looking becomes directed: A is not symmetric
    full         the same                    out = A x U_vᵀ U_oᵀ what is passed on is chosen too

and beside them one that does not look at its input at all:

    distance     A_ts = a_(t−s)              a Toeplitz matrix: a convolution, which attention generalises

All scores are divided by √D. With several heads, the lower rungs give each head its share of x as values.
Letters: B batch, T query positions, S key positions, C model width, H heads, D head width.
"""

import torch
from torch import Tensor, nn

from glassformer.models.attention import Mixer, join_heads, split_heads
from glassformer.models.position import Position


class Similarity(Mixer):
    """Tokens look at the tokens they resemble."""

    def __init__(self, width: int, heads: int, *, position: Position, dropout: float = 0.0):
        super().__init__()
        self.heads, self.position, self.dropout = heads, position, dropout
        self.widths = width, width

    def project(self, x: Tensor, positions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x = split_heads(x, self.heads)
        looking = self.position.rotate(x, positions)
        return looking, looking, x

    def read_out(self, z: Tensor) -> Tensor:
        return join_heads(z)


class Projected(Similarity):
    """Likeness in a space of features that is learned."""

    def __init__(self, width: int, heads: int, head_width: int, *, position: Position, dropout: float = 0.0):
        super().__init__(width, heads, position=position, dropout=dropout)
        self.widths = heads * head_width, width
        self.u = nn.Linear(width, heads * head_width, bias=False)

    def project(self, x: Tensor, positions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        looking = self.position.rotate(split_heads(self.u(x), self.heads), positions)
        return looking, looking, split_heads(x, self.heads)


class QueryKey(Similarity):
    """What a token looks for and what it shows are two things."""

    def __init__(self, width: int, heads: int, head_width: int, *, position: Position, dropout: float = 0.0):
        super().__init__(width, heads, position=position, dropout=dropout)
        self.widths = heads * head_width, width
        self.q = nn.Linear(width, heads * head_width, bias=False)
        self.k = nn.Linear(width, heads * head_width, bias=False)

    def project(self, x: Tensor, positions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        q, k = (self.position.rotate(split_heads(m(x), self.heads), positions) for m in (self.q, self.k))
        return q, k, split_heads(x, self.heads)


class Distance(Mixer):
    """Attention as convolution: a score for every distance and head, learned, the same for every input.

    Queries and keys are empty; all that is in the scores is the bias.
    """

    def __init__(
        self,
        width: int,
        heads: int,
        context: int,
        *,
        position: Position,
        bias: bool = True,
        dropout: float = 0.0,
    ):
        super().__init__()
        self.heads, self.context, self.position, self.dropout = heads, context, position, dropout
        self.widths = 0, width
        self.scores = nn.Parameter(torch.zeros(heads, 2 * context - 1))  # at index context − 1 + t − s
        self.v = nn.Linear(width, width, bias=bias)
        self.out = nn.Linear(width, width, bias=bias)

    def project(self, x: Tensor, positions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        v = split_heads(self.v(x), self.heads)
        empty = v.new_zeros(*v.shape[:-1], 8)  # as narrow as the fused kernels take
        return empty, empty, v

    def bias(self, queries: Tensor, keys: Tensor) -> Tensor:
        """The Toeplitz scores, (1 or B, H, T, S)."""
        distance = queries[..., :, None] - keys  # (1 or B, T, S)
        return self.scores[:, distance + self.context - 1].transpose(0, 1)

    def read_out(self, z: Tensor) -> Tensor:
        return self.out(join_heads(z))
