"""Sizes by themselves: from how much text there is and what the machine can do, to a whole configuration.

The tokenizer is chosen from the amount of text. Then the model: training for a given time on a given machine
is a number of operations, C ≈ 6·N·D for N parameters and D tokens. In runs of minutes about four tokens per
parameter use it best (the often-cited twenty hold for runs a million times longer), and text that is seen too
many times teaches no more. The number of steps follows from a measurement of
the chosen model, not from a guess. Whatever the user or a recipe has set stays as it is.
"""

import time
from dataclasses import dataclass
from typing import Any

import torch

from glassformer.config import Config, Settings, build
from glassformer.models.model import parameter_count
from glassformer.models.transformer import Decoder
from glassformer.settings import merge
from glassformer.tasks.language import next_token_loss
from glassformer.training.device import Precision
from glassformer.training.optim import make_optimizers

MINUTES = 4.0  # what a run is planned for when nothing is said
TOKENS_PER_PARAMETER = 4
MOST_EPOCHS = 40  # beyond this many passes over the text nothing is learned that generalises
SHAPES = [(2, 64), (3, 96), (4, 128), (4, 192), (6, 256), (6, 384), (8, 512), (12, 768)]  # layers, width
HEAD_WIDTH = 32
VOCABULARIES = [  # bytes of text below which a BPE vocabulary of so many entries fits
    (400_000, 512),
    (1_500_000, 1024),
    (6_000_000, 2048),
    (40_000_000, 4096),
    (400_000_000, 16384),
]
CPU_VOCABULARY = 4096


def choose_tokenizer(
    train_bytes: int,
    characters: int,
    device: torch.device,
    *,
    minutes: float = 0.0,
    kind: str | None = None,
) -> tuple[dict[str, Any], str]:
    """Kind (unless given) and vocabulary, and why. `characters`: how many different ones the text has."""
    if kind not in (None, "bpe"):
        return {"kind": kind}, ""
    if kind is None and train_bytes < 400_000 and characters <= 256:
        why = f"characters, since {_size(train_bytes)} teach few longer pieces"
        return {"kind": "char", "vocab": 512}, why
    vocab = next((v for limit, v in VOCABULARIES if train_bytes < limit), 32768)
    why = f"BPE with {vocab} entries, fit for {_size(train_bytes)} of text"
    if device.type == "cpu" and vocab > CPU_VOCABULARY and minutes < 60:
        vocab = (
            CPU_VOCABULARY  # a score for every entry at every position is the dearest part of a small model
        )
        why = f"BPE with {vocab} entries, as many as a CPU can afford in minutes"
    return {"kind": "bpe", "vocab": vocab}, why


@dataclass
class Sized:
    config: Config
    reasons: list[str]


