"""Which models the compiled step can compute.

Parts are recognised by their exact types: a component of somebody's own may do anything in its `forward`, so
it takes the open pass. gpu/ begins with the same question.
"""

from torch import nn

from glassformer.models.attention import Attention, UnscaledAttention
from glassformer.models.block import PLACEMENTS, Block, add, replace
from glassformer.models.build import Decoder
from glassformer.models.layers import ACTIVATIONS, MLP, GatedMLP, LayerNorm, RMSNorm, WordDropout
from glassformer.models.mask import Mask
from glassformer.models.model import LanguageModel
from glassformer.models.position import Alibi, Learned, Position, Rotary, Sinusoidal
from glassformer.models.shift import Shift, Unshifted
from glassformer.models.transformer import Stack


def fits(model: nn.Module) -> str | None:
    """Why this model has to take the open pass; None: it need not."""
    if (reason := unknown_part(model)) is not None:
        return reason
    device = next(model.parameters()).device
    return None if device.type == "cpu" else f"its weights lie on {device}"


def unknown_part(model: nn.Module) -> str | None:
    """What in a model is none of our own parts, put together in our own way; None: nothing."""
    if type(model) not in (Decoder, LanguageModel):
        return f"a {_name(model)} is no transformer language model"
    stack = model.stack
    if type(stack) is not Stack:
        return f"its body is a {_name(stack)}, no transformer"
    for name, module in model.named_modules():
        if module._forward_hooks or module._forward_pre_hooks:
            return f"{name or 'the model'} has a hook"
    if type(model.unembedding) is not nn.Linear:
        return f"its unembedding is a {_name(model.unembedding)}"
    return _reason_of_stack(stack) or _reason_of_blocks(stack)


def _reason_of_stack(stack: Stack) -> str | None:
    if type(stack.embedding) not in (nn.Embedding, WordDropout) or stack.embedding.max_norm is not None:
        return f"its embedding is a {_name(stack.embedding)}"
    if type(stack.position) not in (Position, Learned, Sinusoidal, Rotary, Alibi):
        return f"its positions are a {_name(stack.position)}"
    if stack.mask != Mask(causal=True, window=stack.mask.window):
        return "its mask is more than causal"
    if type(stack.shift) not in (Shift, Unshifted):
        return f"its shift is a {_name(stack.shift)}"
    if not len(stack.blocks):
        return "it has no blocks"
    return None


def _reason_of_blocks(stack: Stack) -> str | None:
    blocks: list[Block] = []
    for i, block in enumerate(stack.blocks):
        if type(block) is not Block:
            return f"block {i} is a {_name(block)}"
        blocks.append(block)
        reason = _reason_of_block(block)
        if reason is None and block.attention.position is not stack.position:
            reason = "has positions of its own"
        if reason is None and _shapes(block) != _shapes(blocks[0]):
            reason = "is not shaped as the first is"
        if reason is not None:
            return f"block {i} {reason}"
    norms = [norm for block in blocks for norm in _norms(block)]
    kinds = {type(norm) for norm in (*norms, stack.norm)} - {nn.Identity}
    if not kinds <= {LayerNorm, RMSNorm}:
        return f"its norm is a {' or '.join(sorted(kind.__name__ for kind in kinds))}"
    if len(kinds) > 1:
        return "it has norms of two kinds"
    return None


def _reason_of_block(block: Block) -> str | None:
    attention, mlp = block.attention, block.mlp
    if not isinstance(attention, Attention) or type(attention) not in (Attention, UnscaledAttention):
        return f"attends by a {_name(attention)}"
    if block.cross is not None:
        return "looks into another sequence"
    if type(mlp) not in (MLP, GatedMLP):
        return f"has a {_name(mlp)} for its MLP"
    if isinstance(mlp, MLP) and mlp.activation not in ACTIVATIONS.values():
        return "has an activation of its own"
    if block.placement not in PLACEMENTS.values() or block.join not in (add, replace):
        return "joins its layers in a way of its own"
    if {type(block.attention_shift), type(block.mlp_shift)} - {Shift, Unshifted}:
        return "reads through a shift of its own"
    matrices = (attention.qkv, attention.out, mlp.up, mlp.down)
    if any(type(matrix) is not nn.Linear for matrix in matrices):
        return "has a matrix that is no plain nn.Linear"
    return None


def _norms(block: Block) -> tuple[nn.Module, ...]:
    assert isinstance(block.attention, Attention)
    return block.attention_norm, block.mlp_norm, block.attention.qk_norm


def _shapes(block: Block) -> list[object]:
    """What all blocks must have alike."""
    attention = block.attention
    assert isinstance(attention, Attention)
    heads = attention.heads, attention.kv_heads, attention.head_width, attention.value_width
    kinds = type(attention), type(block.mlp), block.placement, block.join, getattr(block.mlp, "activation", 0)
    return [heads, kinds, *((name, p.shape) for name, p in block.named_parameters())]


def _name(module: object) -> str:
    return type(module).__name__
