"""The layers that treat every position alike: embeddings, norms and feed-forward nets.

Letters: B batch, T positions, C model width, M hidden width.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from glassformer.models.dropout import Dropout
from glassformer.models.tap import Tap, off


class WordDropout(nn.Embedding):
    """An embedding that does without a share of its entries in each step of training: they are zero there.

    The first position keeps its word. Under a causal mask it sees nothing else, so a zero would stay zero
    through all blocks, and the gradient of a norm at zero is 1/√ε: many layers of that overflow.
    """

    def __init__(self, vocab: int, width: int, share: float):
        super().__init__(vocab, width)
        self.share = share

    def forward(self, input: Tensor) -> Tensor:
        x = super().forward(input)  # (B, T, C)
        if not self.training:
            return x
        kept = torch.rand(self.num_embeddings, device=x.device) >= self.share
        scale = (kept / (1 - self.share))[input[:, 1:]].to(x.dtype)  # (B, T − 1)
        return x * F.pad(scale, (1, 0), value=1.0)[..., None]


class LayerNorm(nn.Module):
    """Each token to mean 0 and variance 1 over its features, then γ ⊙ x + β."""

    def __init__(self, width: int, bias: bool = True, eps: float = 1e-5):
        super().__init__()
        self.eps = eps
        self.gamma = nn.Parameter(torch.ones(width))
        self.beta = nn.Parameter(torch.zeros(width)) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        return F.layer_norm(x, self.gamma.shape, self.gamma, self.beta, self.eps)


class RMSNorm(nn.Module):
    """Each token to a root mean square of 1, then γ ⊙ x; no mean is taken off."""

    def __init__(self, width: int, bias: bool = False, eps: float = 1e-6):
        super().__init__()
        self.eps = eps
        self.gamma = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, self.gamma.shape, self.gamma.to(x.dtype), self.eps)


class BatchNorm(nn.Module):
    """Each feature to mean 0 and variance 1 over all tokens of the batch, then γ ⊙ x + β.

    Here to show why transformers do without it: a token's value then depends on the other sentences of the
    batch, on padding, and in training on the tokens that come after it; and what it is divided by in use are
    averages from training.
    """

    mixes_batch = True
    mean: Tensor
    variance: Tensor

    def __init__(self, width: int, bias: bool = True, eps: float = 1e-5):
        super().__init__()
        self.eps = eps
        self.gamma = nn.Parameter(torch.ones(width))
        self.beta = nn.Parameter(torch.zeros(width)) if bias else None
        self.register_buffer("mean", torch.zeros(width))
        self.register_buffer("variance", torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        flat = x.flatten(0, -2)
        out = F.batch_norm(
            flat, self.mean, self.variance, self.gamma, self.beta, self.training, momentum=0.1, eps=self.eps
        )
        return out.view(x.shape)


Norm = LayerNorm | RMSNorm | BatchNorm
NORMS: dict[str, type[Norm]] = {"layer": LayerNorm, "rms": RMSNorm, "batch": BatchNorm}


def relu2(x: Tensor) -> Tensor:
    return F.relu(x).square()


def gelu_tanh(x: Tensor) -> Tensor:
    """GELU in the tanh approximation, as GPT-2 has it."""
    return F.gelu(x, approximate="tanh")


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu-tanh": gelu_tanh,
    "relu2": relu2,
}


class MLP(nn.Module):
    """The feed-forward net C → M → C: two matrices with an activation between them."""

    def __init__(
        self,
        width: int,
        hidden: int,
        activation: Callable[[Tensor], Tensor],
        bias: bool = True,
        dropout: float = 0.0,
    ):
        super().__init__()
        self.activation = activation
        self.dropout = Dropout(dropout)
        self.up = nn.Linear(width, hidden, bias=bias)
        self.down = nn.Linear(hidden, width, bias=bias)

    def hidden_units(self, a: Tensor) -> Tensor:
        return self.activation(a)

    def forward(self, x: Tensor, tap: Tap = off) -> Tensor:
        hidden = tap("mlp_hidden", self.hidden_units(self.up(x)))
        return tap("mlp_out", self.down(self.dropout(hidden)))


class GatedMLP(nn.Module):
    """SwiGLU: the hidden units are products of a linear part and a gate, silu(xG) ⊙ xU."""

    def __init__(self, width: int, hidden: int, bias: bool = True, dropout: float = 0.0):
        super().__init__()
        self.dropout = Dropout(dropout)
        self.up = nn.Linear(width, 2 * hidden, bias=bias)  # the gate's rows, then the linear part's
        self.down = nn.Linear(hidden, width, bias=bias)

    def fused_parts(self) -> dict[Tensor, tuple[int, ...]]:
        half = self.up.out_features // 2
        return {self.up.weight: (half, half)}

    def hidden_units(self, a: Tensor) -> Tensor:
        gate, linear = a.chunk(2, dim=-1)
        return F.silu(gate) * linear

    def forward(self, x: Tensor, tap: Tap = off) -> Tensor:
        hidden = tap("mlp_hidden", self.hidden_units(self.up(x)))
        return tap("mlp_out", self.down(self.dropout(hidden)))
