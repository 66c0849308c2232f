"""The compiled draw against sampling.py: the very same tokens."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from glassformer.generation import sampling
from glassformer.generation.fast.choose import Chooser
from glassformer.generation.sampling import Sampler
from glassformer.generation.step import Piece
from tests.conftest import tiny_model
from tests.generation.fast.reading import new_slot, new_step

shares = st.none() | st.floats(0.0, 1.0, exclude_min=True) | st.sampled_from([0.25, 0.5, 1 / 3, 0.9, 1.0])
samplers = st.builds(
    Sampler,
    temperature=st.floats(0, 5) | st.sampled_from([0.0, 1e-6, 0.5, 1.0, 0.7]),
    top_k=st.none() | st.integers(1, 100),
    top_p=shares,
    min_p=shares,
    seed=st.integers(0, 2**63 - 1) | st.integers(0, 100),
)


@st.composite
def scores(draw: st.DrawFn, V: int) -> torch.Tensor:
    """Of many kinds: spread out, nearly alike, full of ties, some forbidden."""
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**32)))
    x = torch.randn(V, generator=generator) * draw(st.sampled_from([0.0, 1e-6, 0.1, 1.0, 5.0, 100.0, 1e6]))
    match draw(st.sampled_from(["as they are", "ties", "forbidden", "steps"])):
        case "ties":
            x = x.round()
        case "forbidden":
            x[torch.rand(V, generator=generator) < 0.8] = -torch.inf
        case "steps":  # probabilities that are powers of two
            x = (torch.arange(V) % 5).float() * torch.tensor(2.0).log()
    return x + draw(st.sampled_from([0.0, -3.0, 1000.0]))


@settings(max_examples=400)
@given(data=st.data())
def test_choices_are_those_of_sampling(data: st.DataObject) -> None:
    V = data.draw(st.sampled_from([1, 2, 5, 16, 23, 64, 100, 1000]))
    rows = data.draw(st.lists(st.tuples(scores(V), samplers, st.integers(0, 10_000)), min_size=1, max_size=4))
    logits = torch.stack([x for x, _, _ in rows])
    how, positions = [sampler for _, sampler, _ in rows], [position for _, _, position in rows]
    right = sampling.choose(logits, how, positions).tolist()
    assert Chooser(V).choose(logits, how, positions) == right


@pytest.mark.parametrize(
    "how",
    [
        {},
        {"temperature": 0.7},
        {"temperature": 0.0},
        {"top_k": 50},
        {"top_p": 0.9},
        {"min_p": 0.05},
        {"top_k": 200, "top_p": 0.5, "min_p": 0.001, "temperature": 1.3},
    ],
    ids=str,
)
def test_a_large_vocabulary(how: dict[str, float]) -> None:
    V = 20_011
    logits = 2 * torch.randn(100, V, generator=torch.Generator().manual_seed(1))
    rows = [Sampler(**how, seed=i) for i in range(100)]  # type: ignore[arg-type]
    chosen = Chooser(V).choose(logits, rows, range(100))
    assert chosen == sampling.choose(logits, rows, range(100)).tolist()
    assert len(set(chosen)) > 10


@pytest.mark.parametrize("strange", [float("nan"), float("inf"), -float("inf")])
def test_rows_that_hold_no_numbers_are_left_to_sampling(strange: float) -> None:
    logits = torch.randn(3, 40)
    logits[0, 17], logits[1] = strange, strange
    for sampler in (Sampler(temperature=0), Sampler(seed=3), Sampler(seed=3, top_k=5)):
        rows = [sampler] * 3
        right = sampling.choose(logits, rows, [1, 2, 3]).tolist()
        assert Chooser(40).choose(logits, rows, [1, 2, 3]) == right


def test_the_draw_follows_the_probabilities() -> None:
    logits = torch.tensor([2.0, 1.0, 0.0, -1.0]).expand(4000, 4)
    chosen = Chooser(4).choose(logits, [Sampler(seed=5)] * 4000, range(4000))
    counts = torch.tensor(chosen).bincount(minlength=4) / 4000
    assert torch.allclose(counts, logits[0].softmax(-1), atol=0.03)


@pytest.mark.parametrize("threads", [1, 3])
def test_a_step_chooses_from_its_own_scores(threads: int) -> None:
    """In one call with the reading, for more texts than walk together, whose samplers change."""
    model = tiny_model(context=20)
    step, twin = new_step(model, 400, threads), new_step(model, 400)
    hows = [Sampler(temperature=0), Sampler(seed=7), Sampler(seed=8, top_k=3), Sampler(seed=9, top_p=0.6)]
    count = 70
    slots, others = ([new_slot(s, 12) for _ in range(count)] for s in (step, twin))
    tokens = [i % 23 for i in range(count)]
    for turn in range(12):
        rows = [hows[(i + turn // 3) % 4] for i in range(count)]
        positions = [turn + i for i in range(count)]
        logits = twin.scores([Piece(slot, [t]) for slot, t in zip(others, tokens, strict=True)])
        right = sampling.choose(logits, rows, positions).tolist()
        pieces = [Piece(slot, [t]) for slot, t in zip(slots, tokens, strict=True)]
        tokens = step.choose(pieces, rows, positions)
        assert tokens == right
        assert all(slot.length == turn + 1 for slot in slots)


def test_nothing_is_read_if_a_piece_is_refused() -> None:
    step = new_step(tiny_model())
    slots = [new_slot(step, 3) for _ in range(2)]
    with pytest.raises(ValueError, match="vocabulary"):
        step.choose([Piece(slots[0], [1]), Piece(slots[1], [99])], [Sampler(temperature=0)] * 2, [1, 1])
    assert slots[0].length == 0
