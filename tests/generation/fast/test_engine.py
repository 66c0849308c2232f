"""The engine on the fast step: what the plain loop writes, the same bits in any company, guesses included."""

import numpy as np
import pytest
import torch

from glassformer.generation.engine import Engine
from glassformer.generation.fast.step import FastStep
from glassformer.generation.request import Ending
from glassformer.generation.sampling import Sampler
from glassformer.generation.speculative import SpeculativeEngine
from glassformer.generation.step import Piece
from tests.conftest import tiny_model
from tests.generation.writing import Told, plainly, run
from tests.models.families import ids

VARIANTS = [
    {},
    {"position": "learned", "tied": True, "bias": True, "placement": "post"},
    {"position": "alibi", "kv_heads": 1, "window": 5},
    {"position": "sinusoidal", "activation": "swiglu", "shift": "layers", "norm": "rms"},
]


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_the_engine_writes_what_the_plain_loop_writes(variant: dict[str, object]) -> None:
    """Three texts beside each other, far beyond the context of 12."""
    model = tiny_model(**variant)
    engine = Engine(FastStep(model, 6, threads=2), chunk=7)
    wishes = [
        (ids(n, seed=n).tolist(), Sampler(0.9, top_k=k, seed=n)) for n, k in ((1, None), (5, 8), (30, None))
    ]
    told = [Told(engine, text, 30, sampler) for text, sampler in wishes]
    run(engine)
    for one, (text, sampler) in zip(told, wishes, strict=True):
        assert one.handle.error is None and one.ids == plainly(model, text, 30, sampler)


def test_guesses_change_nothing_to_the_bit() -> None:
    """Checked in one piece, scores have the bits that they have token by token."""
    model, draft = tiny_model(context=40), tiny_model(context=40, layers=1)
    engine = SpeculativeEngine(FastStep(model, 12), FastStep(draft, 12))
    alone = Engine(FastStep(model, 12))
    both = [
        [Told(each, ids(n, seed=n).tolist(), 35, Sampler(seed=n)) for n in (2, 9)] for each in (engine, alone)
    ]
    for each in (engine, alone):
        run(each)
    assert [one.ids for one in both[0]] == [one.ids for one in both[1]] and engine.guessed > 20
    text, step = ids(9).tolist(), FastStep(model, 12)
    slots = [step.open([], shares=False) for _ in range(2)]
    for slot in slots:
        assert step.reserve(slot, 9)
    whole = step.scores([Piece(slots[0], text, 9)]).numpy()
    one_by_one = np.concatenate([step.scores([Piece(slots[1], [token])]).numpy() for token in text])
    assert np.array_equal(whole, one_by_one)


def test_scores_that_are_no_numbers_are_told() -> None:
    model = tiny_model()
    with torch.no_grad():
        model.stack.blocks[1].mlp.down.weight[3] = float("nan")  # type: ignore[union-attr]
    for sampler in (
        Sampler(temperature=0),
        Sampler(seed=1),
        Sampler(top_k=3, seed=1),
        Sampler(top_p=0.5, seed=1),
    ):
        engine = Engine(FastStep(model, 6))
        told = Told(engine, [1, 2, 3], 5, sampler)
        run(engine)
        assert told.handle.ending is Ending.FAILED and "no numbers" in str(told.handle.error)
