"""Where a norm may stand, and why it is none over the batch: what each does to the stream, to gradients,
and to what a token may know."""

from typing import Any

from torch import Tensor, nn

from glassformer.inspection.gradients import next_token_loss
from glassformer.inspection.trace import record_trace
from glassformer.lessons.lesson import Curve, Lesson, Plot
from glassformer.lessons.subjects import made, random_ids
from glassformer.models.tap import Record
from glassformer.runs.run import Run

DEPTH = 24
CASES: dict[str, dict[str, Any]] = {
    "pre": {"placement": "pre"},
    "post": {"placement": "post"},
    "renorm": {"placement": "renorm"},
    "none": {"placement": "none"},
    "pre, over the batch": {"placement": "pre", "norm": "batch"},
}


def lesson(run: Run | None = None) -> Lesson:
    rows, curves = [], []
    for name, settings in CASES.items():
        model, ids = made(layers=DEPTH, init="gpt2", **settings), random_ids()
        trace = record_trace(model, ids, sites=("embed", "resid"))
        sites = ["embed", *(f"{i}.resid" for i in range(DEPTH))]
        sizes = [float(trace[site].square().mean().sqrt()) for site in sites]
        first, last = (_weight_gradient(model, ids, i) for i in (0, DEPTH - 1))
        rows.append((name, sizes[-1] / sizes[0], first / last, _future(model, ids)))
        curves.append(Curve(name, range(DEPTH + 1), sizes))
    ratios = {row[0]: row[2] for row in rows}
    return Lesson(
        "Where should the norm stand?",
        (
            "norm",
            "stream, end / start",
            "gradient of the first block / the last",
            "share of it from later tokens",
        ),
        rows,
        [
            f"Before training, the first block's gradient beside the last one's is {_list(ratios)}: "
            f"{_alike(ratios)}. How deep each can be trained is another question: make depth trains them.",
            f"A norm over the batch lets a token see what comes after it: {rows[-1][3]:.2g} of what moves a "
            "position "
            "comes from later ones, in a model with a causal mask. With all others that is 0.",
        ],
        Plot(
            "The size of the stream over depth, before training",
            "blocks passed from the embedding",
            "root mean square of the stream",
            curves,
            log_y=True,
        ),
        f"{DEPTH} layers of width 64, GPT-2's initialisation, before training",
    )


def _weight_gradient(model: nn.Module, ids: Tensor, block: int) -> float:
    """The length of the gradient of one block's first feed-forward matrix."""
    model.zero_grad()
    next_token_loss(ids)(model(ids)).backward()
    weight = dict(model.named_parameters())[f"stack.blocks.{block}.mlp.up.weight"]
    assert weight.grad is not None
    return float(weight.grad.norm())


def _future(model: nn.Module, ids: Tensor) -> float:
    """The share of a position's gradient that lies on later tokens, while training."""
    record, at = Record("embed"), ids.shape[1] // 2
    model.train()
    logits = model(ids, tap=record)
    embed = record.values["embed"]
    embed.retain_grad()
    logits[0, at].logsumexp(-1).backward()
    model.eval()
    assert embed.grad is not None
    whole = float(embed.grad[0].norm(dim=-1).sum())
    return float(embed.grad[0, at + 1 :].norm(dim=-1).sum()) / whole


def _list(ratios: dict[str, float]) -> str:
    return ", ".join(f"{ratio:.2g} ({name})" for name, ratio in ratios.items())


def _alike(ratios: dict[str, float]) -> str:
    others = [name for name, ratio in ratios.items() if not 0.5 < ratio < 2]
    return f"of another size under {', '.join(others)}" if others else "all of one size"
