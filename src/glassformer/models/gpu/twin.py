"""The fused twin of a language model's forward pass, made from the same parameters.

It is called like the model, and gives what the model gives. With a tap it is the model: whoever looks inside
gets the open pass. Short convolutions are the model's own modules. The stream is in half precision, and
nothing between two products is written to memory twice.

    embed ──► norm ──► qkv ──► turn, attend ──► W_O ──► + norm ──► up ──► activate ──► down ──► + norm ──► …

The + of a residual connection is done by the product before it, where a library for that is there (blaslt.py)
and neither dropout nor a bias stands in between; else by the norm behind it.

On the way back what is new of a gradient goes right to where the parameter keeps it (slots.py). So the pass
is for `backward`, not for `torch.autograd.grad`.

Letters: B batch, T positions, C model width, n rows (all positions of a batch).
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from glassformer.models.attention import Attention
from glassformer.models.block import Block
from glassformer.models.gpu.functions import (
    Activate,
    CausalAttention,
    Chance,
    Embedding,
    GeluNet,
    Heads,
    JoinedNorm,
    Linear,
    LinearOnto,
    NormKind,
    drop,
    operations,
)
from glassformer.models.gpu.loss import NarrowHead, own_entropy, padding
from glassformer.models.gpu.narrow import MOST_SHARED, MULTIPLE, Behind, Narrow, Narrows, Pair
from glassformer.models.gpu.slots import Slots
from glassformer.models.layers import ACTIVATIONS, MLP, GatedMLP, LayerNorm, RMSNorm
from glassformer.models.model import LanguageModel, Readout, scores
from glassformer.models.position import Learned, Rotary, Sinusoidal
from glassformer.models.shift import Unshifted
from glassformer.models.state import State
from glassformer.models.tap import Tap, off
from glassformer.models.transformer import Stack


class Twin:
    """A model that fits (fitting.py), by the fused pass. What is dropped follows from `seed`."""

    def __init__(self, model: LanguageModel, dtype: torch.dtype = torch.bfloat16, *, narrow: bool = False):
        """`narrow`: on the way forward, what multiplies the result of a norm is in 8 bits (narrow.py)."""
        assert isinstance(model.stack, Stack)
        self.model, self.stack, self.dtype = model, model.stack, dtype
        device = next(model.parameters()).device
        self.operations = operations(device)
        self.joins = self.operations.joins_products(device)
        self.seed = torch.zeros((), dtype=torch.int64, device=device)
        linears = [layer for block in self.stack.blocks for layer in _linears(block)]
        own: list[Tensor] = [p for layer in linears for p in layer.parameters()]
        norms = [p for norm in _norms(self.stack) for p in norm.parameters()]
        self.slots = Slots([*(layer.weight for layer in linears), *norms], device)
        self.originals = own
        self.copies = [torch.empty_like(p, dtype=dtype, requires_grad=False) for p in own]
        self._copy_of = {id(p): copy for p, copy in zip(own, self.copies, strict=True)}
        pairs = narrow_pairs(model) if narrow else []
        self.narrows = Narrows(pairs, self.operations) if pairs else None

    def __call__(
        self,
        ids: Tensor,
        state: State | None = None,
        tap: Tap = off,
        padding_mask: Tensor | None = None,
        readout: Readout = scores,
        readout_args: tuple[Any, ...] = (),
    ) -> Tensor:
        model = self.model
        if tap is not off or state is not None or padding_mask is not None or not model.training:
            return model(ids, state, tap, padding_mask, readout, readout_args)
        x, narrow = self._final(ids)
        if readout is scores:
            x = x.float()  # as the head has its weights
        with own_entropy(narrow):
            return readout(x, model.unembedding, tap, *readout_args)

    def final(self, ids: Tensor) -> Tensor:
        """The stream after the last norm (B, T, C), in the type of the pass."""
        return self._final(ids)[0]

    def _final(self, ids: Tensor) -> tuple[Tensor, NarrowHead | None]:
        """The same, and what the head multiplies if it does so in 8 bits."""
        stack, ops = self.stack, self.operations
        B, T = ids.shape
        if stack.context < T:
            raise ValueError(f"{T} tokens are more than the context of {stack.context}")
        self.slots.begin_pass()
        with torch.no_grad():
            torch._foreach_copy_(self.copies, self.originals)  # type: ignore[attr-defined]
            if self.narrows is not None:
                self.narrows.renew()
        chance = _Sites(self.seed)
        with torch.autocast(ids.device.type, enabled=False):
            u = drop(self._embed(ids), chance(stack.dropout.p), ops)  # (n, C)
            stream: Tensor | None = None
            left_out = 0.0  # share of the update u that the next norm drops
            for block in stack.blocks:
                assert isinstance(block, Block)
                p = block.dropout.p
                stream, h, narrow = self._norm(block.attention_norm, u, stream, chance(left_out))
                h = self._shifted(block.attention_shift, h, B)
                u, stream = self._attention(block.attention, h, narrow, B, chance, stream, p)
                stream, h, narrow = self._norm(block.mlp_norm, u, stream, chance(p))
                h = self._shifted(block.mlp_shift, h, B)
                u, stream = self._mlp(block.mlp, h, narrow, chance, stream, p)
                left_out = p
            _, h, narrow = self._norm(stack.norm, u, stream, chance(left_out))
            h = drop(h, chance(self.model.dropout.p), ops)
        head = None
        if narrow is not None and self.narrows is not None:
            head = NarrowHead(narrow, self.narrows.turned_behind(stack.norm))
        return h.view(B, T, -1), head

    def _embed(self, ids: Tensor) -> Tensor:
        """Where the stream begins (n, C)."""
        stack, position = self.stack, self.stack.position
        assert isinstance(stack.embedding, nn.Embedding)
        places, scale = None, 1.0
        if isinstance(position, Learned):
            places = position.weight
        elif isinstance(position, Sinusoidal):
            places, scale = position.table, position.scale
        shifted = not isinstance(stack.shift, Unshifted)
        dtype = torch.float32 if shifted else self.dtype
        x = Embedding.apply(ids, stack.embedding.weight, places, scale, dtype, self.operations)
        return self._shifted(stack.shift, x, len(ids)).to(self.dtype)

    def _linear(self, layer: nn.Linear, x: Tensor, narrow: Pair | None = None) -> Tensor:
        bias = layer.bias
        copies = self._copy_of[id(layer.weight)], None if bias is None else self._copy_of[id(bias)]
        return Linear.apply(x, layer.weight, bias, *copies, self.slots, narrow)

    def _onto(self, layer: nn.Linear, x: Tensor, stream: Tensor, p: float) -> tuple[Tensor, Tensor | None]:
        """What a layer adds, and the stream it is still to be added to; or the new stream, and None."""
        if not self._joins(p, layer):
            return self._linear(layer, x), stream
        copy = self._copy_of[id(layer.weight)]
        return LinearOnto.apply(x, layer.weight, copy, stream, self.operations, self.slots), None

    def _joins(self, p: float, *layers: nn.Linear) -> bool:
        """Whether nothing stands between these products and what they are joined with, and sizes fit."""
        sizes = [size for layer in layers for size in layer.weight.shape]
        return self.joins and not p and all(x.bias is None for x in layers) and not any(n % 8 for n in sizes)

    def _norm(
        self, norm: nn.Module, u: Tensor, stream: Tensor | None, chance: Chance
    ) -> tuple[Tensor, Tensor, Pair | None]:
        """The new stream, its norm, and that with the weights behind it in 8 bits, if it is for those."""
        assert isinstance(norm, (LayerNorm, RMSNorm))
        shift = norm.beta if isinstance(norm, LayerNorm) else None
        narrows = self.narrows if self.narrows is not None and norm in self.narrows else None
        unit = None if narrows is None else narrows.unit_of(norm)
        s, y, numbers = JoinedNorm.apply(
            u, stream, norm.gamma, shift, norm_kind(norm), chance, self.operations, self.slots, unit
        )
        if narrows is None or unit is None:
            return s, y, None
        return s, y, (Narrow(numbers, unit), narrows.weight_behind(norm))

    def _shifted(self, shift: nn.Module, h: Tensor, B: int) -> Tensor:
        if isinstance(shift, Unshifted):
            return h
        return shift(h.unflatten(0, (B, -1)), self.stack.mask, None).to(h.dtype).flatten(0, 1)

    def _attention(
        self,
        attention: nn.Module,
        h: Tensor,
        narrow: Pair | None,
        B: int,
        chance: "_Sites",
        stream: Tensor,
        p: float,
    ) -> tuple[Tensor, Tensor | None]:
        assert isinstance(attention, Attention)
        qkv = self._linear(attention.qkv, h, narrow).unflatten(0, (B, -1))  # (B, T, (H + 2 K) · D)
        normed = isinstance(attention.qk_norm, (LayerNorm, RMSNorm))
        kind = norm_kind(attention.qk_norm) if normed else None
        tables: tuple[Tensor | None, Tensor | None] = None, None
        if isinstance(attention.position, Rotary):
            T = qkv.shape[1]
            tables = attention.position.cos[:T], attention.position.sin[:T]
        heads = Heads(attention.heads, attention.kv_heads, attention.head_width, kind, *tables)
        gain = attention.qk_norm.gamma if normed else None
        z = CausalAttention.apply(qkv, gain, heads, chance(attention.dropout), self.operations, self.slots)
        return self._onto(attention.out, z.flatten(0, 1), stream, p)

    def _mlp(
        self,
        mlp: MLP | GatedMLP,
        h: Tensor,
        narrow: Pair | None,
        chance: "_Sites",
        stream: Tensor,
        p: float,
    ) -> tuple[Tensor, Tensor | None]:
        kind = "swiglu"
        if not isinstance(mlp, GatedMLP):
            kind = next(name for name, function in ACTIVATIONS.items() if function is mlp.activation)
        dropped = chance(mlp.dropout.p)
        if kind == "gelu-tanh" and self._joins(dropped.p, mlp.up, mlp.down):
            weights = mlp.up.weight, mlp.down.weight
            copies = (self._copy_of[id(w)] for w in weights)
            onto = None if p else stream
            u = GeluNet.apply(h, *weights, *copies, onto, self.operations, self.slots, narrow)
            return u, stream if p else None
        hidden = Activate.apply(self._linear(mlp.up, h, narrow), kind, dropped, self.operations)
        return self._onto(mlp.down, hidden, stream, p)


class _Sites:
    """Gives each place where something is dropped a number of its own, in the order of the pass."""

    def __init__(self, seed: Tensor):
        self.seed, self.count = seed, 0

    def __call__(self, p: float) -> Chance:
        self.count += 1
        return Chance(self.seed, self.count, p)


def norm_kind(norm: nn.Module) -> NormKind:
    assert isinstance(norm, (LayerNorm, RMSNorm))
    return NormKind(norm.eps, isinstance(norm, LayerNorm))


def narrow_pairs(model: LanguageModel) -> list[Behind]:
    """The products of a model that are for numbers of 8 bits: those of a norm's result as it is."""
    assert isinstance(model.stack, Stack)
    found: list[Behind] = []

    def add(norm: nn.Module, weight: Tensor, rows: int, both_ways: bool = False) -> None:
        if isinstance(norm, (LayerNorm, RMSNorm)) and not rows % MULTIPLE and not weight.shape[1] % MULTIPLE:
            found.append(Behind(norm, weight, rows, both_ways))

    for block in model.stack.blocks:
        assert isinstance(block, Block) and isinstance(block.attention, Attention)
        if isinstance(block.attention_shift, Unshifted):
            add(block.attention_norm, block.attention.qkv.weight, len(block.attention.qkv.weight))
        if isinstance(block.mlp_shift, Unshifted):
            add(block.mlp_norm, block.mlp.up.weight, len(block.mlp.up.weight))
    if not model.dropout.p and model.vocab <= MOST_SHARED:
        head = model.unembedding.weight
        add(model.stack.norm, head, len(head) + padding(len(head)), both_ways=True)
    return found


def _norms(stack: Stack) -> Iterator[nn.Module]:
    for block in stack.blocks:
        assert isinstance(block, Block) and isinstance(block.attention, Attention)
        yield from (block.attention_norm, block.attention.qk_norm, block.mlp_norm)
    yield stack.norm


def _linears(block: nn.Module) -> list[nn.Linear]:
    assert isinstance(block, Block) and isinstance(block.attention, Attention)
    return [block.attention.qkv, block.attention.out, block.mlp.up, block.mlp.down]
