"""Which models the kernels can compute, and where there are kernels at all."""

from torch import nn

from glassformer.core.triton_kernels import missing
from glassformer.generation.fast.fitting import unknown_part
from glassformer.models.block import Block, add, pre
from glassformer.models.shift import Unshifted
from glassformer.models.transformer import Stack

MOST_HEAD_WIDTH = 256  # what one program holds of a head


def fits(model: nn.Module) -> str | None:
    """Why this model has to take the open pass; None: it need not."""
    if (reason := unknown_part(model)) is not None:
        return reason
    stack = model.stack
    assert isinstance(stack, Stack)
    return _reason_of(stack) or missing(next(model.parameters()).device)


def _reason_of(stack: Stack) -> str | None:
    """What the compiled step of a CPU has and the kernels have not."""
    block = stack.blocks[0]  # the others are shaped as the first is
    assert isinstance(block, Block)
    if block.placement is not pre:
        return "its norms do not stand before the layers"
    if block.join is not add:
        return "it has no residual stream"
    if {type(shift) for shift in (stack.shift, block.attention_shift, block.mlp_shift)} != {Unshifted}:
        return "it reads through shifts"
    if max(block.attention.widths) // block.attention.heads > MOST_HEAD_WIDTH:  # type: ignore[operator]
        return f"its heads are wider than {MOST_HEAD_WIDTH}"
    return None
