"""The ladder to attention: each rung can be trained in place of the next, to see what the next one adds.

    similarity   A = softmax(x xᵀ)           out = A x           nothing to learn: a token looks at its likes
    projected    A = softmax(Ux (Ux)ᵀ)       out = A x           which features the likeness is about
    query-key    A = softmax(U_q x (U_k x)ᵀ) out = A x           looking becomes directed: A is not symmetric
    full         the same                    out = A x U_vᵀ U_oᵀ what is passed on is chosen too

and beside them two that do not look at their input at all:

    distance     A = softmax(a_(t−s))        scores by distance; the softmax still makes each row sum to one
    convolution  A_ts = a_(t−s)              the same without it: a Toeplitz matrix, whatever was learned

All scores are divided by √D. With several heads, the lower rungs give each head its share of x as values.
Letters: B batch, T query positions, S key positions, C model width, H heads, D head width.
"""

import torch
from torch import Tensor, nn

from glassformer.models.attention import Mixer, join_heads, split_heads, visible_keys
from glassformer.models.dropout import drop
from glassformer.models.mask import Mask
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
    """A score for every distance and head, learned, the same for every input.

    Queries and keys are empty; all that is in the scores is the bias. It is constant along the diagonals;
    weights are so up to the sum of their row, which under a causal mask grows with the position.
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
        start = torch.full((heads, 2 * context - 1), self.start(context))
        self.scores = nn.Parameter(start)  # at index context − 1 + t − s
        self.v = nn.Linear(width, width, bias=bias)
        self.out = nn.Linear(width, width, bias=bias)

    @staticmethod
    def start(context: int) -> float:
        return 0.0

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


class Convolution(Distance):
    """Attention without its softmax: the weights themselves are learned by distance, of any sign.

    Each starts at 1/context, so that a row at the end is a mean. What is hidden has weight zero.
    """

    @staticmethod
    def start(context: int) -> float:
        return 1 / context

    def mix(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        mask: Mask,
        bias: Tensor | None = None,
        dropout: float = 0.0,
        queries: Tensor | None = None,
    ) -> Tensor:
        return drop(self.weights(q, k, mask, bias, queries).to(v.dtype), dropout) @ v

    def weights(
        self, q: Tensor, k: Tensor, mask: Mask, bias: Tensor | None = None, queries: Tensor | None = None
    ) -> Tensor:
        assert bias is not None
        weights = bias.masked_fill(~visible_keys(q, k, mask, queries), 0.0)
        return weights.expand(len(q), -1, -1, -1)
