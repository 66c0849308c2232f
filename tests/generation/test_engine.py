"""The engine against the plain loop: any family, any company, any order of coming and going."""

import threading
from collections.abc import Sequence

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from glassformer.core.errors import GlassformerError, UsageError
from glassformer.generation.engine import Engine
from glassformer.generation.open_step import OpenStep, StateStep, open_step
from glassformer.generation.pages import SIZE
from glassformer.generation.request import Ending, Handle, Request
from glassformer.generation.sampling import Sampler
from glassformer.generation.step import Piece
from glassformer.models.model import LanguageModel
from glassformer.models.tap import Tap, off
from tests.conftest import tiny_model
from tests.generation.writing import GREEDY, Told, plainly, run, write
from tests.models.families import FAMILIES, ids, make


def prompt(n: int, seed: int = 1) -> list[int]:
    return ids(n, seed=seed).tolist()


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("length", [1, 5, 12, 30])
def test_the_engine_writes_what_the_plain_loop_writes(name: str, length: int) -> None:
    """In company, drawn and greedy, also far beyond the context (12), where the older half is dropped."""
    model = make("language", name)
    engine = Engine(open_step(model, 3), chunk=7)
    wishes = [
        (prompt(length), Sampler(seed=5)),
        (prompt(length, 2), GREEDY),
        (prompt(3), Sampler(0.7, seed=1)),
    ]
    told = [Told(engine, text, 30, sampler) for text, sampler in wishes]
    run(engine)
    for one, (text, sampler) in zip(told, wishes, strict=True):
        assert one.ids == plainly(model, text, 30, sampler)
        assert one.handle.ending is Ending.LENGTH


@pytest.mark.parametrize(
    "name", ["transformer", "transformer-alibi", "transformer-shift-layers", "lstm", "window"]
)
def test_scores_of_a_step_are_those_of_the_forward_pass(name: str) -> None:
    """Pieces of any length, one text or several at once: within 1e-5 of the largest."""
    model, texts = make("language", name), [prompt(11, 3), prompt(9, 4)]
    step = open_step(model, 2)
    slots = [step.open([]) for _ in texts]
    for slot in slots:
        assert step.reserve(slot, 12)
    got: list[list[Tensor]] = [[], []]
    for i, (slot, text) in enumerate(zip(slots, texts, strict=True)):
        got[i].append(step.scores([Piece(slot, text[: 4 - i], 4 - i)]))
    for t in range(5):
        both = step.scores(
            [Piece(slot, [text[4 - i + t]]) for i, (slot, text) in enumerate(zip(slots, texts, strict=True))]
        )
        for i in range(2):
            got[i].append(both[i : i + 1])
    for i, text in enumerate(texts):
        want = model(torch.tensor([text]))[0, : 9 - i].detach()
        torch.testing.assert_close(torch.cat(got[i]), want, rtol=0, atol=1e-5 * float(want.abs().max()))


@settings(max_examples=25)
@given(st.data())
def test_requests_may_come_and_go_at_any_time(data: st.DataObject) -> None:
    """What a text becomes depends on nothing else: when it came, its neighbours, how little room there is."""
    model = tiny_model(context=40)
    few = data.draw(st.booleans())
    step = OpenStep(model, 5 if few else 40)
    engine = Engine(step, rows=data.draw(st.integers(1, 4)), chunk=data.draw(st.integers(1, 20)))
    told: list[tuple[Told, list[int], int, Sampler]] = []
    for number in range(data.draw(st.integers(1, 6))):
        text = prompt(data.draw(st.integers(1, 60)), seed=data.draw(st.integers(0, 1)))
        tokens, sampler = data.draw(st.integers(1, 50)), Sampler(seed=number)
        told.append((Told(engine, text, tokens, sampler), text, tokens, sampler))
        for _ in range(data.draw(st.integers(0, 12))):
            engine.turn()
        if data.draw(st.integers(0, 4)) == 0:
            told.pop()[0].handle.cancel()
    run(engine)
    for one, text, tokens, sampler in told:
        assert one.handle.error is None and one.ids == plainly(model, text, tokens, sampler)
    assert step.pages.available == step.pages.count  # nothing is left behind
    assert not engine.running and not engine.waiting


def test_a_cached_step_costs_one_position() -> None:
    model = tiny_model()
    widths: list[int] = []
    handle = model.stack.register_forward_pre_hook(lambda module, args: widths.append(args[0].shape[1]))
    write(model, prompt(4), 6)
    assert widths == [3, 1, 1, 1, 1, 1, 1]
    handle.remove()


