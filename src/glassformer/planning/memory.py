"""The memory of one device while it trains, by part.

    weights       4 bytes a parameter; under mixed precision 2 more for matrices, until the backward pass
    gradients     4 bytes a parameter
    optimizer     AdamW and Adam 8, SGD with momentum 4, Muon 4 for the blocks' matrices and 8 for the rest
    activations   what the backward pass needs again, per token and block: see `activation_bytes`
    logits        12 bytes for each score: its log-probability and two gradients, all in float32

Gradients appear while activations go, so without accumulation only the larger of the two is held at the peak.
Under ddp they have a place of their own; under fsdp every part but the last two is divided, while what is
gathered for the moment comes on top. What PyTorch itself takes (half a gigabyte) is not counted here.
"""

from dataclasses import dataclass

from glassformer.config.model import ModelConfig
from glassformer.config.schema import Config
from glassformer.planning.count import count

SCORE_BYTES = 12


@dataclass(frozen=True)
class Memory:
    weights: float
    gradients: float
    optimizer: float
    activations: float
    logits: float
    gathered: float  # under fsdp: whole weights of what is worked on
    overlap: bool  # gradients and activations are held at the same time

    @property
    def peak(self) -> float:
        resident = self.weights + self.optimizer + self.gathered
        transient = self.activations + self.logits
        peak = transient + self.gradients if self.overlap else max(transient, self.gradients)
        return resident + peak

    def parts(self) -> dict[str, float]:
        names = ("weights", "gradients", "optimizer", "activations", "logits", "gathered")
        return {name: getattr(self, name) for name in names}


def activation_bytes(m: ModelConfig, half: bool, compiled: bool) -> float:
    """Bytes a token of one block that wait for the backward pass. `half`: products are in 16 bits."""
    h = 2 if half else 4
    C, qk = m.width, (m.heads + m.kv_heads) * m.head_width
    norms = 0 if m.placement == "none" else 2 * 4 * C  # the stream, as it enters each norm
    inputs = 2 * h * C  # of qkv and of up
    heads = h * (qk + m.kv_heads * m.value_width)  # q, k and v as they come
    if m.qk_norm and half and not compiled:
        heads += 4 * qk  # widened for their norm
    if m.qk_norm or m.position == "rope":
        heads += h * qk  # and as they are compared
    z = 2 * h * m.heads * m.value_width  # the heads' outputs, apart and side by side
    hidden = h * m.hidden * {"relu": 1, "swiglu": 4}.get(m.activation, 2)
    # A byte for each value that may be dropped.
    dropout = (2 * C if m.dropout_of("residual") else 0) + (m.hidden if m.hidden_dropout else 0)
    shifts = 2 * 4 * C if m.shift == "layers" else 0  # what is taken from, as the norm gave it
    return norms + inputs + heads + z + hidden + dropout + shifts


def optimizer_bytes(config: Config) -> float:
    counts = count(config.model)
    matrices = counts.layers * counts.block_matrices
    match config.training.optimizer:
        case "sgd":
            return 4.0 * counts.parameters if config.training.momentum else 0.0
        case "muon":
            return 4.0 * matrices + 8.0 * (counts.parameters - matrices)
        case _:
            return 8.0 * counts.parameters


def memory(config: Config, tokens: int, layout: str = "one", devices: int = 1, accumulate: int = 1) -> Memory:
    """Of a device that reads `tokens` in one micro-batch."""
    m, counts = config.model, count(config.model)
    half, compiled = config.training.precision in ("bf16", "fp16", "fp8"), config.training.compile == "on"
    P, block = counts.parameters, counts.block_matrices
    cast = 2.0 * counts.all_matrices if half else 0.0
    per_token = m.layers * activation_bytes(m, half, compiled) + (4 + (2 if half else 4)) * m.width
    transient = {"activations": per_token * tokens, "logits": float(SCORE_BYTES) * m.vocab * tokens}
    optimizer = optimizer_bytes(config)
    if layout != "fsdp":
        overlap = layout == "ddp" or accumulate > 1
        return Memory(4.0 * P + cast, 4.0 * P, optimizer, **transient, gathered=0.0, overlap=overlap)
    gathered = 4.0 * counts.outside + 2 * 4.0 * block  # what stands outside, and two blocks
    gradients = 4.0 * P if accumulate > 1 else 4.0 * P / devices + 4.0 * max(block, counts.outside)
    weights = 4.0 * P / devices + cast
    return Memory(weights, gradients, optimizer / devices, **transient, gathered=gathered, overlap=True)
