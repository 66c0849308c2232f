"""Numbers of 8 bits for products on the way forward (training.precision fp8): a sign, four bits of exponent,
three of fraction (e4m3). What is multiplied is brought into their range by a power of two: a weight by its
largest entry, the result of a norm by the largest that it can be, √C times its gain. Nothing ever lies beyond
the range, and nothing of earlier steps is kept.

On the way back the head multiplies the shares of a softmax in them. What the target takes off, nearly one, is
not among them: the GPU adds up in so few bits that small shares beside it would be lost. Below 2⁻¹⁴ a share
has fewer bits than three, and below 2⁻¹⁸ it is nothing: of vocabularies of more than MOST_SHARED entries the
head goes by the type of the pass, as does the rest of the way back.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import NamedTuple

import torch
from torch import Tensor

from glassformer.models.layers import LayerNorm, RMSNorm

TYPE = torch.float8_e4m3fn
LARGEST, SHARE_UNIT = 448.0, 2.0**-8
MOST_SHARED = 1 << 16
MULTIPLE = 16  # sizes of what is multiplied are multiples of it


class Narrow(NamedTuple):
    """Numbers of 8 bits, and what they are to be multiplied by: one number, a power of two."""

    numbers: Tensor
    unit: Tensor


def units(largest: Tensor) -> Tensor:
    """The powers of two by which numbers up to these come as close to the end of the range as they can.

    Of what is no number there is no unit, so that products with it are none either.
    """
    _, exponent = torch.frexp(LARGEST / largest.float().clamp(min=1e-20))
    found = torch.ldexp(torch.ones_like(largest, dtype=torch.float32), 1 - exponent)
    return torch.where(largest.isfinite(), found, torch.nan)


def narrowed(x: Tensor, unit: Tensor) -> Tensor:
    """x ÷ unit in 8 bits."""
    return (x.float() / unit).to(TYPE)


Pair = tuple[Narrow, Narrow]  # what is multiplied, and the weight that multiplies it


def product(pair: Pair, bias: Tensor | None, dtype: torch.dtype) -> Tensor:
    """x (n, K) wᵀ (N, K) + b in this type, by the GPU's own products of 8 bits; on a CPU by widening."""
    x, w = pair
    if x.numbers.is_cuda:
        scales = {"scale_a": x.unit, "scale_b": w.unit}
        return torch._scaled_mm(  # type: ignore[attr-defined]
            x.numbers, w.numbers.t(), bias=bias, out_dtype=dtype, use_fast_accum=True, **scales
        )
    y = x.numbers.float() @ w.numbers.float().t() * (x.unit * w.unit)
    return (y if bias is None else y + bias.float()).to(dtype)


@dataclass(frozen=True)
class Behind:
    """A norm, and the weight that multiplies just what it gives, with zeros behind it up to so many rows."""

    norm: LayerNorm | RMSNorm
    weight: Tensor
    rows: int
    both_ways: bool = False  # multiplied on the way back too


class Narrows:
    """The weights of a pass in 8 bits, and the units of what they multiply."""

    def __init__(self, pairs: Sequence[Behind], operations: ModuleType):
        self._pairs, self._operations = list(pairs), operations
        device = self._pairs[0].weight.device
        # Four numbers apart, as kernels like addresses.
        self._units = torch.zeros(2 * len(self._pairs), 4, device=device)[:, 0]
        self._weights = [
            Narrow(torch.zeros(p.rows, p.weight.shape[1], dtype=TYPE, device=device), unit)
            for p, unit in zip(self._pairs, self._units[len(self._pairs) :], strict=True)
        ]
        self._turned = {
            id(p.norm): torch.zeros(p.weight.shape[1], p.rows, dtype=TYPE, device=device)
            for p in self._pairs
            if p.both_ways
        }
        self._place = {id(p.norm): i for i, p in enumerate(self._pairs)}
        self._root_of_width = torch.tensor([len(p.norm.gamma) ** 0.5 for p in self._pairs], device=device)
        self._nothing = torch.zeros(1, device=device)

    def __contains__(self, norm: object) -> bool:
        return id(norm) in self._place

    def unit_of(self, norm: object) -> Tensor:
        """Of what a norm gives."""
        return self._units[self._place[id(norm)]]

    def weight_behind(self, norm: object) -> Narrow:
        return self._weights[self._place[id(norm)]]

    def turned_behind(self, norm: object) -> Narrow:
        """The weight for the way back, transposed."""
        return Narrow(self._turned[id(norm)], self.weight_behind(norm).unit)

    @torch.no_grad()
    def renew(self) -> None:
        """From the weights and gains as they are now."""
        norms = [p.norm for p in self._pairs]
        bounds = self._root_of_width * _largest([norm.gamma for norm in norms])
        bounds += _largest([_shift_of(norm, self._nothing) for norm in norms])
        self._units.copy_(units(torch.cat([bounds, _largest([p.weight for p in self._pairs])])))
        for p, narrow in zip(self._pairs, self._weights, strict=True):
            self._operations.narrow_into(p.weight, narrow.unit, narrow.numbers)
            if p.both_ways:
                self._turned[id(p.norm)].copy_(narrow.numbers.t())


def _largest(tensors: Sequence[Tensor]) -> Tensor:
    """The largest magnitude in each."""
    largest = torch._foreach_norm(list(tensors), float("inf"))  # type: ignore[attr-defined]
    return torch.stack(largest)


def _shift_of(norm: LayerNorm | RMSNorm, nothing: Tensor) -> Tensor:
    beta = norm.beta if isinstance(norm, LayerNorm) else None
    return nothing if beta is None else beta
