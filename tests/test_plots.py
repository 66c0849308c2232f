"""Every plot that the package makes, of tiny runs: a stranger can read each."""

from pathlib import Path
from types import SimpleNamespace

import pytest

import glassformer as gf
from glassformer.evaluation.comparison_page import draw as draw_comparison
from glassformer.inspection.plots import cost, drawings
from glassformer.lessons.residuals import lesson as residuals
from glassformer.runs.compare import compare
from glassformer.training.plot import draw_losses
from tests.explained import assert_explained
from tests.pictures import write_pictures

SMALL = {"training.steps": 3, "training.batch": 4, "model.width": 16, "model.layers": 2, "model.heads": 2}
SMALL |= {"model.context": 66, "training.compile": "off", "training.eval_every": 2}
TEXT = {"attention", "rollout", "stream", "lens", "attribution", "gradient", "heads"}
SIDES = {f"{side}-{what}" for side in ("encoder", "decoder") for what in ("attention", "rollout")}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory, text_file: Path) -> dict[str, gf.Run]:
    folder = tmp_path_factory.mktemp("plots")
    images = write_pictures(folder / "images", 12)
    book = folder / "book.en", folder / "book.de"
    for side in book:
        side.write_text("\n".join(f"line {i} in {side.suffix}" for i in range(80)))
    return {
        "language": gf.train(text_file, out=folder / "language", settings=SMALL),
        "lstm": gf.train(text_file, out=folder / "lstm", settings={**SMALL, "model.family": "lstm"}),
        "translate": gf.train(book[0], target=book[1], out=folder / "translate", settings=SMALL),
        "image": gf.train(images, task="classify", out=folder / "image", settings=SMALL),
    }


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("language", "item 3 follows", TEXT),
        ("lstm", "item 3 follows", {"stream", "lens"}),
        (
            "translate",
            "line 3 in .en",
            TEXT - {"attention", "rollout", "heads"} | SIDES | {"cross-attention"},
        ),
        ("image", "", TEXT - {"heads", "lens"} | {"picture", "picture-attention"}),
    ],
)
def test_every_plot_of_a_look_is_explained(
    name: str, text: str, expected: set[str], runs: dict[str, gf.Run], tmp_path: Path
) -> None:
    image = runs[name].path.parent / "images" / "lying" / "0.png"
    given = {"target": "line 3 in .de"} if name == "translate" else {}  # three steps taught it no words
    drawn = drawings(runs[name].look(text or image, **given).report())
    assert set(drawn) == expected
    for plot, draw in drawn.items():
        drawing = draw()
        assert_explained(f"{name} {plot}", drawing)
        if plot == "rollout":
            assert "rolled out" in drawing.figure.get_suptitle()
            assert not any("head" in axes.get_title() for axes in drawing.figure.axes)


def test_the_stream_and_what_is_written_have_one_axis(runs: dict[str, gf.Run]) -> None:
    """A layer's output stands inside its block, between the streams before and behind it."""
    axes = drawings(runs["language"].look("item 3").report())["stream"]().figure.axes[0]
    places = {line.get_label(): [float(x) for x in line.get_xdata()] for line in axes.lines}
    assert places["the stream"] == [0, 1, 2]
    assert places["attention writes"] == [0.25, 1.25]
    assert places["feed-forward net writes"] == [0.75, 1.75]


def test_gradients_with_and_without_residuals_are_beside_their_own_end(runs: dict[str, gf.Run]) -> None:
    """Two losses have two scales: side by side, the larger loss would look like the better way down."""
    report = runs["language"].look("item 3 follows").report()
    right = drawings(report)["gradient"]().figure.axes[1]
    for line, lengths in zip(right.lines, report["gradient"]["depth"].values(), strict=True):
        assert list(line.get_ydata()) == pytest.approx([n / lengths[-1] for n in lengths])
    (plot,) = [residuals(runs["language"]).draw()]
    assert all(line.get_ydata()[-1] == pytest.approx(1.0) for line in plot.figure.axes[0].lines)


def test_the_curves_of_runs_are_explained(runs: dict[str, gf.Run]) -> None:
    assert_explained("compare", draw_comparison(compare(runs["language"], runs["lstm"]).rows))
    drawing = draw_losses(runs["language"].metrics, "language")
    assert drawing is not None
    assert_explained("loss", drawing)
    beside = (runs["language"].path / "loss.caption.txt").read_text(encoding="utf-8")
    assert beside.startswith("The training and validation loss of language, ")


def test_no_validation_loss_leaves_the_loss_curve() -> None:
    steps = [{"split": "train", "step": i, "loss": 3.0 - i} for i in range(3)]
    drawing = draw_losses([*steps, {"split": "valid", "step": 2, "loss": 9.0}], "a run that overfits")
    assert drawing is not None and drawing.figure.axes[0].get_ylim()[1] > 9


def test_costs_are_explained() -> None:
    sizes = [(T, C) for T in (8, 16) for C in (4, 8)]
    points = [SimpleNamespace(part="attention", T=T, C=C, seconds=T * C, bytes=T) for T, C in sizes]
    fit = SimpleNamespace(
        part="attention", over="T", time=1.0, memory=1.0, expected_time=2, expected_memory=2
    )
    assert_explained("cost", cost(points, [fit]))


def test_a_drawing_is_saved_with_its_caption_and_is_the_same_file_again(runs: dict[str, gf.Run]) -> None:
    drawing = drawings(runs["language"].look("item 3").report())["attribution"]()
    folder = runs["language"].path.parent
    paths = drawing.save(folder / "who")
    assert [path.name for path in paths] == ["who.svg", "who.png", "who.caption.txt"]
    assert paths[2].read_text(encoding="utf-8") == f"{drawing.caption}\n"
    first = [path.read_bytes() for path in paths]
    assert first == [path.read_bytes() for path in drawing.save(folder / "who")]
