"""How a model's weights start.

    gpt2     every matrix N(0, 0.02²), those that write into the residual stream divided by √(2L)
    fan-in   every matrix N(0, 1/fan_in); those that write into the stream start at zero, so that each
             block is the identity at first and depth costs nothing at the start (without residual
             connections nothing would pass, so there they are drawn like the others)

Biases start at zero and norms at one in both. Embeddings are N(0, 0.02²), or N(0, 1/C) under sinusoidal
positions, which scale them up. Where the matrix of the last scores is not tied, `fan-in` starts it at zero:
the first prediction is the uniform one. A body that no norm keeps in scale says itself how large it wants its
embeddings (`embedding_std`) and the matrix on top of it (`unembedding_std`), whatever the scheme. A recurrent
translator draws the latter from N(0, 16/C): from zero it would learn how frequent each token is, and no more.
Recurrent cells keep PyTorch's own start, uniform within ±1/√H.
"""

from math import sqrt

from torch import nn

from glassformer.core.errors import UsageError
from glassformer.models.block import Block, add, residual_outputs
from glassformer.models.position import Learned, Sinusoidal


def initialise(model: nn.Module, scheme: str, embedding: float | None = None) -> None:
    """Draw all weights of `model` from torch's current generator."""
    blocks = [m for m in model.modules() if isinstance(m, Block)]
    sinusoidal = any(isinstance(m, Sinusoidal) for m in model.modules())
    for module in model.modules():
        if isinstance(module, nn.Linear):
            nn.init.normal_(module.weight, std=0.02 if scheme == "gpt2" else module.in_features**-0.5)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
        elif isinstance(module, nn.Embedding):
            usual = module.embedding_dim**-0.5 if sinusoidal else 0.02
            nn.init.normal_(module.weight, std=embedding or usual)
        elif isinstance(module, Learned):
            nn.init.normal_(module.weight, std=0.02)
    for block in blocks:
        for linear in residual_outputs(block):
            if scheme == "gpt2":
                nn.init.normal_(linear.weight, std=0.02 / sqrt(2 * len(blocks)))
            elif block.join is add:
                nn.init.zeros_(linear.weight)


def start_unembedding(
    unembedding: nn.Linear, embedding: nn.Module, tied: bool, scheme: str, std: float | None = None
) -> None:
    """The matrix of the last scores: the embedding's own, as large as the body says, or (`fan-in`) zero."""
    if tied:
        assert isinstance(embedding, nn.Embedding)
        if not embedding.weight.requires_grad:
            raise UsageError(
                "model.embedding fixed and model.tied: one matrix would be held still and be what the scores "
                "are learned by. Leave model.tied out, or set model.embedding=learned"
            )
        unembedding.weight = embedding.weight
    elif std is not None:
        nn.init.normal_(unembedding.weight, std=std)
    elif scheme == "fan-in":
        nn.init.zeros_(unembedding.weight)
