"""Dropout: in training each number is left out with chance p, and the others grow by 1 / (1 − p).

PyTorch's own draws a random number for every element, one after the other, on a CPU; in a small model that
takes as long as some products. Here four elements share a draw of 64 bits, so p is a multiple of 1/65536. On
a GPU and in compiled code PyTorch's own is used.
"""

from math import prod

import torch
from torch import Tensor, nn
from torch.compiler import is_compiling
from torch.nn import functional as F

PARTS = 1 << 16  # that a chance is counted in
SHARING = 4  # elements that share a draw


def drop(x: Tensor, p: float) -> Tensor:
    """x without a share p of its numbers."""
    if not p:
        return x
    if x.device.type != "cpu" or is_compiling():
        return F.dropout(x, p)
    left_out = min(max(round(p * PARTS), 1), PARTS - 1)
    count = -(-prod(x.shape) // SHARING)
    draws = torch.empty(count, dtype=torch.int64, device="cpu").random_(-(1 << 63), None)
    chances = draws.view(torch.int16)[: x.numel()].view(x.shape)  # from −PARTS / 2 on
    return x * (chances >= left_out - PARTS // 2) * (PARTS / (PARTS - left_out))


class Dropout(nn.Dropout):
    def forward(self, input: Tensor) -> Tensor:
        return drop(input, self.p) if self.training else input


class SequenceDropout(nn.Dropout):
    """The same features are left out at all positions of a sequence (B, T, C): one draw for each of its
    features (variational dropout, Gal and Ghahramani 2016). What is missing cannot be had from a neighbour.
    """

    def forward(self, input: Tensor) -> Tensor:
        if not self.training or not self.p:
            return input
        kept = drop(torch.ones(len(input), 1, input.shape[-1], device=input.device), self.p)
        return (input * kept).to(input.dtype)


DROPOUTS: dict[str, type[nn.Dropout]] = {"position": Dropout, "sequence": SequenceDropout}
"""what a draw is for → the layer"""
