"""A penalty on what was said before: by the formula, for each row its own, the prompt included."""

import pytest
import torch

from glassformer.core.errors import UsageError
from glassformer.generation.sampling import Sampler


def test_what_was_said_counts_less() -> None:
    logits = torch.tensor([[3.0, 2.0, 1.0, -1.0]])
    choose = Sampler(temperature=0, repetition_penalty=2.0).for_rows(1)
    assert [int(choose(logits)) for _ in range(4)] == [0, 1, 0, 0]  # 3, then 2 for 1.5, then 1.5 for 1 and 1
    assert int(Sampler(temperature=0, repetition_penalty=2.0).for_rows(1, [0, 1])(logits)) == 0
    assert int(Sampler(temperature=0, repetition_penalty=4.0).for_rows(1, [0, 1])(logits)) == 2
    negative = torch.tensor([[-1.0, -1.5]])
    assert int(Sampler(temperature=0, repetition_penalty=2.0).for_rows(1, [0])(negative)) == 1
    assert torch.equal(logits, torch.tensor([[3.0, 2.0, 1.0, -1.0]]))  # and is left as it was


def test_each_row_remembers_its_own() -> None:
    choose = Sampler(temperature=0, repetition_penalty=10.0).for_rows(2)
    choose(torch.tensor([[2.0, 1.0, 0.5], [1.0, 2.0, 0.5]]))
    assert choose(torch.tensor([[2.0, 1.9, 0.5], [1.9, 2.0, 0.5]])).tolist() == [1, 0]
    with pytest.raises(UsageError, match="repetition penalty 0"):
        Sampler(repetition_penalty=0)
