"""Lessons: each claim holds in its numbers, and each answer is put together from them."""

import json
from math import log
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

import glassformer as gf
from glassformer.cli.main import app
from glassformer.core.errors import UsageError
from glassformer.lessons.cost import crossing
from glassformer.lessons.explosion import clipped, descend, recurrent_matrix
from glassformer.lessons.kernel import smooth, smooth_by_attention
from glassformer.lessons.length import FAMILIES, WINDOW, gradient_by_distance, loss_by_depth
from glassformer.lessons.lesson import Lesson
from glassformer.lessons.names import OF_NO_MODEL
from glassformer.lessons.positions import equivariance
from glassformer.lessons.registry import LESSONS, teach
from glassformer.lessons.repetition import repeated_share
from glassformer.lessons.scale import scale_effect, score_variance
from glassformer.lessons.toeplitz import unevenness
from tests.explained import assert_explained
from tests.models.families import ids, make


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, text_file: Path) -> gf.Run:
    small = {
        "model.layers": 2,
        "model.heads": 2,
        "model.width": 16,
        "model.context": 32,
        "training.steps": 30,
    }
    small |= {"training.batch": 8, "training.compile": "off", "tokenizer.kind": "char"}
    return gf.train(text_file, out=tmp_path_factory.mktemp("lessons") / "run", settings=small)


def column(lesson: Lesson, name: str) -> list:
    return [row[list(lesson.columns).index(name)] for row in lesson.rows]


def test_the_scale_keeps_scores_and_gradients_alive() -> None:
    effects = {(s.width, s.scaled): s for s in scale_effect()}
    for width in (16, 64, 256, 1024):
        plain, scaled = effects[width, False], effects[width, True]
        assert plain.variance == pytest.approx(width, rel=0.15) and scaled.variance == pytest.approx(
            1, rel=0.15
        )
        assert plain.largest > scaled.largest and plain.entropy < scaled.entropy
    assert effects[1024, False].gradient < 0.1 * effects[1024, True].gradient
    assert effects[1024, True].gradient == pytest.approx(effects[16, True].gradient, rel=0.2)


@pytest.mark.parametrize("sigma", [0.5, 1.0, 2.0])
def test_the_variance_of_scores_is_the_product_of_both(sigma: float) -> None:
    assert score_variance(64, sigma) == pytest.approx(sigma**4 * 64, rel=0.05)


def test_without_positions_and_mask_the_input_is_a_set() -> None:
    tokens = ids(2, 9)
    assert equivariance(make("masked", "transformer", position="none"), tokens).holds
    assert not equivariance(make("masked", "transformer", position="learned"), tokens).holds
    assert not equivariance(
        make("language", "transformer", position="none"), tokens
    ).holds  # the mask is an order
    with pytest.raises(UsageError, match="permutation"):
        equivariance(make("masked", "transformer"), tokens, torch.tensor([0] * 9))


def test_what_is_hidden_has_no_say() -> None:
    lesson = teach("masks")
    assert column(lesson, "least row sum, −∞ before") == pytest.approx([1.0] * 3)
    assert max(column(lesson, "least row sum, zero behind")) < 1
    assert lesson.figures["leak"] > 1e-3 and lesson.figures["leak with minus infinity"] < 1e-6


def test_residual_connections_keep_gradients_and_tokens() -> None:
    lesson = teach("residuals")
    assert all(0.9 < ratio < 50 for ratio in column(lesson, "with residuals"))
    verdicts = dict(
        zip(
            zip(column(lesson, "norm"), column(lesson, "weights start as"), strict=True),
            column(lesson, "without, it"),
            strict=True,
        )
    )
    assert verdicts["none", "gpt2"] == "vanishes" and verdicts["post", "gpt2"] == "grows"
    likeness = teach("collapse")
    with_, without = column(likeness, "at the end, with"), column(likeness, "at the end, without")
    assert all(b > a for a, b in zip(with_, without, strict=True)) and max(without) > 0.95


def test_a_norm_over_the_batch_sees_the_future_and_no_other_does() -> None:
    lesson = teach("norms")
    shares = dict(
        zip(column(lesson, "norm"), column(lesson, "gradient of the first block / the last"), strict=True)
    )
    assert all(0.5 < share < 2 for share in shares.values())
    *others, batch = column(lesson, "share of it from later tokens")
    assert batch > 0.01 and others == [0.0] * 4


