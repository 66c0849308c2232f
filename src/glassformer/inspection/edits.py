"""Changes to the values of a forward pass: put another value in their place, or add to them.

    zero("3.z", heads=2)                 switch a head off
    put("3.z", mean, heads=2)            its mean over other texts instead
    put("2.resid", other["2.resid"])     patch from another prompt
    steer("4.resid", vector, 8.0)        push the stream in a direction

What can be edited is what models/tap.py lists; a head's output is `z`. docs/looking-inside.md shows edits at
work: in `run.look`, `run.generate`, `record_trace` and causal.py.

An edit belongs to the call it is given to; the model is not touched. Which heads and positions it means, and
how strong it is, are tensors: a compiled model takes another head or strength without being compiled again.

Letters: B batch, H heads, T positions, C width of what is edited.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from glassformer.core.errors import UsageError

Which = int | Sequence[int] | Tensor | None


class Edit:
    """At `site`, `value` instead of what is there (or added to it), at some heads and positions or at all.

    `where` is a mask instead: anything that broadcasts to the value there, also one row per sequence.
    Heads and positions count from 0, negative ones from the end of what the call is given.
    """

    def __init__(
        self,
        site: str,
        value: Tensor | float,
        *,
        heads: Which = None,
        positions: Which = None,
        where: Tensor | None = None,
        adds: bool = False,
    ):
        self.site, self.where, self.adds = site, where, adds
        self.value = torch.as_tensor(value)
        self.heads, self.positions = _indices(heads), _indices(positions)

    def __call__(self, x: Tensor, start: int = 0) -> Tensor:
        """x (B, T, C) or (B, H, T, C), beginning at position `start`."""
        value, where = self._value(x), self._mask(x, start)
        if self.adds:
            return x + (value if where is None else where * value)
        return value.expand_as(x) if where is None else torch.where(where, value, x)

    def check(self, shape: tuple[int, ...], goes_on: bool = False) -> None:
        """Whether the heads and positions that were named are there, in a value of this shape.

        In a generation that `goes_on`, positions may come later, and the end is not known to count from.
        """
        if self.heads is not None and len(shape) != 4:
            raise UsageError(f"the values at {self.site} have no heads to choose from")
        if self.positions is not None and len(shape) < 3:
            raise UsageError(f"the values at {self.site} are not listed by position: give a mask, `where`")
        choices = [("head", self.heads, shape[1] if len(shape) == 4 else 0)]
        if goes_on and self.positions is not None and bool((self.positions < 0).any()):
            raise UsageError("in a generation, positions are counted from the start: expected 0 or more")
        if not goes_on and len(shape) >= 3:
            choices.append(("position", self.positions, shape[-2]))
        for what, which, count in choices:
            wrong = [] if which is None else [i for i in which.tolist() if not -count <= i < count]
            if wrong:
                raise UsageError(f"there is no {what} {wrong[0]} at {self.site}: expected 0 to {count - 1}")

    def _value(self, x: Tensor) -> Tensor:
        try:
            fits = torch.broadcast_shapes(self.value.shape, x.shape)[-3:] == x.shape[-3:]
        except RuntimeError:
            fits = False
        if not fits:
            raise UsageError(
                f"the value for {self.site} has shape {tuple(self.value.shape)}, which does not fit "
                f"{tuple(x.shape)}. From a text of another length, take just the positions that are meant."
            )
        return self.value.to(x)

    def _mask(self, x: Tensor, start: int) -> Tensor | None:
        where = None if self.where is None else self.where.to(x.device)
        if self.heads is not None:
            if x.ndim != 4:
                raise UsageError(f"the values at {self.site} have no heads to choose from")
            indices = _from_start(self.heads.to(x.device), x.shape[1])
            head_mask = torch.arange(x.shape[1], device=x.device)[:, None] == indices
            where = _both(where, head_mask.any(-1)[:, None, None])
        if self.positions is not None:
            end = start + x.shape[-2]
            indices = _from_start(self.positions.to(x.device), end)
            position_mask = torch.arange(start, end, device=x.device)[:, None] == indices
            where = _both(where, position_mask.any(-1)[:, None])
        return where


def zero(site: str, heads: Which = None, positions: Which = None) -> Edit:
    """Nothing in the place of what is there: `zero("3.z", heads=2)` switches a head off."""
    return Edit(site, 0.0, heads=heads, positions=positions)


def put(site: str, value: Tensor | float, heads: Which = None, positions: Which = None) -> Edit:
    """Another value in its place: a mean over other texts, or what another prompt has there."""
    return Edit(site, value, heads=heads, positions=positions)


def steer(site: str, vector: Tensor, strength: float = 1.0, positions: Which = None) -> Edit:
    """A vector added to what is there, so many times: pushes the stream in a direction."""
    return Edit(site, vector * strength, positions=positions, adds=True)


class Edits:
    """A tap that makes edits, each at its site, in the order they are given.

    In a generation with a cache, every call brings the next positions: with `goes_on`, what the calls
    brought before is counted (from `start`), so that positions keep their meaning.
    """

    def __init__(self, edits: Sequence[Edit], goes_on: bool = False, start: int = 0):
        self.edits, self.goes_on = tuple(edits), goes_on
        self._end = start

    def __call__(self, site: str, x: Tensor) -> Tensor:
        if self.goes_on and site == "embed":
            self._end += x.shape[1]
        for edit in self.edits:
            if edit.site == site:
                # Of a prompt only the last position is scored, so `logits` may be fewer than came in.
                x = edit(x, self._end - x.shape[-2] if self.goes_on else 0)
        return x


def edited(edits: Sequence[Edit]) -> Callable[[int], Edits] | None:
    """The tap of a generation that makes these edits, each time that its text is read from a position on."""
    return (lambda start: Edits(edits, goes_on=True, start=start)) if edits else None


def _indices(which: Which) -> Tensor | None:
    return None if which is None else torch.as_tensor(which).reshape(-1)


def _from_start(which: Tensor, count: int) -> Tensor:
    """Negative numbers count from the end."""
    return torch.where(which < 0, which + count, which)


def _both(a: Tensor | None, b: Tensor) -> Tensor:
    return b if a is None else a & b
