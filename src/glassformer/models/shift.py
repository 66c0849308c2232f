"""A short causal convolution, feature by feature, that starts as the identity.

    y_t = x_t + Σ_k w_k ⊙ x_{t−k},   k = 1 … reach

What came just before is then at hand without a head that has to look for it. Its weights have three
dimensions: they are no matrices, so Muon leaves them to AdamW.

Letters: B batch, T positions, C model width.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from glassformer.models.mask import Mask
from glassformer.models.state import LayerState


class Shift(nn.Module):
    """The convolution; `name` is what its layer's state knows it by."""

    def __init__(self, name: str, width: int, reach: int):
        super().__init__()
        self.name = name
        self.weight = nn.Parameter(torch.zeros(reach, 1, width))

    def forward(self, x: Tensor, mask: Mask, state: LayerState | None = None) -> Tensor:
        """x (B, T, C); what `mask` hides as padding is passed on to nobody."""
        T, reach = x.shape[1], len(self.weight)
        if state is None:
            passed = x if mask.padding_mask is None else x * mask.padding_mask[..., None].to(x.dtype)
            seen = F.pad(passed, (0, 0, reach, 0))
        else:  # the state holds what came before
            seen = state.after(self.name, x, reach)
        for k, weight in enumerate(self.weight, start=1):
            x = x + weight * seen[:, reach - k : reach - k + T]
        return x


class Unshifted(nn.Module):
    """Each position by itself."""

    def forward(self, x: Tensor, mask: Mask, state: LayerState | None = None) -> Tensor:
        return x
