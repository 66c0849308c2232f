"""Guessing ahead changes the time, never the text."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from glassformer.core.errors import UsageError
from glassformer.generation.engine import Engine
from glassformer.generation.open_step import OpenStep, open_step
from glassformer.generation.request import Ending
from glassformer.generation.sampling import Sampler
from glassformer.generation.speculative import SpeculativeEngine
from glassformer.models.build import Decoder
from tests.conftest import tiny_model
from tests.generation.writing import Told, plainly, run
from tests.models.families import ids, make


def near(model: Decoder, noise: float, **changes: object) -> Decoder:
    """A draft that thinks nearly the same."""
    draft = tiny_model(**changes)
    torch.manual_seed(1)
    with torch.no_grad():
        for own, theirs in zip(draft.parameters(), model.parameters(), strict=True):
            own.copy_(theirs + noise * torch.randn_like(theirs))
    return draft


@settings(max_examples=15)
@given(
    st.sampled_from([0.0, 0.02, 1.0]),
    st.integers(1, 6),
    st.lists(st.integers(1, 50), min_size=1, max_size=3),
    st.sampled_from(
        [Sampler(temperature=0), Sampler(seed=3), Sampler(0.8, top_k=5, seed=4), Sampler(top_p=0.7, seed=2)]
    ),
)
def test_the_text_is_the_one_of_the_large_model(
    noise: float, guesses: int, lengths: list[int], sampler: Sampler
) -> None:
    """Beside others, over the end of the context (40), with a draft of a shorter one, whatever it guesses."""
    model = tiny_model(context=40)
    engine = SpeculativeEngine(
        open_step(model, 3), open_step(near(model, noise, context=32), 3), guesses=guesses
    )
    texts = [ids(n, seed=n).tolist() for n in lengths]
    told = [Told(engine, text, 45, sampler.for_row(i)) for i, text in enumerate(texts)]
    run(engine)
    for i, (one, text) in enumerate(zip(told, texts, strict=True)):
        assert one.handle.error is None
        assert one.ids == plainly(model, text, 45, sampler.for_row(i))
    if noise == 0.0:
        assert engine.right == engine.guessed > 0
    assert isinstance(engine.draft, OpenStep) and engine.draft.pages.available == engine.draft.pages.count


def test_the_distribution_is_that_of_the_large_model() -> None:
    """Many seeds: the second token of a text, after a guess, falls as the probabilities say."""
    model = tiny_model(vocab=5, context=16)
    engine = SpeculativeEngine(open_step(model, 64), open_step(near(model, 0.3, vocab=5, context=16), 64))
    told = [Told(engine, [1, 2], 3, Sampler(seed=seed)) for seed in range(400)]
    run(engine)
    counts = torch.zeros(5, 5)
    for one in told:
        counts[one.ids[0], one.ids[1]] += 1
    first = model(torch.tensor([[1, 2]])).detach()[0, -1].softmax(-1)
    second = torch.stack([model(torch.tensor([[1, 2, t]])).detach()[0, -1].softmax(-1) for t in range(5)])
    assert 0.2 < engine.right / engine.guessed < 1
    torch.testing.assert_close(counts / 400, first[:, None] * second, rtol=0, atol=0.045)


def test_wishes_are_kept_and_marks_end_a_text() -> None:
    model = tiny_model(context=40)
    free = plainly(model, [1, 2], 20)
    engine = SpeculativeEngine(open_step(model, 3), open_step(near(model, 0.0, context=40), 3))
    end = Told(engine, [1, 2], 20, end=free[5])
    likeliest = Told(engine, [1, 2], 20, likeliest=2)
    run(engine)
    assert end.ids == free[: free.index(free[5]) + 1]
    assert likeliest.ids == free and all(token.log_prob is not None for token in likeliest.tokens)


def test_without_room_for_guesses_a_text_is_written_all_the_same() -> None:
    model = tiny_model(context=40)
    for pages, draft_pages in ((5, 12), (12, 5), (4, 4)):
        engine = SpeculativeEngine(
            OpenStep(model, pages), OpenStep(near(model, 0.02, context=40), draft_pages)
        )
        told = [Told(engine, ids(n, seed=n).tolist(), 45, Sampler(seed=n)) for n in (3, 20)]
        run(engine)
        for one, n in zip(told, (3, 20), strict=True):
            assert one.handle.error is None
            assert one.ids == plainly(model, ids(n, seed=n).tolist(), 45, Sampler(seed=n))


def test_a_draft_that_fails_and_a_reader_that_leaves() -> None:
    class Fails(OpenStep):
        def choose(self, *arguments: object) -> list[int]:
            raise RuntimeError("no guess")

    model = tiny_model(context=40)
    engine = SpeculativeEngine(open_step(model, 2), Fails(near(model, 0.0, context=40), 12))
    told = Told(engine, [1, 2], 20)
    run(engine)
    assert told.ids == plainly(model, [1, 2], 20) and told.handle.error is None
    engine = SpeculativeEngine(open_step(model, 2), open_step(near(model, 0.0, context=40), 2))
    seen: list[object] = []

    def leave(token: object) -> None:
        seen.append(token)
        if len(seen) == 7:
            leaves.handle.cancel()

    leaves = Told(engine, [1, 2], 30, on_token=leave)
    run(engine)
    assert leaves.handle.ending is Ending.CANCELLED and len(seen) == 7


def test_drafts_that_cannot_be_are_refused() -> None:
    model = tiny_model()
    with pytest.raises(UsageError, match="vocabulary of 9"):
        SpeculativeEngine(open_step(model), open_step(tiny_model(vocab=9)))
    lstm = make("language", "lstm")
    with pytest.raises(UsageError, match="two transformers"):
        SpeculativeEngine(open_step(model), open_step(lstm))
    assert Engine(open_step(lstm)).turn() is False
