"""What heads learn: how far each one is a head of a known kind, measured on sequences made for it.

On random tokens that are repeated, [a b c … a b c …], meaning plays no part, and the kinds show as such:

    previous    looks one position back
    next        looks one position forward, which a causal model cannot: of such a model it is not scored
    first       rests on the first position, when there is nothing to look for
    itself      looks at its own position
    duplicate   looks at the earlier occurrence of its token
    induction   looks at what followed the earlier occurrence: [a b … a] → b
    positional  attends by position alone: the share of its weights that is the same for every text
    local       stays near: the weight on itself and the four positions before
    spread      how widely it looks: the entropy of its weights as a share of the widest there could be

All are mean weights (or shares) between 0 and 1, over the second half of the sequences. A head is called what
its score says when that is at least a half; a look at everything alike is positional too, but has no name.

Letters: B sequences, H heads, T positions, N tokens of the half that is repeated, V vocabulary.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from glassformer.core.errors import UsageError
from glassformer.inspection.edits import Edit, put, zero
from glassformer.inspection.maps import pattern
from glassformer.inspection.trace import Trace, record_trace, stack_of

KINDS = ("previous", "next", "first", "itself", "duplicate", "induction", "positional")
KIND_THRESHOLD = 0.5
EVEN = 0.85  # spread from which a head looks at nothing in particular


@dataclass
class HeadScores:
    layer: int
    head: int
    scores: dict[str, float]

    @property
    def kind(self) -> str | None:
        """What it is called, if anything."""
        candidates = [k for k in named_kinds(self.scores) if k != "positional"]
        best = max(candidates, key=lambda k: self.scores[k])
        if self.scores[best] >= KIND_THRESHOLD:
            return best
        positional = self.scores["positional"] >= KIND_THRESHOLD and self.scores["spread"] < EVEN
        return "positional" if positional else None


def repeated_sequences(
    V: int,
    T: int,
    B: int = 16,
    *,
    seed: int = 0,
    avoid: Sequence[int] = (),
) -> Tensor:
    """Sequences [first] [random tokens] [the same again] of at most T tokens, (B, T); no token occurs twice
    in a half where there are enough of them."""
    if T < 5:
        raise UsageError(f"a context of {T} has no room for a sequence and its repetition")
    kept = torch.ones(V, dtype=torch.bool)
    kept[list(avoid)] = False
    tokens = kept.nonzero()[:, 0]
    N = (T - 1) // 2
    generator = torch.Generator().manual_seed(seed)
    if len(tokens) >= N:
        half = torch.stack([tokens[torch.randperm(len(tokens), generator=generator)[:N]] for _ in range(B)])
    else:
        half = tokens[torch.randint(len(tokens), (B, N), generator=generator)]
    start = torch.full((B, 1), avoid[0] if avoid else int(tokens[0]))
    return torch.cat([start, half, half], dim=1)


def score_heads(trace: Trace, part: str = "") -> list[HeadScores]:
    """Every head of a model that has seen `repeated_sequences`, layer by layer; `rank` orders them."""
    head_scores: list[HeadScores] = []
    stack = stack_of(trace, part)
    for layer in range(len(stack.blocks)):
        scores = _scores(pattern(trace, layer, part=part), stack.mask.causal)
        heads = len(next(iter(scores.values())))
        head_scores += [HeadScores(layer, h, {k: v[h] for k, v in scores.items()}) for h in range(heads)]
    return head_scores


def named_kinds(scores: Iterable[str]) -> list[str]:
    """Those of KINDS that were scored."""
    found = set(scores)
    return [kind for kind in KINDS if kind in found]


def rank(heads: Sequence[HeadScores], kind: str) -> list[HeadScores]:
    """The heads, those first that are most of this kind."""
    return sorted(heads, key=lambda h: -h.scores[kind])


def _scores(A: Tensor, causal: bool) -> dict[str, list[float]]:
    """From weights (B, H, T, T) on repeated sequences; the second half is rows N + 1 and on."""
    T = A.shape[-1]
    N = (T - 1) // 2
    rows = torch.arange(N + 1, T)
    half = A[:, :, rows]  # (B, H, N, T)

    def back(distance: int) -> Tensor:
        return A[:, :, rows, rows - distance].mean(dim=(0, 2))

    mean = half.mean(dim=0, keepdim=True)
    variation = (half - mean).square().sum(dim=(0, 2, 3))
    entropy = -(half * half.clamp_min(1e-30).log()).sum(dim=-1)
    visible_keys = (half > 0).sum(dim=-1).clamp_min(2)
    forward = {} if causal else {"next": A[:, :, rows[:-1], rows[1:]].mean(dim=(0, 2))}
    scores = {
        "previous": back(1),
        **forward,
        "first": half[..., 0].mean(dim=(0, 2)),
        "itself": back(0),
        "duplicate": back(N),
        "induction": back(N - 1),
        "positional": 1 - variation / half.square().sum(dim=(0, 2, 3)).clamp_min(1e-30),
        "local": torch.stack([back(d) for d in range(min(5, N))]).sum(dim=0),
        "spread": (entropy / visible_keys.log()).mean(dim=(0, 2)),
    }
    return {name: value.tolist() for name, value in scores.items()}


@dataclass
class Copying:
    """Nats per token on the first and on the second half of repeated sequences: what copying saves."""

    first: float
    second: float

    @property
    def saved(self) -> float:
        return self.first - self.second


def copying(model: nn.Module, sequences: Tensor, edits: Sequence[Edit] = ()) -> Copying:
    """How well a language model copies what it has seen before in the same text."""
    logits = record_trace(model, sequences, sites=("logits",), edits=edits).logits[:, :-1].float()
    loss = F.cross_entropy(logits.transpose(1, 2), sequences[:, 1:], reduction="none")  # (B, T − 1)
    N = (sequences.shape[1] - 1) // 2
    return Copying(float(loss[:, :N].mean()), float(loss[:, N + 1 :].mean()))  # the very first is no copy


def ablation(trace: Trace, layer: int, head: int, kind: str = "mean", part: str = "") -> Edit:
    """Switch a head off: `zero`, its `mean` over these texts and positions, or `resample` another text's."""
    site = f"{part}{layer}.z"
    z = trace[site]
    if kind == "zero":
        return zero(site, heads=head)
    if kind == "mean":
        return put(site, z.mean(dim=(0, 2), keepdim=True), heads=head)
    if kind == "resample":
        return put(site, z.roll(1, dims=0), heads=head)
    raise UsageError(f"no ablation '{kind}': expected zero, mean or resample")


def ablate_each(
    model: nn.Module, sequences: Tensor, kind: str = "mean", trace: Trace | None = None
) -> list[tuple[int, int, Copying]]:
    """What copying is left with each head switched off in turn."""
    trace = trace or record_trace(model, sequences, sites=("z",))
    blocks = stack_of(trace).blocks
    heads = [(i, h) for i in range(len(blocks)) for h in range(trace[f"{i}.z"].shape[1])]
    return [(i, h, copying(model, sequences, [ablation(trace, i, h, kind)])) for i, h in heads]
