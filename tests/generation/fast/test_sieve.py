"""Scores of what can be chosen alone: the very same tokens as from all scores."""

from collections.abc import Iterator

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from glassformer.generation.fast import sieve
from glassformer.generation.fast.kernels.plan import Plan
from glassformer.generation.fast.step import FastStep
from glassformer.generation.fast.weights import Precision
from glassformer.generation.sampling import Sampler
from glassformer.generation.step import Piece
from glassformer.models.build import Decoder
from tests.conftest import tiny_model
from tests.generation.fast.reading import new_slot, new_step

PRECISIONS: tuple[Precision, ...] = ("float32", "bfloat16")
SIFTABLE = [
    Sampler(temperature=0),
    Sampler(seed=1),
    Sampler(0.3, seed=2),
    Sampler(1.5, seed=3),
    Sampler(seed=4, top_k=1),
    Sampler(0.8, seed=5, top_k=9),
    Sampler(seed=6, top_k=5, top_p=0.7),
    Sampler(0.7, seed=7, min_p=0.2),
    Sampler(seed=8, top_k=20, top_p=0.95, min_p=0.01),
]


@pytest.fixture(autouse=True)
def for_small_models() -> Iterator[None]:
    """A sieve from the first draw on, however few the weights are."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sieve, "WORTH", 0)
        patch.setattr(sieve, "FIRST", 0)
        yield


def model_with_scores(spread: float, vocab: int = 600, **more: object) -> Decoder:
    """Its scores are as far apart as those of a trained model, whose first ones stand out."""
    model = tiny_model(vocab=vocab, context=40, **more)
    with torch.no_grad():
        generator = torch.Generator().manual_seed(vocab)
        model.unembedding.weight.copy_(
            spread * torch.randn(model.unembedding.weight.shape, generator=generator)
        )
    return model


def unsifted(step: FastStep) -> FastStep:
    """The oracle: one that makes all scores."""
    step._sieve.helps = lambda samplers: False  # type: ignore[method-assign]
    return step


def written(step: FastStep, hows: list[Sampler], tokens: int = 25) -> list[list[int]]:
    """Texts beside each other."""
    slots = [new_slot(step, tokens) for _ in hows]
    last, texts = [i % step.vocab for i in range(len(hows))], []
    for position in range(tokens):
        last = step.choose(
            [Piece(slot, [token]) for slot, token in zip(slots, last, strict=True)],
            hows,
            [position] * len(hows),
        )
        texts.append(last)
    for slot in slots:
        step.close(slot)
    return texts


def counts(step: FastStep) -> list[int]:
    return step._sieve._counts.tolist()


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("how", SIFTABLE, ids=str)
def test_the_same_tokens_from_few_scores(how: Sampler, precision: Precision) -> None:
    model = model_with_scores(3.0)
    step = new_step(model, precision=precision)
    assert written(step, [how]) == written(unsifted(new_step(model, precision=precision)), [how])
    assert 0 < counts(step)[0] < 600 / sieve.FEW  # and it did look at few


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_any_sizes_spreads_and_company(data: st.DataObject) -> None:
    vocab = data.draw(st.sampled_from([8, 23, 64, 100, 333, 1000]))
    model = model_with_scores(
        data.draw(st.sampled_from([0.0, 1e-3, 0.1, 1.0, 5.0, 1e3])),
        vocab,
        width=data.draw(st.sampled_from([4, 12, 38, 64])),
        heads=1,
        norm=data.draw(st.sampled_from(["layer", "rms"])),
    )
    if data.draw(st.booleans()):  # some tokens far from the others, and some like each other
        with torch.no_grad():
            model.unembedding.weight[: vocab // 3] *= 100
            model.unembedding.weight[-2:] = model.unembedding.weight[0]
    hows = data.draw(
        st.lists(
            st.builds(
                Sampler,
                temperature=st.sampled_from([0.0, 1e-3, 0.2, 0.8, 1.0, 2.0, 1e3]),
                top_k=st.none() | st.integers(1, 2 * vocab),
                top_p=st.none() | st.floats(0.01, 1.0),
                min_p=st.none() | st.floats(0.001, 1.0),
                seed=st.integers(0, 2**63 - 1),
            ),
            min_size=1,
            max_size=sieve.ROWS + 1,
        )
    )
    precision = data.draw(st.sampled_from(PRECISIONS))
    step = new_step(model, 400, threads=data.draw(st.sampled_from([1, 3])), precision=precision)
    right = unsifted(new_step(model, 400, precision=precision))
    assert written(step, hows, 6) == written(right, hows, 6)


def test_estimates_lie_within_their_bounds() -> None:
    """Also where columns differ by many orders of magnitude, and for a vector that the copy fits worst."""
    model = model_with_scores(1.0, width=48, heads=1)
    with torch.no_grad():
        model.unembedding.weight.mul_(torch.logspace(-6, 2, 48))
    step = new_step(model)
    written(step, [Sampler(temperature=0)], 1)
    whole, scales, errors = (torch.from_numpy(array).double() for array in step._sieve.memory[:3])
    weight = model.unembedding.weight.detach().double()
    rest = weight - whole * scales[:, None]
    assert (rest.norm(dim=1) <= errors).all() and (rest.norm(dim=1) > 0.9 * errors).any()


def test_changed_weights_get_another_copy() -> None:
    model = model_with_scores(3.0)
    step, how = new_step(model), [Sampler(temperature=0)]
    before = written(step, how)
    with torch.no_grad():
        model.unembedding.weight.copy_(model.unembedding.weight.flip(0))
    after = written(step, how)
    assert after != before and after == written(unsifted(new_step(model)), how)


def test_weights_that_change_unseen_are_told_by_a_score_beyond_its_bounds() -> None:
    model = model_with_scores(3.0)
    step, how = new_step(model), [Sampler(temperature=0)]
    written(step, how)
    model.unembedding.weight.detach().numpy()[:] *= -2.0  # as nobody should
    assert written(step, how) == written(unsifted(new_step(model)), how)


@pytest.mark.parametrize("strange", [float("nan"), float("inf")])
def test_weights_that_are_no_numbers_are_left_to_all_scores(strange: float) -> None:
    model = model_with_scores(3.0)
    with torch.no_grad():
        model.unembedding.weight[17, 3] = strange
    outcomes: list[object] = []
    for step in (new_step(model), unsifted(new_step(model))):
        try:
            outcomes.append(written(step, [Sampler(seed=1)], 2))
        except ValueError as error:
            outcomes.append((type(error), str(error)))
    assert outcomes[0] == outcomes[1]


def test_where_too_many_can_be_chosen_it_rests_longer_and_longer() -> None:
    model = model_with_scores(1e-3)  # all tokens are about as likely, so all reach a min-p
    step, how = new_step(model), [Sampler(seed=1, min_p=0.5)]
    sifted: list[bool] = []
    helps = step._sieve.helps

    def noted(samplers: list[Sampler]) -> bool:
        sifted.append(helps(samplers))
        return sifted[-1]

    step._sieve.helps = noted  # type: ignore[method-assign,assignment]
    assert written(step, how, 30) == written(unsifted(new_step(model)), how, 30)
    assert [i for i, did in enumerate(sifted) if did] == [0, 2, 5, 10, 19]
    assert counts(step)[0] == sieve.ALL


def test_weights_whose_changes_nobody_counts_are_not_copied() -> None:
    with torch.inference_mode():
        model = model_with_scores(3.0)
    step = new_step(model)
    assert written(step, [Sampler(temperature=0)]) == written(
        unsifted(new_step(model)), [Sampler(temperature=0)]
    )
    assert not step._sieve.memory


def test_who_asks_for_scores_gets_all_of_them() -> None:
    model = model_with_scores(3.0)
    step, twin = new_step(model), unsifted(new_step(model))
    both: list[Tensor] = []
    for each in (step, twin):
        written(each, [Sampler(temperature=0)])
        both.append(each.scores([Piece(new_slot(each, 3), [1, 2, 3], 3)]))
    assert torch.equal(*both) and torch.isfinite(both[0]).all()


def test_what_it_is_for() -> None:
    plan = new_step(model_with_scores(1.0))._plan
    weight = torch.zeros(1)
    sifts = sieve.Sieve(plan, weight)
    assert not sieve.can_sift(Sampler(seed=1, top_p=0.9), 600)  # adds up all probabilities
    assert sieve.can_sift(Sampler(seed=1, top_p=0.9, top_k=50), 600)
    assert not sieve.can_sift(Sampler(1e4, seed=1), 600) and not sieve.can_sift(Sampler(5e-4, seed=1), 600)
    assert not sifts.helps([Sampler(temperature=0)] * (sieve.ROWS + 1))
    biased = plan.copy()
    biased[Plan.UNEMBEDDING_BIAS] = 1
    assert not sieve.Sieve(biased, weight).helps([Sampler(temperature=0)])
