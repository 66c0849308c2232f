"""Translation: given a source sequence, the target sequence token by token (teacher forcing).

A target begins after the mark and ends with it, so one special token says both "go" and "done". A source ends
with the mark of its own vocabulary, where the sides have one each.

Letters: B batch, S source positions, T target positions, V vocabulary.
"""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from glassformer.data.batches import Buckets, drop_tokens, pad
from glassformer.data.order import fold_seed
from glassformer.models.tap import Tap, off
from glassformer.objectives.loss import NOT_SCORED, consistent_loss, summed_loss
from glassformer.objectives.objective import Batch, Padded, Recut, Stateless


class Translating(Padded, Stateless):
    name = "translate"

    def __init__(
        self,
        sources: Sequence[np.ndarray],
        targets: Sequence[np.ndarray],
        eot_id: int,
        batch: int = 1,
        seed: int = 0,
        token_dropout: float = 0.0,
        recut: Recut | None = None,
        source_eot_id: int | None = None,
        consistency: float = 0.0,
    ):
        """Sources and targets are ids without marks; in training a share, `token_dropout`, becomes one.

        `recut` cuts an example anew each time it is seen in training; `source_eot_id` is the mark of the
        sources, unless it is that of the targets. With `consistency` every example is in its batch twice,
        other tokens hidden in each, other activations dropped: both answers are to be right and to agree
        (R-Drop, Wu et al. 2021; it is their α).
        """
        self.eot_id, self.seed, self.token_dropout, self.recut = eot_id, seed, token_dropout, recut
        self.consistency = consistency
        self.source_eot_id = eot_id if source_eot_id is None else source_eot_id
        self.examples = list(zip(sources, targets, strict=True))
        self.lengths = [len(s) + len(t) + 2 for s, t in self.examples]
        self.longest = tuple(max((len(x) + 1 for x in side), default=1) for side in (sources, targets))
        self.buckets = Buckets(self.lengths, batch, seed)

    def batch(self, first: int, count: int) -> Batch:
        rows = self.buckets.rows(first, count)
        examples = [self.examples[i] for i in rows]
        if self.recut:
            examples = [self.recut(i, fold_seed(self.seed, first + k)) for k, i in enumerate(rows)]
        longest = self.longest if self.few_lengths else (None, None)
        batch = self._together(examples * 2 if self.consistency else examples, *longest)
        if self.token_dropout:
            for place, (name, mark) in enumerate((("sources", self.source_eot_id), ("inputs", self.eot_id))):
                ids = batch[name].numpy()
                real = batch["padding_mask"].numpy() if name == "sources" else np.ones_like(ids, bool)
                hidden = drop_tokens(ids, real, self.token_dropout, mark, fold_seed(self.seed, first, place))
                batch[name] = torch.from_numpy(hidden)
        return batch

    def collate(self, rows: Sequence[int]) -> Batch:
        return self._together([self.examples[i] for i in rows])

    def _together(
        self,
        examples: Sequence[tuple[np.ndarray, np.ndarray]],
        most_source: int | None = None,
        most_target: int | None = None,
    ) -> Batch:
        """These examples as one batch: padded, with a mask for the sources' padding."""
        marked = [np.append(source, self.source_eot_id) for source, _ in examples]
        sources, padding_mask = pad(marked, most=most_source)
        inputs = [np.insert(target, 0, self.eot_id) for _, target in examples]
        targets = [np.append(target, self.eot_id) for _, target in examples]
        arrays = {
            "sources": sources,
            "padding_mask": padding_mask,
            "inputs": pad(inputs, most=most_target)[0],
            "targets": pad(targets, NOT_SCORED, most_target)[0],
        }
        return {name: torch.from_numpy(array) for name, array in arrays.items()}

    def targets(self, batch: Batch) -> int:
        return int((batch["targets"] != NOT_SCORED).sum())

    def tokens(self, batch: Batch) -> int:
        return int(batch["padding_mask"].sum()) + self.targets(batch)

    def logits(self, model: Callable[..., Tensor], batch: Batch, tap: Tap = off) -> Tensor:
        return model(batch["sources"], batch["inputs"], batch["padding_mask"], tap=tap)

    def loss(
        self, model: Callable[..., Tensor], batch: Batch, smoothing: float = 0.0, tap: Tap = off
    ) -> Tensor:
        readout, args = summed_loss, (batch["targets"], smoothing)
        if self.consistency:
            readout, args = consistent_loss, (*args, self.consistency)
        return model(
            batch["sources"],
            batch["inputs"],
            batch["padding_mask"],
            tap=tap,
            readout=readout,
            readout_args=args,
        )
