"""A GPU's step, in Triton's interpreter and without graphs, beside the one forward pass and beside itself."""

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from glassformer.generation import sampling
from glassformer.generation.engine import Engine
from glassformer.generation.fast.rounding import rounded_model
from glassformer.generation.gpu import fits, graphs, walk
from glassformer.generation.gpu.step import GraphStep
from glassformer.generation.gpu.walk import Products
from glassformer.generation.open_step import open_step
from glassformer.generation.request import Ending
from glassformer.generation.sampling import Sampler
from glassformer.generation.speculative import SpeculativeEngine
from glassformer.generation.step import Piece, Slot
from glassformer.models.build import Decoder
from tests.conftest import tiny_model
from tests.generation.fast.reading import PAGE, expected, new_slot, off_by, read
from tests.generation.writing import Told, plainly, run
from tests.models.families import ids

IDS = [3, 1, 4, 1, 5, 9, 2, 6, 22, 0, 7]
KINDS: list[Products] = ["vectors", "tiles"]
SETTINGS: dict[str, dict[str, object]] = {
    "default": {},
    "gpt2": {"position": "learned", "tied": True, "bias": True, "qk_norm": False, "activation": "gelu-tanh"},
    "rms": {"norm": "rms", "activation": "swiglu"},
    "rms-bias": {"norm": "rms", "activation": "swiglu", "bias": True, "position": "sinusoidal"},
    "relu": {"activation": "relu", "qk_norm": False},
    "relu2": {"activation": "relu2", "position": "none", "tied": True},
    "gelu": {"activation": "gelu", "position": "sinusoidal", "bias": True},
    "alibi-window": {"position": "alibi", "kv_heads": 1, "window": 5},
    "unscaled": {"scaled": False},
    "grouped": {"heads": 4, "kv_heads": 2, "width": 24, "layers": 1},
    "odd": {"width": 37, "heads": 1, "head_width": 10, "hidden": 21, "value_width": 7},
}


