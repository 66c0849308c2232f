"""Why a transformer needs positions: without them, and without a causal mask, its input is a set.

Letters: B batch, T positions, V vocabulary.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from glassformer.config.model import ModelConfig
from glassformer.core.errors import UsageError
from glassformer.lessons.lesson import Curve, Lesson, Plot
from glassformer.lessons.subjects import VOCAB, ids_of, random_ids, transformer_of
from glassformer.models.build import Decoder, Encoder
from glassformer.runs.run import Run

SCHEMES = ("none", "learned", "sinusoidal", "rope", "alibi")


@dataclass
class Equivariance:
    """How far f(x permuted) is from f(x) permuted, as a share of f(x)."""

    gap: float
    holds: bool


@torch.no_grad()
def equivariance(model: nn.Module, inputs: Tensor, order: Tensor | None = None) -> Equivariance:
    """Whether a model that answers at every position treats its input as a set."""
    T = inputs.shape[1]
    order = torch.randperm(T, generator=torch.Generator().manual_seed(0)) if order is None else order
    if sorted(order.tolist()) != list(range(T)):
        raise UsageError(f"a permutation of {T} positions names each of them once")
    order = order.to(inputs.device)
    outputs = model(inputs)
    if outputs.ndim != 3:
        raise UsageError("this model answers once for the whole text; equivariance is about positions")
    permuted_outputs = model(inputs[:, order])
    gap = float((permuted_outputs - outputs[:, order]).norm() / outputs.norm())
    return Equivariance(gap, gap < 1e-5)


def lesson(run: Run | None = None) -> Lesson:
    cases: list[tuple[str, str, nn.Module, Tensor]] = []
    if run is not None:
        name = f"{run.path.name}: {run.config.model.position}"
        cases.append((name, "causal", transformer_of(run), ids_of(run, 32)))
    for mask, kind in (("none", Encoder), ("causal", Decoder)):
        for scheme in SCHEMES:
            cases.append((scheme, mask, _made(kind, scheme), random_ids(T=32)))
    rows = [(name, mask, equivariance(model, ids)) for name, mask, model, ids in cases]
    sets = [f"{name} with mask {mask}" for name, mask, e in rows if e.holds]
    smallest = min(e.gap for _, _, e in rows if not e.holds)
    return Lesson(
        "Does a transformer know the order of its input?",
        ("positions", "mask", "|f(permuted) − f permuted| / |f|", "input is a set"),
        [(name, mask, e.gap, e.holds) for name, mask, e in rows],
        [
            "It treats its input as a set where it has neither positions nor a causal mask: "
            f"{', '.join(sets)} "
            "(to rounding).",
            f"Every scheme of positions breaks that, by {smallest:.2f} of the output at least; so does a "
            "causal "
            "mask by itself, since each position sees another number of tokens.",
        ],
        Plot(
            "How far the order of the tokens matters",
            "scheme of positions",
            "share of the output that changes",
            [
                Curve(
                    f"mask: {mask}",
                    list(SCHEMES),
                    [e.gap for n, m, e in rows if m == mask and n in SCHEMES],
                )
                for mask in ("none", "causal")
            ],
        ),
        "two layers of width 64, random weights, one permutation of 32 random tokens",
    )


def _made(kind: type[Encoder] | type[Decoder], scheme: str) -> nn.Module:
    torch.manual_seed(0)
    sizes = {"layers": 2, "heads": 4, "width": 64, "context": 64, "vocab": VOCAB, "position": scheme}
    config = ModelConfig.model_validate(sizes)
    model = Encoder(config, "tokens") if kind is Encoder else Decoder(config)
    with torch.no_grad():
        for p in model.parameters():  # also those that start at zero
            p.add_(0.2 * torch.randn_like(p))
    return model.eval()
