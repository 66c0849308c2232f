"""Attention maps are what the formula says, for any heads, queries and masks."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from glassformer.core.errors import UsageError
from glassformer.inspection.maps import pattern, rollout, value_weighted
from glassformer.inspection.trace import record_trace
from glassformer.models.attention import attend_by_formula
from tests.models.families import close, ids, make

SETTINGS = [
    {},
    {"window": 3},
    {"position": "alibi"},
    {"attention": "distance", "position": "none"},
    {"attention": "convolution", "position": "none"},
]
SETTINGS += [{"heads": 4, "kv_heads": 2}, {"value_width": 5}]


@pytest.mark.parametrize("settings_", SETTINGS, ids=str)
@pytest.mark.parametrize("task", ["language", "masked"])
def test_maps_are_the_weights_that_made_z(task: str, settings_: dict) -> None:
    model = make(task, "transformer", **settings_)
    trace = record_trace(model, ids(2, 9))
    for i in range(2):
        A, v = pattern(trace, i), trace[f"{i}.v"]
        if settings_.get("attention") != "convolution":  # its weights are free
            close(A.sum(-1), torch.ones_like(A.sum(-1)))
        close(A @ v.repeat_interleave(A.shape[1] // v.shape[1], dim=1), trace[f"{i}.z"])


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_a_part_of_a_map_is_that_part(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(range(len(SETTINGS))))
    model = make(data.draw(st.sampled_from(["language", "masked"])), "transformer", **SETTINGS[name])
    padding_mask = torch.ones(2, 9, dtype=torch.bool)
    padding_mask[1, 6:] = False
    trace = record_trace(model, ids(2, 9), padding_mask=padding_mask if data.draw(st.booleans()) else None)
    whole = pattern(trace, 1)
    heads = data.draw(st.lists(st.integers(0, whole.shape[1] - 1), min_size=1, unique=True))
    rows = data.draw(st.lists(st.integers(0, 8), min_size=1, max_size=4, unique=True))
    close(pattern(trace, 1, heads, rows), whole[:, heads][:, :, rows])


def test_cross_attention_looks_into_the_source_and_not_at_its_padding() -> None:
    model = make("translate", "transformer")
    padding_mask = torch.ones(2, 8, dtype=torch.bool)
    padding_mask[1, 5:] = False
    trace = record_trace(model, ids(2, 8), ids(2, 6, seed=2), padding_mask=padding_mask)
    A = pattern(trace, 1, part="decoder.", cross=True)
    assert A.shape == (2, 2, 6, 8) and not A[1, :, :, 5:].any()
    close(A @ trace["decoder.1.cross.v"], trace["decoder.1.cross.z"])


def test_weighting_by_values_leaves_out_what_is_not_written() -> None:
    model = make("language", "transformer")
    trace = record_trace(model, ids(1, 9))
    trace.values["1.v"][:, :, 4] = 0
    weighted = value_weighted(trace, 1)
    assert not weighted[..., 4].any()
    close(weighted.sum(-1), torch.ones_like(weighted.sum(-1)))


def test_a_rollout_is_a_product_of_maps() -> None:
    model = make("language", "transformer")
    trace = record_trace(model, ids(1, 9))
    step = [(pattern(trace, i).mean(1) + torch.eye(9)) / 2 for i in range(2)]
    close(rollout(trace), step[1] @ step[0])
    close(rollout(trace).sum(-1), torch.ones(1, 9))


def test_the_formula_is_the_oracle() -> None:
    model = make("language", "transformer")
    trace = record_trace(model, ids(1, 9))
    z, A = attend_by_formula(trace["0.q"], trace["0.k"], trace["0.v"], model.stack.mask)  # pyright: ignore
    close(pattern(trace, 0), A)
    close(trace["0.z"], z)


def test_a_layer_that_is_not_there_is_said() -> None:
    trace = record_trace(make("language", "transformer"), ids(1, 5))
    with pytest.raises(UsageError, match="no layer 2"):
        trace.values["2.q"] = trace.values["2.k"] = trace["1.q"]
        pattern(trace, 2)
    with pytest.raises(UsageError, match="transformer"):
        rollout(record_trace(make("language", "lstm"), ids(1, 5)))
