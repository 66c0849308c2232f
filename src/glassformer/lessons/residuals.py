"""What residual connections are for: gradients on their way down, and tokens that stay different.

What happens without them depends on where the norms stand and how the weights start, so all of it is
computed: the gradient at the embedding over that behind the last block, and the mean cosine between tokens.
"""

from collections.abc import Callable
from statistics import mean

from torch import Tensor, nn

from glassformer.inspection.gradients import by_depth, next_token_loss, without_residuals
from glassformer.inspection.trace import record_trace
from glassformer.lessons.lesson import Curve, Lesson, Plot, times
from glassformer.lessons.subjects import ids_of, made, random_ids, transformer_of
from glassformer.models.block import PLACEMENTS
from glassformer.runs.run import Run

Measure = Callable[[nn.Module, Tensor], list[float]]
DEPTH, SEEDS = 24, (0, 1, 2)
SHORTEST = 1e-30  # below this float32 has no direction any more
BESIDE = "length of the gradient, beside that behind the last block"
SUBJECT = f"{DEPTH} layers of width 64, before training; means over {len(SEEDS)} seeds"


def gradient_by_depth(model: nn.Module, ids: Tensor) -> list[float]:
    """The length of the loss's gradient at the embedding and behind each block."""
    trace = record_trace(model, ids, sites=("embed", "resid"))
    return by_depth(trace, next_token_loss(ids))


def likeness_by_depth(model: nn.Module, ids: Tensor) -> list[float]:
    """The mean cosine between different tokens, at the embedding and behind each block."""
    trace = record_trace(model, ids, sites=("embed", "resid"))
    sites = ["embed", *(f"{i}.resid" for i in range(len(trace.values) - 1))]
    return [_likeness(trace[site]) for site in sites]


def _likeness(x: Tensor) -> float:
    """1 also where nothing is left of any token: so short are they all the same."""
    if float(x.abs().max()) < SHORTEST:
        return 1.0
    x = nn.functional.normalize(x.double(), dim=-1, eps=1e-300)  # short is no reason to be unlike
    T = x.shape[1]
    return float(((x @ x.mT).sum(dim=(1, 2)) - T).mean() / (T * (T - 1)))


def lesson(run: Run | None = None) -> Lesson:
    if run is not None:
        return _of_run(run)
    rows, curves, words = [], [], []
    for placement in PLACEMENTS:
        for init in ("gpt2", "fan-in"):
            ratios: dict[bool, float] = {}
            for residual in (True, False):
                lengths = _mean(placement, init, residual, gradient_by_depth)
                ratios[residual] = lengths[0] / lengths[-1] if lengths[-1] else 0.0
                if init == "gpt2":
                    name = f"{placement}, {'with' if residual else 'without'} residuals"
                    curves.append(Curve(name, range(DEPTH + 1), _beside_last(lengths), placement))
            rows.append((placement, init, ratios[True], ratios[False], _verdict(ratios[False])))
            if init == "gpt2":
                words.append(f"{placement}: {times(ratios[False])}")
    vanish = sum(row[4] == "vanishes" for row in rows)
    return Lesson(
        f"What reaches the embedding of the gradient behind the last of {DEPTH} blocks?",
        ("norm", "weights start as", "with residuals", "without", "without, it"),
        rows,
        [
            "With residual connections the gradient arrives at a length between "
            f"{min(r[2] for r in rows):.2g} and "
            f"{max(r[2] for r in rows):.2g} of what it was. Without them that depends on the norm and the "
            "start "
            f"({'; '.join(words)}, GPT-2's start): in {vanish} of {len(rows)} cases it vanishes.",
            "Where it does not vanish it is no better off: it has passed the product of all layers, and "
            "says little "
            "about the token it arrives at (see: glassformer why collapse).",
        ],
        Plot(
            "The gradient over depth, GPT-2's start",
            "blocks passed from the embedding",
            BESIDE,
            curves,
            log_y=True,
        ),
        SUBJECT,
    )


