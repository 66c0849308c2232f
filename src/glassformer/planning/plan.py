"""The plan of a training: what it costs on which layout, which one to take, and what else to consider."""

from dataclasses import asdict, dataclass
from math import sqrt
from typing import Any

from glassformer.config.recipes import merge
from glassformer.config.schema import Config, build
from glassformer.config.section import Settings
from glassformer.core.errors import UsageError
from glassformer.planning import fused
from glassformer.planning.count import count, operations
from glassformer.planning.devices import Device
from glassformer.planning.memory import Memory, memory
from glassformer.planning.time import SHORT_STEP, step_time, takes_graph

USABLE_SHARE = 0.92  # of a device's memory: the rest is lost in gaps
PYTORCH_BYTES = 0.6e9  # that PyTorch takes before it does anything
MACHINE_DEVICES = 8  # that share a fast link
NETWORK = 50e9  # bytes a second between machines, for each device
OVERLAP = 0.6  # of the work behind which communication can hide
NOTICEABLE = 1.03
LARGEST = 1e14  # parameters
OPTIMAL_RATIO = 20  # tokens a parameter that use an amount of computing best (Hoffmann et al., 2022)
# The same paper's fit of the loss, L = E + A/N^α + B/D^β, in nats a token of its own vocabulary.
E, A, ALPHA, B, BETA = 1.69, 406.4, 0.34, 410.7, 0.28


@dataclass(frozen=True)
class Option:
    """One way to lay the training out."""

    layout: str
    accumulate: int
    memory: Memory
    fits: bool
    step_seconds: float
    communication: float  # of these, what cannot be hidden

    @property
    def peak_bytes(self) -> float:
        """All that a device has to have room for."""
        return self.memory.peak + PYTORCH_BYTES


@dataclass(frozen=True)
class Plan:
    config: Config
    device: Device
    devices: int
    tokens: float
    price: float
    options: list[Option]
    assumed_vocab: bool = False  # the model's vocabulary is the most that its tokenizer may have

    @property
    def choice(self) -> Option | None:
        """The first that fits and is not noticeably slower than the fastest: ddp before fsdp, few parts."""
        fitting = [option for option in self.options if option.fits]
        least = min((o.step_seconds for o in fitting), default=0.0)
        return next((o for o in fitting if o.step_seconds <= NOTICEABLE * least), None)

    @property
    def tokens_per_step(self) -> int:
        return self.config.training.batch * self.config.model.context

    @property
    def steps(self) -> float:
        return self.tokens / self.tokens_per_step

    def as_dict(self) -> dict[str, Any]:
        counts, best = count(self.config.model), self.choice
        result: dict[str, Any] = {
            "parameters": counts.parameters,
            "parameters_by_part": counts.parts,
            "operations_per_token": operations(self.config.model),
            "operations": operations(self.config.model) * self.tokens,
            "tokens": self.tokens,
            "steps": self.steps,
            "device": asdict(self.device),
            "devices": self.devices,
            "options": [
                {
                    "layout": o.layout,
                    "accumulate": o.accumulate,
                    "fits": o.fits,
                    "memory": o.peak_bytes,
                    "memory_by_part": o.memory.parts(),
                    "step_seconds": o.step_seconds,
                    "tokens_per_second": self.tokens_per_step / o.step_seconds,
                }
                for o in self.options
            ],
            "optimal": optimal(operations(self.config.model) * self.tokens, counts.parameters, self.tokens),
        }
        if best is not None:
            hours = self.steps * best.step_seconds / 3600
            result["chosen"] = {"layout": best.layout, "accumulate": best.accumulate}
            result["hours"] = hours
            result["cost"] = hours * self.devices * self.price
            rate = self.tokens_per_step * operations(self.config.model) / best.step_seconds
            result["share_of_matmul_rate"] = rate / self.devices / self.device.matmul
        return result


def optimal(total_operations: float, parameters: int, tokens: float) -> dict[str, float]:
    """What the same computing would best be spent on, and what loss either is expected to reach."""
    best_parameters = sqrt(total_operations / (6 * OPTIMAL_RATIO))

    def loss(n: float, d: float) -> float:
        return E + A / n**ALPHA + B / d**BETA

    return {
        "tokens_per_parameter": tokens / parameters,
        "parameters": best_parameters,
        "tokens": OPTIMAL_RATIO * best_parameters,
        "expected_loss": loss(parameters, tokens),
        "expected_loss_optimal": loss(best_parameters, OPTIMAL_RATIO * best_parameters),
    }


