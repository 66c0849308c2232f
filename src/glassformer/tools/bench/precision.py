"""Training on each device of this machine in each number type: what a step takes, and what it learns.

The same model, the same weights at the start, the same batches (random words, each said three times); only
where and in which type the products are done differs. The first step is left out: it warms up.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from statistics import median

import numpy as np
import torch

from glassformer.config.model import ModelConfig
from glassformer.config.training import TrainingConfig
from glassformer.core.device import PrecisionName
from glassformer.data.generated import repeats
from glassformer.data.shards import Tokens
from glassformer.models.build import Decoder
from glassformer.models.model import parameter_count
from glassformer.objectives.language import LanguageModelling
from glassformer.training.compile import maybe_compile
from glassformer.training.step import Steps

TYPES: dict[str, tuple[PrecisionName, ...]] = {
    "cpu": ("float32", "bf16"),
    "cuda": ("float32", "bf16", "fp16"),
}
LEAST_STEPS, MOST_STEPS = 4, 40


@dataclass(frozen=True)
class Size:
    name: str
    layers: int
    width: int
    heads: int
    context: int
    batch: int


SIZES = (Size("small", 4, 128, 4, 128, 8), Size("medium", 6, 384, 6, 256, 16))


@dataclass(frozen=True)
class Figure:
    size: str
    parameters: int
    device: str
    precision: str
    compiled: bool
    milliseconds: float  # of a step, the median
    tokens_per_second: float
    times: float  # as fast as the first row of the size
    steps: int
    loss: float  # of the last step that every row of the size has done


def devices() -> list[torch.device]:
    return [torch.device("cpu"), *([torch.device("cuda")] if torch.cuda.is_available() else [])]


def measure(
    sizes: tuple[Size, ...] = SIZES,
    compiled: bool = False,
    seconds: float = 4.0,
    progress: Callable[[str], None] = lambda _: None,
) -> list[Figure]:
    """Every size on every device in every type; `compiled`: each of them once more after torch.compile."""
    text = "".join(part for _, part in repeats.documents()).encode()
    tokens = Tokens([np.frombuffer(text, np.uint8).astype(np.int64)], len(text))
    figures: list[Figure] = []
    for size in sizes:
        timed: list[tuple[tuple[str, str, bool], list[float], list[float]]] = []
        for device, precision, compile_ in _cases(compiled):
            how = f"{size.name}: {device.type}, {precision}{', compiled' if compile_ else ''}"
            progress(f"{how} …")
            times, losses = _train(size, tokens, device, precision, compile_, seconds)
            timed.append(((device.type, precision, compile_), times, losses))
        common = min(len(losses) for _, _, losses in timed)
        first = median(timed[0][1])
        parameters = parameter_count(_model(size))
        for case, times, losses in timed:
            step = median(times)
            rate = size.batch * size.context / step
            row = Figure(
                size.name, parameters, *case, 1e3 * step, rate, first / step, common, losses[common - 1]
            )
            figures.append(row)
    return figures


def _cases(compiled: bool) -> Iterator[tuple[torch.device, PrecisionName, bool]]:
    for device in devices():
        for precision in TYPES[device.type]:
            for compile_ in (False, True) if compiled else (False,):
                yield device, precision, compile_


def _model(size: Size) -> Decoder:
    torch.manual_seed(0)
    config = ModelConfig(
        layers=size.layers, heads=size.heads, width=size.width, context=size.context, vocab=128
    )
    return Decoder(config)


def _train(
    size: Size, tokens: Tokens, device: torch.device, precision: PrecisionName, compiled: bool, seconds: float
) -> tuple[list[float], list[float]]:
    """Seconds and losses of the steps that fit into the time, the first one's time left out."""
    config = TrainingConfig(
        steps=MOST_STEPS + 1, batch=size.batch, warmup=10, precision=precision, schedule="constant"
    )
    model = _model(size).to(device)
    objective = LanguageModelling(tokens, size.context, seed=0)
    steps = Steps(model, objective, config, device=device, width=size.width)
    forward = maybe_compile(model, compiled)
    times: list[float] = []
    losses: list[float] = []
    try:
        began = time.perf_counter()
        while len(times) <= MOST_STEPS:
            record = steps.step_that_fits(forward)
            times.append(record["seconds_per_step"])
            losses.append(record["loss"])
            if len(times) == 1:
                began = time.perf_counter()
            if len(times) > LEAST_STEPS and time.perf_counter() - began > seconds:
                break
    finally:
        steps.reader.close()
    return times[1:], losses


def report(figures: list[Figure]) -> str:
    lines = [
        f"{'':8}{'parameters':>12}  {'device':8}{'type':18}{'ms/step':>9}{'tokens/s':>12}{'times':>8}"
        f"{'loss':>9} at step"
    ]
    for f in figures:
        kind = f.precision + (", compiled" if f.compiled else "")
        lines.append(
            f"{f.size:8}{f.parameters:>12,}  {f.device:8}{kind:18}{f.milliseconds:9.1f}"
            f"{f.tokens_per_second:12,.0f}{f.times:8.2f}{f.loss:9.4f} {f.steps:7}"
        )
    names = f"{torch.get_num_threads()} CPU threads ({torch.backends.cpu.get_cpu_capability()})"
    if torch.cuda.is_available():
        names += f"; {torch.cuda.get_device_name()}"
    return "\n".join([*lines, f"{names}, PyTorch {torch.__version__}. Weights stay in float32."])
