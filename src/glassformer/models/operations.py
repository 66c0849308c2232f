"""What a forward pass costs, counted in multiplications and additions (two for each weight that is used).

    matrices     2 · rows · columns per token
    attention    2 · T · H · (D + E) per token and layer: scores and weighted values (half of it is thrown
                 away under a causal mask, but done)

Training costs three times as much: the backward pass is two forward passes. Letters as in attention.py.
"""

from torch import nn

from glassformer.models.attention import CrossAttention, Mixer
from glassformer.models.model import EncoderDecoderModel


def operations_per_token(model: nn.Module, T: int) -> float:
    """Of a forward pass over sequences of T tokens; a translator's tokens are half source, half target."""
    total = 0.0
    for module in model.modules():
        if isinstance(module, nn.Linear):
            total += 2 * module.in_features * module.out_features
        elif isinstance(module, nn.RNNBase):
            total += 2 * sum(p.numel() for p in module.parameters() if p.ndim == 2)
        elif isinstance(module, Mixer | CrossAttention):
            total += 2 * T * sum(module.widths)
    return total / 2 if isinstance(model, EncoderDecoderModel) else total
