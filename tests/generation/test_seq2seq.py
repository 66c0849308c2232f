"""Translations: by the engine and by beams over a step, as by the model's own state; and each by itself."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from glassformer.core.errors import GlassformerError, UsageError
from glassformer.generation.beam import Hypothesis, beam_search
from glassformer.generation.engine import Engine
from glassformer.generation.make import make_engine, make_step
from glassformer.generation.open_step import OpenStep, PlainStep, open_step
from glassformer.generation.pages import SIZE
from glassformer.generation.request import Handle, Request, Written
from glassformer.generation.sampling import Sampler
from glassformer.generation.seq2seq import translate_ids
from glassformer.generation.step import Piece, Slot, Step
from glassformer.inspection.edits import edited, zero
from glassformer.models.model import EncoderDecoderModel
from tests.conftest import tiny_model
from tests.generation.writing import GREEDY, run
from tests.models.families import READERS, close, ids, make

MARK, ROOM, CONTEXT = 0, 40, 48  # texts of several pages
SOURCES = [[3, 4, 5, MARK], [6, MARK], [7, 8, 9, 10, 11, MARK], [MARK], [12, 13, MARK]]


def translator(name: str) -> EncoderDecoderModel:
    model = make("translate", name, context=CONTEXT)
    assert isinstance(model, EncoderDecoderModel)
    return model


def by_own_state(model: EncoderDecoderModel, source: list[int], beams: int) -> list[Hypothesis]:
    """One source alone, without a step: the oracle."""
    room = CONTEXT
    state = model.start(torch.tensor([source]))
    first = torch.tensor([[MARK]])
    options = {"beams": beams, "tokens": room, "end": MARK, "length_penalty": 0.6}
    with torch.no_grad():
        return beam_search(model.next_scores, state, first, **options)[0]  # type: ignore[arg-type]


def alike(found: list[Hypothesis], expected: list[Hypothesis]) -> None:
    assert [h.ids for h in found] == [h.ids for h in expected]
    assert [h.score for h in found] == pytest.approx([h.score for h in expected], rel=1e-4)
    assert [h.ended for h in found] == [h.ended for h in expected]


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize("beams", [1, 3])
def test_translations_are_those_of_the_models_own_state(name: str, beams: int) -> None:
    model, done = translator(name), list[int]()
    sources = [np.array(source[:-1], np.int64) for source in SOURCES]
    found = translate_ids(model, sources, MARK, beams=beams, progress=done.append)
    for source, hypotheses in zip(SOURCES, found, strict=True):
        alike(hypotheses, by_own_state(model, source, beams))
    assert sum(done) == len(SOURCES)
    assert translate_ids(model, [], MARK, beams=beams) == []


@pytest.mark.parametrize("name", READERS)
def test_scores_beside_a_source_are_those_of_the_forward_pass(name: str) -> None:
    """Several texts at once, each beside its own source, which makes a difference."""
    model, texts = translator(name), [[MARK], [MARK], [MARK, 4, 5]]
    step = open_step(model, 3)
    slots = [step.open([], shares=False) for _ in texts]
    for slot, source, text in zip(slots, SOURCES, texts, strict=False):
        slot.source = source
        assert step.reserve(slot, len(text) + 1)
    first = step.scores([Piece(slot, text) for slot, text in zip(slots, texts, strict=True)])
    second = step.scores([Piece(slot, [7]) for slot in slots])
    with torch.no_grad():
        for row, (source, text) in enumerate(zip(SOURCES, texts, strict=False)):
            expected = model(torch.tensor([source]), torch.tensor([[*text, 7]]))[0]
            close(first[row], expected[-2])
            close(second[row], expected[-1])
    assert float((first[0] - first[1]).abs().max()) > 1e-3


def drawn(step: Step, wishes: list[tuple[list[int], Sampler]], rows: int) -> list[list[int]]:
    engine, texts = Engine(step, rows=rows), list[list[int]]()
    handles: list[Handle] = []
    for source, sampler in wishes:
        texts.append([])

        def take(token: Written, text: list[int] = texts[-1]) -> None:
            text.append(token.id)

        handles.append(engine.submit(Request([MARK], ROOM, sampler, end=MARK, source=source, on_token=take)))
    run(engine)
    assert all(handle.error is None for handle in handles) and all(texts)
    return texts


@pytest.mark.parametrize("name", READERS)
def test_a_drawn_translation_is_its_own_in_any_company(name: str) -> None:
    """Several at once and two rows at a time, with and without a cache, greedy ones among them."""
    model = translator(name)
    wishes = [(source, Sampler(0.9, seed=i)) for i, source in enumerate(SOURCES)] + [(SOURCES[0], GREEDY)]
    together = drawn(open_step(model, 6), wishes, 6)
    assert max(map(len, together)) > SIZE
    assert together == drawn(open_step(model, 2), wishes, 2)
    assert together == [drawn(PlainStep(model), [wish], 1)[0] for wish in wishes]


def test_samplers_of_several_sources_differ_and_come_again() -> None:
    model, source = translator("transformer"), np.array([3, 4, 5])
    samplers = [Sampler(seed=4).for_row(i) for i in range(3)]
    one, two = ([h[0].ids for h in translate_ids(model, [source] * 3, MARK, samplers=samplers)] for _ in "ab")
    assert one == two and len({tuple(text) for text in one}) == 3
    assert len(translate_ids(model, [source], MARK, samplers=[Sampler()])[0]) == 1  # a seed is drawn


@pytest.mark.parametrize(
    ("request_of", "says"),
    [
        (lambda: Request([1], 3), "expected one to translate"),
        (lambda: Request([1], 3, source=[]), "the source is empty"),
        (lambda: Request([1], 3, source=[99]), "id 99 of the source"),
        (lambda: Request([1], 3, source=[1], new_tap=edited([zero("decoder.0.z")])), "written under edits"),
        (lambda: Request([1], 3, source=[1] * 99), "a source of 99 tokens is longer than the context of 48"),
    ],
)
def test_what_is_no_source_is_refused(request_of: Callable[[], Request], says: str) -> None:
    engine = make_engine(translator("transformer"))
    with pytest.raises(UsageError, match=says):
        engine.submit(request_of())


def test_a_language_model_reads_no_source() -> None:
    with pytest.raises(UsageError, match="reads no source"):
        make_engine(tiny_model()).submit(Request([1], 3, source=[1]))
    with pytest.raises(UsageError, match="no transformer language model"):
        make_step(translator("transformer"), weights="bf16")


@pytest.mark.parametrize("beams", [1, 3])
def test_a_search_refuses_what_the_engine_refuses(beams: int) -> None:
    model, long = translator("transformer"), np.ones(CONTEXT, np.int64)
    for source, says in ((long, "a source of 49 tokens"), (np.array([99]), "id 99 of the source")):
        with pytest.raises(UsageError, match=says):
            translate_ids(model, [np.array([1]), source], MARK, beams=beams)
    with pytest.raises(UsageError, match="0 beams: expected at least 1"):
        translate_ids(model, [np.array([1])], MARK, beams=0)
    with torch.no_grad():
        model.unembedding.weight.fill_(torch.nan)
    with pytest.raises(GlassformerError, match="no token can be chosen"):
        translate_ids(model, [np.array([1])], MARK, beams=beams)


def test_texts_that_begin_alike_beside_other_sources_share_no_pages() -> None:
    """The same 40 tokens, the second text when the first has read them."""
    model, prompt = translator("transformer"), [MARK, *ids(39).tolist()]
    engine, texts = Engine(OpenStep(model, 12), rows=2), list[list[int]]()
    for source in (SOURCES[0], SOURCES[2]):
        for into in (engine, Engine(PlainStep(model), rows=1)):
            text: list[int] = []
            request = Request(prompt, 5, GREEDY, source=source, on_token=lambda t, x=text: x.append(t.id))
            assert into.write(request).shared == 0
            texts.append(text)
        assert texts[-1] == texts[-2]
    other = Engine(OpenStep(model_of_text := tiny_model(context=CONTEXT), 12), rows=2)
    assert [other.write(Request(prompt, 5, GREEDY)).shared for _ in "ab"] == [0, 2 * SIZE]  # without sources
    assert model_of_text.limit == CONTEXT


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(["read", "fork", "fork", "close"]), st.integers(0, 99)), max_size=25)
)
def test_forks_of_forks_hold_what_their_texts_say(moves: list[tuple[str, int]]) -> None:
    """Pages are copied late and together: whatever was forked from what, closed, or has grown since."""
    model = tiny_model(context=8 * SIZE)
    step = OpenStep(model, 80)
    texts = [(step.open([], shares=False), list[int]())]

    def read(slot: Slot, text: list[int], new: list[int]) -> None:
        assert step.reserve(slot, len(new))
        text += new
        scores = step.scores([Piece(slot, new)])[0]
        close(scores, model(torch.tensor([text]))[0, -1])

    read(*texts[0], ids(SIZE - 2).tolist())
    for move, number in moves:
        slot, text = texts[number % len(texts)]
        if move == "fork" and len(texts) < 6:
            texts.append((step.fork(slot), list(text)))
        elif move == "close" and len(texts) > 1:
            step.close(slot)
            texts.remove((slot, text))
        elif move == "read" and len(text) < 7 * SIZE:
            read(slot, text, [(number + i) % 23 for i in range(1 + number % 5)])
