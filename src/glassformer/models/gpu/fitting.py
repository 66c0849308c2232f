"""Which models the fused pass is made for. Parts of one's own (docs/own-parts.md) take the open pass."""

import torch
from torch import nn

from glassformer.models.attention import Attention
from glassformer.models.block import Block, add, pre
from glassformer.models.layers import ACTIVATIONS, MLP, GatedMLP, LayerNorm, RMSNorm
from glassformer.models.mask import Mask
from glassformer.models.model import LanguageModel
from glassformer.models.position import Learned, Position, Rotary, Sinusoidal
from glassformer.models.shift import Shift, Unshifted
from glassformer.models.transformer import Stack

HEAD_WIDTHS = (16, 32, 64, 128)
NORMS = (LayerNorm, RMSNorm)
SHIFTS = (Shift, Unshifted)
HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


def fits(model: nn.Module) -> str | None:
    """Why a model is trained by the open pass; None: the fused one is made for it."""
    if not isinstance(model, LanguageModel):
        return "it is for models that predict the next token"
    body = model.stack
    if type(body) is not Stack:
        return "it is for transformers"
    if any(getattr(module, hooks, None) for module in model.modules() for hooks in HOOKS):
        return "a module has hooks, which it would not call"
    if any(p._backward_hooks or p._post_accumulate_grad_hooks for p in model.parameters()):
        return "a parameter has hooks, which it would not call"
    if body.mask != Mask(causal=True):
        return "its attention looks back to the start, without a window or a mask of one's own"
    if type(body.position) not in (Position, Learned, Sinusoidal, Rotary):
        return f"it has no place for positions by {type(body.position).__name__}"
    if type(model).forward is not LanguageModel.forward or type(model.unembedding) is not nn.Linear:
        return "it knows the forward pass and the head of this project alone"
    if type(body.embedding) is not nn.Embedding or body.embedding.max_norm is not None:
        return "its embedding is a plain table (no model.word_dropout)"
    if not any(p.requires_grad for p in body.parameters()):
        return "nothing below the head is trained"
    if type(body.norm) not in NORMS:
        return "it is for LayerNorm and RMSNorm that stand before each layer"
    if any(p.dtype != torch.float32 for p in model.parameters()):
        return "it is for weights in float32, of which it makes copies"
    if type(body.shift) not in SHIFTS:
        return "it knows the short convolutions of this project alone"
    reasons = (_of_block(block, body.position) for block in body.blocks)
    return next((reason for reason in reasons if reason), None)


def _of_block(block: nn.Module, position: Position) -> str | None:
    if type(block) is not Block or block.placement is not pre or block.join is not add:
        return "it is for blocks with residual connections and their norms before each layer"
    if any(type(norm) not in NORMS for norm in (block.attention_norm, block.mlp_norm)):
        return "it is for LayerNorm and RMSNorm"
    if any(type(shift) not in SHIFTS for shift in (block.attention_shift, block.mlp_shift)):
        return "it knows the short convolutions of this project alone"
    mlp, attention = block.mlp, block.attention
    if type(mlp) is not GatedMLP and (type(mlp) is not MLP or mlp.activation not in ACTIVATIONS.values()):
        return "it is for the feed-forward nets and activations of this project"
    if type(attention) is not Attention or type(attention.qk_norm) not in (*NORMS, nn.Identity):
        return "it is for scaled attention with queries, keys and values"
    if attention.position is not position:
        return "its attention takes the positions of the whole model"
    if any(type(layer) is not nn.Linear for layer in (attention.qkv, attention.out, mlp.up, mlp.down)):
        return "it is for plain matrices"
    if attention.value_width != attention.head_width or attention.head_width not in HEAD_WIDTHS:
        return f"it is for heads as wide as {', '.join(map(str, HEAD_WIDTHS))}, their values like their keys"
    return None
