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


def write_wide_product(place: Tensor, a: Tensor, b: Tensor) -> None:
    """place = a b in float32, whatever it holds."""
    if a.device.type == "cuda" and a.dtype != torch.float32:
        torch.addmm(place, a, b, beta=0, out_dtype=torch.float32, out=place)
    else:
        place.copy_(wide_product(a, b))


def add_wide_product(total: Tensor, a: Tensor, b: Tensor) -> None:
    """total += a b in float32, without a matrix in between where the device can do so."""
    if a.device.type == "cuda" and a.dtype != torch.float32:
        torch.addmm(total, a, b, out_dtype=torch.float32, out=total)
    else:
        total += wide_product(a, b)
