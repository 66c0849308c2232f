"""The time of one training step on one device, from what the device can do.

    matrices        three products for each weight matrix, forward and backward, and what they read and write
    attention       the fused kernel; half of the scores are never made under a causal mask, but for the tiles
                    along the diagonal
    elementwise     norms, positions, activations, residuals, casts: bytes moved, by `moved_per_token`
    narrow norms    of queries and keys: a row of one head is too short to use the memory's width
    loss            52 bytes moved for each score
    optimizer       bytes moved for each parameter; Muon's products on top
    host            a kernel takes the host a while to launch; where that is longer than the work, it decides

The shares and counts that are written as numbers here were measured once, on the device that devices.py marks
(benchmarks/plan.py measures again).
"""

from glassformer.config.model import ModelConfig
from glassformer.config.schema import Config
from glassformer.planning.count import count
from glassformer.planning.devices import Device

EAGER_SHARE = 0.62  # of the bandwidth that separate elementwise kernels reach
SCORE_MOVED = 52
UPDATE_MOVED = {"adamw": 40, "adam": 40, "sgd": 32, "muon": 90}  # bytes a parameter, with norm and clipping
UPDATE_SHARE = 0.76
TILE = 256  # positions that a causal kernel works on beyond those it must
KERNELS = {"eager": 72, "compiled": 40}  # that the host launches for a block in a micro-batch
BIASED = 28  # more with biases
UPDATED = 20  # and in an update
FUSED = 0.48  # of what is moved, when elementwise work is compiled into few kernels
DIAGONAL = 3.5  # operations of attention, forward and backward, for each of the forward pass


def product(device: Device, m: int, n: int, k: int, size: int) -> float:
    """Seconds of (m × k) by (k × n); `size` bytes a number."""
    rate = device.matmul if size == 2 or device.name == "cpu" else device.matmul / 16
    return 2.0 * m * n * k / rate + 0.4 * size * (m * k + k * n + m * n) / device.bandwidth + 3e-6


def moved_per_token(m: ModelConfig, half: bool) -> float:
    """Bytes that elementwise work in one block reads and writes, forward and backward."""
    C, qk, h = m.width, (m.heads + m.kv_heads) * m.head_width, 2 if half else 4
    cast = half  # products want 16 bits, the stream has 32
    norm = 0 if m.placement == "none" else 2 * (8 + 20) * C
    casts = 2 * (6 + 6 + 6) * C if cast else 0  # of what goes into a branch, and of the gradients both ways
    residual = 2 * (8 + h + 12) * C
    heads = 2 * (2 * h) * m.heads * m.value_width + 2 * h * (qk + m.kv_heads * m.value_width)
    wide = 4 if m.qk_norm else h  # bytes a number of queries and keys while they are turned
    turned = (9 + 11) * wide * qk if m.position == "rope" else 0
    widened = 4 * 6 * qk if m.qk_norm and cast else 0
    work = {"relu": 5, "gelu": 5, "gelu-tanh": 5, "relu2": 10, "swiglu": 18}[m.activation]
    biases = h * (qk + m.kv_heads * m.value_width + 2 * C + m.hidden) if m.bias else 0
    return norm + casts + residual + heads + turned + widened + work * h * m.hidden + biases


def parts(config: Config, device: Device, tokens: int) -> dict[str, float]:
    """Seconds of forward and backward over `tokens`, by what they are spent on."""
    m, counted = config.model, count(config.model)
    half, compiled = config.training.precision in ("bf16", "fp16"), config.training.compile == "on"
    size = 2 if half else 4
    matrices = 3 * m.layers * sum(product(device, tokens, b, a, size) for a, b in counted.block)
    scores = m.heads * (m.head_width + m.value_width) * min(m.context / 2 + TILE, 1.5 * m.context)
    attention = DIAGONAL * m.layers * 2.0 * scores * tokens / device.attention
    moved = moved_per_token(m, half) * m.layers * tokens
    elementwise = moved * (FUSED if compiled else 1 / EAGER_SHARE) / device.bandwidth
    rows = m.layers * tokens * (m.heads + m.kv_heads) if m.qk_norm and not compiled else 0
    return {
        "matrices": matrices,
        "attention": attention,
        "elementwise": elementwise,
        "narrow norms": rows * device.narrow_row,
        "loss": 3 * product(device, tokens, m.vocab, m.width, size)
        + SCORE_MOVED * m.vocab * tokens / device.bandwidth,
    }


def update(config: Config, device: Device, share: float = 1.0) -> float:
    """Seconds of the optimizer; `share`: of the parameters that are this device's."""
    counted = count(config.model)
    P = counted.parameters
    if config.training.optimizer != "muon":
        moved = UPDATE_MOVED[config.training.optimizer] * P * share
        return moved / (UPDATE_SHARE * device.bandwidth)
    matrices = counted.layers * sum(a * b for a, b in counted.block)
    moved = UPDATE_MOVED["muon"] * matrices + UPDATE_MOVED["adamw"] * (P - matrices) * share
    products = 0.0
    for a, b in counted.block:
        short, long = min(a, b), max(a, b)
        products += 5 * counted.layers * (4.0 * short * short * long + 2.0 * short**3)
    return moved / (UPDATE_SHARE * device.bandwidth) + products / (0.8 * device.matmul)


def step_time(config: Config, device: Device, samples: int, accumulate: int = 1, share: float = 1.0) -> float:
    """Seconds of a step that reads `samples` on this device, in so many micro-batches."""
    m = config.model
    micro = samples * m.context // accumulate
    work = accumulate * sum(parts(config, device, micro).values()) + update(config, device, share)
    compiled = config.training.compile == "on"
    kernels = KERNELS["compiled" if compiled else "eager"] + (BIASED if m.bias and not compiled else 0)
    launched = device.launch * m.layers * (accumulate * kernels + UPDATED)
    return max(work, launched) + device.step + device.sample * samples
