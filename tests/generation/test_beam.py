"""Beam search: one beam is greedy, many beams are exact where all sequences can be listed."""

import itertools

import numpy as np
import pytest
import torch
from torch import Tensor

from glassformer.generation.beam import SlotState, beam_search, read_slots
from glassformer.generation.open_step import OpenStep, open_step
from glassformer.generation.plain import generate_plainly, greedy
from glassformer.generation.seq2seq import translate_ids
from tests.models.families import FAMILIES, READERS, ids, make


def search(model: torch.nn.Module, prompt: Tensor, **options: object) -> list:
    """By slots of a step, and by the model's own state: both find the same."""
    step = open_step(model, len(prompt) * (options["beams"] + 1))  # type: ignore[operator]
    state = SlotState(step, len(prompt))
    found = beam_search(read_slots, state, prompt, **options)
    state.close()
    assert not isinstance(step, OpenStep) or step.pages.available == step.pages.count
    own = beam_search(model.next_scores, model.new_state(len(prompt)), prompt, **options)
    for one, other in zip(found, own, strict=True):
        assert [h.ids for h in one] == [h.ids for h in other]
        assert [h.score for h in one] == pytest.approx([h.score for h in other], rel=1e-4)
    return found


@pytest.mark.parametrize("name", FAMILIES)
def test_one_beam_is_greedy(name: str) -> None:
    model = make("language", name)
    for seed in range(4):
        prompt = ids(1, 3, seed=seed)
        best = [int(t) for t in generate_plainly(model, prompt, 8, greedy)]
        for end in (None, best[4]):
            expected = best if end is None else best[: best.index(end)]
            (hypothesis,) = search(model, prompt, beams=1, tokens=8, end=end, length_penalty=0.7)[0]
            assert hypothesis.ids == expected and hypothesis.ended == (end is not None)


@pytest.mark.parametrize("name", ["transformer", "lstm", "window"])
@pytest.mark.parametrize("length_penalty", [0.0, 1.0])
def test_enough_beams_find_the_best_of_all_sequences(name: str, length_penalty: float) -> None:
    """Four tokens, one of which ends: every sequence up to length 3 is scored by itself."""
    model, end, longest = make("language", name, vocab=4, seed=5), 3, 3
    prompt = torch.tensor([[0, 1]])
    best: list[tuple[float, list[int]]] = []
    for n in range(longest + 1):
        for body in itertools.product(range(3), repeat=n):
            full = [*body, end] if n < longest else list(body)
            sequence = torch.tensor([[0, 1, *full]])
            logp = model(sequence[:, :-1]).detach().log_softmax(-1)[0, 1:]
            total = sum(float(logp[i, t]) for i, t in enumerate(full))
            best.append((total / ((5 + len(full)) / 6) ** length_penalty, list(body)))
    best.sort(key=lambda item: -item[0])
    hypotheses = search(model, prompt, beams=64, tokens=longest, end=end, length_penalty=length_penalty)[0]
    assert hypotheses[0].ids == best[0][1]
    np.testing.assert_allclose([h.score for h in hypotheses[:5]], [s for s, _ in best[:5]], rtol=1e-4)


def test_more_beams_never_find_a_worse_sequence_here() -> None:
    model = make("language", "transformer")
    scores = [search(model, ids(1, 2), beams=k, tokens=6, end=None)[0][0].score for k in (1, 4, 16)]
    assert scores == sorted(scores)


@pytest.mark.parametrize("name", READERS)
def test_translations_do_not_depend_on_their_company(name: str) -> None:
    model = make("translate", name)
    sources = [np.array([3, 4, 5]), np.array([6]), np.array([7, 8, 9, 10, 11])]
    together = translate_ids(model, sources, 0, beams=3)
    for source, hypotheses in zip(sources, together, strict=True):
        alone = translate_ids(model, [source], 0, beams=3)[0]
        assert [h.ids for h in alone] == [h.ids for h in hypotheses]
        assert [h.score for h in alone] == pytest.approx([h.score for h in hypotheses], rel=1e-4)