def test_a_learned_convolution_is_toeplitz_and_the_others_are_not() -> None:
    lesson = teach("toeplitz")
    off = dict(zip(column(lesson, "attention"), column(lesson, "unevenness along diagonals"), strict=True))
    assert off["convolution"] < 1e-6 and off["distance"] > 0.1 and off["full"] > 0.1
    assert max(column(lesson, "loss")) < 2.2  # of log 16 = 2.77: all of them have learned to look back
    assert unevenness(torch.ones(2, 5, 5).tril()) == 0.0


def test_attention_is_kernel_regression_and_a_dictionary() -> None:
    x, y, at = torch.linspace(0, 1, 9), torch.randn(9), torch.linspace(0, 1, 5)
    torch.testing.assert_close(
        smooth_by_attention(x, y, at, 0.2), smooth(x, y, at, 0.2), rtol=1e-4, atol=1e-5
    )
    weights = [w for w in column(teach("kernel"), "weight on the right entry") if w is not None]
    assert weights == sorted(weights) and weights[-1] > 0.99
    errors = column(teach("kernel"), "error of what is found")
    assert errors[-1] < 0.5 * errors[-2]  # the width was learned


@pytest.mark.parametrize("settings", [{}, {"activation": "swiglu"}, {"placement": "post", "bias": True}])
def test_gradients_by_hand_are_those_of_autograd(settings: dict) -> None:
    from glassformer.lessons.gradient import _rows

    rows = _rows(make("language", "transformer", **settings), ids(2, 8))
    assert len(rows) == 8 and max(row[4] for row in rows) < 1e-5 and min(row[3] for row in rows) > 0


def test_a_cache_changes_the_time_alone(run: gf.Run) -> None:
    lesson = teach("cache", run)
    assert lesson.figures["scores differ by"] < 1e-5
    assert lesson.figures["seconds anew"] > 0 and column(lesson, "tokens so far")[-1] == 31


def test_above_a_spectral_radius_of_one_numbers_become_nan() -> None:
    lesson = teach("explosion")
    steps = dict(
        zip(
            zip(column(lesson, "spectral radius"), column(lesson, "nonlinearity"), strict=True),
            column(lesson, "inf at step"),
            strict=True,
        )
    )
    assert all((steps[radius, "none"] is None) == (radius <= 1) for radius, _ in steps)
    for radius in (1.1, 1.5, 2.0):  # 3.4e38 = radius ** steps, but for what the first steps turn away
        assert steps[radius, "none"] == pytest.approx(log(3.4e38) / log(radius), rel=0.05)
    gaps = [
        nan - inf
        for inf, nan in zip(column(lesson, "inf at step"), column(lesson, "NaN at step"), strict=True)
        if inf is not None
    ]
    assert len(gaps) >= 3 and all(0 <= gap <= 2 for gap in gaps)
    assert column(lesson, "|∂L/∂h₀| after 1000")[0] == 0  # it has vanished
    assert (
        lesson.figures["length behind clipping"] == pytest.approx(1)
        and lesson.figures["sigmoid of 3e38"] == 1
    )


def test_the_gradient_of_a_recurrence_is_that_of_autograd() -> None:
    W = recurrent_matrix(0.9)
    generator = torch.Generator().manual_seed(1)
    start, g = torch.randn(64, generator=generator), torch.randn(64, generator=generator)
    h = start.requires_grad_()
    for _ in range(5):
        h = torch.tanh(W @ h)
    (down,) = torch.autograd.grad(h, start, g / g.norm())
    torch.testing.assert_close(descend(W, tanh=True, steps=5).last_finite, down)
    assert clipped(torch.tensor([torch.inf, 1.0])).isnan().tolist() == [True, False]


def test_how_far_a_loss_reaches_back() -> None:
    lesson = teach("length")
    far = {name: column(lesson, name)[-1] for name in FAMILIES}  # 128 positions
    assert far["rnn"] < 1e-6 and far["gru"] < 1e-6 and far["lstm"] < 1e-3 and far["window"] == 0
    assert far["transformer"] > 0.5 and far["convolution"] > 0.5
    at = dict(zip(column(lesson, "positions back"), column(lesson, "window"), strict=True))
    assert at[8] > 0.5 and at[16] == 0  # it ends between them
    assert (
        f"{WINDOW} positions (window)" in lesson.answer[0]
        and "for convolution, transformer" in lesson.answer[0]
    )


