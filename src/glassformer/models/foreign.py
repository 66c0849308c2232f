"""Parts of a model that others have written, or hung on it (docs/own-parts.md).

What is recorded as a CUDA graph is repeated without asking the host anything, and without calling Python. Of
our modules, and of those of PyTorch that they are made of, it is known that they do with that; of others, of
hooks and of functions of somebody else's it is not.
"""

from typing import Any

from torch import nn

from glassformer.models.mask import Mask

OURS = "glassformer."
MODULES = (nn.Linear, nn.Embedding, nn.ModuleList, nn.ParameterList, nn.Identity, nn.RNN, nn.GRU, nn.LSTM)
HOOKS = "_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks"
PARAMETER_HOOKS = "_backward_hooks", "_post_accumulate_grad_hooks"


def foreign_part(model: nn.Module) -> str | None:
    """The name of the first such part; None: there is none."""
    for module in model.modules():
        kind = type(module)
        if not kind.__module__.startswith(OURS) and kind not in MODULES:
            return kind.__name__
        if any(getattr(module, name) for name in HOOKS):
            return f"a hook of {kind.__name__}"
        for name, value in vars(module).items():
            if isinstance(value, Mask) and value.rule is not None:
                return "a mask by a rule"
            if _is_foreign(value):
                return f"{kind.__name__}.{name}"
    for name, p in model.named_parameters():
        if any(getattr(p, hooks) for hooks in PARAMETER_HOOKS):
            return f"a hook of {name}"
    return None


class Structure:
    """What a model is made of at some time: its modules, their masks and functions, where its weights lie."""

    def __init__(self, model: nn.Module):
        modules = list(model.modules())
        values = (value for module in modules for value in vars(module).values())
        self.parts: list[Any] = [*modules, *(v for v in values if isinstance(v, Mask) or callable(v))]
        self.places = [p.data_ptr() for p in model.parameters()]

    def is_of(self, model: nn.Module) -> bool:
        """Whether it is all of that still."""
        now = Structure(model)
        if now.places != self.places or len(now.parts) != len(self.parts):
            return False
        return all(a is b for a, b in zip(self.parts, now.parts, strict=True))


def _is_foreign(value: Any) -> bool:
    """Whether this is a function that others have written."""
    if not callable(value) or isinstance(value, (nn.Module, type)):
        return False
    home = getattr(value, "__module__", None) or "torch."  # what is compiled does not say
    return not f"{home}.".startswith((OURS, "torch."))
