"""Words by what they are spelled with: what is learned of letters is learned of all words with them.

    x(word) = own vector + Σ vectors of its runs of letters / √(how many they are)

So a word that the training text has once begins near those that look like it. Which runs a word has comes as
numbers (tokenizers/spelling.py) and is kept with the weights. An entry of which nothing is known, such as the
one for unknown words, has its own vector alone.

Letters: N entries, M runs of a word at most, C model width.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

MOST = 64  # runs of a word; a longer one is known by its first ones
NOTHING = 0  # the number that no run has


class Spelled(nn.Embedding):
    """An embedding whose entries share vectors by their spelling, once they are told it."""

    spelling: Tensor

    def __init__(self, entries: int, width: int, buckets: int):
        super().__init__(entries, width)
        self.runs = nn.Embedding(buckets, width)
        self.register_buffer("spelling", torch.full((entries, MOST), NOTHING, dtype=torch.int32))

    def spell(self, numbers: Tensor) -> None:
        """The first entries have these runs (·, M)."""
        self.spelling.fill_(NOTHING)
        self.spelling[: len(numbers)] = numbers

    def forward(self, input: Tensor) -> Tensor:
        numbers = self.spelling[input].long()  # (…, M)
        count = (numbers != NOTHING).sum(dim=-1, keepdim=True).clamp(min=1)
        runs = F.embedding_bag(numbers.flatten(0, -2), self.runs.weight, mode="sum", padding_idx=NOTHING)
        return super().forward(input) + runs.unflatten(0, input.shape) * count.rsqrt()
