"""Optimizers and schedules against their formulas."""

import math
from itertools import pairwise, product

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from glassformer.config.schema import build
from glassformer.config.training import TrainingConfig
from glassformer.core.errors import UsageError
from glassformer.models.roles import fused_parts
from glassformer.tasks.registry import make_model
from glassformer.training.optim import make_optimizers, orthogonalise
from glassformer.training.schedule import BatchSizes, learning_rate_factor, noam
from tests.conftest import tiny_model


def settings(**changes: object) -> TrainingConfig:
    return build({"training": changes}).training


def one_step(config: TrainingConfig, steps: int = 3) -> tuple[dict[str, torch.Tensor], list[dict]]:
    """The weights after a few steps with fixed made-up gradients, and those gradients."""
    model = tiny_model()
    optimizers = make_optimizers(model, config)
    history: list[dict[str, torch.Tensor]] = []
    torch.manual_seed(1)
    for _ in range(steps):
        for p in model.parameters():
            p.grad = torch.randn_like(p)
        history.append({n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None})
        for optimizer in optimizers:
            optimizer.step()
    return {n: p.detach() for n, p in model.named_parameters()}, history


@pytest.mark.parametrize("optimizer", ["adamw", "adam"])
def test_adam_is_its_formula(optimizer: str) -> None:
    config = settings(optimizer=optimizer, lr=0.01, weight_decay=0.1)
    weights, history = one_step(config)
    for name, p in tiny_model().named_parameters():
        x, m, v = p.detach().double(), torch.zeros_like(p).double(), torch.zeros_like(p).double()
        decay = config.weight_decay if optimizer == "adamw" and p.ndim == 2 else 0.0
        for t, gradients in enumerate(history, start=1):
            g = gradients[name].double()
            m = config.beta1 * m + (1 - config.beta1) * g
            v = config.beta2 * v + (1 - config.beta2) * g * g
            step = (m / (1 - config.beta1**t)) / ((v / (1 - config.beta2**t)).sqrt() + config.eps)
            x = x * (1 - config.lr * decay) - config.lr * step
        torch.testing.assert_close(weights[name].double(), x, rtol=1e-5, atol=1e-6)


def test_sgd_with_momentum_is_the_textbooks() -> None:
    config = settings(optimizer="sgd", lr=0.01, momentum=0.9)
    weights, history = one_step(config)
    for name, p in tiny_model().named_parameters():
        x, velocity = p.detach().clone(), torch.zeros_like(p)
        for gradients in history:
            velocity = 0.9 * velocity + gradients[name]
            x = x - 0.01 * velocity
        torch.testing.assert_close(weights[name], x)


def test_muon_moves_every_direction_alike() -> None:
    torch.manual_seed(0)
    for rows, columns in ((16, 16), (8, 32), (32, 8)):
        updates = orthogonalise(torch.randn(3, rows, columns))
        singular = torch.linalg.svdvals(updates.float())
        assert singular.min() > 0.6 and singular.max() < 1.3


def test_muon_keeps_the_singular_vectors() -> None:
    torch.manual_seed(0)
    G = torch.randn(1, 6, 10)
    U, _, Vh = torch.linalg.svd(G[0], full_matrices=False)
    cosine = torch.nn.functional.cosine_similarity(orthogonalise(G)[0].flatten(), (U @ Vh).flatten(), dim=0)
    assert cosine > 0.98


def test_muon_treats_the_matrices_in_one_weight_apart() -> None:
    model = tiny_model(activation="swiglu", kv_heads=1)
    parts = fused_parts(model)
    attention = model.stack.blocks[0].attention
    assert parts[attention.qkv.weight] == (16, 8, 8)
    hidden = model.config.hidden
    assert parts[model.stack.blocks[0].mlp.up.weight] == (hidden, hidden)
    config = settings(optimizer="muon", momentum=0.0, muon_lr=1.0)
    (muon, _) = make_optimizers(model, config)
    before = attention.qkv.weight.detach().clone()
    for p in model.parameters():
        p.grad = torch.randn_like(p)
    assert attention.qkv.weight.grad is not None
    gradient = attention.qkv.weight.grad.clone()
    muon.step()
    for change, g in zip(
        (before - attention.qkv.weight).split((16, 8, 8)), gradient.split((16, 8, 8)), strict=True
    ):
        torch.testing.assert_close(change, orthogonalise(g[None])[0], rtol=1e-2, atol=2e-2)


