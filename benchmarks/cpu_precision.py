"""What a CPU gains by products in bfloat16: steps of one model in both types, in turns, the best of each.

python benchmarks/cpu_precision.py [--rounds 7]

The text is random numbers: only time is measured. Whether a model learns as well, the recipes say.
"""

import argparse

import numpy as np
import torch

from glassformer.config.model import ModelConfig
from glassformer.config.training import TrainingConfig
from glassformer.core.device import PrecisionName, multiplies_bf16
from glassformer.core.process import tune_process
from glassformer.data.shards import Tokens
from glassformer.models.build import Decoder
from glassformer.objectives.language import LanguageModelling
from glassformer.training.step import Steps

CPU = torch.device("cpu")
TYPES: tuple[PrecisionName, ...] = ("float32", "bf16")
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
HEAD_WIDTH, TURN = 32, 2  # steps before it is the other's turn


def make_steps(size: tuple[int, ...], precision: PrecisionName) -> Steps:
    layers, width, hidden, batch, context, vocab = size
    torch.manual_seed(0)
    shape = {"layers": layers, "width": width, "heads": width // HEAD_WIDTH, "hidden": hidden}
    model = Decoder(ModelConfig.model_validate({**shape, "context": context, "vocab": vocab}))
    ids = np.random.default_rng(0).integers(0, vocab, 300_000)
    training = TrainingConfig(batch=batch, warmup=10, precision=precision, schedule="constant")
    return Steps(model, LanguageModelling(Tokens([ids], len(ids)), context, seed=0), training, device=CPU)


def measure(size: tuple[int, ...], rounds: int) -> list[float]:
    """Seconds of a step in each type. The first round warms up."""
    both = [make_steps(size, precision) for precision in TYPES]
    best = [float("inf")] * len(both)
    try:
        for turn in range(1 + rounds):
            for i, steps in enumerate(both):
                times = [steps.step_that_fits(steps.model)["seconds_per_step"] for _ in range(TURN)]
                best[i] = min(best[i], *times) if turn else best[i]
    finally:
        for steps in both:
            steps.reader.close()
    return best


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=7)
    rounds = parser.parse_args().rounds
    tune_process()  # as a training does
    native = "has" if multiplies_bf16(CPU) else "has no"
    show(f"This CPU {native} instructions for products of bfloat16; {torch.get_num_threads()} threads.")
    show(f"{'layers, width, hidden, batch, context, vocabulary':52}{'float32':>9}{'bf16':>9}  times")
    for size in SIZES:
        wide, narrow = measure(size, rounds)
        show(f"{', '.join(map(str, size)):52}{1e3 * wide:9.1f}{1e3 * narrow:9.1f}{wide / narrow:7.2f}")


def show(line: str) -> None:
    print(line, flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
