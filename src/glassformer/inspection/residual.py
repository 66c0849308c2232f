"""The residual stream forward: everything in it was written by someone.

    stream = token + position + Σ heads + Σ MLPs (+ biases, + `before`: what a shift of the embeddings adds)

Where a norm stands on the stream itself (post, renorm, and the last one), each part is carried through it
with the mean and scale that the whole stream had: for given scales a norm is linear, so the parts still sum
to the stream, exactly, and the norm's own β is a part like the others. Without residual connections only the
last layer is left to write.

Letters: N parts, B batch, T positions, C model width, V vocabulary.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from glassformer.core.errors import UsageError
from glassformer.inspection.maps import head_contributions, mask_of
from glassformer.inspection.trace import Trace, body_of, stack_of
from glassformer.models.attention import CrossAttention, Mixer
from glassformer.models.block import Block, bare, post, pre, renorm, replace
from glassformer.models.layers import BatchNorm, LayerNorm, RMSNorm
from glassformer.models.model import evaluating

Parts = dict[str, Tensor]


@dataclass
class Components:
    """Named parts (N, B, T, C), and what they are the parts of."""

    names: list[str]
    values: Tensor
    total: Tensor  # (B, T, C), as it was recorded

    @property
    def error(self) -> float:
        """How far the parts are from summing to the whole, as a share of its length."""
        return relative_error(self.values.sum(dim=0), self.total)


def relative_error(actual: Tensor, expected: Tensor) -> float:
    actual, expected = actual.detach(), expected.detach()
    return float((actual.double() - expected.double()).norm() / expected.double().norm().clamp_min(1e-30))


def decompose(
    trace: Trace,
    upto: int | None = None,
    positions: Sequence[int] | None = None,
    part: str = "",
    heads: bool = True,
    final: bool = False,
) -> Components:
    """The stream after `upto` blocks (all), at some positions or at all; `final`: after the last norm.

    With `heads` every head is a part, else every attention layer.
    """
    stack, blocks = stack_of(trace, part), _blocks(stack_of(trace, part))
    last = len(blocks) if upto is None else upto
    select = _selector(positions)

    def at(site: str) -> Tensor:
        return select(trace[f"{part}{site}"].float())

    edit_sites = {edit.site.removeprefix(part) for edit in trace.edits}

    def with_edits(parts: Parts, site: str) -> Parts:
        """What an edit put there is a part of its own."""
        if site not in edit_sites:
            return parts
        rest = at(site) - sum(p.float() for p in parts.values())
        return {**parts, f"edit of {site}": rest}

    stream = at("embed")
    parts = with_edits(_embedding_parts(trace, part, select), "embed")
    for i, block in enumerate(blocks[:last]):
        layers: list[tuple[str, Mixer | CrossAttention, nn.Module | None, str]] = []
        layers.append((f"{i}.", block.attention, block.attention_norm, f"{i}.resid_mid"))
        if block.cross is not None:
            layers.append((f"{i}.cross.", block.cross, block.cross_norm, f"{i}.resid_cross"))
        for prefix, layer, norm, after in layers:
            z = at(f"{prefix}z") if heads else None
            writes = _attention_parts(prefix, layer, z, at(f"{prefix}attn_out"))
            writes = with_edits(writes, f"{prefix}attn_out") if heads else writes
            parts = _join(parts, writes, stream, at(f"{prefix}attn_out"), block, norm, f"{prefix}norm bias")
            parts, stream = with_edits(parts, after), at(after)
        writes = {f"{i}.mlp": at(f"{i}.mlp_out")}
        parts = _join(parts, writes, stream, at(f"{i}.mlp_out"), block, block.mlp_norm, f"{i}.mlp norm bias")
        parts, stream = with_edits(parts, f"{i}.resid"), at(f"{i}.resid")
    if final:
        parts = with_edits(normalize_parts(stack.norm, parts, stream, "final norm bias"), "final")
        stream = at("final")
    return Components(list(parts), torch.stack([p.expand_as(stream) for p in parts.values()]), stream)


def normalize_parts(norm: nn.Module | None, parts: Parts, whole: Tensor, constant: str) -> Parts:
    """Parts of `whole` as parts of norm(whole): centred and scaled as the whole is, β as one more."""
    match norm:
        case LayerNorm():
            variance = whole.var(dim=-1, unbiased=False, keepdim=True)
            scale = norm.gamma.float() / (variance + norm.eps).sqrt()
            parts = {name: (p - p.mean(dim=-1, keepdim=True)) * scale for name, p in parts.items()}
            beta = norm.beta
        case RMSNorm():
            scale = norm.gamma.float() / (whole.square().mean(dim=-1, keepdim=True) + norm.eps).sqrt()
            return {name: p * scale for name, p in parts.items()}
        case BatchNorm():
            scale = norm.gamma.float() / (norm.variance + norm.eps).sqrt()
            parts = {name: p * scale for name, p in parts.items()}
            beta = (0.0 if norm.beta is None else norm.beta) - norm.mean * scale
        case _:
            return parts
    return parts if beta is None else {**parts, constant: beta.float().expand_as(whole)}


def attribute(
    trace: Trace,
    token: int,
    position: int = -1,
    against: int | None = None,
    part: str = "",
    heads: bool = True,
) -> tuple[dict[str, float], float, float]:
    """What each part adds to the logit of `token` at a position: (part → share, the logit, the error).

    `against` another token: to the difference of the two. The last norm is carried through as above. Where
    there is one answer for the whole text, the positions speak as they were pooled.
    """
    direction, bias = readout(trace.model, token, against)
    if trace.logits.ndim == 2:
        components = decompose(trace, part=part, heads=heads, final=True)
        vectors = torch.einsum("t,ntc->nc", trace["pool"][0].float(), components.values[:, 0])
        logits = trace.logits[0].float()
    else:
        components = decompose(trace, positions=[position], part=part, heads=heads, final=True)
        vectors, logits = components.values[:, 0, 0], trace.logits[0, position].float()
    shares = vectors.detach() @ direction.float()
    logit = float(logits[token] - (0.0 if against is None else logits[against]))
    contributions = dict(zip(components.names, shares.tolist(), strict=True))
    if bias:
        contributions["unembedding bias"] = bias
    return contributions, logit, abs(sum(contributions.values()) - logit) / max(1e-30, float(shares.norm()))


def attribute_each(
    trace: Trace, tokens: Sequence[int], part: str = "", at_once: int = 32
) -> tuple[list[str], Tensor]:
    """The same for a token at every position: the names of the parts, and their shares (T, parts)."""
    linear = unembedding_of(trace.model)
    directions = linear.weight.detach()[list(tokens)].float()  # (T, C)
    names: list[str] = []
    pieces: list[Tensor] = []
    for first in range(0, len(tokens), at_once):  # a part is as large as the stream, and there are many
        places = list(range(first, min(len(tokens), first + at_once)))
        components = decompose(trace, positions=places, part=part, final=True)
        names = components.names
        pieces.append(torch.einsum("ntc,tc->tn", components.values[:, 0].detach(), directions[places]))
    shares = torch.cat(pieces)
    if linear.bias is not None:
        names = [*names, "unembedding bias"]
        shares = torch.cat([shares, linear.bias.detach()[list(tokens)].float()[:, None]], dim=1)
    return names, shares


def readout(model: nn.Module, token: int, against: int | None = None) -> tuple[Tensor, float]:
    """The direction in the last stream that a logit reads (C), and what is added to it anyway."""
    linear = unembedding_of(model)
    rows = linear.weight.detach()
    if not 0 <= token < len(rows):
        raise UsageError(f"token {token}: expected 0 to {len(rows) - 1}")
    bias = None if linear.bias is None else linear.bias.detach()
    direction = rows[token] - (0 if against is None else rows[against])
    constant = 0.0 if bias is None else float(bias[token] - (0.0 if against is None else bias[against]))
    return direction, constant


def unembedding_of(model: nn.Module) -> nn.Linear:
    anything: Any = model
    linear = getattr(anything, "unembedding", None) or anything.head.linear
    assert isinstance(linear, nn.Linear)
    return linear


def lens(trace: Trace, site: str, part: str = "", positions: Sequence[int] | None = None) -> Tensor:
    """The logits that the model would give if the stream at `site` were its last: (B, T, V).

    The last norm is applied anew, as it would be there.
    """
    stream = _selector(positions)(trace[f"{part}{site}"])
    norm = getattr(body_of(trace.model, part), "norm", None)  # a recurrent model has none
    with torch.no_grad():
        return unembedding_of(trace.model)(stream if norm is None else norm(stream)).float()


def stream_sites(trace: Trace, part: str = "") -> list[str]:
    """The stream from the embedding to the last block, or layer of a recurrent model."""
    names = [site.removeprefix(part) for site in trace.values if site.startswith(part)]
    return ["embed", *(n for n in names if n.endswith(".resid"))]


def _blocks(stack: Any) -> list[Block]:
    return [block for block in stack.blocks if isinstance(block, Block)]


def _embedding_parts(trace: Trace, part: str, select: Callable[[Tensor], Tensor]) -> Parts:
    """Token and position: a scheme that embeds is a·x + p, so p is what it makes of nothing.

    A shift adds what stood before, as one part.
    """
    stack = stack_of(trace, part)
    inputs = trace.inputs[1] if part == "decoder." else trace.inputs[0]
    with torch.no_grad(), evaluating(stack):
        tokens = stack.embedding(inputs).float()
        positions = torch.arange(tokens.shape[1], device=tokens.device)[None]
        nothing = stack.position.embed(torch.zeros_like(tokens), positions)
        whole = stack.position.embed(tokens, positions)
        before = stack.shift(whole, mask_of(trace, part)) - whole
    parts = {"token": whole - nothing, "position": nothing, "before": before}
    return {name: select(p) for name, p in parts.items() if name == "token" or bool(p.any())}


def _attention_parts(
    prefix: str, layer: Mixer | CrossAttention | None, z: Tensor | None, out: Tensor
) -> Parts:
    if z is None or layer is None:
        return {f"{prefix}attention": out}
    contributions = head_contributions(layer, z)
    parts = {f"{prefix}head {h}": contributions[:, h] for h in range(contributions.shape[1])}
    bias = getattr(getattr(layer, "out", None), "bias", None)
    return parts if bias is None else {**parts, f"{prefix}attention bias": bias.detach().float()}


def _join(
    parts: Parts,
    writes: Parts,
    stream: Tensor,
    update: Tensor,
    block: Block,
    norm: nn.Module | None,
    name: str,
) -> Parts:
    """What the stream is made of after a layer has written `writes`, which sum to `update`."""
    residual = {} if block.join is replace else parts
    match block.placement:
        case _ if block.placement in (pre, bare):
            return {**residual, **writes}
        case _ if block.placement is renorm:
            residual = residual and normalize_parts(norm, residual, stream, name)
            return {**residual, **writes}
        case _ if block.placement is post:
            whole = update if block.join is replace else stream + update
            return normalize_parts(norm, {**residual, **writes}, whole, name)
    raise UsageError(f"a norm placement that is not known here: {block.placement.__name__}")


def _selector(positions: Sequence[int] | None) -> Callable[[Tensor], Tensor]:
    """The chosen positions of a value, the last dimension but one."""
    if positions is None:
        return lambda x: x
    indices = list(positions)

    def select(x: Tensor) -> Tensor:
        T = x.shape[-2]
        if wrong := [t for t in indices if not -T <= t < T]:
            raise UsageError(f"there is no position {wrong[0]}: expected 0 to {T - 1}")
        return x[..., indices, :]

    return select