def test_gradients_by_distance_are_those_of_autograd() -> None:
    model, tokens = make("language", "transformer"), ids(1, 9)
    embedding = model.get_parameter("stack.embedding.weight")
    tokens[0] = torch.arange(9)  # each token once: a row of the embedding's gradient is that of a position
    logits = model(tokens[:, :-1])
    torch.nn.functional.cross_entropy(logits[:, -1], tokens[:, -1]).backward()
    assert embedding.grad is not None
    by_row = embedding.grad[:8].norm(dim=-1).flip(0)
    torch.testing.assert_close(
        torch.tensor(gradient_by_distance(model, tokens)), by_row.double(), check_dtype=False
    )
    whole = torch.nn.functional.cross_entropy(logits[0], tokens[0, 1:])
    assert sum(loss_by_depth(model, tokens)) / 8 == pytest.approx(float(whole.detach()), rel=1e-5)


def test_where_two_curves_cross() -> None:
    assert crossing([1, 2, 4, 8], [1, 2, 4, 8], [4, 4, 4, 4]) == pytest.approx(4)
    assert crossing([1, 4, 16], [1, 4, 16], [2, 2, 2]) == pytest.approx(2)
    assert crossing([1, 2], [3, 3], [1, 1]) == 1 and crossing([1, 2], [1, 1], [3, 3]) is None


def test_the_net_costs_more_than_attention_where_texts_are_short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("glassformer.lessons.cost.choose_device", lambda: torch.device("cpu"))
    lesson = teach("cost")
    assert column(lesson, "counted, net / mixing")[0] > 1 > column(lesson, "counted, net / mixing")[-1]
    assert min(min(column(lesson, c)) for c in ("net, ms", "attention, fused, ms", "by formula, ms")) > 0
    assert "up to 512 positions at width 128" in lesson.answer[0]


@pytest.mark.parametrize("name", [n for n in LESSONS if n not in OF_NO_MODEL])
def test_lessons_about_models_take_a_run(name: str, run: gf.Run, tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["why", name, str(run.path), "--plots", str(tmp_path), "--json"])
    assert done.exit_code == 0, done.output
    report = json.loads(done.stdout)
    assert report["rows"] and report["answer"] and (tmp_path / f"{name}.png").stat().st_size > 5000
    assert "nan" not in done.stdout.lower()
    assert (tmp_path / f"{name}.caption.txt").read_text().endswith(".\n")


@pytest.mark.parametrize("name", ["scale", "masks", "kernel", "explosion", "collapse", "positions"])
def test_the_plot_of_a_lesson_can_be_read(name: str) -> None:
    drawing = teach(name).draw()
    assert_explained(name, drawing)
    if name == "collapse":  # tokens that are short are as alike as long ones
        assert min(min(line.get_ydata()) for line in drawing.figure.axes[0].lines) > 0
    if name == "positions":  # names stand where there is no order
        figure = drawing.figure
        figure.draw_without_rendering()
        assert "rope" in [tick.get_text() for tick in figure.axes[0].get_xticklabels()]


def test_greedy_decoding_repeats_itself_and_drawing_cures_it(run: gf.Run) -> None:
    lesson = teach("repetition", run)
    shares = lesson.figures
    assert shares["greedy"] > shares["greedy, repetition penalty 1.3"] and shares["greedy"] > 0.3
    assert shares["temperature 1"] < 0.5 * shares["greedy"]
    assert repeated_share([1, 2, 3, 4] * 3) == pytest.approx(5 / 9) and repeated_share(range(9)) == 0
    with pytest.raises(UsageError, match="RUN"):
        teach("repetition")


def test_what_is_asked_wrongly_is_said(run: gf.Run) -> None:
    with pytest.raises(UsageError, match="Did you mean 'residuals'"):
        teach("residual")
    with pytest.raises(UsageError, match="leave the run out"):
        teach("scale", run)
    listed = CliRunner().invoke(app, ["why"])
    assert listed.exit_code == 0 and all(name in listed.output for name in LESSONS)
