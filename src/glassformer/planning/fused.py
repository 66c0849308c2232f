"""The step of own kernels on one GPU (docs/training.md): which trainings take it, its memory and its time.

Memory: weights, moments and gradients stay in float32, beside them a half-precision copy of the blocks'
matrices. Of a block the backward pass needs, a token: the stream and its norm before both layers, q, k, v as
they come and as they are compared, what the heads found, and the hidden units before and after the
activation. Scores are made some rows at a time.

Time: products as elsewhere; what lies between them moves each of its tensors once. The step is one graph, so
the host is in nobody's way. SHARE and ATTENTION are from trainings of 124M, NARROW from four in fp8;
benchmarks/train_gpu.json has others too, which the formulas are held to.

Letters: C width, M hidden units, P parameters.
"""

from glassformer.config.model import ModelConfig
from glassformer.config.schema import Config
from glassformer.planning.count import count
from glassformer.planning.devices import Device
from glassformer.planning.memory import Memory, optimizer_bytes
from glassformer.planning.time import KERNEL, STEP, parts, update
from glassformer.planning.time import SCORE_TRAFFIC as PYTORCH_SCORE_TRAFFIC

HEAD_WIDTHS = (16, 32, 64, 128)
SCORES_AT_ONCE, ROWS = 7 << 27, 256  # at most; in parts of one size, of whole tiles of rows
WIDE = 2048  # hidden units from which on gelu-tanh is done inside the products
SCORE_TRAFFIC = 6  # bytes: read twice, written once
SHARE = 0.8  # of the bandwidth that kernels between products reach
ATTENTION = 1.25  # its time, in that of PyTorch's kernel
MOST_SHARED = 1 << 16  # entries of a head that is multiplied in 8 bits; twin of models/gpu/narrow.py's
NARROW = 0.67  # the time of a product in 8 bits, in that of one in 16
BLOCK_KERNELS, UPDATE_KERNELS = 24, 60  # in a graph: of a block forward and backward, of Muon's products


def applies(config: Config, devices: int) -> bool:
    """Whether training would take it on an NVIDIA GPU; a test holds this to what training does."""
    m, t = config.model, config.training
    return (
        t.kernels in ("auto", "fused")
        and t.compile != "on"
        and t.precision in ("auto", "bf16", "fp8")
        and t.optimizer in ("adamw", "muon")
        and devices == 1
        and config.task == "language"
        and (m.family, m.attention, m.placement) == ("transformer", "full", "pre")
        and m.norm in ("layer", "rms")
        and m.position in ("learned", "sinusoidal", "rope", "none")
        and m.scaled
        and m.residual
        and m.window is None
        and not m.word_dropout
        and m.head_width in HEAD_WIDTHS
        and m.value_width == m.head_width
    )


def activation_bytes(m: ModelConfig) -> float:
    """Bytes a token of one block that wait for the backward pass."""
    qk, v = (m.heads + m.kv_heads) * m.head_width, m.kv_heads * m.value_width
    streams = 2 * (2 + 2) * m.width
    heads = 2 * (qk + v) + (2 * qk if _is_turned(m) else 0)
    found = 2 * m.heads * m.value_width + 4 * m.heads
    hidden = 2 * m.hidden * (3 if m.activation == "swiglu" else 2)
    shifts = 2 * 2 * 4 * m.width if m.shift == "layers" else 0
    return streams + heads + found + hidden + shifts


def memory(config: Config, tokens: int) -> Memory:
    """Of a device that reads `tokens` in one micro-batch."""
    m, counts = config.model, count(config.model)
    P, C, V = counts.parameters, m.width, m.vocab
    copies = 2.0 * counts.layers * counts.block_matrices
    head = (2 * 2 + 4) * C * V + 2.0 * C * tokens  # the matrix in half precision, its gradient; the stream's
    scores = 2.0 * V * min(tokens, rows_at_once(tokens, V))
    under_way = (4 * m.hidden + 4 * C) * tokens  # gradients of the block that is worked on
    return Memory(
        weights=4.0 * P + copies,
        gradients=4.0 * P,
        optimizer=optimizer_bytes(config),
        activations=counts.layers * activation_bytes(m) * tokens + under_way,
        logits=scores + head,
        gathered=0.0,
        overlap=True,
    )


def rows_at_once(n: int, entries: int) -> int:
    """How many of n rows are scored together; twin of models/gpu/loss.py's."""
    rows = -(-n // -(-n // max(ROWS, SCORES_AT_ONCE // entries)))
    return rows + -rows % ROWS


def step_time(config: Config, device: Device, samples: int, accumulate: int = 1) -> float:
    """Seconds of a step that reads `samples` in so many micro-batches."""
    m, counts = config.model, count(config.model)
    tokens = samples * m.context // accumulate
    common = parts(config, device, tokens)
    scores = (
        common["loss"]
        - _score_seconds(PYTORCH_SCORE_TRAFFIC, m, tokens, device)
        + _score_seconds(SCORE_TRAFFIC, m, tokens, device)
    )
    between = counts.layers * traffic(m) * tokens / (SHARE * device.bandwidth)
    kernels = KERNEL * counts.layers * BLOCK_KERNELS
    work = common["matrices"] + ATTENTION * common["attention"] + scores + between + kernels
    if config.training.precision == "fp8":
        work -= (1 - NARROW) * narrow_operations(m) * tokens / device.matmul
    muon = KERNEL * UPDATE_KERNELS * len(counts.block) if config.training.optimizer == "muon" else 0.0
    return accumulate * work + update(config, device) + muon + STEP


def traffic(m: ModelConfig) -> float:
    """Bytes a token that kernels between the products of one block read and write, forward and backward."""
    qk, dropped = (m.heads + m.kv_heads) * m.head_width, bool(m.dropout_of("residual"))
    norms = 2 * (8 + 10 if dropped else 4 + 8) * m.width
    turned = 10 * qk if _is_turned(m) else 0
    inside = m.activation == "gelu-tanh" and m.hidden >= WIDE and not m.bias and not m.hidden_dropout
    hidden = m.hidden * (16 if m.activation == "swiglu" else 4 if inside else 10)
    shifts = 2 * 20 * m.width if m.shift == "layers" else 0
    return norms + turned + hidden + shifts


def narrow_operations(m: ModelConfig) -> float:
    """Operations a token of the products in 8 bits: behind norms on the way forward, the head's both."""
    qkv = (m.heads + m.kv_heads) * m.head_width + m.kv_heads * m.value_width
    up = m.hidden * (2 if m.activation == "swiglu" else 1)
    head = 2 * m.vocab if m.vocab <= MOST_SHARED and not m.output_dropout else 0
    blocks = (
        0 if m.shift == "layers" else m.layers * (qkv + up)
    )  # what is shifted is no norm's result as it is
    return 2.0 * m.width * (blocks + head)


def _score_seconds(each: float, m: ModelConfig, tokens: int, device: Device) -> float:
    return each * m.vocab * tokens / device.bandwidth


def _is_turned(m: ModelConfig) -> bool:
    return m.qk_norm or m.position == "rope"
