"""Likelihood against counting it out token by token."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from glassformer.data.shards import Tokens
from glassformer.evaluation.likelihood import evaluate_likelihood
from tests.conftest import tiny_model

MODEL = tiny_model()


def by_hand(ids: list[int], window: int, stride: int) -> float:
    """Sum of nats: each token scored once, in the window that reaches it first."""
    nats = 0.0
    for start in range(0, len(ids) - 1, stride):
        begin, end = max(0, start + stride - window), min(start + stride, len(ids) - 1)
        with torch.no_grad():
            log_p = MODEL(torch.tensor([ids[begin:end]])).log_softmax(-1)[0]
        nats -= sum(log_p[t - begin, ids[t + 1]].item() for t in range(start, end))
    return nats


@settings(max_examples=25, deadline=None)
@given(st.integers(2, 80), st.integers(1, 12), st.integers(1, 12))
def test_every_token_is_scored_once(length: int, window: int, stride: int) -> None:
    stride = min(stride, window)
    ids = np.random.default_rng(length).integers(0, 23, length)
    result = evaluate_likelihood(
        MODEL, Tokens([ids], 3 * length), "valid", window=window, stride=stride, first_bytes=3
    )
    nats = by_hand(ids.tolist(), window, stride)
    assert result.tokens == length - 1
    assert result.loss == pytest.approx(nats / (length - 1), rel=1e-5)
    assert result.perplexity == pytest.approx(math.exp(result.loss))
    assert result.bits_per_byte == pytest.approx(nats / math.log(2) / (3 * length - 3), rel=1e-5)
    assert (result.window, result.stride) == (window, stride)


def test_evaluating_leaves_the_model_as_it_was() -> None:
    MODEL.train()
    evaluate_likelihood(MODEL, Tokens([np.arange(20) % 23], 20), "valid", window=5)
    assert MODEL.training
    MODEL.eval()
