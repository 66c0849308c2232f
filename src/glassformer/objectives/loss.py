"""The loss: how far scores are from what was to be got right, in nats.

    plain     scores = head(x), then −log softmax(scores)[target]: `cross_entropy`
    joined    head and loss in one: the scores are not kept, and not differentiated through

The gradient of −log softmax(s)[target] by the scores s is softmax(s) − onehot(target), which can be said as
soon as the scores are there. So a batch is scored some rows at a time; scores turn into their gradient on the
spot, and both products that the backward pass would make of it are made at once. What is left for the
backward pass is to multiply by the number that arrives from above. A test holds the two ways together.

Letters: n rows (all positions of a batch), C model width, V vocabulary.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.compiler import is_compiling
from torch.nn import functional as F

from glassformer.models.fast import loss as fast_loss
from glassformer.models.fast.wanted import are_wanted
from glassformer.models.gpu import loss as gpu_loss
from glassformer.models.model import scores
from glassformer.models.products import add_wide_product
from glassformer.models.tap import Tap, off

NOT_SCORED = -100  # as a target: a position that has nothing to get right
SCORES_AT_ONCE = {"cpu": 1 << 23, "cuda": 1 << 28}
LEAST_ROWS = 512  # fewer make small products, which are slow


def summed_loss(
    x: Tensor, head: Callable[[Tensor], Tensor], tap: Tap, targets: Tensor, smoothing: float = 0.0
) -> Tensor:
    """A readout (models/model.py): from the vectors of a body and the head to the sum of the losses."""
    if tap is off and isinstance(head, nn.Linear) and can_join(head, x):
        return joined_loss(x, head.weight, targets, smoothing)
    return cross_entropy(scores(x, head, tap), targets, smoothing)


def each_loss(x: Tensor, head: Callable[[Tensor], Tensor], tap: Tap, targets: Tensor) -> Tensor:
    """The same, the loss of each target by itself, in the shape of the targets; these are of the last
    positions, and no others are scored."""
    last = scores(x[:, x.shape[1] - targets.shape[1] :], head, tap)
    return cross_entropy(last, targets, reduction="none").view(targets.shape)


def calm_loss(
    x: Tensor,
    head: Callable[[Tensor], Tensor],
    tap: Tap,
    targets: Tensor,
    smoothing: float,
    size: float,
    change: float,
) -> Tensor:
    """The same, and for each target `size` times the mean square of the vectors (B, T, C) and `change` times
    that of their differences from one position to the next."""
    wide = widened(x)
    penalty = size * wide.square().mean()
    if change and x.shape[1] > 1:
        penalty = penalty + change * wide.diff(dim=1).square().mean()
    return summed_loss(x, head, tap, targets, smoothing) + targets.numel() * penalty


def consistent_loss(
    x: Tensor,
    head: Callable[[Tensor], Tensor],
    tap: Tap,
    targets: Tensor,
    smoothing: float,
    consistency: float,
) -> Tensor:
    """The same of a batch that holds every example twice, first all of them and then all again, and of each
    target KL(p‖q) + KL(q‖p) = Σ (p − q)(log p − log q) between its two answers, times consistency / 2.
    """
    logits = widened(scores(x, head, tap))
    log_p, log_q = logits.log_softmax(dim=-1).chunk(2)  # (B, T, V)
    apart = ((log_p.exp() - log_q.exp()) * (log_p - log_q)).sum(dim=-1)  # (B, T)
    apart = apart.masked_fill(targets.chunk(2)[0] == NOT_SCORED, 0.0)
    return cross_entropy(logits, targets, smoothing) + consistency / 2 * apart.sum()


def cross_entropy(logits: Tensor, targets: Tensor, smoothing: float = 0.0, reduction: str = "sum") -> Tensor:
    """−log softmax(logits)[target] over the last dimension; half-precision logits are widened first."""
    return F.cross_entropy(
        widened(logits).flatten(0, -2),
        targets.flatten(),
        reduction=reduction,
        label_smoothing=smoothing,
        ignore_index=NOT_SCORED,
    )


def widened(x: Tensor) -> Tensor:
    return x.float() if x.dtype in (torch.bfloat16, torch.float16) else x


def can_join(head: nn.Linear, x: Tensor) -> bool:
    """Whether scores and loss are to be joined: in training, if the head is a matrix alone.

    A compiler joins them by itself. Of float16 gradients only those of a scaled loss are large enough.
    """
    if is_compiling() or not are_wanted() or not x.requires_grad or x.device.type not in SCORES_AT_ONCE:
        return False
    hooked = head._forward_hooks or head._forward_pre_hooks or head._backward_hooks
    plain = type(head) is nn.Linear and head.bias is None and not hooked
    return plain and product_type(x) in (torch.float32, torch.float64, torch.bfloat16)


def product_type(x: Tensor) -> torch.dtype:
    """The type that a matrix product of x is done in here."""
    kind = x.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else x.dtype


def joined_loss(x: Tensor, weight: Tensor, targets: Tensor, smoothing: float = 0.0) -> Tensor:
    """The sum of the losses of x (…, C) under weight (V, C), in nats."""
    return _HeadLoss.apply(x.flatten(0, -2), weight, targets.flatten(), smoothing, product_type(x))


class _HeadLoss(Function):
    @staticmethod
    def forward(  # type: ignore[override]
        ctx: Any, x: Tensor, weight: Tensor, targets: Tensor, smoothing: float, dtype: torch.dtype
    ) -> Tensor:
        with torch.autocast(x.device.type, enabled=False):
            rows = max(LEAST_ROWS, SCORES_AT_ONCE[x.device.type] // len(weight))
            wide = torch.promote_types(dtype, torch.float32)
            h, w, V = x.to(dtype), weight.to(dtype), len(weight)
            by_kernel = gpu_loss.fits(x, dtype)
            if by_kernel:  # scores are all there is
                rows = gpu_loss.rows_at_once(len(x), V)
                if lacking := gpu_loss.padding(V):
                    w = F.pad(w, (0, 0, 0, lacking))
            total = x.new_zeros((), dtype=wide)
            dx = torch.empty_like(h)
            dw = torch.zeros_like(w, dtype=wide) if ctx.needs_input_grad[1] else None
            head = gpu_loss.Head(h, w)
            for first in range(0, len(x), rows):
                chosen = slice(first, first + rows)
                scores = head.scores(chosen)  # (rows, V)
                if by_kernel:
                    losses = head.by_kernel(scores, targets[chosen], V, smoothing, dx[chosen])
                    gradient = scores
                else:
                    losses, gradient = with_gradient(scores, targets[chosen], smoothing)
                    torch.mm(gradient, w, out=dx[chosen])
                total += losses.sum()
                if dw is not None:
                    if by_kernel:
                        add_wide_product(dw, gradient.t(), h[chosen])
                    else:
                        dw += gradient.t() @ h[chosen]
        ctx.save_for_backward(dx, None if dw is None else dw[:V])
        ctx.types, ctx.added_to = (x.dtype, weight.dtype), weight if by_kernel else None
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *above: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        dx, dw = ctx.saved_tensors
        of_x, of_weight = ctx.types
        dx = (dx * above[0]).to(of_x)
        if dw is not None and ctx.added_to is not None and ctx.added_to.grad is not None:
            ctx.added_to.grad.addcmul_(dw, above[0])  # as the other products of the fused pass
            dw = None
        return dx, None if dw is None else (dw * above[0]).to(of_weight), None, None, None


def with_gradient(scores: Tensor, targets: Tensor, smoothing: float = 0.0) -> tuple[Tensor, Tensor]:
    """Each row's loss (n), and the gradient of it by its scores (n, V), in their type and maybe their place.

    The largest share of a softmax is at least 1/V, so that its logarithm, unlike that of any other, is safe.
    """
    scored = targets != NOT_SCORED
    if fast_loss.fits(scores):
        return fast_loss.into_gradient(scores, targets, scored, smoothing), scores
    wide = scores.to(torch.promote_types(scores.dtype, torch.float32))
    column = targets.where(scored, 0)[:, None]  # (n, 1)
    top, wanted = wide.amax(dim=-1), wide.gather(1, column)[:, 0]
    if smoothing:  # a share of the target is spread over all entries
        wanted = (1 - smoothing) * wanted + smoothing * wide.mean(dim=-1)
    shares = torch.softmax(wide, dim=-1)
    losses = top - shares.amax(dim=-1).log() - wanted
    shares.scatter_add_(1, column, torch.full_like(column, smoothing - 1.0, dtype=shares.dtype))
    if smoothing:
        shares -= smoothing / shares.shape[-1]
    return losses.where(scored, 0.0), shares.masked_fill_(~scored[:, None], 0.0).to(scores.dtype)
