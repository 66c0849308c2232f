"""What parameters and modules are for, as the models themselves say it.

Optimizers, sharding and fine-tuning ask here instead of knowing names or classes:

    matrix      a matrix inside a block
    embedding   a table or matrix that what is read goes through first
    head        a matrix behind the blocks
    vector      everything that is no matrix: gains, biases, first states
"""

from collections.abc import Iterator
from enum import StrEnum
from typing import Protocol, runtime_checkable

from torch import Tensor, nn

from glassformer.models.model import Body


class Role(StrEnum):
    MATRIX = "matrix"
    EMBEDDING = "embedding"
    HEAD = "head"
    VECTOR = "vector"


def roles(model: nn.Module) -> dict[str, Role]:
    """The role of each parameter, by its name; a tied matrix is an embedding.

    Of a module that is not one of ours, a matrix is one of a block unless it is an embedding's.
    """
    bodies = list(_bodies(model))
    inner = {id(p) for body in bodies for p in body.blocks.parameters()}
    tables = {id(m.weight) for m in model.modules() if isinstance(m, nn.Embedding)}
    tables |= {id(p) for body in bodies for p in body.embedding.parameters()}
    tables |= {id(p) for body in bodies for p in getattr(body, "position", nn.Identity()).parameters()}

    def role(p: Tensor) -> Role:
        if p.ndim != 2:
            return Role.VECTOR
        if id(p) in tables:
            return Role.EMBEDDING
        return Role.MATRIX if id(p) in inner or not bodies else Role.HEAD

    return {name: role(p) for name, p in model.named_parameters()}


@runtime_checkable
class Fused(Protocol):
    """A module with weights that hold several matrices one above the other."""

    def fused_parts(self) -> dict[Tensor, tuple[int, ...]]: ...


def fused_parts(model: nn.Module) -> dict[Tensor, tuple[int, ...]]:
    """Such weights, with the rows of each matrix in them."""
    parts: dict[Tensor, tuple[int, ...]] = {}
    for module in model.modules():
        if isinstance(module, Fused):
            parts |= module.fused_parts()
    return parts


def sharding_units(model: nn.Module) -> list[nn.Module]:
    """What may lie over several processes, to be gathered one after the other; none: it cannot be divided."""
    return [block for body in _bodies(model) if body.divisible for block in body.blocks]


def mixes_batch(model: nn.Module) -> bool:
    """Whether something in it is computed over the whole batch, so that no process can do it alone."""
    return _says(model, "mixes_batch")


def may_idle(model: nn.Module) -> bool:
    """Whether some parameters have no part in some batches, and then no gradient."""
    return _says(model, "may_idle")


def entry_points(model: nn.Module) -> tuple[str, ...]:
    """The methods besides `forward` that a model is called by."""
    return getattr(model, "entry_points", ())


def shared_body(model: nn.Module) -> tuple[str, ...]:
    """What the names of the parameters begin with that a model for another task can take over."""
    return getattr(model, "shared_body", ())


def input_embedding(model: nn.Module) -> nn.Embedding:
    """The vectors of what is read; of a translator, of its source."""
    embedding = next(_bodies(model)).embedding
    assert isinstance(embedding, nn.Embedding)
    return embedding


def _bodies(model: nn.Module) -> Iterator[Body]:
    return (module for module in model.modules() if isinstance(module, Body))


def _says(model: nn.Module, name: str) -> bool:
    return any(getattr(module, name, False) for module in model.modules())
