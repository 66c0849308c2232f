"""AdamW by PyTorch's fused kernel, ready at once.

PyTorch's own classes import its compiler when an optimizer is made and when it first steps, to tell it to
leave them alone. That takes over a second, which a short run without a compiler need not wait for.
"""

import sys
from typing import Any

import torch
from torch import Tensor
from torch.optim import AdamW, Optimizer


class FusedAdamW(AdamW):
    """The same kernel, the same state, the same bits."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            self._move([p for p in group["params"] if p.grad is not None], group)

    def _move(self, parameters: list[Tensor], group: dict[str, Any]) -> None:
        if not parameters:
            return
        for p in parameters:
            if not self.state[p]:
                self.state[p]["step"] = torch.zeros((), device=p.device)
                self.state[p] |= {name: torch.zeros_like(p) for name in ("exp_avg", "exp_avg_sq")}
        counts, first, second = (
            [self.state[p][name] for p in parameters] for name in ("step", "exp_avg", "exp_avg_sq")
        )
        found_inf: Tensor | None = getattr(self, "found_inf", None)  # 1: nothing moves
        beta1, beta2 = group["betas"]
        torch._foreach_add_(counts, 1)  # type: ignore[attr-defined]
        torch._fused_adamw_(  # type: ignore[attr-defined]
            parameters,
            [p.grad for p in parameters if p.grad is not None],
            first,
            second,
            [],
            counts,
            lr=group["lr"],
            beta1=beta1,
            beta2=beta2,
            weight_decay=group["weight_decay"],
            eps=group["eps"],
            amsgrad=False,
            maximize=False,
            grad_scale=getattr(self, "grad_scale", None),
            found_inf=found_inf,
        )
        if found_inf is not None:
            torch._foreach_sub_(counts, [found_inf] * len(counts))  # type: ignore[attr-defined]


def spare_the_compiler() -> None:
    """Let optimizers be made without it, unless it is there already."""
    if "torch._dynamo" in sys.modules:
        return
    for name in ("add_param_group", "zero_grad", "state_dict", "load_state_dict"):
        plain = getattr(getattr(Optimizer, name, None), "__wrapped__", None)
        if plain is not None and not hasattr(plain, "__dynamo_disable"):
            setattr(plain, "__dynamo_disable", plain)
