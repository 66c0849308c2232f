"""The time of one training step on one device, from what the device can do.

    matrices        three products for each weight matrix, forward and backward, and what they read and write
    attention       the fused kernel; half of the scores are never made under a causal mask, but for the tiles
                    along the diagonal
    elementwise     norms, positions, activations, residuals, casts: bytes moved, by `elementwise_traffic`
    narrow norms    of queries and keys: a row of one head is too short to use the memory's width
    loss            52 bytes moved for each score
    optimizer       bytes moved for each parameter; Muon's products on top
    host            a kernel takes the host a while to launch; where that is longer than the work, it decides.
                    In a graph it does not, and each kernel takes a little to begin

The shares and counts that are written as numbers here were measured once, on the device that devices.py marks
(benchmarks/plan.py measures again).
"""

from glassformer.config.model import ModelConfig
from glassformer.config.schema import Config
from glassformer.planning.count import count
from glassformer.planning.devices import Device

EAGER_SHARE = 0.62  # of the bandwidth that separate elementwise kernels reach
SCORE_TRAFFIC = 52  # bytes
UPDATE_TRAFFIC = {"adamw": 40, "adam": 40, "sgd": 32, "muon": 90}  # bytes a parameter, with norm and clipping
UPDATE_SHARE = 0.76
TILE = 256  # positions that a causal kernel works on beyond those it must
BLOCK_KERNELS = {"eager": 72, "compiled": 40}  # that the host launches for a block in a micro-batch
BIAS_KERNELS = 28  # more with biases
UPDATE_KERNELS = 20  # and in an update
KERNEL = 1.5e-6  # seconds that each takes to begin in a graph
STEP = 2e-4  # seconds of the host for a step that is one graph
SHORT_STEP = (
    0.05  # seconds of such a step below which compiling is not thought of; training/compile.py's twin
)
FUSED_SHARE = 0.48  # of what is moved, when elementwise work is compiled into few kernels
ATTENTION_PASSES = 3.5  # forward and backward, in forward passes


def product(device: Device, m: int, n: int, k: int, size: int) -> float:
    """Seconds of (m × k) by (k × n); `size` bytes a number."""
    rate = device.matmul if size == 2 or device.name == "cpu" else device.matmul / 16
    return 2.0 * m * n * k / rate + 0.4 * size * (m * k + k * n + m * n) / device.bandwidth + 3e-6


def elementwise_traffic(m: ModelConfig, half: bool) -> float:
    """Bytes a token that elementwise work in one block reads and writes, forward and backward."""
    C, qk, h = m.width, (m.heads + m.kv_heads) * m.head_width, 2 if half else 4
    norm = 0 if m.placement == "none" else 2 * (8 + 20) * C
    # Products want 16 bits, the stream has 32: what goes into a branch is cast, and the gradients both ways.
    casts = 2 * (6 + 6 + 6) * C if half else 0
    residual = 2 * (8 + h + 12) * C
    heads = 2 * (2 * h) * m.heads * m.value_width + 2 * h * (qk + m.kv_heads * m.value_width)
    size = 4 if m.qk_norm else h  # bytes a number of queries and keys while they are turned
    rotation = (9 + 11) * size * qk if m.position == "rope" else 0
    widening = 4 * 6 * qk if m.qk_norm and half else 0
    activation = (
        {"relu": 5, "gelu": 5, "gelu-tanh": 5, "relu2": 10, "swiglu": 18}[m.activation] * h * m.hidden
    )
    biases = h * (qk + m.kv_heads * m.value_width + 2 * C + m.hidden) if m.bias else 0
    return norm + casts + residual + heads + rotation + widening + activation + biases


def parts(config: Config, device: Device, tokens: int) -> dict[str, float]:
    """Seconds of forward and backward over `tokens`, by what they are spent on."""
    m, counts = config.model, count(config.model)
    half, compiled = config.training.precision in ("bf16", "fp16", "fp8"), config.training.compile == "on"
    size = 2 if half else 4
    matrices = 3 * m.layers * sum(product(device, tokens, b, a, size) for a, b in counts.block)
    scores = m.heads * (m.head_width + m.value_width) * min(m.context / 2 + TILE, 1.5 * m.context)
    attention = ATTENTION_PASSES * m.layers * 2.0 * scores * tokens / device.attention
    traffic = elementwise_traffic(m, half) * m.layers * tokens
    elementwise = traffic * (FUSED_SHARE if compiled else 1 / EAGER_SHARE) / device.bandwidth
    rows = m.layers * tokens * (m.heads + m.kv_heads) if m.qk_norm and not compiled else 0
    return {
        "matrices": matrices,
        "attention": attention,
        "elementwise": elementwise,
        "narrow norms": rows * device.narrow_row,
        "loss": 3 * product(device, tokens, m.vocab, m.width, size)
        + SCORE_TRAFFIC * m.vocab * tokens / device.bandwidth,
    }


def update(config: Config, device: Device, share: float = 1.0) -> float:
    """Seconds of the optimizer; `share`: of the parameters that are this device's."""
    counts = count(config.model)
    P = counts.parameters
    if config.training.optimizer != "muon":
        traffic = UPDATE_TRAFFIC[config.training.optimizer] * P * share
        return traffic / (UPDATE_SHARE * device.bandwidth)
    matrices = counts.layers * counts.block_matrices
    traffic = UPDATE_TRAFFIC["muon"] * matrices + UPDATE_TRAFFIC["adamw"] * (P - matrices) * share
    products = 0.0
    for a, b in counts.block:
        short, long = min(a, b), max(a, b)
        products += 5 * counts.layers * (4.0 * short * short * long + 2.0 * short**3)
    return traffic / (UPDATE_SHARE * device.bandwidth) + products / (0.8 * device.matmul)


def step_time(config: Config, device: Device, samples: int, accumulate: int = 1, share: float = 1.0) -> float:
    """Seconds of a step that reads `samples` on this device, in so many micro-batches."""
    m = config.model
    micro = samples * m.context // accumulate
    work = accumulate * sum(parts(config, device, micro).values()) + update(config, device, share)
    compiled = config.training.compile == "on"
    kernels = BLOCK_KERNELS["compiled" if compiled else "eager"]
    kernels += BIAS_KERNELS if m.bias and not compiled else 0
    launches = m.layers * (accumulate * kernels + UPDATE_KERNELS)
    if config.training.kernels == "graph":
        return work + KERNEL * launches + STEP
    return max(work, device.launch * launches) + device.step + device.sample * samples


def takes_graph(config: Config, devices: int) -> bool:
    """Whether steps on an NVIDIA GPU would be graphs of PyTorch's kernels, where they are not fused; a test
    holds this to what training does.
    """
    t = config.training
    return (
        t.kernels != "off"
        and t.compile != "on"
        and t.precision in ("auto", "bf16", "float32")
        and t.optimizer in ("adamw", "muon")
        and devices == 1
    )
