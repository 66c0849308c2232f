"""Why what is hidden gets −∞ before the softmax, and not zero after it.

Letters: T positions.
"""

import torch
from torch import Tensor

from glassformer.lessons.lesson import Curve, Lesson, Plot
from glassformer.models.attention import attend_by_formula
from glassformer.models.mask import Mask
from glassformer.runs.run import Run

T, D = 12, 16


def lesson(run: Run | None = None) -> Lesson:
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(1, 1, T, D, generator=generator) for _ in range(3))
    left_out = torch.arange(T)[None] != 4  # one position that no query may see
    masks = {
        "causal": Mask(causal=True),
        "position 4 hidden from all": Mask(padding_mask=left_out),
        "window of 3": Mask(causal=True, window=3),
    }
    everything = attend_by_formula(q, k, v, Mask())[1]
    rows = []
    sums: dict[str, Tensor] = {}
    for name, mask in masks.items():
        proper = attend_by_formula(q, k, v, mask)[1]
        zeroed = everything * (proper > 0)  # the hidden weights set to zero behind the softmax
        sums[name] = zeroed.sum(-1)[0, 0]
        changed = (zeroed @ v - proper @ v).norm() / (proper @ v).norm()
        rows.append((name, float(proper.sum(-1).min()), float(sums[name].min()), float(changed)))
    # A zero behind the softmax still lets the hidden scores speak: they are in the denominator.
    other = k.clone()
    other[..., -1, :] *= 5  # the last position, which a causal mask hides from all others
    leak = (attend_by_formula(q, other, v, Mask())[1] - everything)[0, 0, 0, 0].abs()
    kept = (
        attend_by_formula(q, other, v, Mask(causal=True))[1]
        - attend_by_formula(q, k, v, Mask(causal=True))[1]
    )[0, 0, :-1].abs()
    return Lesson(
        "Why is −∞ added before the softmax, and not a zero put behind it?",
        ("mask", "least row sum, −∞ before", "least row sum, zero behind", "change of the output"),
        rows,
        [
            "With −∞ before the softmax the visible weights of each row sum to one. With zeros behind it "
            "they do "
            f"not: the first row of the causal mask keeps {float(sums['causal'][0]):.2f}.",
            "And what was to be hidden still has a say, in the denominator: a change of the last key alone "
            "changes "
            f"the first position's weight on itself by {float(leak):.2g} that way, and by "
            f"{float(kept.max()):.1g} with −∞.",
        ],
        Plot(
            "What is left of each row with zeros behind the softmax",
            "query position",
            "sum of the visible weights (1 with −∞)",
            [Curve(name, range(T), values.tolist()) for name, values in sums.items()],
        ),
        f"random queries, keys and values, {T} positions",
        {"leak": float(leak), "leak with minus infinity": float(kept.max())},
    )