def collapse(run: Run | None = None) -> Lesson:
    if run is not None:
        return _collapse_of_run(run)
    rows, curves = [], []
    for placement in PLACEMENTS:
        for init in ("gpt2", "fan-in"):
            both = {on: _mean(placement, init, on, likeness_by_depth) for on in (True, False)}
            rows.append((placement, init, both[True][0], both[True][-1], both[False][-1]))
            if init == "gpt2":
                for on, values in both.items():
                    name = f"{placement}, {'with' if on else 'without'} residuals"
                    curves.append(Curve(name, range(DEPTH + 1), values, placement))
    return Lesson(
        "Do tokens stay different without residual connections?",
        ("norm", "weights start as", "at the embedding", "at the end, with", "at the end, without"),
        rows,
        [
            "Attention averages, and an average of averages forgets what was averaged. Behind the last "
            "block the mean "
            f"cosine between different tokens is {min(r[4] for r in rows):.2f} to "
            f"{max(r[4] for r in rows):.2f} "
            f"without residual connections, and {min(r[3] for r in rows):.2f} to "
            f"{max(r[3] for r in rows):.2f} "
            "with them (1: all tokens are the same).",
        ],
        Plot(
            "How alike the tokens are, GPT-2's start",
            "blocks passed from the embedding",
            "mean cosine between different tokens",
            curves,
        ),
        SUBJECT,
    )


def _mean(placement: str, init: str, residual: bool, measure: Measure) -> list[float]:
    each = [
        measure(
            made(seed, layers=DEPTH, placement=placement, init=init, residual=residual), random_ids(seed=seed)
        )
        for seed in SEEDS
    ]
    return [mean(values) for values in zip(*each, strict=True)]


def _beside_last(lengths: list[float]) -> list[float]:
    """How much is left of the gradient behind the last block, which is what the lesson speaks of."""
    return [max(n / lengths[-1], SHORTEST) if lengths[-1] else SHORTEST for n in lengths]


def _verdict(ratio: float) -> str:
    limits = {0.01: "vanishes", 0.5: "shrinks", 2.0: "keeps its length"}
    return next((word for limit, word in limits.items() if ratio < limit), "grows")


def _with_and_without(run: Run, measure: Measure) -> tuple[dict[str, list[float]], str]:
    """A run's model as it is and without its residual connections, and what it was measured on."""
    model, ids = transformer_of(run), ids_of(run, 128)
    both = {"as it is": measure(model, ids), "without residuals": measure(without_residuals(model), ids)}
    return both, f"{run.path}, {ids.shape[1]} tokens of its validation text"


def _of_run(run: Run) -> Lesson:
    both, subject = _with_and_without(run, gradient_by_depth)
    depth = len(both["as it is"])
    ratios = {name: lengths[0] / lengths[-1] if lengths[-1] else 0.0 for name, lengths in both.items()}
    return Lesson(
        "How does the gradient come down, with and without residual connections?",
        ("blocks passed", *both),
        [(i, *(lengths[i] for lengths in both.values())) for i in range(depth)],
        [
            f"At the embedding it is, beside its length behind the last block: {name}, {times(ratio)}."
            for name, ratio in ratios.items()
        ]
        + [
            "The weights were trained with residual connections; without them this is another model, not a "
            "trained one."
        ],
        Plot(
            "The gradient over depth",
            "blocks passed from the embedding",
            BESIDE,
            [Curve(name, range(depth), _beside_last(lengths)) for name, lengths in both.items()],
            log_y=True,
        ),
        subject,
        ratios,
    )


def _collapse_of_run(run: Run) -> Lesson:
    both, subject = _with_and_without(run, likeness_by_depth)
    depth = len(both["as it is"])
    return Lesson(
        "Do tokens stay different without residual connections?",
        ("blocks passed", *both),
        [(i, *(values[i] for values in both.values())) for i in range(depth)],
        [
            f"The mean cosine between different tokens ends at {both['as it is'][-1]:.2f} as the model is, "
            "and at "
            f"{both['without residuals'][-1]:.2f} with the same weights and no residual connections."
        ],
        Plot(
            "How alike the tokens are",
            "blocks passed from the embedding",
            "mean cosine between different tokens",
            [Curve(name, range(depth), values) for name, values in both.items()],
        ),
        subject,
    )
