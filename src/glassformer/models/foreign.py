"""Parts of a model that others have written (docs/own-parts.md).

What is recorded as a CUDA graph is repeated without asking the host anything. Of our modules and PyTorch's it
is known that they ask nothing; of others it is not.
"""

from torch import nn

from glassformer.models.mask import Mask

KNOWN = "glassformer.", "torch."


def foreign_part(model: nn.Module) -> str | None:
    """The name of the first part that is neither ours nor PyTorch's; None: there is none."""
    for module in model.modules():
        if not type(module).__module__.startswith(KNOWN):
            return type(module).__name__
        mask = getattr(module, "mask", None)
        if isinstance(mask, Mask) and mask.rule is not None:
            return "a mask by a rule"
    return None