@pytest.fixture(autouse=True)
def _large_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The interpreter takes as long for a small program as for a large one."""
    monkeypatch.setattr(walk, "OUTPUTS", 32)
    monkeypatch.setattr(walk, "INPUTS", 16)


def new_step(model: Decoder, pages: int = 64, products: Products = "vectors", **more: object) -> GraphStep:
    return GraphStep(model, pages, PAGE, products=products, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("products", KINDS)
@pytest.mark.parametrize("name", SETTINGS)
def test_scores_are_those_of_the_open_pass(name: str, products: Products) -> None:
    model = tiny_model(**SETTINGS[name])
    assert fits(model) is None
    step = new_step(model, products=products)
    whole = read(step, IDS[:7])
    assert off_by(whole, expected(model, IDS[:7])) < 2e-6
    assert torch.equal(read(step, IDS[:5], [1, 1, 3]), whole[:5])


@pytest.mark.parametrize("products", KINDS)
def test_bfloat16_is_the_float32_of_its_weights(products: Products) -> None:
    """Keys and values are kept in it too, and tiles multiply in it, so that is as near as its digits."""
    model = tiny_model(layers=1)
    step = new_step(model, products=products, precision=torch.float16 if products == "tiles" else "bfloat16")
    assert off_by(read(step, IDS), expected(rounded_model(model, "bfloat16"), IDS)) < 0.02


@pytest.mark.parametrize("products", KINDS)
def test_neighbours_and_rows_make_no_difference(products: Products) -> None:
    """Texts of unequal length, in pieces of unequal size, beside others and in other rows each time.

    To the bit, but for the products of tiles: here they are NumPy's, in which on some machines the last bit
    depends on the row. Those of a GPU are held to the bit by benchmarks/decode_gpu.py.
    """
    model = tiny_model(context=12, layers=1, heads=1)
    texts = [[(7 * i + k) % 23 for k in range(2 + 4 * i)] for i in range(3)]
    step = new_step(model, 40, products)
    alone = [read(step, text) for text in texts]
    slots = [new_slot(step, len(text)) for text in texts]
    together: list[list[torch.Tensor]] = [[] for _ in texts]
    for turn in range(9):
        pieces, whose = [], []
        for i in sorted(range(3), key=lambda i: (i + turn) % 3):
            some = texts[i][slots[i].length : slots[i].length + 1 + (i + turn) % 4]
            if some and (i + turn) % 3:
                pieces.append(Piece(slots[i], some, len(some)))
                whose += [i] * len(some)
        for i, row in zip(whose, step.scores(pieces) if pieces else (), strict=True):
            together[i].append(row)
    for rows, one in zip(together, alone, strict=True):
        ours = torch.stack(rows)
        assert torch.equal(ours, one) if products == "vectors" else off_by(ours, one) < 1e-6


@pytest.mark.parametrize("products", KINDS)
def test_more_rows_than_walk_together_and_long_texts_in_spans(
    products: Products, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(walk, "SPAN", 32)
    model = tiny_model(context=80, layers=1, heads=1)
    text = [(i * i) % 23 for i in range(70)]
    step = new_step(model, 100, products)
    slot = new_slot(step, 70)
    whole = step.scores([Piece(slot, text, 68)])
    assert whole.shape == (68, 23) and off_by(whole, expected(model, text)[2:]) < 1e-5
    step.forget(slot, 66)
    assert step.reserve(slot, 4)
    assert len(step.scores([Piece(slot, text[66:69], 0)])) == 0
    assert torch.equal(step.scores([Piece(slot, text[69:], 1)]), whole[67:])


def test_a_page_that_is_copied_and_one_that_is_shared() -> None:
    model = tiny_model(layers=1, heads=1)
    step = new_step(model)
    slot = new_slot(step, 6)
    step.scores([Piece(slot, IDS[:6], 0)])
    other = step.fork(slot)
    for one, last in ((slot, 5), (other, 7)):
        assert step.reserve(one, 1)
        assert torch.equal(step.scores([Piece(one, [last])])[0], read(step, [*IDS[:6], last])[-1])
    step.close(other)
    step.forget(slot, 3)
    assert torch.equal(step.scores([Piece(slot, [8])])[0], read(step, [*IDS[:3], 8])[-1])
    step.publish(slot, [*IDS[:3], 8])
    second = step.open([*IDS[:3], 8, 9])
    assert second.length == 0  # this one's pages are its own
    shared = step.open(IDS)
    assert step.reserve(shared, len(IDS))
    step.scores([Piece(shared, IDS, 0)])
    step.publish(shared, IDS)
    again = step.open(IDS)
    assert again.length == 2 * PAGE and step.reserve(again, 3)
    assert torch.equal(step.scores([Piece(again, IDS[8:], 3)]), read(step, IDS)[8:])


def test_a_model_that_goes_on_training_is_read_as_it_is_now() -> None:
    model = tiny_model(tied=True, layers=1)
    step = new_step(model)
    with torch.no_grad():
        model.unembedding.weight.mul_(2)
    assert off_by(read(step, IDS[:4]), expected(model, IDS[:4])) < 2e-6


# Texts


@pytest.mark.parametrize("products", KINDS)
def test_the_engine_writes_what_the_plain_loop_writes(products: Products) -> None:
    """Three texts beside each other, beyond the context; greedy ones and drawn ones."""
    model = tiny_model(layers=1, heads=1)
    engine = Engine(GraphStep(model, 6, products=products), chunk=7)
    wishes = [
        (ids(1, seed=1).tolist(), Sampler(temperature=0)),
        (ids(5, seed=5).tolist(), Sampler(0.9, top_k=8, seed=5)),
        (ids(15, seed=15).tolist(), Sampler(0.9, top_p=0.8, seed=15)),
    ]
    told = [Told(engine, text, 9, sampler) for text, sampler in wishes]
    run(engine)
    for one, (text, sampler) in zip(told, wishes, strict=True):
        assert one.handle.error is None and one.ids == plainly(model, text, 9, sampler)


def test_steps_are_begun_before_they_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """One step is asked for; the others were under way. One whose choice is not sure is done once more."""
    model = tiny_model(layers=1, heads=1, context=40)
    step, done = GraphStep(model, 12), list[str]()
    for name in ("walk_and_draw", "_move_on"):
        own = getattr(step, name)
        monkeypatch.setattr(step, name, lambda *a, own=own, name=name: [done.append(name), own(*a)][1])
    expected = plainly(model, [1, 2, 3], 9, Sampler(seed=1))

    def write() -> list[int]:
        done.clear()
        engine = Engine(step)
        told = Told(engine, [1, 2, 3], 9, Sampler(seed=1))
        run(engine)
        return told.ids

    assert write() == expected and done == ["walk_and_draw"] + 8 * ["_move_on"]
    read, draws = step._drawing.read, 0

    def unsure_at_fourth(draw: int, scores: object, *rest: object) -> list[int] | None:
        nonlocal draws
        draws += 1
        return None if draws == 4 and scores is None else read(draw, scores, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(step._drawing, "read", unsure_at_fourth)
    assert write() == expected and done.count("walk_and_draw") == 2


def test_a_step_that_nobody_asked_for_costs_nobody_anything(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny_model(layers=1, heads=1, context=40)
    step = GraphStep(model, 12)

    def fails(*_: object) -> None:
        raise torch.OutOfMemoryError("no room")

    monkeypatch.setattr(step, "_move_on", fails)
    monkeypatch.setattr(step, "_begin", fails)
    engine = Engine(step)
    told = Told(engine, [1, 2, 3], 6, Sampler(seed=1))
    run(engine)
    assert told.handle.error is None and told.ids == plainly(model, [1, 2, 3], 6, Sampler(seed=1))


@pytest.mark.parametrize("products", KINDS)
def test_texts_grow_beyond_what_attention_looks_at(
    products: Products, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one piece and token by token; `wide` is what graphs are made for."""
    monkeypatch.setattr(walk, "SPAN", 8)
    monkeypatch.setattr(graphs, "LEAST_REACH", 8)
    model = tiny_model(layers=1, heads=1, context=48)
    engine = Engine(GraphStep(model, 20, products=products))
    wishes = [(ids(n, seed=n).tolist(), 45 - n) for n in (3, 20)]
    told = [Told(engine, text, tokens) for text, tokens in wishes]
    run(engine)
    for one, (text, tokens) in zip(told, wishes, strict=True):
        assert one.handle.error is None and one.ids == plainly(model, text, tokens)