@pytest.mark.parametrize(
    ("task", "family"),
    [("language", "window"), *product(("language", "translate", "tag"), ("transformer", "gru"))],
)
def test_optimizers_take_parameters_in_the_order_that_checkpoints_know(task: str, family: str) -> None:
    """As it was when roles were read off the names."""
    sizes = {"layers": 2, "heads": 2, "width": 8, "context": 8, "vocab": 11, "labels": 3, "family": family}
    model = make_model(task, build({"task": task, "model": {**sizes, "position": "learned"}}).model)
    named = list(model.named_parameters())
    inner = [n for n, p in named if p.ndim == 2 and "blocks." in n]
    outer = [n for n, p in named if p.ndim == 2 and "blocks." not in n]
    vectors = [n for n, p in named if p.ndim != 2]
    name = {id(p): n for n, p in named}

    def groups(optimizer: str) -> list[list[list[str]]]:
        optimizers = make_optimizers(model, settings(optimizer=optimizer))
        return [[[name[id(p)] for p in group["params"]] for group in o.param_groups] for o in optimizers]

    assert groups("muon") == [[inner], [outer, vectors]]
    assert groups("adamw") == [[inner + outer, vectors]]
    assert groups("adam") == groups("sgd") == [[[n for n, _ in named]]]


def test_the_papers_training_is_one_word() -> None:
    config = settings(optimizer="adam")
    assert (config.beta1, config.beta2, config.eps, config.warmup) == (0.9, 0.98, 1e-9, 4000)
    assert (config.schedule, config.lr) == ("noam", 1.0)
    for step in (0, 100, 3999, 4000, 100_000):
        n = step + 1
        expected = 512**-0.5 * min(n**-0.5, n * 4000**-1.5)
        assert noam(step, 512, 4000) == pytest.approx(expected, rel=1e-12)
        assert learning_rate_factor(config, step, 512) == noam(step, 512, 4000)
    peak = max(range(0, 20_000, 7), key=lambda s: noam(s, 512, 4000))
    assert abs(peak - 3999) <= 7


@pytest.mark.parametrize("schedule", ["wsd", "cosine", "constant"])
def test_schedules_warm_up_and_end_where_they_should(schedule: str) -> None:
    config = settings(schedule=schedule, steps=1000, warmup=100, lr_floor=0.1, decay=0.5)
    factors = [learning_rate_factor(config, s, 1) for s in range(1000)]
    assert factors[0] == 0.01 and factors[99] == pytest.approx(1.0)
    assert max(factors) == pytest.approx(1.0)
    assert factors[-1] == pytest.approx(1.0 if schedule == "constant" else 0.1, abs=0.01)
    assert all(a >= b - 1e-12 for a, b in pairwise(factors[100:]))
    if schedule == "wsd":
        assert factors[540] == 1.0 and factors[560] < 1.0
    if schedule == "cosine":
        assert factors[550] == pytest.approx(0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi * 0.5)), abs=0.01)


@given(st.integers(1, 9), st.dictionaries(st.integers(1, 40), st.integers(1, 9), max_size=4))
def test_growing_batches_count_as_a_loop_would(first: int, growth: dict[int, int]) -> None:
    sizes = BatchSizes(first, growth)
    consumed = 0
    current = first
    for step in range(50):
        current = growth.get(step, current)
        assert sizes.size(step) == current
        assert sizes.consumed(step) == consumed
        consumed += current


def test_batches_must_divide_into_their_parts() -> None:
    with pytest.raises(UsageError, match=r"does not divide into training\.accumulate 3"):
        settings(batch=8, accumulate=3)
    with pytest.raises(UsageError, match="steps start at 1"):
        settings(batch_growth={0: 4})


def test_embeddings_decay_under_muon_by_their_own_rate() -> None:
    plain, _ = one_step(settings(optimizer="muon", lr=0.01, weight_decay=0.1))
    decayed, _ = one_step(settings(optimizer="muon", lr=0.01, weight_decay=0.1, embedding_decay=0.5), steps=3)
    start = dict(tiny_model().named_parameters())
    for name, p in start.items():
        if name in ("stack.embedding.weight", "unembedding.weight"):
            expected = plain[name].double()
            moved = [0.995**3 * p.detach().double(), expected - p.detach().double()]
            # Each step shrinks the weight first; what Adam adds is nearly the same.
            torch.testing.assert_close(decayed[name].double(), sum(moved), rtol=0, atol=6e-4)
            assert not torch.equal(decayed[name], plain[name])
        else:
            assert torch.equal(decayed[name], plain[name])
    with pytest.raises(UsageError, match="embedding_decay"):
        settings(optimizer="adamw", embedding_decay=0.5)