def test_equal_beginnings_are_read_once() -> None:
    model = tiny_model(context=80)
    read: list[int] = []
    handle = model.stack.register_forward_pre_hook(lambda module, args: read.append(args[0].numel()))
    engine, text = Engine(open_step(model, 4)), prompt(40)
    told = [Told(engine, text, 3, Sampler(seed=i)) for i in range(4)]
    run(engine)
    handle.remove()
    assert [one.handle.shared for one in told] == [0, 32, 32, 32]  # two full pages of 16
    assert sum(read) == 39 + 3 * 7 + 4 * 3
    for i, one in enumerate(told):
        assert one.ids == plainly(model, text, 3, Sampler(seed=i))
    later = Told(engine, [*text, *told[0].ids, 1], 2)  # pages are kept after their text has ended
    run(engine)
    assert later.handle.shared == 32 and later.ids == plainly(model, [*text, *told[0].ids, 1], 2)


def test_a_long_prompt_does_not_keep_others_waiting() -> None:
    engine = Engine(open_step(tiny_model(context=300), 2), chunk=16)
    short = Told(engine, prompt(2), 40)
    engine.turn()
    Told(engine, prompt(200), 1)
    gaps = [len(short.tokens)]
    for _ in range(10):
        engine.turn()
        gaps.append(len(short.tokens))
    assert gaps == list(range(1, 12))  # a token in every turn


def test_a_cancelled_text_ends_at_once_and_others_go_on() -> None:
    model = tiny_model(context=64)
    engine = Engine(open_step(model, 2))
    one, other = Told(engine, prompt(3), 30), Told(engine, prompt(4), 20)
    for _ in range(5):
        engine.turn()
    before = len(one.tokens)
    one.handle.cancel()
    run(engine)
    assert one.handle.ending is Ending.CANCELLED and len(one.tokens) <= before + 2
    assert other.ids == plainly(model, prompt(4), 20)


def test_a_fault_ends_its_text_alone() -> None:
    model = tiny_model(context=64)
    engine = Engine(open_step(model, 3))

    def breaks(token: object) -> None:
        raise RuntimeError("the reader has gone")

    one, other = Told(engine, prompt(3), 9, on_token=breaks), Told(engine, prompt(4), 9)
    run(engine)
    assert one.handle.ending is Ending.FAILED and str(one.handle.error) == "the reader has gone"
    assert other.ids == plainly(model, prompt(4), 9)


@pytest.mark.parametrize("longer", [0, 3])
@pytest.mark.parametrize("family", ["transformer", "lstm"])
def test_a_step_that_goes_wrong_for_one_text_ends_that_one(family: str, longer: int) -> None:
    """Also while prompts are read, several of them at once."""
    model = make("language", family, context=64)
    assert isinstance(model, LanguageModel)
    step = open_step(model, 10)
    right = step.scores

    def breaks(pieces: Sequence[Piece]) -> Tensor:
        result = right(pieces)
        if any(7 in piece.ids for piece in pieces):
            raise RuntimeError("seven")
        return result

    step.scores = breaks  # type: ignore[method-assign]
    engine = Engine(step)
    texts = [[1, 2] + [3] * longer, [3, 7] + [3] * longer, [4, 5] + [3] * longer]
    told = [Told(engine, text, 3, Sampler(seed=1)) for text in texts]
    run(engine)
    assert told[1].handle.ending is Ending.FAILED and "seven" in str(told[1].handle.error)
    for i in (0, 2):
        want = plainly(model, texts[i], 3, Sampler(seed=1))
        assert told[i].ids == (want[: want.index(7) + 1] if 7 in want[:-1] else want)


def test_a_listener_may_end_everything_while_prompts_are_read_again() -> None:
    """What has ended is not opened once more: its pages would never come back."""
    model = tiny_model(context=64)
    engine = Engine(open_step(model, 10))
    free = engine.step.pages.available  # type: ignore[attr-defined]

    def no_tap(start: int) -> Tap:
        def breaks(site: str, x: Tensor) -> Tensor:
            raise RuntimeError("broken")

        return breaks

    first = Told(engine, prompt(20), 2, new_tap=no_tap, on_end=lambda _: engine.end_all())
    second = Told(engine, prompt(20, 2), 2)
    run(engine)
    assert first.handle.ending is Ending.FAILED and second.handle.ending is Ending.CANCELLED
    assert engine.step.pages.available == free  # type: ignore[attr-defined]


def test_a_fault_that_passes_changes_no_text() -> None:
    """Also of texts that have slid already: they go on from where they stood."""

    class Stumbles(OpenStep):
        calls = 0

        def choose(self, pieces: Sequence[Piece], *drawing: object) -> list[int]:
            self.calls += len(pieces) == 3
            if len(pieces) == 3 and self.calls in (15, 25):
                raise RuntimeError("just now")
            return super().choose(pieces, *drawing)  # type: ignore[arg-type]

    model = tiny_model(context=12)
    engine = Engine(Stumbles(model, 40))
    told = [Told(engine, prompt(n), 40, Sampler(seed=n)) for n in (3, 5, 11)]
    run(engine)
    assert isinstance(engine.step, Stumbles) and engine.step.calls > 25
    for one, n in zip(told, (3, 5, 11), strict=True):
        assert one.handle.error is None and one.ids == plainly(model, prompt(n), 40, Sampler(seed=n))


