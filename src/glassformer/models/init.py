"""How a model's weights start.

    gpt2     every matrix N(0, 0.02²), those that write into the residual stream divided by √(2L)
    fan-in   every matrix N(0, 1/fan_in); those that write into the stream start at zero, so that each
             block is the identity at first and depth costs nothing at the start

Biases start at zero and norms at one in both.
"""

from math import sqrt

from torch import nn

from glassformer.models.block import Block, residual_outputs
from glassformer.models.position import Learned


def initialise(model: nn.Module, scheme: str) -> None:
    """Draw all weights of `model` from torch's current generator."""
    blocks = [m for m in model.modules() if isinstance(m, Block)]
    for module in model.modules():
        if isinstance(module, nn.Linear):
            nn.init.normal_(module.weight, std=0.02 if scheme == "gpt2" else module.in_features**-0.5)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
        elif isinstance(module, nn.Embedding | Learned):
            nn.init.normal_(module.weight, std=0.02)
    for block in blocks:
        for linear in residual_outputs(block):
            if scheme == "gpt2":
                nn.init.normal_(linear.weight, std=0.02 / sqrt(2 * len(blocks)))
            else:
                nn.init.zeros_(linear.weight)
