"""A model's weights as the kernels read them.

Matrices are float32, where a float32 model's own parameters are read in place, or bfloat16, rounded to the
nearest; so are the keys and values that are kept. Embeddings, norms, biases and positions are float32 always.

Letters: L layers, C model width, H heads, K key-value heads, D head width, E value width, M hidden width,
V vocabulary.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from glassformer.models.attention import Attention, UnscaledAttention
from glassformer.models.block import Block
from glassformer.models.layers import ACTIVATIONS, GatedMLP, LayerNorm, RMSNorm
from glassformer.models.model import LanguageModel
from glassformer.models.position import Alibi, Learned, Rotary, Sinusoidal
from glassformer.models.transformer import Stack


@dataclass(frozen=True)
class Norm:
    kind: str = "none"  # or layer, rms
    gamma: Tensor | None = None
    beta: Tensor | None = None
    eps: float = 0.0


@dataclass(frozen=True)
class Matrix:
    weight: Tensor  # (outputs, inputs)
    bias: Tensor | None  # (outputs)


@dataclass(frozen=True)
class Layer:
    attention_norm: Norm
    qkv: Matrix  # (H D + K D + K E, C)
    qk_norm: Norm
    out: Matrix  # (C, H E)
    mlp_norm: Norm
    up: Matrix  # (M, C), or (2 M, C) with gates
    down: Matrix  # (C, M)


@dataclass(frozen=True)
class Weights:
    """All that the kernels know of a model."""

    dtype: torch.dtype  # of matrices
    width: int
    heads: int
    kv_heads: int
    head_width: int
    value_width: int
    hidden: int
    vocab: int
    context: int
    window: int  # positions a query sees back to; 0: all
    activation: str
    score_scale: float
    embedding_scale: float
    embedding: Tensor  # (V, C)
    places: Tensor | None  # (context, C), added to embeddings
    cos: Tensor | None  # (context, D), by which queries and keys are turned
    sin: Tensor | None
    slopes: Tensor | None  # (H), by which distance lowers scores
    layers: list[Layer]
    norm: Norm
    unembedding: Matrix

    @property
    def most_inputs(self) -> int:
        """Of all matrices."""
        return max(self.width, self.heads * self.value_width, self.hidden)


def lay_out(model: LanguageModel, dtype: torch.dtype) -> Weights:
    """For a model that `fits`."""
    stack = model.stack
    assert isinstance(stack, Stack) and isinstance(stack.embedding, nn.Embedding)
    blocks = [block for block in stack.blocks if isinstance(block, Block)]
    attention, mlp, position = blocks[0].attention, blocks[0].mlp, stack.position
    assert isinstance(attention, Attention)
    width = model.unembedding.in_features
    places = cos = sin = slopes = None
    match position:
        case Learned():
            places = _plain(position.weight)
        case Sinusoidal():
            places = _plain(position.table)
        case Rotary():
            cos, sin = _plain(position.cos), _plain(position.sin)
        case Alibi():
            slopes = _plain(position.slopes)
    return Weights(
        dtype=dtype,
        width=width,
        heads=attention.heads,
        kv_heads=attention.kv_heads,
        head_width=attention.head_width,
        value_width=attention.value_width,
        hidden=mlp.down.in_features,
        vocab=model.unembedding.out_features,
        context=stack.context,
        window=stack.mask.window or 0,
        activation=_activation(mlp),
        score_scale=1.0 if isinstance(attention, UnscaledAttention) else attention.head_width**-0.5,
        embedding_scale=width**0.5 if isinstance(position, Sinusoidal) else 1.0,
        embedding=_plain(stack.embedding.weight),
        places=places,
        cos=cos,
        sin=sin,
        slopes=slopes,
        layers=[_layer(block, dtype) for block in blocks],
        norm=_norm(stack.norm),
        unembedding=_matrix(model.unembedding, dtype),
    )


def _activation(mlp: nn.Module) -> str:
    if isinstance(mlp, GatedMLP):
        return "swiglu"
    return next(name for name, function in ACTIVATIONS.items() if function is mlp.activation)


def _layer(block: Block, dtype: torch.dtype) -> Layer:
    attention = block.attention
    assert isinstance(attention, Attention)
    return Layer(
        attention_norm=_norm(block.attention_norm),
        qkv=_matrix(attention.qkv, dtype),
        qk_norm=_norm(attention.qk_norm),
        out=_matrix(attention.out, dtype),
        mlp_norm=_norm(block.mlp_norm),
        up=_matrix(block.mlp.up, dtype),
        down=_matrix(block.mlp.down, dtype),
    )


def _norm(module: nn.Module) -> Norm:
    match module:
        case LayerNorm():
            return Norm(
                "layer",
                _plain(module.gamma),
                None if module.beta is None else _plain(module.beta),
                module.eps,
            )
        case RMSNorm():
            return Norm("rms", _plain(module.gamma), None, module.eps)
    return Norm()


def _matrix(linear: nn.Linear, dtype: torch.dtype) -> Matrix:
    bias = None if linear.bias is None else _plain(linear.bias)
    return Matrix(linear.weight.detach().to(dtype).contiguous(), bias)


def _plain(x: Tensor) -> Tensor:
    return x.detach().float().contiguous()