def test_a_text_that_must_not_slide_ends_also_when_it_had_to_wait() -> None:
    model = tiny_model(context=40)
    engine = Engine(OpenStep(model, 5))
    told = [Told(engine, prompt(17 + n), 60, Sampler(seed=n), slides=False) for n in range(4)]
    run(engine)
    for n, one in enumerate(told):
        assert one.handle.ending is Ending.FULL and len(one.tokens) == 40 - (17 + n) + 1
        assert one.ids == plainly(model, prompt(17 + n), len(one.tokens), Sampler(seed=n))


def test_whatever_listeners_do_the_others_go_on() -> None:
    model = tiny_model(context=12)
    engine, ended = Engine(open_step(model, 4)), list[Ending | None]()

    def breaks(handle: Handle) -> None:
        ended.append(handle.ending)
        raise RuntimeError("nobody is there")

    def no_tap(start: int) -> Tap:
        if start:
            raise RuntimeError("no second tap")
        return off

    told = [
        Told(engine, prompt(3), 4, on_end=breaks),
        Told(engine, prompt(4), 30, on_end=breaks),
        Told(engine, prompt(3), 30, new_tap=no_tap),
        Told(engine, prompt(5), 20),
    ]
    for _ in range(3):
        engine.turn()
    told[1].handle.cancel()
    run(engine)
    assert sorted(map(str, ended)) == ["cancelled", "length"]
    assert told[2].handle.ending is Ending.FAILED and "no second tap" in str(told[2].handle.error)
    assert told[3].ids == plainly(model, prompt(5), 20)


def test_scores_that_are_no_numbers_end_their_text_alone() -> None:
    """Also what they leave behind in the pages does not reach others."""
    model = tiny_model(context=64)
    engine = Engine(open_step(model, 3))

    def poison(start: int) -> Tap:
        return lambda site, x: x * float("nan") if site in ("0.k", "0.v", "1.v") else x

    bad = Told(engine, prompt(20), 9, new_tap=poison)
    run(engine)
    assert bad.handle.ending is Ending.FAILED and "no numbers" in str(bad.handle.error) and not bad.tokens
    told = [
        Told(engine, prompt(n, 3), 12, Sampler(seed=n)) for n in (2, 30)
    ]  # a short text beside a long one
    run(engine)
    for one, n in zip(told, (2, 30), strict=True):
        assert one.ids == plainly(model, prompt(n, 3), 12, Sampler(seed=n))


def test_endings() -> None:
    model = tiny_model(context=12)
    free = plainly(model, prompt(3), 20)
    engine = Engine(open_step(model))
    mark = Told(engine, prompt(3), 20, end=free[4])
    stops = Told(engine, prompt(3), 20, slides=False)
    short = Told(engine, prompt(3), 2)
    seen: list[int] = []
    told = Told(engine, prompt(3), 20, on_token=lambda token: seen.append(token.id) or len(seen) < 4)
    run(engine)
    assert mark.ids == free[: free.index(free[4]) + 1] and mark.handle.ending is Ending.MARK
    assert stops.ids == free[:10] and stops.handle.ending is Ending.FULL
    assert short.ids == free[:2] and short.handle.ending is Ending.LENGTH
    assert seen == free[:4] and told.handle.ending is Ending.TOLD


def test_probabilities_forced_beginnings_and_scores_of_a_given_text() -> None:
    model, text = tiny_model(context=40), prompt(20)
    log_probs = model(torch.tensor([text])).detach().log_softmax(-1)[0]
    engine, scored, alone = Engine(open_step(model, 2), chunk=6), [], []
    Told(engine, text, 0, likeliest=2, scores_prompt=True, on_prompt=scored.extend)
    one = Told(engine, text[:1], 1, likeliest=0, scores_prompt=True, on_prompt=alone.extend)
    run(engine)
    assert [token.id for token in scored] == text and scored[0].log_prob is None
    for t, token in enumerate(scored[1:]):
        assert token.log_prob == pytest.approx(float(log_probs[t, text[t + 1]]), abs=1e-5)
        best = log_probs[t].topk(2)
        assert [i for i, _ in token.likeliest] == best.indices.tolist()
    assert [token.id for token in alone] == text[:1]  # nothing stands before a first token
    assert len(one.tokens) == 1
    forced = Told(engine, text, 8, Sampler(seed=2), forced=[5, 6, 7], likeliest=1)
    run(engine)
    assert forced.ids[:3] == [5, 6, 7]
    assert forced.ids[3:] == plainly(model, [*text, 5, 6, 7], 5, Sampler(seed=2))
    assert forced.tokens[0].log_prob == pytest.approx(float(log_probs[-1, 5]), abs=1e-5)


