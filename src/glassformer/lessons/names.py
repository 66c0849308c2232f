"""The lessons by name, without what computes them: a list, or a wrong name, is answered at once."""

from glassformer.core.errors import UsageError, closest

SUBJECTS = {
    "scale": "why scores are divided by √D",
    "masks": "why −∞ before the softmax, and not zero behind it",
    "residuals": "what reaches the embedding of a gradient, with and without residual connections",
    "collapse": "whether tokens stay different without them",
    "norms": "where a norm may stand, and why it is none over the batch",
    "positions": "why a transformer needs positions",
    "toeplitz": "when attention is a convolution",
    "kernel": "attention as a soft dictionary and as a kernel",
    "gradient": "∂L/∂θ of every matrix, and what its layer received from above",
    "explosion": "where NaN comes from in a recurrent model, and what clipping cures",
    "length": "how far back a loss reaches: recurrence, window, convolution, attention",
    "cost": "where the feed-forward net costs more than attention, and the formula more than the kernel",
    "cache": "what the key-value cache saves",
    "repetition": "the loop of greedy decoding, and what cures it (needs a run)",
}
OF_NO_MODEL = (
    "scale",
    "masks",
    "norms",
    "kernel",
    "explosion",
    "cost",
)  # computed on numbers made for it; a run has no part in it


def check_lesson(name: str, on_run: bool) -> None:
    if name not in SUBJECTS:
        raise UsageError(
            f"no lesson '{name}': there are {', '.join(SUBJECTS)}.{closest(name, list(SUBJECTS))}"
        )
    if on_run and name in OF_NO_MODEL:
        raise UsageError(f"the lesson {name} is computed on numbers made for it: leave the run out")
