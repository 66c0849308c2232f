"""∂L/∂θ written out: for every matrix of attention and of the feed-forward net, the gradient that its layer
received from above, and what the chain rule makes of it."""

import torch
from torch import Tensor

from glassformer.core.errors import UsageError
from glassformer.inspection.chain import by_chain_rule, mlp_by_chain_rule
from glassformer.inspection.gradients import next_token_loss
from glassformer.inspection.residual import relative_error
from glassformer.inspection.trace import gradients, record_trace
from glassformer.lessons.lesson import Curve, Lesson, Plot
from glassformer.lessons.subjects import ids_of, made, random_ids, transformer_of
from glassformer.models.block import Block, post
from glassformer.models.model import LanguageModel
from glassformer.runs.run import Run


def lesson(run: Run | None = None) -> Lesson:
    if run is None:
        model, ids, subject = (
            made(layers=4, init="gpt2"),
            random_ids(),
            "four layers of width 64, before training",
        )
    else:
        model, ids = transformer_of(run), ids_of(run, 128)
        subject = f"{run.path}, {ids.shape[1]} tokens of its validation text"
        if run.config.model.attention != "full":
            raise UsageError(
                f"the chain rule is written out for full attention, not {run.config.model.attention}"
            )
    rows = _rows(model, ids)
    worst = max(row[4] for row in rows)
    largest = max(rows, key=lambda row: row[3])
    layers = len({row[0] for row in rows})
    return Lesson(
        "What does each matrix learn from, and where does it come from?",
        ("layer", "matrix", "received from above |g|", "|∂L/∂W|", "off autograd by"),
        rows,
        [
            "Every gradient of a matrix is a product of what its layer received from above, g = ∂L/∂(what "
            "it wrote), "
            "and of what it had read: ∂L/∂W_O = zᵀg, ∂L/∂W_down = hᵀg, and further down through the softmax "
            "and the "
            "activation.",
            f"The largest is that of {largest[0]} {largest[1]}. By hand and by autograd they agree to "
            f"{worst:.0e}.",
        ],
        Plot(
            "What each layer receives from above",
            "block",
            "length of the gradient of its output",
            [
                Curve(kind, range(layers // 2), [r[2] for r in rows if r[0].endswith(kind)][::2])
                for kind in ("attention", "mlp")
            ],
            log_y=True,
        ),
        subject,
    )


def _rows(model: LanguageModel, ids: Tensor) -> list[tuple[str, str, float, float, float]]:
    trace, loss = record_trace(model, ids), next_token_loss(ids)
    model.zero_grad()
    with torch.enable_grad():
        loss(model(ids)).backward()
    rows: list[tuple[str, str, float, float, float]] = []
    for i, block in enumerate(b for b in model.stack.blocks if isinstance(b, Block)):
        _, g = gradients(trace, loss, [f"{i}.attn_out", f"{i}.mlp_out"])
        before = trace["embed"] if i == 0 else trace[f"{i - 1}.resid"]
        read = block.attention_norm(before) if _normed(block) else before
        attention = by_chain_rule(trace, i, read.detach(), g[f"{i}.attn_out"]).parameters
        middle = trace[f"{i}.resid_mid"]
        read = block.mlp_norm(middle) if _normed(block) else middle
        mlp = mlp_by_chain_rule(block.mlp, read.detach(), g[f"{i}.mlp_out"])
        for layer, module, parameters in (("attention", block.attention, attention), ("mlp", block.mlp, mlp)):
            received = float(g[f"{i}.{'attn_out' if layer == 'attention' else 'mlp_out'}"].norm())
            for name in (n for n in parameters if n.endswith("weight")):
                grad = dict(module.named_parameters())[name].grad
                assert grad is not None
                error = relative_error(parameters[name], grad)
                rows.append((f"{i}.{layer}", name, received, float(grad.norm()), error))
    model.zero_grad()
    return rows


def _normed(block: Block) -> bool:
    """Whether a layer reads the stream through its norm; under `post` it reads it as it is."""
    return block.placement is not post
