"""One forward pass, with the values of the sites that were asked for; and gradients at any of them.

Gradients at a site are the gradients of a zero that is added there. So they come out of a compiled model as
out of a plain one, and asking for them changes nothing that is computed.

Letters: B batch, T positions.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from glassformer.errors import UsageError, closest
from glassformer.inspection.edit import Edit, Edits
from glassformer.models.model import EncoderDecoder
from glassformer.models.tap import Record, Tap
from glassformer.models.transformer import Stack

Loss = Callable[[Tensor], Tensor]  # of the logits


@dataclass
class Seen:
    """What a model did with its inputs."""

    model: nn.Module
    inputs: tuple[Tensor, ...]  # ids (B, T); of a translator source and target
    keys: Tensor | None  # (B, T), False for padding
    values: dict[str, Tensor]  # by site, after edits
    logits: Tensor
    edits: tuple[Edit, ...] = ()
    compiled: Callable[..., Tensor] | None = None

    @property
    def runs(self) -> Callable[..., Tensor]:
        return self.model if self.compiled is None else self.compiled

    def __getitem__(self, site: str) -> Tensor:
        try:
            return self.values[site]
        except KeyError:
            hint = closest(site, list(self.values))
            raise UsageError(
                f"nothing was recorded at '{site}': there are {_few(self.values)}{hint}"
            ) from None


def see(
    model: nn.Module,
    *inputs: Tensor,
    sites: Sequence[str] = (),
    edits: Sequence[Edit] = (),
    keys: Tensor | None = None,
    compiled: Callable[..., Tensor] | None = None,
) -> Seen:
    """Run the model once and record `sites` (see models/tap.py; `z` means that of every block; none: all).

    `compiled` is the same model after torch.compile, to be run in its place.
    """
    record = Record(*sites)
    tap = Chain(Edits(edits), record)
    with torch.no_grad():
        logits = _run(model if compiled is None else compiled, inputs, keys, tap)
    values = record.values
    if compiled is not None:  # under CUDA graphs the next call would write over what this one gave
        logits, values = logits.clone(), {site: x.clone() for site, x in values.items()}
    made = {e.site for e in edits}
    if unknown := [s for s in made if s not in record.shown]:
        raise UsageError(
            f"no site '{unknown[0]}' to edit: {_few(record.shown)}{closest(unknown[0], record.shown)}"
        )
    return Seen(model, inputs, keys, values, logits, tuple(edits), compiled)


def gradients(seen: Seen, loss: Loss, sites: Sequence[str]) -> tuple[Tensor, dict[str, Tensor]]:
    """The loss of the logits, and its gradient with respect to what is at each site."""
    zeros = {site: torch.zeros_like(seen[site], requires_grad=True) for site in sites}
    tap = Chain(Edits(seen.edits), Edits([Edit(site, zero, adds=True) for site, zero in zeros.items()]))
    with torch.enable_grad():
        value = loss(_run(seen.runs, seen.inputs, seen.keys, tap))
        found = torch.autograd.grad(value, list(zeros.values()))
    return value.detach(), dict(zip(zeros, found, strict=True))


class Chain:
    """Several taps, one after the other."""

    def __init__(self, *taps: Tap):
        self.taps = taps

    def __call__(self, site: str, x: Tensor) -> Tensor:
        for tap in self.taps:
            x = tap(site, x)
        return x


def stack_of(seen: Seen, part: str = "") -> Stack:
    """The transformer whose sites begin with `part`: `encoder.` or `decoder.` of a translator, else ``."""
    model: Any = seen.model
    if isinstance(model, EncoderDecoder):
        body = {"encoder.": model.encoder, "decoder.": model.decoder}.get(part)
    else:
        body = model.stack if part == "" else None
    if not isinstance(body, Stack):
        raise UsageError(
            "this needs a transformer: a recurrent or a window model has no attention to look at"
        )
    return body


def parts_of(model: nn.Module) -> list[str]:
    """What the names of sites begin with."""
    return ["encoder.", "decoder."] if isinstance(model, EncoderDecoder) else [""]


def _run(model: Callable[..., Tensor], inputs: tuple[Tensor, ...], keys: Tensor | None, tap: Tap) -> Tensor:
    return model(*inputs, keys=keys, tap=tap)


def _few(names: Sequence[str] | dict[str, Any]) -> str:
    names = list(names)
    return ", ".join(names[:14]) + (" …" if len(names) > 14 else "")
