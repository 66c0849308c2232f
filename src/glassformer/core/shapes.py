"""Models that are shapes alone: their weights take no memory, and no numbers are drawn for them.

They lie on PyTorch's `meta` device. Its own way to put everything there draws them all the same, and imports
PyTorch's compiler for that, which takes over a second. What is no weight, tables of positions for instance,
is made as usual.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import init
from torch.overrides import TorchFunctionMode

DRAWS = (
    init.normal_,
    init.uniform_,
    init.trunc_normal_,
    init.kaiming_uniform_,
    init.kaiming_normal_,
    init.xavier_uniform_,
    init.xavier_normal_,
    init.orthogonal_,
    Tensor.normal_,
    Tensor.uniform_,
)


class ShapesAlone(TorchFunctionMode):
    """Inside, modules are made of shapes."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func is torch.empty and kwargs.get("device") is None:
            return func(*args, **{**kwargs, "device": "meta"})
        if func in DRAWS:
            tensor = args[0] if args else kwargs["tensor"]
            return tensor if tensor.is_meta else func(*args, **kwargs)
        return func(*args, **kwargs)