def make_plan(
    config: Config, device: Device, devices: int, tokens: float | None = None, price: float | None = None
) -> Plan:
    """Every layout of a training over `devices`, with the memory and the time of each."""
    if not config.model.vocab:
        raise UsageError(
            "plan needs a model: the name of a shape or recipe, such as gpt2, or settings with the size of "
            "the vocabulary, such as --set model.layers=12 --set model.vocab=50257"
        )
    if tokens is None and not config.training.steps:
        raise UsageError("this training goes by minutes, not by steps: say how much it reads, --tokens 10e9")
    if count(config.model).parameters > LARGEST:
        raise UsageError(f"a model of {count(config.model).parameters:.1e} parameters is beyond any plan")
    config = _decided(config, device, devices)
    batch = config.training.batch
    if batch % devices:
        nearest = max(devices, round(batch / devices) * devices)
        raise UsageError(
            f"a batch of {batch} does not divide among {devices} devices: --set training.batch={nearest}"
        )
    if tokens is None:
        tokens = float(config.training.steps * batch * config.model.context)
    samples, least = batch // devices, config.training.accumulate
    accumulations = [  # powers of two that divide the samples of a device, and the ends
        n
        for n in range(least, samples + 1)
        if samples % n == 0 and (n & (n - 1) == 0 or n in (least, samples))
    ]
    layouts = ["one"] if devices == 1 else ["ddp"] if config.training.precision == "fp16" else ["ddp", "fsdp"]
    options = [_option(config, device, devices, layout, n) for layout in layouts for n in accumulations]
    price = device.price if price is None else price
    return Plan(config, device, devices, tokens, price, _excerpt(options))


def _decided(config: Config, device: Device, devices: int) -> Config:
    """With what training would choose by itself on such a device."""
    chosen: Settings = {}
    slow = device.name == "cpu"
    if config.training.precision == "auto":
        chosen["precision"] = "float32" if slow else "bf16"
    taken = not slow and fused.applies(config, devices)
    if config.training.kernels == "fused" and not taken:
        raise UsageError(
            "training.kernels fused is for one GPU and not for every model (docs/training.md): leave it out"
        )
    if config.training.precision == "fp8" and not (taken and device.multiplies_fp8):
        raise UsageError(
            "training.precision fp8 is for one GPU that multiplies numbers of 8 bits (Ada, Hopper and later) "
            "and not for every model (docs/training.md): use bf16"
        )
    if config.training.kernels == "graph" and (slow or not takes_graph(config, devices)):
        raise UsageError(
            "training.kernels graph is for one GPU, adamw or muon, and bf16 or float32 (docs/training.md): "
            "leave it out"
        )
    if taken:
        chosen |= {"kernels": "fused", "compile": "off"}
    elif not slow and takes_graph(config, devices):
        graph: Settings = {"training": {**chosen, "kernels": "graph", "compile": "off"}}
        as_graph = build(merge(config.model_dump(), graph))
        wished = config.training.kernels == "graph" or config.training.compile == "off"
        if wished or step_time(as_graph, device, config.training.batch) < SHORT_STEP:
            return as_graph
    if config.training.compile == "auto" and not taken:  # a training worth a plan is long enough for it
        chosen["compile"] = "off" if slow else "on"
    return build(merge(config.model_dump(), {"training": chosen}))


def _option(config: Config, device: Device, devices: int, layout: str, accumulate: int) -> Option:
    samples = config.training.batch // devices * (2 if config.training.consistency else 1)  # read twice
    tokens = samples * config.model.context // accumulate
    if config.training.kernels == "fused":
        need, compute = fused.memory(config, tokens), fused.step_time(config, device, samples, accumulate)
    else:
        need = memory(config, tokens, layout, devices, accumulate)
        compute = step_time(config, device, samples, accumulate, 1 / devices if layout == "fsdp" else 1.0)
    link = device.link if devices <= MACHINE_DEVICES else NETWORK
    stall = max(0.0, _traffic(config, layout, devices, accumulate) / link - OVERLAP * compute)
    fits = need.peak + PYTORCH_BYTES <= USABLE_SHARE * device.memory
    return Option(layout, accumulate, need, fits, compute + stall, stall)


def _traffic(config: Config, layout: str, devices: int, accumulate: int) -> float:
    """Bytes that a device sends in a step."""
    share, P = (devices - 1) / devices, count(config.model).parameters
    if layout == "ddp":
        return 2 * share * 4.0 * P  # gradients: summed, and the sums handed round
    if layout == "fsdp":  # weights gathered for both passes of each micro-batch, gradients summed once
        return share * P * 4.0 * (2 * accumulate + 1)
    return 0.0


def _excerpt(options: list[Option]) -> list[Option]:
    """Of each layout the largest parts, and where it begins to fit: the last that does not, two that do."""
    excerpt: list[Option] = []
    for layout in dict.fromkeys(o.layout for o in options):
        fitting = [o for o in options if o.layout == layout and o.fits]
        others = [o for o in options if o.layout == layout and not o.fits]
        excerpt += [*dict.fromkeys((*others[:1], *others[-1:])), *fitting[:2]]
    return excerpt
