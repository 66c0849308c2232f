"""When attention is a convolution: weights that depend on the distance alone, on what was trained.

Letters: H heads, T positions.
"""

import numpy as np
import torch
from torch import Tensor

from glassformer.config.training import TrainingConfig
from glassformer.data.shards import Tokens
from glassformer.inspection.maps import pattern
from glassformer.inspection.trace import record_trace
from glassformer.lessons.lesson import Curve, Lesson, Plot
from glassformer.lessons.subjects import ids_of, made, transformer_of
from glassformer.models.build import Decoder
from glassformer.models.model import LanguageModel
from glassformer.objectives.language import LanguageModelling
from glassformer.runs.run import Run
from glassformer.training.step import Steps

BACK, T, STEPS = 3, 24, 120


def unevenness(A: Tensor) -> float:
    """How far weights (H, T, T) are from constant along their diagonals: the largest difference within one
    of the lower ones, as a share of the largest weight. 0: a Toeplitz matrix."""
    size = A.shape[-1]
    spans = [
        float((d := A.diagonal(-back, dim1=-2, dim2=-1)).amax(-1).sub(d.amin(-1)).max())
        for back in range(size - 1)
    ]
    return max(spans) / float(A.abs().max())


def lesson(run: Run | None = None) -> Lesson:
    rows, curves = [], []
    if run is not None:
        A = _weights(transformer_of(run), ids_of(run, T))
        rows.append((str(run.path), run.config.model.attention, None, unevenness(A)))
    tokens = _tokens()
    for kind in ("convolution", "distance", "full"):
        model = made(
            layers=1, width=32, context=T, attention=kind, position="learned" if kind == "full" else "none"
        )
        loss = _train(model, tokens)
        A = _weights(model, torch.from_numpy(tokens[:T])[None])
        rows.append(("trained here", kind, loss, unevenness(A)))
        head = int(A[:, -1, T - 1 - BACK].abs().argmax())
        curves.append(Curve(kind, range(BACK, T), A[head].diagonal(-BACK).tolist()))
    by_kind = {row[1]: row[3] for row in rows[-3:]}
    return Lesson(
        "When is attention a convolution?",
        ("model", "attention", "loss", "unevenness along diagonals"),
        rows,
        [
            f"With weights learned by distance (convolution) each diagonal of A is one number "
            f"({by_kind['convolution']:.1g} off): a Toeplitz matrix, so a convolution.",
            "A softmax over scores by distance (distance) divides every row by its own sum, and under a "
            "causal mask "
            f"rows have unequal lengths: {by_kind['distance']:.2f} off. What is Toeplitz there are the "
            "scores.",
            f"Attention (full) chooses its weights by what it reads: {by_kind['full']:.2f} off.",
        ],
        Plot(
            f"The weight on the token {BACK} back, by position",
            "query position",
            f"weight at distance {BACK}, of the head that uses it most",
            curves,
        ),
        f"one layer of width 32, {STEPS} steps on tokens that repeat the one {BACK} back nine times in ten",
    )


def _tokens() -> np.ndarray:
    chance = np.random.default_rng(0)
    ids = chance.integers(0, 16, 20_000)
    repeated = chance.random(len(ids)) < 0.9
    for t in range(BACK, len(ids)):
        if repeated[t]:
            ids[t] = ids[t - BACK]
    return ids


def _train(model: Decoder, tokens: np.ndarray) -> float:
    objective = LanguageModelling(Tokens([tokens], len(tokens)), T, seed=0)
    config = TrainingConfig(steps=STEPS, batch=32, lr=0.01, optimizer="adamw", warmup=10, compile="off")
    steps = Steps(model, objective, config)
    losses = [steps.step(model)["loss"] for _ in range(STEPS)]
    model.eval()
    return sum(losses[-10:]) / 10


@torch.no_grad()
def _weights(model: LanguageModel, ids: Tensor) -> Tensor:
    return pattern(record_trace(model, ids, sites=("q", "k")), 0)[0]
