"""One forward pass, with the values of the sites that were asked for; and gradients at any of them.

Gradients at a site are the gradients of a zero that is added there. So they come out of a compiled model as
out of a plain one, and asking for them changes nothing that is computed.

Letters: B batch, T positions.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from inspect import signature
from typing import Any

import torch
from torch import Tensor, nn

from glassformer.core.errors import UsageError, closest
from glassformer.inspection.edits import Edit, Edits
from glassformer.models.model import Body, EncoderDecoderModel, evaluating
from glassformer.models.tap import Record, Tap
from glassformer.models.transformer import Stack

MOST_GRAPHS = 512  # that one compiled model may be made into
Loss = Callable[[Tensor], Tensor]  # of the logits


@dataclass
class Trace:
    """What a model did with its inputs."""

    model: nn.Module
    inputs: tuple[Tensor, ...]  # ids (B, T); of a translator source and target
    padding_mask: Tensor | None  # (B, T), False for padding
    values: dict[str, Tensor]  # by site, after edits
    logits: Tensor
    edits: tuple[Edit, ...] = ()
    compiled: Callable[..., Tensor] | None = None

    def __getitem__(self, site: str) -> Tensor:
        try:
            return self.values[site]
        except KeyError:
            hint = closest(site, list(self.values))
            raise UsageError(
                f"nothing was recorded at '{site}': there are {_few(self.values)}{hint}"
            ) from None


def record_trace(
    model: nn.Module,
    *inputs: Tensor,
    sites: Sequence[str] = (),
    edits: Sequence[Edit] = (),
    padding_mask: Tensor | None = None,
    compiled: Callable[..., Tensor] | None = None,
) -> Trace:
    """Run the model once and record `sites` (see models/tap.py; `z` means that of every block; none: all).

    It may be any module whose `forward` takes `tap=` and shows its values to it, `x = tap("name", x)`: what
    can be recorded and edited is what it shows (a `padding_mask` is passed on only where one is given).
    `compiled` is the same model after torch.compile, to be run in its place.
    """
    record = Record(*([sites] if isinstance(sites, str) else sites))
    with torch.no_grad():
        logits = _run(model, compiled, inputs, padding_mask, Chain(Edits(edits), record))
    values = record.values
    if compiled is not None:  # under CUDA graphs the next call would write over what this one gave
        logits, values = logits.clone(), {site: x.clone() for site, x in values.items()}
    _check(edits, record.shown)
    for site in record.sites:
        if not any(site in (shown, shown.rsplit(".", 1)[-1]) for shown in record.shown):
            hint = closest(site, list(record.shown))
            raise UsageError(f"no site '{site}' to record: {_few(record.shown)}.{hint}")
    return Trace(model, inputs, padding_mask, values, logits, tuple(edits), compiled)


def gradients(trace: Trace, loss: Loss, sites: Sequence[str]) -> tuple[Tensor, dict[str, Tensor]]:
    """The loss of the logits, and its gradient with respect to what is at each site."""
    zeros = {site: torch.zeros_like(trace[site], requires_grad=True) for site in sites}
    tap = Chain(Edits(trace.edits), Edits([Edit(site, zero, adds=True) for site, zero in zeros.items()]))
    with torch.enable_grad():
        value = loss(_run(trace.model, trace.compiled, trace.inputs, trace.padding_mask, tap))
        # What an edit has replaced further on has no gradient: that is zero.
        slopes = torch.autograd.grad(value, list(zeros.values()), materialize_grads=True)
    if trace.compiled is not None:
        value, slopes = value.clone(), [g.clone() for g in slopes]
    return value.detach(), dict(zip(zeros, slopes, strict=True))


def check_edits(model: nn.Module, edits: Sequence[Edit]) -> None:
    """Whether a language model has the sites and heads that edits of a generation name."""
    record = Record("logits")
    with torch.no_grad(), evaluating(model):
        model(torch.zeros(1, 1, dtype=torch.long, device=next(model.parameters()).device), tap=record)
    _check(edits, record.shown, goes_on=True)


def _check(edits: Sequence[Edit], shapes: dict[str, tuple[int, ...]], goes_on: bool = False) -> None:
    for edit in edits:
        if edit.site not in shapes:
            hint = closest(edit.site, list(shapes))
            raise UsageError(f"no site '{edit.site}' to edit: {_few(shapes)}.{hint}")
        edit.check(shapes[edit.site], goes_on)


class Chain:
    """Several taps, one after the other."""

    def __init__(self, *taps: Tap):
        self.taps = taps

    def __call__(self, site: str, x: Tensor) -> Tensor:
        for tap in self.taps:
            x = tap(site, x)
        return x


def stack_of(trace: Trace, part: str = "") -> Stack:
    """The transformer whose sites begin with `part`: `encoder.` or `decoder.` of a translator, else ``."""
    body = body_of(trace.model, part)
    if not isinstance(body, Stack):
        raise UsageError(
            "this needs a transformer: a recurrent or a window model has no attention to look at"
        )
    return body


def body_of(model: nn.Module, part: str = "") -> Body:
    """What makes one vector per position, of a model or of one side of a translator."""
    anything: Any = model
    bodies = {"": getattr(anything, "stack", None)}
    if isinstance(model, EncoderDecoderModel):
        bodies = {"encoder.": model.encoder, "decoder.": model.decoder}
    if (body := bodies.get(part)) is None:
        raise UsageError(f"no part '{part}': expected {' or '.join(repr(p) for p in bodies)}")
    return body


def parts_of(model: nn.Module) -> list[str]:
    """What the names of sites begin with."""
    return ["encoder.", "decoder."] if isinstance(model, EncoderDecoderModel) else [""]


def _run(
    model: nn.Module,
    compiled: Callable[..., Tensor] | None,
    inputs: tuple[Tensor, ...],
    padding_mask: Tensor | None,
    tap: Tap,
) -> Tensor:
    masked = {} if padding_mask is None else {"padding_mask": padding_mask}  # not every module knows of any
    with evaluating(model):
        if compiled is None:
            _refuse_without_tap(model)
            return model(*inputs, tap=tap, **masked)
        # Another site is another graph: a model has more of them than the usual limit, beyond which
        # torch.compile would fall to the plain way without a word.
        from torch._dynamo import config as dynamo  # it takes a second to load

        with dynamo.patch(recompile_limit=MOST_GRAPHS, fail_on_recompile_limit_hit=True):
            return compiled(*inputs, tap=tap, **masked)


def _refuse_without_tap(model: nn.Module) -> None:
    parameters = signature(model.forward).parameters.values()
    if not any(p.name == "tap" or p.kind is p.VAR_KEYWORD for p in parameters):
        raise UsageError(
            f"{type(model).__name__} takes no tap: expected a module with forward(…, tap=off), which calls "
            'x = tap("name", x) where a value is to be seen'
        )


def _few(names: Sequence[str] | dict[str, Any]) -> str:
    names = list(names)
    return ", ".join(names[:14]) + (" …" if len(names) > 14 else "")
