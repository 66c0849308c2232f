"""The compiled walk against the one forward pass, and against itself: any pieces, neighbours and threads."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from glassformer.generation.fast.kernels.plan import Layer
from glassformer.generation.fast.rounding import rounded_model
from glassformer.generation.fast.weights import PRECISIONS, Precision, lay_out, to_int8
from glassformer.generation.step import Piece
from tests.conftest import tiny_model
from tests.generation.fast.reading import expected, new_slot, new_step, off_by, read

IDS = [3, 1, 4, 1, 5, 9, 2, 6, 22, 0, 7]
SETTINGS = {
    "default": {},
    "gpt2": {"position": "learned", "tied": True, "bias": True, "qk_norm": False, "activation": "gelu-tanh"},
    "rms": {"norm": "rms", "activation": "swiglu"},
    "rms-bias": {"norm": "rms", "activation": "swiglu", "bias": True},
    "relu": {"activation": "relu", "qk_norm": False},
    "relu2": {"activation": "relu2", "position": "none"},
    "alibi": {"position": "alibi", "kv_heads": 1},
    "sinusoidal-post": {"position": "sinusoidal", "placement": "post", "bias": True},
    "post-rms": {"placement": "post", "norm": "rms"},
    "renorm": {"placement": "renorm", "bias": True},
    "no-norms": {"placement": "none", "qk_norm": False},
    "no-residual": {"residual": False},
    "no-residual-post": {"residual": False, "placement": "post"},
    "unscaled": {"scaled": False},
    "window": {"window": 3},
    "window-of-one": {"window": 1},
    "window-alibi": {"window": 5, "position": "alibi"},
    "shift-embedding": {"shift": "embedding"},
    "shift-layers": {"shift": "layers"},
    "shift-layers-post": {"shift": "layers", "placement": "post", "norm": "rms"},
    "shift-layers-renorm": {"shift": "layers", "placement": "renorm"},
    "grouped": {"heads": 6, "kv_heads": 2, "width": 24},
    "narrow-values": {"value_width": 3},
    "wide-values": {"value_width": 70, "head_width": 34},
    "odd": {"width": 37, "heads": 1, "head_width": 10, "hidden": 21},
    "full-lanes": {"width": 64, "heads": 2, "head_width": 32, "hidden": 128, "vocab": 64},
    "word-dropout": {"word_dropout": 0.5, "output_dropout": 0.5, "dropout": 0.5},
}


@pytest.mark.parametrize("name", SETTINGS)
def test_scores_are_those_of_the_open_pass(name: str) -> None:
    model = tiny_model(**SETTINGS[name])
    right = expected(model, IDS)
    whole = read(new_step(model), IDS)
    assert off_by(whole, right) < 2e-6
    one_by_one = read(new_step(model), IDS, [1] * len(IDS))
    assert torch.equal(one_by_one, whole)
    assert torch.equal(read(new_step(model, threads=3), IDS), whole)


@settings(max_examples=40)
@given(data=st.data())
def test_any_model_in_any_pieces(data: st.DataObject) -> None:
    choice = {
        "position": st.sampled_from(["learned", "sinusoidal", "rope", "alibi", "none"]),
        "norm": st.sampled_from(["layer", "rms"]),
        "placement": st.sampled_from(["pre", "post", "renorm", "none"]),
        "activation": st.sampled_from(["relu", "gelu", "gelu-tanh", "relu2", "swiglu"]),
        "shift": st.sampled_from(["none", "embedding", "layers"]),
        "qk_norm": st.booleans(),
        "bias": st.booleans(),
        "tied": st.booleans(),
        "residual": st.booleans(),
        "window": st.none() | st.integers(1, 20),
        "layers": st.integers(1, 3),
        "width": st.integers(4, 40),
        "hidden": st.integers(1, 40),
        "vocab": st.integers(10, 60),
        "value_width": st.integers(1, 20),
    }
    kv_heads, group = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 3))
    sizes = {"kv_heads": kv_heads, "heads": kv_heads * group, "head_width": 2 * data.draw(st.integers(1, 10))}
    model = tiny_model(**{name: data.draw(s, label=name) for name, s in choice.items()}, **sizes, context=40)
    ids = data.draw(st.lists(st.integers(0, 9), min_size=1, max_size=40))
    pieces = data.draw(st.lists(st.integers(1, 9), max_size=40))
    while sum(pieces) > len(ids):
        pieces.pop()
    pieces += [len(ids) - sum(pieces)] if sum(pieces) < len(ids) else []
    whole = read(new_step(model, threads=data.draw(st.integers(1, 3))), ids)
    assert torch.equal(read(new_step(model), ids, pieces), whole)
    # Some of these models divide by nearly nothing, so that no float32 is near: the open pass is no nearer.
    open_pass = expected(model, ids)
    exact = expected(model.double(), ids).float()
    assert off_by(whole, exact) < max(1e-5, 10 * off_by(open_pass, exact))


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_neighbours_make_no_difference(threads: int) -> None:
    """Texts of unequal length, in pieces of unequal size, in one call after the other."""
    model = tiny_model(shift="layers", context=64)
    texts = [[(7 * i + k) % 23 for k in range(3 + 9 * i)] for i in range(6)]
    alone = [read(new_step(model), ids) for ids in texts]
    step = new_step(model, pages=200, threads=threads)
    slots = [new_slot(step, len(ids)) for ids in texts]
    together: list[list[torch.Tensor]] = [[] for _ in texts]
    for turn in range(60):
        pieces, whose = [], []
        for i, (slot, ids) in enumerate(zip(slots, texts, strict=True)):
            some = ids[slot.length : slot.length + 1 + (i + turn) % 4]
            if some and (i + turn) % 3:
                pieces.append(Piece(slot, some, len(some)))
                whose += [i] * len(some)
        for i, row in zip(whose, step.scores(pieces), strict=True):
            together[i].append(row)
    assert all(torch.equal(torch.stack(rows), one) for rows, one in zip(together, alone, strict=True))


def test_more_rows_than_walk_together_and_only_the_last_scored() -> None:
    model = tiny_model(context=300)
    ids = [(i * i) % 23 for i in range(300)]
    step = new_step(model, pages=200)
    whole = read(step, ids)
    assert off_by(whole, expected(model, ids)) < 1e-5
    for scored in (0, 1, 70, 300):
        slot = new_slot(step, 300)
        scores = step.scores([Piece(slot, ids, scored)])
        assert scores.shape == (scored, 23) and torch.equal(scores, whole[300 - scored :])
        step.close(slot)


def test_threads_that_come_and_go_change_no_bit() -> None:
    """Many walks of a model with little to do, by more threads than there are cores."""
    model = tiny_model(shift="layers", placement="renorm", layers=3, context=400)
    step = new_step(model, pages=101, threads=4)
    ids = [(i * i * i) % 23 for i in range(400)]
    right = read(new_step(model, pages=101), ids)
    for _ in range(3):
        assert torch.equal(read(step, ids, [1] * 400), right)


def test_a_page_that_is_copied_and_one_that_is_shared() -> None:
    model = tiny_model(shift="embedding")
    step = new_step(model)
    slot = new_slot(step, 6)
    step.scores([Piece(slot, IDS[:6], 0)])
    other = step.fork(slot)
    for one, last in ((slot, 5), (other, 7)):
        assert step.reserve(one, 1)
        assert torch.equal(step.scores([Piece(one, [last])])[0], read(step, [*IDS[:6], last])[-1])
    step.close(other)  # a page that two read is not written to
    step.forget(slot, 3)
    assert torch.equal(step.scores([Piece(slot, [8])])[0], read(step, [*IDS[:3], 8])[-1])


def test_large_numbers() -> None:
    """Weights whose activations saturate and whose softmax is all but one-hot."""
    for activation in ("gelu", "gelu-tanh", "swiglu", "relu2"):
        model = tiny_model(activation=activation, scaled=False)
        with torch.no_grad():
            for p in model.parameters():
                p.mul_(6)
        assert off_by(read(new_step(model), IDS), expected(model.double(), IDS).float()) < 1e-5


def test_a_model_that_goes_on_training_is_read_as_it_is_now() -> None:
    model = tiny_model(tied=True)
    step = new_step(model)
    with torch.no_grad():
        model.unembedding.weight.mul_(2)
    assert off_by(read(step, IDS), expected(model, IDS)) < 2e-6


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_other_kinds_of_numbers_are_read_as_float32(dtype: torch.dtype) -> None:
    model = tiny_model(bias=True).to(dtype)
    scores = read(new_step(model), IDS)
    assert off_by(scores, expected(model.float(), IDS)) < 2e-6


# Other precisions


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize(
    "name", ["default", "gpt2", "rms-bias", "odd", "full-lanes", "shift-layers-renorm", "wide-values"]
)
def test_a_precision_is_the_float32_of_its_weights(precision: Precision, name: str) -> None:
    model = tiny_model(**SETTINGS[name])
    scores = read(new_step(model, precision=precision), IDS)
    assert off_by(scores, expected(rounded_model(model, precision), IDS)) < 2e-6
    for threads, pieces in ((1, [1] * len(IDS)), (2, [5, 6])):
        step = new_step(model, precision=precision, threads=threads)
        assert torch.equal(read(step, IDS, pieces), scores)


@given(st.lists(st.floats(-100, 100, width=32), min_size=3, max_size=30))
def test_eight_bits_lose_half_a_step_at_most(row: list[float]) -> None:
    x = torch.tensor([row, [0.0] * len(row)])
    whole, scale = to_int8(x)
    assert whole.dtype == torch.int8 and not whole[1].any()
    tiny = torch.finfo(torch.float32).tiny  # what is less may be taken for nothing
    assert ((whole * scale[:, None] - x).abs() <= scale[:, None] * 0.5001 + tiny).all()
    assert math.isclose(float(scale[0]), max(map(abs, row)) / 127, rel_tol=1e-6, abs_tol=1e-40) or not any(
        row
    )


def test_float32_is_not_copied() -> None:
    model = tiny_model(bias=True, tied=True)
    layers = lay_out(model, "float32").layers
    block = model.stack.blocks[1]
    assert layers[1, Layer.UP] == block.mlp.up.weight.data_ptr()  # type: ignore[union-attr]
    assert layers[1, Layer.QKV_BIAS] == block.attention.qkv.bias.data_ptr()  # type: ignore[union-attr]


# What is refused


@pytest.mark.parametrize(
    ("piece", "words"),
    [
        (lambda slot: Piece(slot, [23]), "vocabulary"),
        (lambda slot: Piece(slot, [-1]), "vocabulary"),
        (lambda slot: Piece(slot, [1] * 13), "reserved"),
        (lambda slot: Piece(slot, [1, 2], 3), "scores"),
        (lambda slot: Piece(slot, []), "scores"),
        (lambda slot: Piece(slot, [1], 1, lambda site, x: x), "taps"),
    ],
)
def test_what_would_read_foreign_memory_is_refused(piece, words: str) -> None:
    step = new_step(tiny_model())
    slot = new_slot(step, 12)
    with pytest.raises(ValueError, match=words):
        step.scores([piece(slot)])
    assert slot.length == 0
