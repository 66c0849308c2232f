"""The draw on a GPU beside sampling.py: the very same tokens, and hardly ever by asking it."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from glassformer.generation import sampling
from glassformer.generation.gpu import choose
from glassformer.generation.gpu.asked import Asked
from glassformer.generation.gpu.choose import PLACES, SETTINGS, Chooser, Drawing
from glassformer.generation.rows import ROWS
from glassformer.generation.sampling import Sampler
from tests.generation.fast.test_choices import samplers, scores

CPU = torch.device("cpu")


@settings(max_examples=100)
@given(data=st.data())
def test_choices_are_those_of_sampling(data: st.DataObject) -> None:
    V = data.draw(st.sampled_from([1, 2, 5, 23, 100, 1500]))
    rows = data.draw(st.lists(st.tuples(scores(V), samplers, st.integers(0, 10_000)), min_size=1, max_size=4))
    logits = torch.stack([x for x, _, _ in rows])
    how, positions = [sampler for _, sampler, _ in rows], [position for _, _, position in rows]
    right = sampling.choose(logits, how, positions).tolist()
    assert Chooser(V, CPU).choose(logits, how, positions) == right


@pytest.mark.parametrize(
    "how",
    [
        {},
        {"temperature": 0.7},
        {"temperature": 0.0},
        {"top_k": 50},
        {"top_k": 10, "top_p": 0.8},
        {"top_k": 100, "top_p": 0.9, "min_p": 0.01},
        {"top_p": 0.9},
        {"min_p": 0.05},
        {"top_k": 200, "top_p": 0.5, "min_p": 0.001, "temperature": 1.3},
    ],
    ids=str,
)
@pytest.mark.parametrize("slope", [0.0, 1.0])  # the likely ones anywhere, or side by side as in BPE
@pytest.mark.parametrize("V", [300, 1500, 5011])
def test_hardly_any_row_is_left_to_sampling(V: int, slope: float, how: dict[str, float]) -> None:
    R = 20 if V > 1500 else 8
    logits = 2 * torch.randn(R, V, generator=torch.Generator().manual_seed(1))
    logits -= slope * (torch.arange(V) + 5.0).log()
    rows = [Sampler(**how, seed=i) for i in range(R)]  # type: ignore[arg-type]
    right = sampling.choose(logits, rows, range(R)).tolist()
    chooser = Chooser(V, CPU)
    assert chooser.choose(logits, rows, range(R)) == right
    assert len(set(right)) > 3
    assert chooser.drawing.unsure <= 1


@pytest.mark.parametrize("strange", [float("nan"), float("inf"), -float("inf")])
def test_rows_that_hold_no_numbers_are_left_to_sampling(strange: float) -> None:
    logits = torch.randn(3, 40, generator=torch.Generator().manual_seed(1))
    logits[0, 17], logits[1] = strange, strange
    for sampler in (Sampler(temperature=0), Sampler(seed=3), Sampler(seed=3, top_k=5)):
        rows = [sampler] * 3
        right = sampling.choose(logits, rows, [1, 2, 3]).tolist()
        assert Chooser(40, CPU).choose(logits, rows, [1, 2, 3]) == right


def test_tiles_make_no_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    V = 300
    logits = torch.randn(3, V, generator=torch.Generator().manual_seed(2))
    rows = [Sampler(seed=i, top_k=20, top_p=0.8, min_p=0.02) for i in range(3)]
    right = sampling.choose(logits, rows, range(3)).tolist()
    for tile, block in ((16, 64), (512, 128)):
        monkeypatch.setattr(choose, "LEAST_TILE", tile)
        monkeypatch.setattr(choose, "BLOCK", block)
        assert Chooser(V, CPU).choose(logits, rows, range(3)) == right


def test_a_draw_moves_its_rows_to_the_next_step() -> None:
    """Those that belong to somebody; what is not sure is read as token 0."""
    rows = dict.fromkeys(("tokens", "positions", "live"), (torch.int32, (ROWS,)))
    asked, places = Asked(CPU, SETTINGS), Asked(CPU, {**rows, **PLACES})
    drawing = Drawing(asked, places, 40, CPU)
    logits = torch.randn(3, 40, generator=torch.Generator().manual_seed(1))
    logits[2] = torch.nan
    for row, live in enumerate((1, 0, 1)):
        drawing.write(row, Sampler(temperature=0), 7 + row)
        places.host["tokens"][row], places.host["positions"][row], places.host["live"][row] = (
            5,
            10 * row,
            live,
        )
    asked.bring()
    places.bring()
    drawing.launch(3, logits)
    assert places.device["positions"][:3].tolist() == [0, 10, 20]
    drawing.launch(3, logits, moves=True)
    assert places.device["tokens"][:3].tolist() == [int(logits[0].argmax()), 0, 0]
    assert places.device["positions"][:3].tolist() == [1, 10, 21]
    assert places.device["ats"][:3].tolist() == [8, 8, 10]
