"""Penalties on what was said before: by the formula, for prompt and text."""

from collections import Counter

import pytest
import torch

from glassformer.core.errors import UsageError
from glassformer.generation.sampling import Said, Sampler, weigh

LOGITS = torch.tensor([3.0, 2.0, 1.0, -1.0])


def test_what_was_said_counts_less() -> None:
    sampler = Sampler(temperature=0, repetition_penalty=2.0)
    said = Said(frozenset([0, 3]), Counter([0, 1, 1]))
    assert weigh(LOGITS, sampler, said).tolist() == [1.5, 1.0, 1.0, -2.0]
    assert weigh(LOGITS, sampler, Said()).tolist() == LOGITS.tolist() == [3.0, 2.0, 1.0, -1.0]


def test_presence_and_frequency_leave_the_prompt_alone() -> None:
    said = Said(frozenset([0, 3]), Counter([1, 1, 2]))
    assert weigh(LOGITS, Sampler(presence_penalty=0.5), said).tolist() == [3.0, 1.5, 0.5, -1.0]
    assert weigh(LOGITS, Sampler(frequency_penalty=0.5), said).tolist() == [3.0, 1.0, 0.5, -1.0]
    both = Sampler(presence_penalty=0.5, frequency_penalty=-0.25, bias={3: 10.0})
    assert weigh(LOGITS, both, said).tolist() == [3.0, 2.0, 0.75, 9.0]


@pytest.mark.parametrize(
    "wrong",
    [
        {"repetition_penalty": 0},
        {"presence_penalty": 1e3},
        {"frequency_penalty": float("nan")},
        {"bias": {1: 1e9}},
        {"bias": {-1: 1.0}},
    ],
)
def test_impossible_penalties_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(UsageError, match="expected"):
        Sampler(**wrong)  # type: ignore[arg-type]
