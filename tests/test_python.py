"""Python as a user meets it: every public name explains itself, takes named arguments, is shown in a line."""

import inspect
import io
import sys
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from rich.console import Console
from torch import Tensor, nn

import glassformer as gf
from glassformer.evaluation.result import Result
from glassformer.inspection.look import Look
from glassformer.models.tap import Tap, off
from glassformer.runs.compare import Comparison
from glassformer.runs.sweep import Sweep
from glassformer.training.display import Display, InPython, Silent, choose_display

SMALL = {
    "model.layers": 2,
    "model.width": 16,
    "model.heads": 2,
    "model.context": 32,
    "training.compile": "off",
}
SMALL |= {"training.steps": 4, "training.batch": 4, "training.eval_every": 2}


@pytest.fixture(scope="module")
def runs(text_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    folder = tmp_path_factory.mktemp("python")
    return gf.sweep(text_file, {"model.layers": [1, 2]}, out=folder / "sweep", settings=SMALL, quiet=True)


def public() -> Iterator[tuple[str, Any]]:
    """Every public function and class, and what these return that has methods."""
    for name in gf.__all__:
        if name != "edit":
            yield name, getattr(gf, name)
    yield from ((f"edit.{n}", getattr(gf.edit, n)) for n in ("Edit", "put", "steer", "zero"))
    yield from (("Look", Look), ("Comparison", Comparison), ("Result", Result), ("Sweep", Sweep))


def methods(kind: type) -> Iterator[tuple[str, Any]]:
    """The public methods and properties that we wrote, each with the docstring it has or inherits."""
    for base in (b for b in kind.__mro__ if b.__module__.startswith("glassformer")):
        for name, member in vars(base).items():
            function = getattr(member, "__func__", None) or getattr(member, "fget", None)
            function = function or getattr(member, "func", None) or member
            if inspect.isfunction(function) and not name.startswith("_") and function.__name__ != "<lambda>":
                yield name, function


def explains(kind: type, name: str) -> bool:
    return any(getattr(vars(base).get(name), "__doc__", None) for base in kind.__mro__)


@pytest.mark.parametrize(("name", "thing"), list(public()))
def test_every_public_name_explains_itself(name: str, thing: Any) -> None:
    own = vars(thing).get("__doc__") if inspect.isclass(thing) else thing.__doc__
    assert own and not own.startswith(f"{name}("), f"gf.{name} has no docstring"
    if inspect.isclass(thing):
        silent = [method for method, _ in methods(thing) if not explains(thing, method)]
        assert silent == [], f"gf.{name}: no docstring"


@pytest.mark.parametrize(("name", "thing"), list(public()))
def test_no_signature_hides_its_arguments(name: str, thing: Any) -> None:
    functions = [(name, thing)] if inspect.isfunction(thing) else list(methods(thing))
    for method, function in functions:
        kinds = {p.kind for p in inspect.signature(function).parameters.values()}
        assert inspect.Parameter.VAR_KEYWORD not in kinds, f"gf.{name}.{method}"


def test_types_are_there_for_others() -> None:
    assert (Path(gf.__file__).parent / "py.typed").is_file()


def test_everything_shows_itself_in_a_short_line(runs: Sweep) -> None:
    run = runs[0]
    look, config = run.look("item " * 6), gf.ModelConfig(layers=2, vocab=9)
    things = [run, look, look.text, run.config, config, run.tokenizer, gf.Byte(), gf.Decoder(config), runs]
    things += [runs.compare(), gf.EncoderDecoder(config), gf.Encoder(gf.ModelConfig(labels=2, vocab=9))]
    for thing in things:
        assert "\n" not in repr(thing) and len(repr(thing)) < 240, repr(thing)
    assert repr(config) == "ModelConfig(layers=2, vocab=9)"
    assert repr(gf.ModelConfig(hidden=99)) == "ModelConfig(hidden=99)"
    assert "1 layers of width 16" in repr(run) and "parameters" in repr(run.model)


def test_a_notebook_shows_small_safe_tables(runs: Sweep) -> None:
    run = runs[0]
    look = run.look("<b>item</b>")
    shown = [thing._repr_html_() for thing in (run, look, run.evaluate(), runs.compare(), runs)]
    for html in shown:
        assert (
            html.count("<table") == 1 and len(html) < 20_000 and "<script" not in html and "<b>" not in html
        )
    assert "bits per byte" in shown[2] and "validation" in shown[0] and "&lt;" in shown[1]


def test_a_sweep_is_a_list_with_rows_and_a_best(runs: Sweep) -> None:
    assert len(runs) == len(runs.rows) == 2 and runs.best in runs
    assert runs.best.result["score"]["value"] == min(row.score[1] for row in runs.rows)
    assert str(runs) == str(gf.compare(*runs)) and "settings that differ" in str(runs)
    assert [row["settings"] for row in runs.compare().as_json()["runs"]] in (
        [{"model.layers": 1}, {"model.layers": 2}],
        [{"model.layers": 2}, {"model.layers": 1}],
    )
    assert repr(runs.compare()).startswith("Comparison(")
    assert len(runs.compare().plot().axes) == 4


def test_a_look_can_be_plotted(runs: Sweep, tmp_path: Path) -> None:
    look = runs[1].look("item 3")
    figure = look.plot()
    assert len([axes for axes in figure.axes if axes.get_title().startswith("head ")]) == 4
    assert look.plot("stream", tmp_path / "s.png").axes
    assert (tmp_path / "s.png").is_file() and (tmp_path / "s.caption.txt").read_text().startswith(
        "The residual stream"
    )
    assert {"attention", "rollout", "stream"} <= set(look.plots)
    with pytest.raises(gf.GlassformerError, match="there is no head 2 in layer 1: expected 0 to 1"):
        look.pattern(1, heads=[2])
    with pytest.raises(gf.GlassformerError, match=r"no plot 'strem'.* Did you mean 'stream'"):
        look.plot("strem")
    with pytest.raises(gf.GlassformerError, match=r"ends in \.svg, \.png or \.pdf"):
        look.plot(file=tmp_path / "x.doc")


def test_matplotlib_is_left_alone_until_something_is_drawn() -> None:
    """Neither loaded for nothing, nor is a user's backend changed."""
    import subprocess

    code = "import glassformer as gf, sys; gf.train, gf.compare, gf.sweep; print('matplotlib' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


# A model of one's own


def test_a_model_of_ones_own_loop_becomes_a_run(text_file: Path, tmp_path: Path) -> None:
    tokenizer = gf.Byte()
    model = gf.Decoder(gf.ModelConfig(layers=1, heads=2, width=16, context=32, vocab=len(tokenizer)))
    ids = torch.tensor([tokenizer.encode("item 1 follows item 2")])
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
    for _ in range(3):
        loss = nn.functional.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[0, 1:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert gf.save_run(deepcopy(model).bfloat16(), tokenizer, tmp_path / "half").model is not None
    run = gf.save_run(model, tokenizer, tmp_path / "own")
    torch.testing.assert_close(gf.load(run.path).model(ids), model.eval()(ids))
    assert run.evaluate(data=str(text_file)).bits_per_byte > 0
    assert run.look("item 1").components().error < 1e-5
    assert isinstance(run.generate("item", 4, seed=0)[0], str)
    with pytest.raises(gf.GlassformerError, match=r"no data of its own: name some with data="):
        run.evaluate()
    with pytest.raises(gf.GlassformerError, match="exists already"):
        gf.save_run(model, tokenizer, tmp_path / "own")


def test_a_classifier_of_ones_own_keeps_its_labels(tmp_path: Path) -> None:
    tokenizer = gf.Byte()
    config = gf.ModelConfig(layers=1, heads=2, width=16, context=32, vocab=len(tokenizer), labels=2)
    run = gf.save_run(gf.Encoder(config), tokenizer, tmp_path / "own", labels=["bad", "good"])
    assert set(run.classify(["fine"])[0]) == {"bad", "good"}
    with pytest.raises(gf.GlassformerError, match="the model tells 2 apart, 0 are named"):
        gf.save_run(gf.Encoder(config), tokenizer, tmp_path / "other")


def test_what_cannot_be_saved_is_said(tmp_path: Path) -> None:
    with pytest.raises(gf.GlassformerError, match="Linear cannot be saved as a run"):
        gf.save_run(nn.Linear(2, 2), gf.Byte(), tmp_path / "x")
    small = gf.Decoder(gf.ModelConfig(layers=1, heads=1, width=8, context=8, vocab=5))
    with pytest.raises(gf.GlassformerError, match="vocabulary is 5, the tokenizer's 257"):
        gf.save_run(small, gf.Byte(), tmp_path / "x")
    with pytest.raises(gf.GlassformerError, match=r"no tokenizer 'bp'.*Did you mean 'bpe'"):
        gf.train_tokenizer("bp", ["a"], 300)


class Own(nn.Module):
    """A module of a user's, which has never heard of padding."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(3, 4), nn.Linear(4, 2)

    def forward(self, x: Tensor, tap: Tap = off) -> Tensor:
        return self.second(tap("hidden", self.first(x)))


def test_any_module_that_takes_a_tap_is_recorded_and_edited() -> None:
    model, x = Own(), torch.randn(2, 3)
    trace = gf.record_trace(model, x)
    torch.testing.assert_close(trace["hidden"], model.first(x))
    torch.testing.assert_close(trace.logits, model(x))
    off_ = gf.record_trace(model, x, edits=[gf.edit.zero("hidden")])
    torch.testing.assert_close(off_.logits, model.second.bias.expand(2, 2))
    with pytest.raises(gf.GlassformerError, match="Linear takes no tap: expected a module with forward"):
        gf.record_trace(nn.Linear(3, 2), x)


# Progress


def test_progress_is_shown_to_a_person_and_to_nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(choose_display("auto"), Silent)  # a test's standard error is no terminal
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    assert isinstance(choose_display("auto"), InPython)
    assert isinstance(choose_display(None), Silent) and isinstance(choose_display("auto", quiet=True), Silent)
    mine = Display()
    assert choose_display(mine) is mine
    with pytest.raises(gf.GlassformerError, match="display='loud': expected"):
        choose_display("loud")  # type: ignore[arg-type]


def test_a_notebook_gets_lines(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    shell = SimpleNamespace(config={"IPKernelApp": {}})
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    display = choose_display("auto")
    display.note("about a minute (--set training.minutes=30 for a better model)")
    shown = capsys.readouterr().out
    assert shown == 'about a minute (settings={"training.minutes": 30} for a better model)\n'


def test_hints_of_a_training_are_in_the_words_of_python() -> None:
    file = io.StringIO()
    InPython(Console(file=file, width=200)).note("(--set training.minutes=30 for more)")
    assert file.getvalue() == '(settings={"training.minutes": 30} for more)\n'
