"""The bag-of-words classifier, which knows nothing of order: the baseline of every classifier.

Logistic regression on the words of a text (or the numbers of an image), fitted to the end by L-BFGS, with a
penalty on large weights that is chosen on validation data.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

PENALTIES = (3e-5, 1e-4, 3e-4, 1e-3)


class Bag:
    def __init__(
        self, texts: Sequence[str | np.ndarray], labels: Sequence[int], classes: int, penalty: float
    ):
        """Fit to examples with labels 0 … classes − 1."""
        words = sorted({w for t in texts if isinstance(t, str) for w in t.lower().split()})
        self.columns = {word: i for i, word in enumerate(words)}
        X, y = self._features(texts), torch.tensor(labels)
        self.weight = torch.zeros(X.shape[1], classes, requires_grad=True)
        self.bias = torch.zeros(classes, requires_grad=True)
        optimizer = torch.optim.LBFGS(
            [self.weight, self.bias], max_iter=100, history_size=10, line_search_fn="strong_wolfe"
        )

        def closure() -> Tensor:
            optimizer.zero_grad()
            loss = F.cross_entropy(X @ self.weight + self.bias, y) + penalty * self.weight.square().sum()
            loss.backward()
            return loss

        optimizer.step(closure)

    @torch.no_grad()
    def scores(self, texts: Sequence[str | np.ndarray]) -> Tensor:
        """Log-probabilities (examples, classes)."""
        return (self._features(texts) @ self.weight + self.bias).log_softmax(-1)

    def _features(self, texts: Sequence[str | np.ndarray]) -> Tensor:
        """One row per example, 1 for each word that occurs; an image's numbers as they are."""
        if not isinstance(texts[0], str):
            return torch.from_numpy(np.stack([np.asarray(t).ravel() for t in texts]))
        words = [{w for w in str(text).lower().split() if w in self.columns} for text in texts]
        entries = [(row, self.columns[word]) for row, bag in enumerate(words) for word in sorted(bag)]
        index = torch.tensor(entries, dtype=torch.long).view(-1, 2).T
        size = (len(texts), len(self.columns))
        return torch.sparse_coo_tensor(
            index, torch.ones(len(entries)), size, check_invariants=True
        ).coalesce()
