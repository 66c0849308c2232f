"""The bag-of-words classifier, which knows nothing of order: the baseline of every classifier.

Logistic regression on the words of a text (or the numbers of an image), fitted to the end by L-BFGS, with a
penalty on large weights that is chosen on validation data.
"""

import warnings
from collections.abc import Callable, Iterable, Sequence

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

PENALTIES = (3e-5, 1e-4, 3e-4, 1e-3)
Cut = Callable[[str], Iterable[str]]


class Features:
    """Examples as rows of numbers: 1 for each word that occurs; an image's numbers as they are.

    Rows are kept sparse where they are words, and so are the columns, which the gradient needs: products with
    both are several times as fast as through autograd.
    """

    def __init__(self, examples: Sequence[str | np.ndarray], cut: Cut = lambda text: text.lower().split()):
        """`cut` says what the words of a text are."""
        self.cut = cut
        words = sorted({w for t in examples if isinstance(t, str) for w in cut(t)})
        self.columns = {word: i for i, word in enumerate(words)}
        self.rows = self.of(examples)
        dense = self.rows.layout == torch.strided
        self.transposed = self.rows.T if dense else self.rows.to_sparse_coo().T.to_sparse_csr()

    def of(self, examples: Sequence[str | np.ndarray]) -> Tensor:
        """The rows (examples, columns) of any examples; words that are new say nothing."""
        if not isinstance(examples[0], str):
            return torch.from_numpy(np.stack([np.asarray(t).ravel() for t in examples]))
        rows: list[list[int]] = []
        for text in examples:
            found = {self.columns[w] for w in self.cut(str(text)) if w in self.columns}
            rows.append(sorted(found))
        ends = np.cumsum([0, *map(len, rows)])
        places = torch.tensor([place for row in rows for place in row], dtype=torch.long)
        size = (len(rows), len(self.columns))
        with warnings.catch_warnings():  # that this layout is new to PyTorch
            warnings.simplefilter("ignore", UserWarning)
            return torch.sparse_csr_tensor(
                torch.from_numpy(ends), places, torch.ones(len(places)), size, check_invariants=True
            )


class Bag:
    def __init__(self, features: Features, labels: Sequence[int], classes: int, penalty: float):
        """Fit to examples with labels 0 … classes − 1."""
        self.features, y = features, torch.tensor(labels)
        X = features.rows
        self.weight = torch.zeros(X.shape[1], classes)
        self.bias = torch.zeros(classes)
        optimizer = torch.optim.LBFGS(
            [self.weight, self.bias], max_iter=100, history_size=10, line_search_fn="strong_wolfe"
        )

        @torch.no_grad()
        def closure() -> Tensor:
            log_probs = (X @ self.weight + self.bias).log_softmax(-1)
            # The gradient of the mean cross-entropy: probabilities less what was right, for each example.
            surplus = log_probs.exp()
            surplus[torch.arange(len(y)), y] -= 1.0
            surplus /= len(y)
            self.weight.grad = features.transposed @ surplus + 2 * penalty * self.weight
            self.bias.grad = surplus.sum(0)
            return F.nll_loss(log_probs, y) + penalty * self.weight.square().sum()

        optimizer.step(closure)

    @torch.no_grad()
    def scores(self, examples: Sequence[str | np.ndarray]) -> Tensor:
        """Log-probabilities (examples, classes)."""
        return (self.features.of(examples) @ self.weight + self.bias).log_softmax(-1)
