"""The state of a generation: rows of unequal length in one batch are what each would be alone."""

import pytest
import torch

from glassformer.models.model import last_tokens
from tests.conftest import tiny_model
from tests.models.families import close, ids, make

VARIANTS = [
    {},
    {"position": "learned"},
    {"position": "sinusoidal"},
    {"position": "alibi"},
    {"position": "none"},
    {"attention": "distance", "position": "none"},
    {"attention": "convolution", "position": "none"},
    {"scaled": False},
    {"kv_heads": 1, "value_width": 6},
    {"window": 3},
    {"placement": "post", "norm": "rms"},
    {"shift": "embedding"},
    {"shift": "layers"},
]
LENGTHS = (2, 5, 3)


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_rows_of_unequal_length_are_what_each_is_alone(variant: dict[str, object]) -> None:
    model = tiny_model(**variant)
    prompts, more = ids(3, max(LENGTHS)), ids(3, 4, seed=2)
    padding_mask = torch.arange(max(LENGTHS))[None] < torch.tensor(LENGTHS)[:, None]
    state = model.new_state(3)
    together = [model.next_scores(prompts, state, padding_mask=padding_mask)]
    together += [model.next_scores(more[:, i : i + 1], state) for i in range(3)]
    for row, length in enumerate(LENGTHS):
        alone = torch.cat([prompts[row, :length], more[row]])[None]
        for i, scores in enumerate(together):
            close(scores[row], model(alone[:, : length + i])[0, -1])
    assert state.length == max(LENGTHS) + 3


@pytest.mark.parametrize("shift", ["none", "embedding", "layers"])
@pytest.mark.parametrize("chosen", [[2, 0], [1, 1, 0], [0]])
def test_rows_can_be_chosen_dropped_and_doubled(chosen: list[int], shift: str) -> None:
    model = tiny_model(shift=shift)
    prompts, more = ids(3, max(LENGTHS)), ids(3, 2, seed=2)
    padding_mask = torch.arange(max(LENGTHS))[None] < torch.tensor(LENGTHS)[:, None]
    state = model.new_state(3)
    model(prompts, state, padding_mask=padding_mask)
    state.select(torch.tensor(chosen))
    scores = model.next_scores(more[chosen], state)
    for place, row in enumerate(chosen):
        alone = torch.cat([prompts[row, : LENGTHS[row]], more[row]])[None]
        close(scores[place], model(alone)[0, -1])


def test_a_prompt_is_scored_at_its_end_alone() -> None:
    model, tokens, shapes = tiny_model(), ids(2, 7), {}

    def tap(site: str, x: torch.Tensor) -> torch.Tensor:
        shapes[site] = tuple(x.shape)
        return x

    scores = model.next_scores(tokens, tap=tap)
    close(scores, model(tokens)[:, -1])
    assert shapes["logits"] == (2, 1, 23) and shapes["final"] == (2, 7, 16)
    x = torch.arange(12.0).view(2, 3, 2)
    mask = torch.tensor([[True, True, False], [True, True, True]])
    assert last_tokens(x, mask).tolist() == [[[2.0, 3.0]], [[10.0, 11.0]]]


def test_more_than_the_context_is_refused() -> None:
    model = tiny_model()
    state = model.new_state(1)
    model(ids(1, 10), state)
    with pytest.raises(ValueError, match="13 tokens are more than the context of 12"):
        model(ids(1, 3), state)


@pytest.mark.parametrize("family", ["rnn", "gru", "lstm", "window"])
def test_a_state_of_one_length_refuses_padding(family: str) -> None:
    model = make("language", family)
    with pytest.raises(ValueError, match="rows of one length"):
        model.next_scores(ids(2, 5), model.new_state(2), padding_mask=torch.ones(2, 5, dtype=torch.bool))
