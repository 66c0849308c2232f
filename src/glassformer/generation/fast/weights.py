"""A model's weights as the compiled program reads them, and its plan as far as it is the model's.

float32 parameters are read where they lie; in other precisions matrices are copied:

    float32    as they are
    bfloat16   rounded to the nearest, ties to even; kept as bits
    int8       each row w as scale · q with whole q from −127 to 127 and scale = max |w| / 127

Embeddings, norms, biases and positions are float32 always.

Letters: L layers, C model width.
"""

from dataclasses import dataclass, field
from typing import Literal, get_args

import numpy as np
import torch
from torch import Tensor, nn

from glassformer.core.lanes import functions
from glassformer.generation.fast.kernels import norm, products
from glassformer.generation.fast.kernels.plan import Layer, Plan, Real
from glassformer.models.attention import Attention, UnscaledAttention
from glassformer.models.block import Block, add, post, pre, renorm
from glassformer.models.layers import ACTIVATIONS, GatedMLP, LayerNorm, RMSNorm
from glassformer.models.model import LanguageModel
from glassformer.models.position import Alibi, Learned, Rotary, Sinusoidal
from glassformer.models.shift import Shift
from glassformer.models.transformer import Stack

Precision = Literal["float32", "bfloat16", "int8"]
PRECISIONS: tuple[str, ...] = get_args(Precision)
KINDS = dict(zip(PRECISIONS, (products.FLOAT32, products.BFLOAT16, products.INT8), strict=True))
BYTES = dict(zip(PRECISIONS, products.SIZES, strict=True))
LINE = 64  # bytes of memory that go together
ACTIVATION_NUMBERS = {
    ACTIVATIONS["relu"]: functions.RELU,
    ACTIVATIONS["gelu"]: functions.GELU,
    ACTIVATIONS["gelu-tanh"]: functions.GELU_TANH,
    ACTIVATIONS["relu2"]: functions.RELU2,
}


@dataclass
class Weights:
    """The plan and its tables, with the arrays whose addresses stand in them."""

    plan: np.ndarray  # int64
    layers: np.ndarray  # int64 (L, fields)
    reals: np.ndarray  # float32 (L + 1, fields)
    precision: Precision
    room: np.ndarray  # uint8: for matrices that are copied
    used: int = 0  # of it
    kept: list[np.ndarray] = field(default_factory=list)

    @property
    def size(self) -> int:
        """Bytes that lie at the addresses."""
        return sum(array.nbytes for array in self.kept)

    def vector(self, x: Tensor | None) -> int:
        """Where a float32 copy or view of x lies; 0 if there is none."""
        return 0 if x is None else self.address(x.detach().float().contiguous().numpy())

    def matrix(self, x: Tensor) -> tuple[int, int]:
        """Where a matrix lies in this precision, and the scales of its rows."""
        if self.precision == "float32":
            return self.vector(x), 0
        if self.precision == "bfloat16":
            return self.copied(x.detach().to(torch.bfloat16).contiguous().view(torch.int16)), 0
        rounded, scale = to_int8(x.detach().float())
        return self.copied(rounded), self.vector(scale)

    def copied(self, x: Tensor) -> int:
        """Where a copy of x lies. All copies are in one block, which the system can keep in large pages."""
        start, size = self.used, x.numel() * x.element_size()
        self.room[start : start + size] = x.flatten().view(torch.uint8).numpy()
        self.used += size + -size % LINE
        return self.room.ctypes.data + start

    def address(self, array: np.ndarray) -> int:
        self.kept.append(array)
        return array.ctypes.data


def to_int8(x: Tensor) -> tuple[Tensor, Tensor]:
    """Rows of x (N, C) as whole numbers (N, C) and what to multiply them with, (N)."""
    largest = x.abs().amax(dim=1)
    scale = torch.where(largest > 0, largest / 127, 1.0)
    return (x / scale[:, None]).round().clamp(-127, 127).to(torch.int8), scale


def lay_out(model: LanguageModel, precision: Precision) -> Weights:
    """For a model that `fits`."""
    stack = model.stack
    assert isinstance(stack, Stack)
    L = len(stack.blocks)
    matrices = [model.unembedding, *(m for m in stack.blocks.modules() if isinstance(m, nn.Linear))]
    copied = BYTES[precision] * sum(m.weight.numel() + LINE for m in matrices)
    weights = Weights(
        np.zeros(len(Plan), np.int64),
        np.zeros((L, len(Layer)), np.int64),
        np.zeros((L + 1, len(Real)), np.float32),
        precision,
        np.empty(0 if precision == "float32" else copied, np.uint8),
    )
    weights.kept.append(weights.room)
    _write_sizes(weights, model, stack)
    _write_ends(weights, model, stack)
    blocks = blocks_of(stack)
    for i in range(L):
        _write_layer(weights, blocks, i)
    return weights


def blocks_of(stack: Stack) -> list[Block]:
    return [block for block in stack.blocks if isinstance(block, Block)]