def test_penalties_and_bias() -> None:
    model = tiny_model(context=64)
    biased = write(model, prompt(3), 6, Sampler(temperature=0, bias={9: 100.0}))
    assert biased == [9] * 6
    assert 9 not in write(model, prompt(3), 20, Sampler(seed=1, bias={9: -100.0}))
    for penalty in ({"presence_penalty": 100.0}, {"frequency_penalty": 100.0}):
        fresh = write(model, prompt(3), 20, Sampler(temperature=0, **penalty))
        assert len(set(fresh)) == 20  # nothing twice; the prompt does not count
    first = plainly(model, prompt(3), 1)[0]  # a penalty on the prompt, too
    assert write(model, [first, *prompt(3)], 1, Sampler(temperature=0, repetition_penalty=1e6)) != [first]


def test_impossible_requests_are_refused() -> None:
    engine = Engine(open_step(tiny_model()))
    for request, message in (
        (Request([], 3, GREEDY), "at least one token"),
        (Request([1, 99], 3, GREEDY), "outside the vocabulary"),
        (Request([1], 0, GREEDY), "expected at least 1"),
        (Request([1], 2, GREEDY, forced=[1, 1, 1]), "written first"),
        (Request([1], 3, Sampler()), "seed"),
        (Request([1] * 13, 0, GREEDY, scores_prompt=True), "cannot be scored"),
        (Request([1] * 13, 2, GREEDY, slides=False), "longer than the context of 12"),
        (Request([1], 2, Sampler(seed=1, bias={50: 1.0})), "outside the vocabulary"),
    ):
        with pytest.raises(UsageError, match=message):
            engine.submit(request)
    assert len(engine) == 0
    small = Engine(OpenStep(tiny_model(context=64), 2))
    told = Told(small, prompt(20), 60)  # the prompt fits into two pages, the text does not
    run(small)
    assert told.handle.ending is Ending.FAILED and isinstance(told.handle.error, GlassformerError)
    assert len(told.tokens) == 2 * SIZE - 20 + 1


def test_other_threads_bring_requests() -> None:
    model = tiny_model(context=64)
    engine, told = Engine(open_step(model, 4)), dict[int, Told]()

    def bring(seed: int) -> None:
        told[seed] = Told(engine, prompt(3), 12, Sampler(seed=seed))

    threads = [threading.Thread(target=bring, args=(seed,)) for seed in range(12)]
    for thread in threads:
        thread.start()
        engine.turn()
    for thread in threads:
        thread.join()
    run(engine)
    for seed, one in told.items():
        assert one.ids == plainly(model, prompt(3), 12, Sampler(seed=seed))


def test_threads_may_turn_one_engine() -> None:
    model = tiny_model(context=64)
    engine, written = Engine(open_step(model, 4)), dict[int, list[int]]()

    def write_one(seed: int) -> None:
        ids: list[int] = []
        engine.write(Request(prompt(3), 30, Sampler(seed=seed), on_token=lambda token: ids.append(token.id)))
        written[seed] = ids

    threads = [threading.Thread(target=write_one, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert written == {seed: plainly(model, prompt(3), 30, Sampler(seed=seed)) for seed in range(6)}


def test_everything_can_be_ended() -> None:
    engine = Engine(open_step(tiny_model()), rows=1)
    told = [Told(engine, prompt(3), 50) for _ in range(3)]
    engine.turn()
    told.append(Told(engine, prompt(2), 5))
    engine.end_all(GlassformerError("closing"))
    assert len(engine) == 0 and all(one.handle.ending is Ending.FAILED for one in told)


def test_no_step_of_a_generation_lets_cudnn_plan_for_its_length() -> None:
    """And nothing of that is left outside: not between two tokens, and not for training."""
    model = tiny_model()
    inside: list[bool] = []

    def watch(site: str, x: Tensor) -> Tensor:
        inside.append(torch.backends.cuda.cudnn_sdp_enabled())
        return x

    write(model, [1, 2], 3, new_tap=lambda _: watch)
    assert inside and not any(inside) and torch.backends.cuda.cudnn_sdp_enabled()


def test_a_recurrent_state_cannot_go_back() -> None:
    step = open_step(make("language", "gru"))
    assert isinstance(step, StateStep)
    slot = step.open([1])
    step.scores([Piece(slot, [1, 2, 3])])
    other = step.fork(slot)
    assert torch.equal(step.scores([Piece(slot, [4])]), step.scores([Piece(other, [4])]))
    with pytest.raises(ValueError, match="earlier position"):
        step.forget(slot, 1)
