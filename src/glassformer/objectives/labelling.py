"""Labels: one for a whole sequence (classification), or one for each position (tagging).

Letters: B batch, T positions, N labels.
"""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from glassformer.data.batches import Buckets, drop_tokens, pad
from glassformer.data.order import fold_seed
from glassformer.models.tap import Tap, off
from glassformer.objectives.loss import NOT_SCORED, summed_loss
from glassformer.objectives.objective import Batch, Padded, Recut, Stateless


class Labelling(Padded, Stateless):
    """`inputs` are ids (T) or patches (T, P); `labels` arrays, () for the whole or (T) for each position."""

    def __init__(
        self,
        name: str,
        inputs: Sequence[np.ndarray],
        labels: Sequence[np.ndarray],
        batch: int = 1,
        seed: int = 0,
        token_dropout: float = 0.0,
        mask_id: int = 0,
        recut: Recut | None = None,
    ):
        """In training a share of the tokens, `token_dropout`, is replaced by the id `mask_id`.

        `recut` cuts an example anew each time it is seen in training.
        """
        self.name, self.inputs, self.labels = name, inputs, labels
        self.seed, self.token_dropout, self.mask_id, self.recut = seed, token_dropout, mask_id, recut
        self.lengths = [len(x) for x in inputs]
        self.longest = max(self.lengths, default=1)
        self.buckets = Buckets(self.lengths, batch, seed)

    def batch(self, first: int, count: int) -> Batch:
        rows = self.buckets.rows(first, count)
        if self.recut:
            cut = [self.recut(i, fold_seed(self.seed, first + k)) for k, i in enumerate(rows)]
        else:
            cut = [(self.inputs[i], self.labels[i]) for i in rows]
        batch = _together(cut, self.longest if self.few_lengths else None)
        if self.token_dropout:
            given = batch["inputs"].numpy(), batch["padding_mask"].numpy()
            hidden = drop_tokens(*given, self.token_dropout, self.mask_id, fold_seed(self.seed, first, 1))
            batch["inputs"] = torch.from_numpy(hidden)
        return batch

    def collate(self, rows: Sequence[int]) -> Batch:
        """These examples as one batch: padded, with a mask that says what is padding."""
        return _together([(self.inputs[i], self.labels[i]) for i in rows])

    def targets(self, batch: Batch) -> int:
        return int((batch["targets"] != NOT_SCORED).sum())

    def tokens(self, batch: Batch) -> int:
        return int(batch["padding_mask"].sum())

    def logits(self, model: Callable[..., Tensor], batch: Batch, tap: Tap = off) -> Tensor:
        return model(batch["inputs"], batch["padding_mask"], tap=tap)

    def loss(
        self, model: Callable[..., Tensor], batch: Batch, smoothing: float = 0.0, tap: Tap = off
    ) -> Tensor:
        targets = (batch["targets"], smoothing)
        return model(
            batch["inputs"], batch["padding_mask"], tap=tap, readout=summed_loss, readout_args=targets
        )


def _together(examples: Sequence[tuple[np.ndarray, np.ndarray]], most: int | None = None) -> Batch:
    inputs, padding_mask = pad([x for x, _ in examples], most=most)
    labels = [y for _, y in examples]
    targets = pad(labels, fill=NOT_SCORED, most=most)[0] if labels[0].ndim else np.stack(labels)
    arrays = {"inputs": inputs, "padding_mask": padding_mask, "targets": targets}
    return {name: torch.from_numpy(array) for name, array in arrays.items()}
