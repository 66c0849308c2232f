"""Products of half-precision matrices whose sums are wanted whole."""

import torch
from torch import Tensor


def wide_product(a: Tensor, b: Tensor) -> Tensor:
    """a b in float32, of matrices of one type."""
    if a.dtype == torch.float32:
        return a @ b
    if a.device.type == "cuda":
        return torch.mm(a, b, out_dtype=torch.float32)
    return a.float() @ b.float()
