"""What a model becomes when its matrices are kept in fewer bits: a model again, measured like any other."""

import copy

import torch
from torch import Tensor, nn

from glassformer.generation.fast.weights import Precision, to_int8
from glassformer.models.model import LanguageModel
from glassformer.models.transformer import Stack


@torch.no_grad()
def rounded_model(model: LanguageModel, precision: Precision) -> LanguageModel:
    """A copy with the matrices that the fast step reads, in float32 again; of a model that it fits."""
    other, stack = copy.deepcopy(model), model.stack
    assert isinstance(stack, Stack) and isinstance(other.stack, Stack)
    for linear in [*_matrices(other.stack.blocks), other.unembedding]:  # a tied embedding stays as it is
        linear.weight = nn.Parameter(round_weights(linear.weight, precision), requires_grad=False)
    return other


def round_weights(x: Tensor, precision: Precision) -> Tensor:
    """A matrix as the fast step reads it."""
    match precision:
        case "float32":
            return x.clone()
        case "bfloat16":
            return x.to(torch.bfloat16).float()
        case "int8":
            whole, scale = to_int8(x.float())
            return whole.float() * scale[:, None]


def _matrices(blocks: nn.ModuleList) -> list[nn.Linear]:
    return [module for module in blocks.modules() if isinstance(module, nn.Linear)]
