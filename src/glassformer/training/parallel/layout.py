"""Parallelism from outside: how a model lies over the processes. The model knows nothing of it.

    one     one process, one model, as it is
    ddp     every process holds the whole model; gradients are averaged while the backward pass still runs
    fsdp    every process holds some rows of each weight, of its gradient and of the optimizer's state; the
            weights of a block are gathered when its turn comes, and let go after it

In both, a process works on its own part of every micro-batch, and nothing is sent before the last one.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from inspect import signature
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import get_total_norm

from glassformer.core.errors import UsageError
from glassformer.models.roles import entry_points, may_idle, mixes_batch, sharding_units
from glassformer.training.checkpoint.weights import unique_state_dict
from glassformer.training.compile import maybe_compile
from glassformer.training.parallel.world import World


class Layout:
    """One process: everything as it is."""

    name = "one"

    def __init__(self, model: nn.Module, world: World):
        self.model, self.world = model, world

    def forward(self, compiled: bool) -> Callable[..., Any]:
        """What the training loop calls for the model."""
        return maybe_compile(self.model, compiled)

    @contextmanager
    def micro(self, last: bool) -> Iterator[None]:
        """Around each micro-batch of a step."""
        yield

    def norm(self, gradients: list[Tensor]) -> Tensor:
        """Of all gradients, wherever they lie."""
        return get_total_norm(gradients)

    def full_state_dict(self) -> dict[str, Tensor]:
        """A copy of all weights on the leader, on the CPU; all processes must ask together."""
        weights: dict[str, Tensor] = {}
        for name, tensor in unique_state_dict(self.model).items():
            gathered = full_tensor(tensor.detach())
            if self.world.is_main:
                weights[name] = gathered.to("cpu", copy=True)
        return weights


class Replicated(Layout):
    name = "ddp"

    def __init__(self, model: nn.Module, world: World):
        super().__init__(model, world)
        wrap = nn.parallel.DistributedDataParallel
        # Buffers here are tables, the same everywhere. What says so has two names, by the version of PyTorch.
        new = "forward_sync_buffers" in signature(wrap).parameters
        buffers: dict[str, Any] = {"forward_sync_buffers" if new else "broadcast_buffers": False}
        idle = may_idle(model)
        self.wrapped = wrap(model, gradient_as_bucket_view=True, find_unused_parameters=idle, **buffers)

    def forward(self, compiled: bool) -> Callable[..., Any]:
        return maybe_compile(self.wrapped, compiled)

    @contextmanager
    def micro(self, last: bool) -> Iterator[None]:
        if last:
            yield
        else:
            with self.wrapped.no_sync():
                yield


class Sharded(Layout):
    name = "fsdp"

    def __init__(self, model: nn.Module, world: World, device: torch.device):
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import FSDPModule, fully_shard, register_fsdp_forward_method

        mesh = init_device_mesh(device.type, (world.size,))
        self.units = sharding_units(model)
        for module in (*self.units, model):
            fully_shard(module, mesh=mesh)
        for method in entry_points(model):
            register_fsdp_forward_method(model, method)
        assert isinstance(model, FSDPModule)
        self.sharded = model
        super().__init__(model, world)

    def forward(self, compiled: bool) -> Callable[..., Any]:
        """The units are compiled one by one, since gathering their weights stands between them."""
        if compiled:
            for unit in self.units:
                maybe_compile(unit, True, in_place=True)
        return self.model

    @contextmanager
    def micro(self, last: bool) -> Iterator[None]:
        self.sharded.set_requires_gradient_sync(last)
        yield

    def norm(self, gradients: list[Tensor]) -> Tensor:
        return full_tensor(super().norm(gradients))


def make_layout(model: nn.Module, kind: str, world: World, device: torch.device, precision: str) -> Layout:
    """A model over the processes of a world."""
    check_layout(model, kind, world.size, precision)
    if world.size == 1:
        return Layout(model, world)
    return Replicated(model, world) if kind == "ddp" else Sharded(model, world, device)


def check_layout(model: nn.Module, kind: str, processes: int, precision: str) -> None:
    """Refuse what cannot be."""
    if processes == 1:
        return
    if mixes_batch(model):
        raise UsageError("model.norm batch needs the whole batch in one process: train it in one")
    if kind == "fsdp" and precision == "fp16":
        raise UsageError("training.parallel fsdp: use training.precision bf16 or float32 instead of fp16")
    if kind == "fsdp" and not sharding_units(model):
        raise UsageError("training.parallel fsdp is for model.family transformer; the others train with ddp")


def is_sharded(tensor: Tensor) -> bool:
    """Whether its rows lie in several processes. (Its type is not imported: that takes half a second.)"""
    return hasattr(tensor, "full_tensor")


def full_tensor(tensor: Any) -> Tensor:
    """A tensor whose rows lie in several processes, whole; any other as it is."""
    return tensor.full_tensor() if is_sharded(tensor) else tensor


def local_rows(tensor: Any) -> tuple[Tensor, int]:
    """What of a tensor lies in this process, and the number of its first row. Writing to it is writing to
    the tensor.
    """
    if not is_sharded(tensor):
        return tensor, 0
    mesh, rows = tensor.device_mesh, tensor.shape[0]
    most = -(-rows // mesh.size())  # as torch.chunk cuts: all but the last have as many
    return tensor.to_local(), min(rows, mesh.get_local_rank() * most)
