"""What a step of training on a CPU gains by products in bfloat16, and by attention's compiled loops.

python benchmarks/cpu_step.py [--rounds 5] [--attention]

Steps of one model, in turns, the best of each way; with `--attention` that alone, beside PyTorch's kernel.
The text is random numbers: only time is measured. Whether a model learns as well, the recipes say.
"""

import argparse
import time

import numpy as np
import torch

from glassformer.config.model import ModelConfig
from glassformer.config.training import TrainingConfig
from glassformer.core.device import multiplies_bf16
from glassformer.core.process import tune_process
from glassformer.data.shards import Tokens
from glassformer.models.attention import attend
from glassformer.models.build import Decoder
from glassformer.models.fast.wanted import own_loops
from glassformer.models.mask import Mask
from glassformer.objectives.language import LanguageModelling
from glassformer.training.step import Steps

CPU = torch.device("cpu")
WAYS = (  # precision, kernels
    {"precision": "float32", "kernels": "off"},
    {"precision": "bf16", "kernels": "off"},
    {"precision": "bf16", "kernels": "auto"},
)
# layers, width, hidden (0: four times the width), batch, context, vocabulary
SIZES = (
    (2, 64, 0, 12, 128, 2048),
    (4, 128, 192, 12, 64, 512),
    (3, 96, 0, 12, 128, 2048),
    (4, 128, 256, 8, 128, 2048),
    (4, 128, 256, 8, 256, 512),
    (4, 192, 0, 12, 128, 2048),
    (6, 256, 0, 12, 128, 4096),
)
HEADS = ((12, 4, 64, 32), (8, 4, 128, 32), (8, 4, 256, 32), (4, 12, 256, 64), (1, 12, 1024, 64))  # B, H, T, D
HEAD_WIDTH, TURN = 32, 2  # steps before it is the other's turn


def make_steps(size: tuple[int, ...], dropout: float, way: dict[str, str]) -> Steps:
    layers, width, hidden, batch, context, vocab = size
    torch.manual_seed(0)
    shape = {"layers": layers, "width": width, "heads": width // HEAD_WIDTH, "hidden": hidden}
    model = {**shape, "context": context, "vocab": vocab, "dropout": dropout}
    ids = np.random.default_rng(0).integers(0, vocab, 300_000)
    training = TrainingConfig.model_validate({"batch": batch, "warmup": 10, "schedule": "constant", **way})
    objective = LanguageModelling(Tokens([ids], len(ids)), context, seed=0)
    return Steps(Decoder(ModelConfig.model_validate(model)), objective, training, device=CPU)


def measure(size: tuple[int, ...], dropout: float, rounds: int) -> list[float]:
    """Seconds of a step in each way. The first round warms up."""
    ways = [make_steps(size, dropout, way) for way in WAYS]
    best = [float("inf")] * len(ways)
    try:
        for turn in range(1 + rounds):
            for i, steps in enumerate(ways):
                times = [steps.step_that_fits(steps.model)["seconds_per_step"] for _ in range(TURN)]
                best[i] = min(best[i], *times) if turn else best[i]
    finally:
        for steps in ways:
            steps.reader.close()
    return best


def measure_attention(shape: tuple[int, ...], dropout: float, rounds: int) -> list[float]:
    """Seconds of attention, forth and back, by PyTorch and by the loops."""
    q, k, v = (torch.randn(shape, requires_grad=True) for _ in range(3))
    above, mask, best = torch.randn(shape), Mask(causal=True), [float("inf")] * 2
    for turn in range(1 + rounds):
        for i, loops in enumerate((False, True)):
            for _ in range(5):
                began = time.perf_counter()
                with own_loops(loops):
                    z = attend(q, k, v, mask, dropout=dropout)
                torch.autograd.grad(z, (q, k, v), above)
                best[i] = min(best[i], time.perf_counter() - began) if turn else best[i]
    return best


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--attention", action="store_true")
    asked = parser.parse_args()
    tune_process()  # as a training does
    native = "has" if multiplies_bf16(CPU) else "has no"
    show(f"This CPU {native} instructions for products of bfloat16; {torch.get_num_threads()} threads.")
    if asked.attention:
        show(f"{'batch, heads, positions, head width':40} dropout   PyTorch   loops  times")
        for shape in HEADS:
            for dropout in (0.0, 0.2):
                a, b = measure_attention(shape, dropout, asked.rounds)
                show(f"{', '.join(map(str, shape)):40}{dropout:8}{1e3 * a:10.2f}{1e3 * b:8.2f}{a / b:7.2f}")
        return
    show(f"{'layers, width, hidden, batch, context, vocabulary':52} dropout float32    bf16   loops")
    for size in SIZES:
        for dropout in (0.0, 0.2):
            times = measure(size, dropout, asked.rounds)
            show(f"{', '.join(map(str, size)):52}{dropout:8}" + "".join(f"{1e3 * t:8.1f}" for t in times))


def show(line: str) -> None:
    print(line, flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
