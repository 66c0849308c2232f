"""Steps at fixed places, as a graph repeats them, here call by call: the texts of the pass as it is called.

On a GPU tests/kernels/test_graph_gpu.py does the rest.
"""

import pytest
import torch
from torch import nn

from glassformer.generation.engine import Engine
from glassformer.generation.gpu import graphs, repeats
from glassformer.generation.open_step import OpenStep, open_step
from glassformer.generation.sampling import Sampler
from glassformer.generation.step import Piece
from glassformer.models.foreign import foreign_part
from glassformer.models.mask import Mask
from glassformer.models.model import LanguageModel
from glassformer.models.transformer import Stack
from tests.conftest import tiny_model
from tests.generation.test_seq2seq import SOURCES, drawn, translator
from tests.generation.writing import GREEDY, Told, plainly, run
from tests.models.families import FAMILIES, READERS, close, ids, make

STACKS = [name for name, how in FAMILIES.items() if "family" not in how]


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything that can be repeated is, and positions are looked at in several sizes."""
    monkeypatch.setattr(repeats, "OFTEN", 0)
    monkeypatch.setattr(graphs, "LEAST_REACH", 4)
    monkeypatch.setattr(repeats, "LEAST_SOURCE", 2)


@pytest.mark.parametrize("name", STACKS)
def test_texts_are_the_same(name: str) -> None:
    """Three at once, of unequal lengths, far beyond the context, where the older half is dropped."""
    model = make("language", name)
    assert isinstance(model, LanguageModel)
    step = OpenStep(model, 12, repeats=True)
    engine = Engine(step, chunk=7)
    wishes = [(9, Sampler(seed=5)), (3, GREEDY), (1, Sampler(0.7, seed=1))]
    texts = [(ids(n, seed=n).tolist(), sampler) for n, sampler in wishes]
    told = [Told(engine, text, 30, sampler) for text, sampler in texts]
    run(engine)
    for one, (text, sampler) in zip(told, texts, strict=True):
        assert one.ids == plainly(model, text, 30, sampler)
    assert step._repeats is not None
    # One row or up to four; up to 4 positions or up to 12, which are all there are.
    assert {kind[:2] for kind in step._repeats._come} >= {(1, 4), (4, 12)}  # type: ignore[index]


@pytest.mark.parametrize("name", [name for name in STACKS if name in READERS])
def test_translations_are_the_same(name: str) -> None:
    model = translator(name)
    wishes = [(source, Sampler(0.9, seed=i)) for i, source in enumerate(SOURCES)] + [(SOURCES[0], GREEDY)]
    assert drawn(OpenStep(model, 24, repeats=True), wishes, 6) == drawn(open_step(model, 6), wishes, 6)


def test_what_a_row_was_does_not_matter() -> None:
    """Rows are taken by other texts; a large batch before a small one leaves nothing behind."""
    model = tiny_model(context=24)
    step, plain = OpenStep(model, 20, repeats=True), open_step(model, 5)
    for count, length in ((5, 9), (3, 2), (1, 14), (4, 1)):
        found = []
        for one in (step, plain):
            slots = [one.open([], shares=False) for _ in range(count)]
            for i, slot in enumerate(slots):
                assert one.reserve(slot, length + i + 1)
                one.scores([Piece(slot, ids(length + i, seed=i).tolist())])
            found.append(one.scores([Piece(slot, [i]) for i, slot in enumerate(slots)]))
            for slot in slots:
                one.close(slot)
        close(*found)


def test_scores_stay_what_they_were() -> None:
    """Whoever was given them keeps them, whatever is computed next."""
    model = tiny_model()
    step = OpenStep(model, 4, repeats=True)
    slot = step.open([])
    assert step.reserve(slot, 6)
    first = step.scores([Piece(slot, [1])])
    before = first.clone()
    step.scores([Piece(slot, [2])])
    assert torch.equal(first, before)


def test_it_waits_until_it_pays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repeats, "OFTEN", 3)
    step, ran = OpenStep(tiny_model(context=40), 4, repeats=True), list[object]()
    step.close(step.open([]))
    assert step._repeats is not None
    monkeypatch.setattr(step._repeats._graphs, "run", lambda kind, launch: (ran.append(kind), launch()))
    engine = Engine(step)
    told = Told(engine, [1], 8)
    run(engine)
    assert told.handle.error is None
    # Up to four positions come four times; then up to sixteen.
    assert ran == [(1, 4, 0), (1, 16, 0)]


class Own(nn.Linear):
    """A part of somebody else's."""


def test_foreign_parts_are_called_as_they_are() -> None:
    model = tiny_model()
    plain = OpenStep(model, 2)
    plain.open([])
    assert foreign_part(model) is None and plain._repeats is None  # not on a CPU
    assert isinstance(model.stack, Stack)
    model.stack.mask = Mask(rule=lambda q, k: k <= q)
    assert foreign_part(model) == "a mask by a rule"
    model.stack.mask = Mask(causal=True)
    mlp = model.stack.blocks[0].mlp
    before, mlp.activation = mlp.activation, lambda x: x  # type: ignore[union-attr]
    assert foreign_part(model) == "MLP.activation"
    mlp.activation = before  # type: ignore[union-attr]
    weight = model.unembedding.weight
    for register, hook in (
        (model.stack.register_forward_hook, lambda *_: None),
        (weight.register_hook, lambda g: g),
        (weight.register_post_accumulate_grad_hook, lambda p: None),
    ):
        hook = register(hook)
        assert "a hook of" in str(foreign_part(model))
        hook.remove()
        assert foreign_part(model) is None
    model.unembedding = Own(8, 8)
    assert foreign_part(model) == "Own"


@pytest.mark.parametrize("name", [*FAMILIES, *READERS])
def test_none_of_our_parts_is_foreign(name: str) -> None:
    for task in ("language", "classify", "masked", "tag", "translate"):
        if (name in FAMILIES and task == "language") or (name in READERS and task != "language"):
            assert foreign_part(make(task, name)) is None


def test_who_changes_a_model_is_heard_from_the_next_text_on() -> None:
    """A hook that is hung on it, and taken off again; a part that is exchanged."""
    model = tiny_model(context=24)
    assert isinstance(model.stack, Stack)
    step = OpenStep(model, 8, repeats=True)

    engine = Engine(step)

    def write() -> list[int]:
        told = Told(engine, [1, 2], 12)
        run(engine)
        return told.ids

    plain, recorded = write(), step._repeats
    hook = model.stack.register_forward_hook(lambda module, args, out: -out)
    assert write() != plain and step._repeats is None
    hook.remove()
    assert write() == plain and step._repeats is not None and step._repeats is not recorded
    now = step._repeats
    assert write() == plain and step._repeats is now
    for window in (1, 3):  # two in a row, which may lie at the same address
        model.stack.mask, now = Mask(causal=True, window=window), step._repeats
        assert write() != plain and step._repeats is not now
    model.stack.mask, now = Mask(causal=True), step._repeats
    assert write() == plain and step._repeats is not now
    now = step._repeats
    model.stack.blocks[0].mlp.activation = torch.nn.functional.relu  # type: ignore[union-attr]
    assert write() is not None and step._repeats is not now
