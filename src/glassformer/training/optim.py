"""The optimizers, from the formulas where PyTorch has no fused one that fits.

adamw   Adam with decoupled weight decay (PyTorch's fused kernel)
adam    the 2017 paper's: β 0.9 and 0.98, ε 1e-9, no decay; goes with the `noam` schedule
sgd     stochastic gradient descent with momentum, as the textbook has it
muon    momentum whose update is made orthogonal, for the matrices inside the blocks; AdamW for the rest
"""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import SGD, Adam, AdamW, Optimizer

from glassformer.config.training import TrainingConfig
from glassformer.core.device import multiplies_bf16
from glassformer.core.errors import UsageError, closest
from glassformer.models.roles import Role, fused_parts, roles
from glassformer.training.adamw import FusedAdamW, spare_the_compiler
from glassformer.training.parallel.layout import full_tensor, local_rows

# Newton-Schulz: p(x) = ax + bx³ + cx⁵ applied to the singular values. These coefficients trade exactness for
# speed of approach: after a few rounds every singular value lies near one, not at one.
_NS = (3.4445, -4.7750, 2.0315)


def orthogonalise(G: Tensor, rounds: int = 5) -> Tensor:
    """The nearest (semi-)orthogonal matrix to each of a stack G (n, rows, columns), approximately."""
    a, b, c = _NS
    X = G.to(fast_type(G.device))
    tall = X.shape[-2] > X.shape[-1]
    if tall:
        X = X.mT
    X = X / (X.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(rounds):
        A = torch.bmm(X, X.mT)
        X = torch.baddbmm(X, torch.baddbmm(A, A, A, beta=b, alpha=c), X, beta=a)  # aX + (bA + cA²)X
    return (X.mT if tall else X).to(G.dtype)


def fast_type(device: torch.device) -> torch.dtype:
    """bfloat16 where the processor multiplies it natively; the result is approximate anyway."""
    return torch.bfloat16 if multiplies_bf16(device) else torch.float32


class Muon(Optimizer):
    """Nesterov momentum, orthogonalised: every direction of a matrix learns at the same rate.

    A weight that holds several matrices (query, key and value in one) is cut into them first; matrices of
    one shape are then treated as one stack. Of a weight that lies over several processes the whole update is
    gathered and made orthogonal by each; each then moves the rows it holds.
    """

    def __init__(
        self,
        params: Iterable[nn.Parameter],
        parts: dict[Tensor, tuple[int, ...]],
        lr: float = 0.02,
        momentum: float = 0.95,
        weight_decay: float = 0.0,
    ):
        super().__init__(list(params), {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})
        self.parts = parts

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            lr, momentum = group["lr"], group["momentum"]
            stacks: dict[tuple[int, int], list[tuple[Tensor, Tensor, slice]]] = {}
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if not state:
                    state["momentum"] = torch.zeros_like(p)
                state["momentum"].lerp_(p.grad, 1 - momentum)
                update = full_tensor(p.grad.lerp(state["momentum"], momentum))
                local, first = local_rows(p)
                start = 0
                for part in update.split(self.parts.get(p, (p.shape[0],))):
                    end = start + len(part)
                    low, high = max(start, first), min(end, first + len(local))
                    rows = slice(low - start, max(low, high) - start)  # of this part, those held here
                    weight = local[low - first : max(low, high) - first]
                    stacks.setdefault((part.shape[0], part.shape[1]), []).append((weight, part, rows))
                    start = end
            for (height, columns), entries in stacks.items():
                updates = orthogonalise(torch.stack([part for _, part, _ in entries]))
                size = max(1.0, height / columns) ** 0.5
                for (weight, _, rows), update in zip(entries, updates, strict=True):
                    if group["weight_decay"]:
                        weight.mul_(1 - lr * group["weight_decay"])
                    weight.add_(update[rows], alpha=-lr * size)


def make_optimizers(model: nn.Module, config: TrainingConfig) -> list[Optimizer]:
    """The optimizers of a run. Every group remembers its `base_lr`, which the schedule scales each step."""
    spare_the_compiler()
    named = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
    role = roles(model)
    inner = [p for name, p in named if role[name] == Role.MATRIX]
    outer = [p for name, p in named if role[name] in (Role.EMBEDDING, Role.HEAD)]
    vectors = [p for name, p in named if role[name] == Role.VECTOR]
    lr, decay = config.lr, config.weight_decay
    betas = (config.beta1, config.beta2)
    fused = all(p.device.type in ("cpu", "cuda") for _, p in named)

    def adamw(*groups: tuple[list[nn.Parameter], float, float]) -> Optimizer:
        param_groups = [{"params": ps, "lr": rate, "weight_decay": wd} for ps, rate, wd in groups if ps]
        kind = FusedAdamW if fused else AdamW
        return kind(param_groups, betas=betas, eps=config.eps, fused=fused)

    optimizers: list[Optimizer]
    match config.optimizer:
        case "adamw":
            optimizers = [adamw((inner + outer, lr, decay), (vectors, lr, 0.0))]
        case "adam":
            parameters = [p for _, p in named]
            optimizers = [Adam(parameters, lr=lr, betas=betas, eps=config.eps, fused=fused)]
        case "sgd":
            parameters = [p for _, p in named]
            optimizers = [SGD(parameters, lr=lr, momentum=config.momentum, weight_decay=decay)]
        case "muon":
            optimizers = []
            if inner:
                optimizers.append(Muon(inner, fused_parts(model), config.muon_lr, config.momentum, decay))
            if outer or vectors:
                optimizers.append(adamw((outer, lr, config.embedding_decay), (vectors, lr, 0.0)))
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["base_lr"] = group["lr"]
    return optimizers


def freeze(model: nn.Module, prefixes: list[str]) -> None:
    """Switch off training for the parameters under the given prefixes."""
    names = [name for name, _ in model.named_parameters()]
    for prefix in prefixes:
        parameters = [p for name, p in model.named_parameters() if name.startswith(prefix)]
        if not parameters:
            hint = closest(prefix, names)
            raise UsageError(f"training.freeze: no parameter's name starts with '{prefix}'.{hint}")
        for p in parameters:
            p.requires_grad_(False)
    if not any(p.requires_grad for p in model.parameters()):
        raise UsageError("training.freeze leaves nothing to train")
