"""How far a model can look back: what of the loss at a position reaches a token so many positions before it.

From any position to any other is one step of attention, and as many of a recurrence as lie between; what lies
outside a window is nowhere. Before training that is all there is to see. What is made of it in training,
over growing lengths, takes longer than a lesson: benchmarks/length.py has it.

Letters: B sequences, T positions, C model width.
"""

from collections.abc import Sequence
from statistics import mean

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from glassformer.config.model import ModelConfig
from glassformer.core.errors import UsageError
from glassformer.inspection.trace import gradients, record_trace
from glassformer.lessons.lesson import Cell, Curve, Lesson, Plot
from glassformer.lessons.subjects import PLAIN, ids_of, random_ids
from glassformer.models.build import make_language_model
from glassformer.runs.run import Run

T, SEEDS = 256, (0, 1, 2)
WINDOW = 10
FAMILIES = {
    "rnn": {"family": "rnn", "layers": 1},
    "gru": {"family": "gru", "layers": 1},
    "lstm": {"family": "lstm", "layers": 1},
    "window": {"family": "window", "window": WINDOW, "layers": 1},
    "convolution": {"attention": "convolution", "position": "none", "init": "gpt2", "layers": 4},
    "transformer": {"init": "gpt2", "layers": 4},
}
LOST = 0.01  # of the gradient one position back: less counts as nothing


def gradient_by_distance(model: nn.Module, ids: Tensor) -> list[float]:
    """The length of ∂L/∂x for the loss of the last token of ids (B, T + 1), x the embedding so many positions
    before the one that predicts it; the mean over the sequences."""
    trace = record_trace(model, ids[:, :-1], sites=("embed",))

    def loss(logits: Tensor) -> Tensor:
        return F.cross_entropy(logits[:, -1].float(), ids[:, -1], reduction="sum")

    _, slopes = gradients(trace, loss, ["embed"])
    return slopes["embed"].double().norm(dim=-1).mean(dim=0).flip(0).tolist()


def lesson(run: Run | None = None) -> Lesson:
    if run is not None:
        return _of_run(run)
    curves = {name: _before_training(settings) for name, settings in FAMILIES.items()}
    distances = [1 << k for k in range(8)]
    reach = {name: _reach(values) for name, values in curves.items()}
    return Lesson(
        "How much of a token's loss reaches the tokens before it?",
        ("positions back", *curves),
        [(d, *(values[d] / values[1] for values in curves.values())) for d in distances],
        [
            "The gradient at a token, beside that one position back, before training. It falls below "
            f"{LOST:.0%} behind "
            + ", ".join(f"{at} positions ({name})" for name, at in reach.items() if at)
            + "; not within "
            f"{T} for {', '.join(name for name, at in reach.items() if not at)}.",
            "A step of attention joins any two positions; a recurrence multiplies once for each position "
            "between. Training changes the factors, not the number of steps: python benchmarks/length.py.",
        ],
        Plot(
            "What reaches a token of the loss behind it, before training",
            "positions back",
            "gradient, beside one position back",
            [
                Curve(name, range(1, T), [max(v / values[1], 1e-12) for v in values[1:]])
                for name, values in curves.items()
            ],
            log_x=True,
            log_y=True,
        ),
        f"models of width {PLAIN['width']} on random tokens, before training; means over {len(SEEDS)} seeds",
    )


def _before_training(settings: dict[str, object]) -> list[float]:
    each: list[list[float]] = []
    for seed in SEEDS:
        torch.manual_seed(seed)
        model = make_language_model(ModelConfig.model_validate({**PLAIN, "context": T, **settings})).eval()
        nn.init.normal_(model.unembedding.weight, std=0.02)  # where it starts at zero nothing comes down
        each.append(gradient_by_distance(model, random_ids(8, T + 1, seed)))
    return [mean(values) for values in zip(*each, strict=True)]


def _reach(values: Sequence[float]) -> int | None:
    """The first distance from which on less than LOST of the nearest gradient arrives."""
    kept = [d for d, value in enumerate(values) if d and value >= LOST * values[1]]
    last = max(kept, default=0)
    return last + 1 if last + 1 < len(values) else None


def _of_run(run: Run) -> Lesson:
    """Of a trained language model: the same gradients on its validation text, and its loss by what it saw."""
    model = run.language_model
    ids = ids_of(run, 16 * (T + 1), limited=False)[0]
    length = min(T, model.limit or T, len(ids) - 1)
    rows_of_text = ids[: len(ids) // (length + 1) * (length + 1)].view(-1, length + 1)
    if length < 2:
        raise UsageError(f"{run.path} sees {length} token at a time: there is no distance to look over")
    values = gradient_by_distance(model, rows_of_text)
    shares = [v / values[1] if values[1] else 0.0 for v in values]
    losses = loss_by_depth(model, rows_of_text)
    distances = [d for d in (1 << k for k in range(12)) if d < length]
    seen = {d: mean(losses[d - 1 : 2 * d - 1]) for d in distances}  # d to 2 d − 1 tokens
    rows: list[tuple[Cell, ...]] = [(d, shares[d], seen[d]) for d in distances]
    reach = _reach(values)
    return Lesson(
        "How far back does this model look?",
        ("positions", "gradient so far back, beside one back", "loss, that many to twice as many seen"),
        rows,
        [
            (f"Behind {reach} positions" if reach else f"Nowhere within {length} positions")
            + f" less than {LOST:.0%} of the gradient arrives that arrives one position back.",
            f"With 1 token to see the loss is {seen[1]:.3f} nats, with {distances[-1]} and more "
            f"{seen[distances[-1]]:.3f}.",
        ],
        Plot(
            "What reaches a token of the loss behind it",
            "positions back",
            "gradient, beside one position back",
            [Curve(str(run.path), range(1, length), [max(share, 1e-12) for share in shares[1:]])],
            log_x=True,
            log_y=True,
        ),
        f"{run.path}, {rows_of_text.numel()} tokens of its validation text",
    )


def loss_by_depth(model: nn.Module, ids: Tensor) -> list[float]:
    """The mean loss of the token behind each position of ids (B, T + 1), the first position first."""
    logits = record_trace(model, ids[:, :-1], sites=("logits",)).logits.float()
    return F.cross_entropy(logits.mT, ids[:, 1:], reduction="none").mean(dim=0).tolist()
