"""Counting a transformer: its parameters by part, its matrices, its operations.

    block      qkv   C → (H + K)·D + K·E      out   H·E → C      up   C → M (2M gated)      down   M → C
    outside    embedding V·C      unembedding C → V (the same when tied)      learned positions T·C

A matrix costs 2 · rows · columns operations per token, attention 2 · T · H · (D + E) per token and layer.
Training costs three times as much: the backward pass is two forward passes.

Letters: C width, L layers, H heads, K key-value heads, D head width, E value width, M hidden, V vocabulary,
T context.
"""

from dataclasses import dataclass

from glassformer.config.model import EMBEDDING_REACH, LAYER_REACH, ModelConfig
from glassformer.core.errors import UsageError


@dataclass(frozen=True)
class ParameterCounts:
    parts: dict[str, int]  # parameters
    block: list[tuple[int, int]]  # the matrices of one block, (columns in, rows out)
    layers: int
    width: int
    vocab: int

    @property
    def parameters(self) -> int:
        return sum(self.parts.values())

    @property
    def block_matrices(self) -> int:
        """Of the matrices of one block."""
        return sum(columns * rows for columns, rows in self.block)

    @property
    def all_matrices(self) -> int:
        """Of all matrices that a token is multiplied with, the unembedding too."""
        return self.layers * self.block_matrices + self.width * self.vocab

    @property
    def outside(self) -> int:
        """Outside the blocks."""
        return sum(self.parts[name] for name in ("embedding", "positions", "unembedding"))


def count(m: ModelConfig) -> ParameterCounts:
    if m.family != "transformer":
        raise UsageError(f"plan counts transformers, not model.family {m.family}")
    if m.attention != "full":
        raise UsageError(f"plan counts full attention, not model.attention {m.attention}")
    C, L, V = m.width, m.layers, m.vocab
    qkv = m.heads * m.head_width + m.kv_heads * (m.head_width + m.value_width)
    up = 2 * m.hidden if m.activation == "swiglu" else m.hidden
    block = [(C, qkv), (m.heads * m.value_width, C), (C, up), (m.hidden, C)]
    attention_bias, mlp_bias = (qkv + C, up + C) if m.bias else (0, 0)
    norm = 0 if m.placement == "none" else C * (2 if m.bias and m.norm != "rms" else 1)
    final_norm = norm if m.placement in ("pre", "renorm") else 0
    attention, mlp = (sum(a * b for a, b in half) for half in (block[:2], block[2:]))
    return ParameterCounts(
        parts={
            "embedding": (V + m.spelling) * C,  # with the vectors of runs of letters
            "positions": m.context * C if m.position == "learned" else 0,
            "attention": L * (attention + attention_bias),
            "feed-forward": L * (mlp + mlp_bias),
            "norms": L * (2 * norm + (m.head_width if m.qk_norm else 0)) + final_norm,
            "unembedding": 0 if m.tied else V * C,
            "shift": C * {"none": 0, "embedding": EMBEDDING_REACH, "layers": 2 * LAYER_REACH * L}[m.shift],
        },
        block=block,
        layers=L,
        width=C,
        vocab=V,
    )


def operations(m: ModelConfig) -> float:
    """Of training, per token: forward and backward."""
    attention = 2 * m.context * m.heads * (m.head_width + m.value_width)
    return 3.0 * (2 * count(m).all_matrices + m.layers * attention)