def choose_model(given: Settings, *, tokens: int, valid_tokens: int, device: torch.device) -> Sized:
    """All sizes that `given` leaves open, and two lines on why."""
    training: dict[str, Any] = given.get("training", {})
    minutes = training.get("minutes") or MINUTES
    rate = _operations_per_second(device)
    operations = rate * minutes * 60
    wanted = (operations / (6 * TOKENS_PER_PARAMETER)) ** 0.5
    wanted = min(wanted, 6.0 * tokens)  # more weights than that memorise the text
    fitting = [(n, w) for n, w in SHAPES if 12 * n * w * w <= wanted] or SHAPES[:1]
    layers, width = fitting[-1]
    longest = max(8, min(tokens // 8, valid_tokens - 1))
    context = min(128 if device.type == "cpu" else 256, 1 << (longest.bit_length() - 1))
    per_step = 1536 if device.type == "cpu" else 32768
    chosen: Settings = {
        "model": {"layers": layers, "width": width, "heads": max(1, width // HEAD_WIDTH), "context": context},
    }
    asked: dict[str, Any] = given.get("model", {})
    if "width" in asked and "heads" not in asked:
        chosen["model"]["heads"] = _heads_for(asked["width"])
    elif "heads" in asked and "width" not in asked:
        unit = 2 * asked["heads"]
        chosen["model"]["width"] = max(unit, round(width / unit) * unit)
    chosen = merge(chosen, given)
    context = chosen["model"]["context"]
    batch = training.get("batch") or max(8, per_step // context)
    accumulate = training.get("accumulate", 1)
    batch = max(accumulate, batch // accumulate * accumulate) if "batch" not in training else batch
    chosen = merge({"training": {"batch": batch}}, chosen)
    trial = build(chosen)
    seconds = measure_step(trial, device)
    affordable = max(50, int(minutes * 60 * 0.85 / seconds))  # the rest is evaluating and saving
    useful = max(50, MOST_EPOCHS * tokens // (batch * context))
    steps = training.get("steps") or min(affordable, useful)
    epochs = steps * batch * context / tokens
    sized: Settings = {
        "model": {"dropout": 0.2 if epochs > 20 else 0.1 if epochs > 8 else 0.0},
        "training": {
            "steps": steps,
            "eval_every": max(10, steps // 12),
            "checkpoint_every": max(10, steps // 12),
            "sample_every": max(10, steps // 4),
            "patience": 4,
        },
    }
    if training.get("optimizer") != "adam" and training.get("schedule") != "noam":  # these bring their own
        sized["training"]["warmup"] = min(100, steps // 10)
    config = build(merge(sized, chosen))
    count = parameter_count(Decoder(config.model))
    why = "enough for the text" if wanted == 6.0 * tokens else f"what {minutes:g} minutes here can train well"
    reasons = [
        f"Model: {config.model.layers} layers, width {config.model.width}, {_count(count)} parameters, "
        f"context {config.model.context}: {why}.",
        f"Training: {config.training.steps} steps of {config.training.batch} × {config.model.context} "
        f"tokens, {epochs:.1f} times through {_count(tokens)} tokens, dropout {config.model.dropout:g}; "
        f"about {config.training.steps * seconds / 60:.1f} minutes at {seconds * 1000:.0f} ms a step "
        "(--set training.minutes=30 for a better model).",
    ]
    return Sized(config, reasons)


def measure_step(config: Config, device: torch.device, repeats: int = 3) -> float:
    """Seconds of one training step of this configuration on made-up tokens."""
    state = torch.random.get_rng_state()
    model = Decoder(config.model).to(device)
    optimizers = make_optimizers(model, config.training)
    precision = Precision.choose(config.training.precision, device)
    micro = config.training.batch // config.training.accumulate
    ids = torch.randint(config.model.vocab, (micro, config.model.context + 1), device=device)
    times: list[float] = []
    for _ in range(1 + repeats):
        began = time.perf_counter()
        for _ in range(config.training.accumulate):
            with precision.context():
                loss = next_token_loss(model(ids[:, :-1]), ids[:, 1:])
            loss.backward()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        times.append(time.perf_counter() - began)
    torch.random.set_rng_state(state)
    return min(times[1:])


def _operations_per_second(device: torch.device) -> float:
    """What training gets out of this device: a share of a large matrix product's rate."""
    n = 1024 if device.type == "cpu" else 8192
    dtype = torch.float32 if device.type == "cpu" else torch.bfloat16
    a = torch.ones(n, n, device=device, dtype=dtype)
    best = float("inf")
    for _ in range(4):
        began = time.perf_counter()
        (a @ a)[0, 0].item()
        best = min(best, time.perf_counter() - began)
    return 0.5 * 2 * n**3 / best


def _heads_for(width: int) -> int:
    """As many heads as make them nearest to the usual width, and even."""
    counts = [h for h in range(1, width + 1) if width % h == 0 and (width // h) % 2 == 0] or [1]
    return min(counts, key=lambda h: abs(width // h - HEAD_WIDTH))


def _size(n: int) -> str:
    return f"{n / 1e6:.1f} MB" if n >= 1e6 else f"{n / 1e3:.0f} KB"


def _count(n: int) -> str:
    return f"{n / 1e6:.2f} M" if n >= 1e6 else f"{n / 1e3:.0f} k"