def test_a_step_that_was_half_begun_settles_no_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its scores stand where those of the step before it were."""
    model = tiny_model(layers=1, heads=1, context=40)
    step, sampler = GraphStep(model, 12), Sampler(seed=1)
    move_on, launch = step._move_on, step._launch_write

    def fails(*asked: int) -> int:
        launch(*asked)
        raise RuntimeError("no room to record it")

    def half(slots: Sequence[Slot]) -> int | None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(step, "_launch_write", fails)
            return move_on(slots)

    def never_sure(
        draw: int,
        scores: Tensor | None,
        samplers: Sequence[Sampler],
        positions: Sequence[int],
        rows: list[int],
    ) -> list[int] | None:
        return None if scores is None else sampling.choose(scores[list(rows)], samplers, positions).tolist()

    monkeypatch.setattr(step, "_move_on", half)
    monkeypatch.setattr(step._drawing, "read", never_sure)
    engine = Engine(step)
    told = Told(engine, [1, 2, 3], 6, sampler)
    run(engine)
    assert told.handle.error is None and told.ids == plainly(model, [1, 2, 3], 6, sampler)


def test_a_text_that_goes_another_way_is_not_given_what_was_begun() -> None:
    """Some tokens forgotten and others read in their place: the same length, and the same last token."""
    model = tiny_model(layers=1, heads=1, context=40)
    greedy = [Sampler(temperature=0)]
    step = GraphStep(model, 64)

    def after(*ids: int) -> list[int]:
        slot = step.open(ids, shares=False)
        assert step.reserve(slot, 8)
        step.scores([Piece(slot, list(ids[:-1]), 0)])
        return step.choose([Piece(slot, [ids[-1]])], greedy, [len(ids)])

    for other in range(4, 12):
        slot = step.open([], shares=False)
        assert step.reserve(slot, 8)
        step.scores([Piece(slot, [1, 2], 0)])
        (token,) = step.choose([Piece(slot, [3])], greedy, [3])
        step.forget(slot, 1)
        step.scores([Piece(slot, [other, other], 0)])
        assert step.choose([Piece(slot, [token])], greedy, [4]) == after(1, other, other, token)


def test_wishes_take_the_scores() -> None:
    model, text = tiny_model(layers=1), [1, 2, 3]
    how = Sampler(seed=3, repetition_penalty=1.5, bias={4: 2.0})
    both = []
    for step in (new_step(model), open_step(model)):
        engine = Engine(step)
        told = Told(engine, text, 6, how)
        run(engine)
        both.append(told.ids)
    assert both[0] == both[1] and len(both[0]) == 6


def test_guesses_change_nothing() -> None:
    model, draft = (tiny_model(seed, context=40, layers=1, heads=1) for seed in (0, 1))
    engine = SpeculativeEngine(GraphStep(model, 12), GraphStep(draft, 12))
    alone = Engine(GraphStep(model, 12))
    both = [Told(each, ids(3).tolist(), 7, Sampler(seed=1)) for each in (engine, alone)]
    for each in (engine, alone):
        run(each)
    assert both[0].ids == both[1].ids and engine.guessed > 4


def test_scores_that_are_no_numbers_are_told() -> None:
    model = tiny_model(layers=1)
    with torch.no_grad():
        model.stack.blocks[0].mlp.down.weight[3] = float("nan")  # type: ignore[union-attr]
    for sampler in (Sampler(temperature=0), Sampler(seed=1), Sampler(top_k=3, seed=1)):
        engine = Engine(GraphStep(model, 6))
        told = Told(engine, [1, 2, 3], 5, sampler)
        run(engine)
        assert told.handle.ending is Ending.FAILED and "no numbers" in str(told.handle.error)


# What is refused, and what is chosen


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"placement": "post"}, "its norms do not stand before the layers"),
        ({"residual": False}, "it has no residual stream"),
        ({"shift": "layers"}, "it reads through shifts"),
        ({"shift": "embedding"}, "it reads through shifts"),
        ({"head_width": 300}, "its heads are wider than 256"),
        ({"norm": "batch"}, "its norm is a BatchNorm or LayerNorm"),
    ],
)
def test_other_models_are_told_apart(changes: dict[str, object], words: str) -> None:
    assert fits(tiny_model(**changes)) == words


@pytest.mark.parametrize(
    ("piece", "words"),
    [
        (lambda slot: Piece(slot, [23]), "vocabulary"),
        (lambda slot: Piece(slot, [1] * 13), "reserved"),
        (lambda slot: Piece(slot, [1, 2], 3), "scores"),
        (lambda slot: Piece(slot, [1], 1, lambda site, x: x), "taps"),
    ],
)
def test_what_would_read_foreign_memory_is_refused(piece, words: str) -> None:
    step = new_step(tiny_model())
    slot = new_slot(step, 12)
    with pytest.raises(ValueError, match=words):
        step.scores([piece(slot)])
    assert slot.length == 0


def test_few_texts_take_vectors_and_many_take_tiles() -> None:
    model = tiny_model()
    assert GraphStep(model, 6, texts=1).products == "vectors"
    assert GraphStep(model, 6, texts=64).products == "tiles"
    assert GraphStep(tiny_model(hidden=5000), 6, texts=1).products == "tiles"
