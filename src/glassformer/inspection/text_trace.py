"""A text seen through a model: what was recorded, the names of its tokens, and all that is derived from it.

Letters: B = 1 text, H heads, T positions, C model width, V outputs.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from glassformer.config.schema import shortened
from glassformer.core.errors import UsageError
from glassformer.data.patches import Geometry
from glassformer.inspection import gradients as backwards
from glassformer.inspection import maps, residual
from glassformer.inspection.relations import Words
from glassformer.inspection.trace import Trace, body_of, parts_of
from glassformer.models.model import EncoderModel
from glassformer.models.transformer import Stack


@dataclass
class TextTrace:
    """`trace["3.z"]` is a recorded value; the methods derive the rest. Of a translator, `part` chooses
    `encoder.` or `decoder.`, which is what is meant when nothing is said."""

    trace: Trace
    text: str
    task: str
    tokens: dict[str, list[str]]  # what stands at each position, by part
    name: Callable[[int], str]  # of an output: a token or a label
    run: str = ""
    model: dict[str, Any] = field(default_factory=dict)  # its settings, for reports
    specials: list[int] = field(default_factory=list)  # ids that are no text
    words: Words | None = None  # how its task reads marked sentences; None: it has none
    focus: int = -1  # the position that it is about
    data: str | None = None  # what the model learned from: a data set may bring marked sentences
    geometry: Geometry | None = None  # of an image, whose `text` is its path

    def __getitem__(self, site: str) -> Tensor:
        return self.trace[site]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({shortened(self.text)}, {self.task}, {len(self.sites)} sites)"

    @property
    def sites(self) -> list[str]:
        """The names of all values that were recorded."""
        return list(self.trace.values)

    def _part(self, part: str | None) -> str:
        return self.part if part is None else part

    @property
    def part(self) -> str:
        """What the names of its sites begin with; of a translator those of the side that writes."""
        return parts_of(self.trace.model)[-1]

    @property
    def is_transformer(self) -> bool:
        """Whether there is self-attention to look at."""
        return isinstance(body_of(self.trace.model, self.part), Stack)

    @property
    def answers_once(self) -> bool:
        """Whether there is one answer for the whole text."""
        return self.trace.logits.ndim == 2

    def pattern(
        self,
        layer: int,
        heads: Sequence[int] | int | None = None,
        *,
        queries: maps.Rows = None,
        part: str | None = None,
        cross: bool = False,
    ) -> Tensor:
        """How much each position takes from each, (H, T, S); of some `heads` and `queries`, or of all.

        `cross`: what a translation takes from each position of the source.
        """
        return maps.pattern(self.trace, layer, heads, queries, self._part(part), cross)[0]

    def value_weighted(
        self,
        layer: int,
        heads: Sequence[int] | None = None,
        *,
        queries: maps.Rows = None,
        part: str | None = None,
        cross: bool = False,
    ) -> Tensor:
        """The same in the proportions of what would be written."""
        return maps.value_weighted(self.trace, layer, heads, queries, self._part(part), cross)[0]

    def rollout(self, upto: int | None = None, part: str | None = None) -> Tensor:
        """How much of each position is in each behind all layers, or `upto` so many: (T, T)."""
        return maps.rollout(self.trace, upto, self._part(part))[0]

    def heads(self, layer: int, part: str | None = None) -> Tensor:
        """What each head writes into the stream, (H, T, C)."""
        part = self._part(part)
        z = self.trace[f"{part}{layer}.z"].float()
        return maps.head_contributions(maps.attention_of(self.trace, layer, part), z)[0]

    def components(
        self,
        upto: int | None = None,
        *,
        positions: Sequence[int] | None = None,
        part: str | None = None,
        heads: bool = True,
        final: bool = False,
    ) -> residual.Components:
        """The parts that the stream behind all blocks, or `upto` so many, is the sum of.

        With `heads` every head is a part, else every attention layer; `final`: after the last norm.
        """
        return residual.decompose(self.trace, upto, positions, self._part(part), heads, final)

    def attribution(
        self,
        output: int | str | None = None,
        position: int = -1,
        against: int | None = None,
        heads: bool = True,
    ) -> tuple[dict[str, float], float, float]:
        """What each part adds to a logit, the likeliest one's unless told: (shares, logit, error).

        `output` is its number or its name.
        """
        token = int(self.logits(position).argmax()) if output is None else output
        if isinstance(token, str):
            token = self.number(token)
        return residual.attribute(self.trace, token, position, against, self.part, heads)

    def number(self, name: str) -> int:
        """The number of an output: a token or a label."""
        matches = [i for i in range(self.trace.logits.shape[-1]) if self.name(i) == name]
        if not matches:
            raise UsageError(f"no token or label is {name!r}")
        return matches[0]

    def logits(self, position: int = -1) -> Tensor:
        """The scores at a position, or for the whole text where there is one answer."""
        if self.answers_once:
            return self.trace.logits[0].float()
        T = self.trace.logits.shape[1]
        if not -T <= position < T:
            raise UsageError(f"there is no position {position}: expected 0 to {T - 1}")
        return self.trace.logits[0, position].float()

    def best(self, position: int = -1, k: int = 5) -> list[tuple[str, float]]:
        """The likeliest outputs there, with their probabilities."""
        return self.top_outputs(self.logits(position), k)

    def top_outputs(self, logits: Tensor, k: int) -> list[tuple[str, float]]:
        """The `k` likeliest outputs by these scores (V), with their probabilities."""
        top = logits.softmax(-1).topk(min(k, len(logits)))
        return [(self.name(i), p) for p, i in zip(top.values.tolist(), top.indices.tolist(), strict=True)]

    def lens(self, position: int = -1, k: int = 3) -> list[tuple[str, list[tuple[str, float]]]]:
        """What each depth of the stream would answer at a position: (site, its likeliest outputs)."""
        sites = residual.stream_sites(self.trace, self.part)
        rows = [residual.lens(self.trace, site, self.part, [position])[0, 0] for site in sites]
        return [(site, self.top_outputs(row, k)) for site, row in zip(sites, rows, strict=True)]

    def stream(self) -> list[tuple[str, float, float]]:
        """Along the stream: (site, its mean length over positions, mean cosine with the last of it)."""
        sites = residual.stream_sites(self.trace, self.part)
        last = self.trace[f"{self.part}{sites[-1]}"][0].float()
        return [(site, *_against(self.trace[f"{self.part}{site}"][0].float(), last)) for site in sites]

    def writes(self) -> list[tuple[str, float, float]]:
        """What each layer writes: (name, its mean length, mean cosine with the stream's end)."""
        last = self.trace[f"{self.part}{residual.stream_sites(self.trace, self.part)[-1]}"][0].float()
        sites = [
            s for s in self.trace.values if s.startswith(self.part) and s.endswith(("attn_out", "mlp_out"))
        ]
        return [(s.removeprefix(self.part), *_against(self.trace[s][0].float(), last)) for s in sites]

    def loss(self) -> Callable[[Tensor], Tensor]:
        """Of its own next tokens, for a language model or a translator; else of the likeliest answer."""
        if isinstance(self.trace.model, EncoderModel):
            answer = self.trace.logits.argmax(-1)
            return lambda logits: F.cross_entropy(logits.flatten(0, -2).float(), answer.flatten())
        if self.trace.inputs[-1].shape[1] < 2:
            raise UsageError("a text of one token has no next token to predict: there is no loss")
        return backwards.next_token_loss(self.trace.inputs[-1])

    def backward(self, part: str | None = None) -> tuple[float, list[backwards.LayerGradient]]:
        """The loss, and how its gradient comes down through each layer."""
        value, layers = backwards.backward(self.trace, self.loss(), self._part(part))
        return float(value), layers

    def depth(self) -> dict[str, list[float]]:
        """The gradient's length over depth, as the model is and without its residual connections."""
        return backwards.side_by_side(self.trace, self.loss())


def _against(x: Tensor, last: Tensor) -> tuple[float, float]:
    return float(x.norm(dim=-1).mean()), float(torch.cosine_similarity(x, last, dim=-1).mean())
