"""What a forward pass costs, counted in multiplications and additions (two for each weight that is used).

    matrices     2 · rows · columns per token
    attention    4 · T · H · D per token and layer: scores and weighted values (half of it under a causal mask
                 is thrown away, but done)

Training costs three times as much: the backward pass is two forward passes. Letters as in attention.py.
"""

from torch import nn

from glassformer.models.attention import CrossAttention, Mixer
from glassformer.models.model import EncoderDecoder


def operations_per_token(model: nn.Module, T: int) -> float:
    """Of a forward pass over sequences of T tokens; a translator's tokens are half source, half target."""
    total = 0.0
    for module in model.modules():
        if isinstance(module, nn.Linear):
            total += 2 * module.in_features * module.out_features
        elif isinstance(module, nn.RNNBase):
            total += 2 * sum(p.numel() for p in module.parameters() if p.ndim == 2)
        elif isinstance(module, Mixer | CrossAttention):
            heads, width = getattr(module, "heads", 1), _head_width(module)
            total += 4 * T * heads * width
    return total / 2 if isinstance(model, EncoderDecoder) else total


def _head_width(module: nn.Module) -> int:
    """Of keys or values: what a head multiplies with every other position."""
    out = getattr(module, "out", None)
    if isinstance(out, nn.Linear):
        return out.in_features // getattr(module, "heads", 1)
    return getattr(module, "head_width", 0)
