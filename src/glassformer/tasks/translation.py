"""Translation: given a source sequence, the target sequence token by token (teacher forcing).

A target begins after the mark and ends with it, so one special token says both "go" and "done".

Letters: B batch, S source positions, T target positions, V vocabulary.
"""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from glassformer.models.tap import Tap, off
from glassformer.tasks.task import NOT_SCORED, Batch, Stateless, cross_entropy
from glassformer.text.batches import Buckets, hide_some, pad
from glassformer.text.order import number


class Translating(Stateless):
    name = "translate"

    def __init__(
        self,
        sources: Sequence[np.ndarray],
        targets: Sequence[np.ndarray],
        mark: int,
        batch: int = 1,
        seed: int = 0,
        hidden: float = 0.0,
    ):
        """Sources and targets are ids without marks; in training a share of both, `hidden`, becomes it."""
        self.mark, self.seed, self.hidden = mark, seed, hidden
        self.sources = [np.append(s, mark) for s in sources]
        self.inputs = [np.insert(t, 0, mark) for t in targets]
        self.outputs = [np.append(t, mark) for t in targets]
        self.lengths = [len(s) + len(t) for s, t in zip(self.sources, self.inputs, strict=True)]
        self.buckets = Buckets(self.lengths, batch, seed)

    def batch(self, first: int, count: int) -> Batch:
        batch = self.collate(self.buckets.rows(first, count))
        if self.hidden:
            for place, name in enumerate(("sources", "inputs")):
                ids = batch[name].numpy()
                real = batch["keys"].numpy() if name == "sources" else np.ones_like(ids, bool)
                hidden = hide_some(ids, real, self.hidden, self.mark, number(self.seed, first, place))
                batch[name] = torch.from_numpy(hidden)
        return batch

    def collate(self, rows: Sequence[int]) -> Batch:
        """These examples as one batch: padded, with a mask for the sources' padding."""
        sources, keys = pad([self.sources[i] for i in rows])
        arrays = {
            "sources": sources,
            "keys": keys,
            "inputs": pad([self.inputs[i] for i in rows])[0],
            "targets": pad([self.outputs[i] for i in rows], fill=NOT_SCORED)[0],
        }
        return {name: torch.from_numpy(array) for name, array in arrays.items()}

    def targets(self, batch: Batch) -> int:
        return int((batch["targets"] != NOT_SCORED).sum())

    def tokens(self, batch: Batch) -> int:
        return int(batch["keys"].sum()) + self.targets(batch)

    def logits(self, model: Callable[..., Tensor], batch: Batch, tap: Tap = off) -> Tensor:
        return model(batch["sources"], batch["inputs"], batch["keys"], tap=tap)

    def loss(
        self, model: Callable[..., Tensor], batch: Batch, smoothing: float = 0.0, tap: Tap = off
    ) -> Tensor:
        return cross_entropy(self.logits(model, batch, tap), batch["targets"], smoothing)