def _write_sizes(weights: Weights, model: LanguageModel, stack: Stack) -> None:
    plan, block = weights.plan, blocks_of(stack)[0]
    attention, mlp = block.attention, block.mlp
    assert isinstance(attention, Attention)
    norms = [block.attention_norm, attention.qk_norm]
    plan[Plan.LAYERS], plan[Plan.WIDTH] = len(stack.blocks), model.unembedding.in_features
    plan[Plan.HEADS], plan[Plan.KV_HEADS] = attention.heads, attention.kv_heads
    plan[Plan.HEAD_WIDTH], plan[Plan.VALUE_WIDTH] = attention.head_width, attention.value_width
    plan[Plan.HIDDEN], plan[Plan.VOCAB] = mlp.down.in_features, model.unembedding.out_features
    plan[Plan.KIND] = KINDS[weights.precision]
    plan[Plan.NORM] = norm.RMS if any(isinstance(n, RMSNorm) for n in norms) else norm.LAYER
    plan[Plan.ACTIVATION] = (
        functions.SWIGLU if isinstance(mlp, GatedMLP) else ACTIVATION_NUMBERS[mlp.activation]
    )
    plan[Plan.RENEWS] = block.placement in (post, renorm)
    plan[Plan.JOINS] = block.join is add
    plan[Plan.WINDOW] = stack.mask.window or 0


def _write_ends(weights: Weights, model: LanguageModel, stack: Stack) -> None:
    """What stands before the first block and behind the last."""
    plan, last, position = weights.plan, weights.reals[-1], stack.position
    assert isinstance(stack.embedding, nn.Embedding)
    plan[Plan.EMBEDDING] = weights.vector(stack.embedding.weight)
    last[Real.EMBEDDING_SCALE] = 1.0
    match position:
        case Learned():
            plan[Plan.POSITION] = weights.vector(position.weight)
        case Sinusoidal():
            plan[Plan.POSITION] = weights.vector(position.table)
            last[Real.EMBEDDING_SCALE] = plan[Plan.WIDTH] ** 0.5
        case Rotary():
            half = position.cos.shape[-1] // 2  # the other one says the same, up to a sign
            plan[Plan.COS] = weights.vector(position.cos[:, half:])
            plan[Plan.SIN] = weights.vector(position.sin[:, half:])
        case Alibi():
            plan[Plan.SLOPES] = weights.vector(position.slopes)
    if isinstance(stack.shift, Shift):
        plan[Plan.EMBEDDING_SHIFT] = weights.vector(stack.shift.weight)
        plan[Plan.EMBEDDING_REACH] = len(stack.shift.weight)
    # Post-norm ends with the norm of its last layer, which nobody has read through yet.
    block = blocks_of(stack)[-1]
    final = block.mlp_norm if block.placement is post else stack.norm
    plan[Plan.FINAL_GAMMA], plan[Plan.FINAL_BETA], last[Real.FINAL_EPS] = _norm(weights, final)
    plan[Plan.UNEMBEDDING], plan[Plan.UNEMBEDDING_SCALE] = weights.matrix(model.unembedding.weight)
    plan[Plan.UNEMBEDDING_BIAS] = weights.vector(model.unembedding.bias)


def _write_layer(weights: Weights, blocks: list[Block], i: int) -> None:
    layer, real, block = weights.layers[i], weights.reals[i], blocks[i]
    attention, mlp = block.attention, block.mlp
    assert isinstance(attention, Attention)
    # Which norm a layer reads through: its own; in post-norm that of the layer before it.
    before: tuple[nn.Module, nn.Module] = (block.attention_norm, block.mlp_norm)
    if block.placement is post:
        before = (blocks[i - 1].mlp_norm if i else nn.Identity(), block.attention_norm)
    elif block.placement not in (pre, renorm):
        before = (nn.Identity(), nn.Identity())
    layer[Layer.ATTENTION_GAMMA], layer[Layer.ATTENTION_BETA], real[Real.ATTENTION_EPS] = _norm(
        weights, before[0]
    )
    layer[Layer.MLP_GAMMA], layer[Layer.MLP_BETA], real[Real.MLP_EPS] = _norm(weights, before[1])
    layer[Layer.QK_GAMMA], layer[Layer.QK_BETA], real[Real.QK_EPS] = _norm(weights, attention.qk_norm)
    real[Real.SCALE] = 1.0 if isinstance(attention, UnscaledAttention) else attention.head_width**-0.5
    shifts = (Layer.ATTENTION_SHIFT, block.attention_shift), (Layer.MLP_SHIFT, block.mlp_shift)
    for name, shift in shifts:
        if isinstance(shift, Shift):
            layer[name] = weights.vector(shift.weight)
            weights.plan[Plan.LAYER_REACH] = len(shift.weight)
    names = Layer.QKV, Layer.OUT, Layer.UP, Layer.DOWN
    matrices = attention.qkv, attention.out, mlp.up, mlp.down
    for name, linear in zip(names, matrices, strict=True):  # its scales and its bias stand behind it
        layer[name], layer[name + 1] = weights.matrix(linear.weight)
        layer[name + 2] = weights.vector(linear.bias)


def _norm(weights: Weights, module: nn.Module) -> tuple[int, int, float]:
    """Where gain and bias of a norm lie, and its ε; zeros if it is none."""
    if not isinstance(module, LayerNorm | RMSNorm):
        return 0, 0, 0.0
    return weights.vector(module.gamma), weights.vector(getattr(module, "beta", None)), module.eps
