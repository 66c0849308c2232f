"""`run.look` and `glassformer look` on every task: the report has what docs/looking-inside.md promises."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

import glassformer as gf
from glassformer.cli.main import app
from glassformer.core.errors import DataError, UsageError
from glassformer.inspection.html import as_html
from glassformer.inspection.map_text import width
from glassformer.inspection.questions import Question
from glassformer.inspection.report_text import as_text

ROOT = Path(__file__).parents[2]
SMALL = {"training.steps": 2, "training.batch": 4, "model.width": 16, "model.layers": 2, "model.heads": 2}
SMALL |= {"model.context": 48, "training.compile": "off"}
TASKS: dict[str, tuple[str, dict[str, Any], str]] = {
    "language": ("text", {}, "A new line."),
    "post": ("text", {"model.placement": "post", "model.bias": True}, "A new line."),
    "lstm": ("text", {"model.family": "lstm"}, "A new line."),
    "masked": ("text", {"task": "masked"}, "A new line."),
    "translate": ("dates", {}, "3 May 1987"),
    "recurrent translate": ("dates", {"model.family": "gru"}, "3 May 1987"),
    "classify": ("docstrings", {}, "return the sum of a list"),
    "tag": ("pycode", {"model.family": "transformer"}, "for x in y :"),
}
READERS = ("language", "masked", "classify", "tag")  # of text, with attention


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory, text_file: Path) -> dict[str, gf.Run]:
    folder = tmp_path_factory.mktemp("runs")
    trained_runs = {}
    for name, (source, settings, _) in TASKS.items():
        settings = dict(settings)
        trained_runs[name] = gf.train(
            text_file if source == "text" else source,
            task=settings.pop("task", None),
            out=folder / name.replace(" ", "-"),
            settings={**SMALL, **settings},
        )
    return trained_runs


@pytest.mark.parametrize("name", TASKS)
def test_every_task_can_be_looked_into(name: str, runs: dict[str, gf.Run]) -> None:
    run = runs[name]
    look = run.look(TASKS[name][2])
    report = json.loads(json.dumps(look.report()))
    text, html = as_text(report), as_html(report)
    assert report["schema"] == "glassformer/look" and report["version"] == 1
    assert "</script" not in html.split('id="report">')[1].split("</script>")[0]
    assert not re.search(r"""(?:src|href)=|https?://(?!www\.w3\.org/2000/svg)""", html)
    if not look.is_transformer:
        assert "attention" in report["omitted"]
        assert "What comes next" in text and "has no self-attention" in text and "nan" not in text
        assert ("Where it looks in the source" in text) == ("cross.attention" in report)
        assert report["residual"]["stream"] and (report["gradient"] or len(look.tokens[look.part]) == 1)
        assert ("cross.attention" in report) == (look.task == "translate")
        return
    assert "Everything sums" in text and max(report["errors"].values()) < 1e-5
    for part, tokens in report["tokens"].items():
        maps = report[f"{part}attention"]
        assert len(maps) == 2 and len(maps[0]) == 2 and len(maps[0][0]) == len(tokens) == len(maps[0][0][0])
    if name == "translate":
        assert len(report["cross.attention"][0][0][0]) == len(report["tokens"]["encoder."])
    parts = report["attribution"]["parts"]
    assert sum(parts.values()) == pytest.approx(report["attribution"]["logit"], abs=1e-3)


@pytest.mark.parametrize("task", READERS)
def test_every_task_that_reads_text_has_relations(task: str, runs: dict[str, gf.Run], tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("back:\n  - 'a [line] on a {line} is'\n  - 'no [line] on it is {a} line'\n")
    run = runs[task]
    look = run.look("for x in y")
    report = look.report(relations=path)
    (relation,) = report["relations"]
    assert (relation["name"], relation["list"], relation["sentences"]) == ("back", "mine.yaml", 2)
    assert {(item["layer"], item["head"]) for item in relation["without"]} == {(0, 0), (0, 1), (1, 0), (1, 1)}
    assert relation["log_prob"] <= 0 and 0 <= relation["right"] <= 1
    assert relation["right"] == 1.0 or task in ("language", "masked")
    assert ("next" in report["ranking"]) == (task != "language") == ("most next" in as_text(report))
    assert f"asked for {relation['asked']}" in as_text(report) and "without 1.1" in as_text(report)


def test_tokens_are_found_where_a_word_stands(runs: dict[str, gf.Run]) -> None:
    for task in READERS:
        words = runs[task].bare_task.words()
        assert words is not None
        ids, places = words.encode("an  a is on")
        assert ids == runs[task].look("an  a is on").trace.inputs[0][0].tolist()
        (found,) = [i for i, (a, b) in enumerate(places) if a <= 4 < b]
        assert runs[task].bare_task.token_name(ids[found]).strip() == "a"


def test_what_a_model_is_asked(runs: dict[str, gf.Run]) -> None:
    asked = {task: runs[task].bare_task.question([7, 8, 9, 10], [1, 2]) for task in READERS}
    mask = runs["masked"].tokenizer.specials["<|mask|>"]
    assert asked == {
        "language": Question([7, 8, 9, 10], [2], [10]),
        "masked": Question([7, mask, mask, 10], [1, 2], [8, 9]),
        "classify": Question([7, 8, 9, 10], None, None),
        "tag": Question([7, 8, 9, 10], [1], None),
    }
    assert runs["language"].bare_task.question([7, 8], [1]) is None


def test_what_has_no_relations_refuses_them(runs: dict[str, gf.Run], tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(f"back:\n  - 'A [line] {'word ' * 60} is {{it}} .'\n")
    for name, says in (("translate", "the task translate"), ("lstm", "a lstm has no heads")):
        assert not runs[name].look("3 May 1987").report().get("relations")
        with pytest.raises(UsageError, match=says):
            runs[name].look("3 May 1987").report(relations=path)
    with pytest.raises(UsageError, match="none of its 1 sentences"):
        runs["language"].look("A line").report(relations=path)
    with pytest.raises(DataError, match="no file"):
        runs["language"].look("A line").report(relations=tmp_path / "nowhere.yaml")


def test_every_position_has_its_logit_taken_apart(runs: dict[str, gf.Run]) -> None:
    """The page shows the parts at the token that is clicked on."""
    for name in ("language", "post", "masked", "tag", "translate"):
        look = runs[name].look(TASKS[name][2])
        report = look.report()
        each, asked = report["attributions"], report["attribution"]
        assert len(each["positions"]) == len(report["predictions"])
        for entry, ((likeliest, _), *_) in zip(each["positions"], report["predictions"], strict=True):
            assert entry["output"] == likeliest
            assert sum(entry["shares"]) == pytest.approx(entry["logit"], abs=1e-3)
        there = each["positions"][asked["position"]]
        assert dict(zip(each["parts"], there["shares"], strict=True)) == pytest.approx(
            asked["parts"], abs=1e-4
        )
        assert "drawShares()" in as_html(report)
    assert "attributions" not in runs["classify"].look("return the sum").report()


def test_those_of_a_very_long_text_are_left_out(
    runs: dict[str, gf.Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("glassformer.inspection.report.MOST_SHARES", 5)
    report = runs["language"].look("A line").report()
    assert report["omitted"] == ["attributions"] and "attributions" not in report
    assert "attributions" in runs["language"].look("A line").report(maps=True)


def test_a_map_is_drawn_on_the_terminal(runs: dict[str, gf.Run]) -> None:
    report = runs["language"].look("item 3 follows").report()
    section = next(s for s in as_text(report, "1.0").split("\n\n") if s.startswith("Where head 1.0 looks"))
    lines = section.splitlines()
    rows = lines[-len(report["tokens"][""]) :]
    assert max(map(len, lines)) <= 80
    assert [line.split(":")[0].strip() for line in rows] == [str(i) for i in range(len(rows))]
    weight = max(report["attention"][1][0][-1])
    assert f"most {weight:.2f} on " in rows[-1]
    chosen = re.search(r"Where head (\d+)\.(\d+) looks \(it adds most", as_text(report))
    assert chosen is not None
    shares = {k: v for k, v in report["attribution"]["parts"].items() if "head" in k}
    assert max(shares, key=shares.__getitem__) == f"{chosen[1]}.head {chosen[2]}"
    assert "Where head encoder.0.1 looks" in as_text(runs["translate"].look("3 May").report(), "encoder.0.1")
    assert "looks" not in as_text(runs["lstm"].look("A line").report())


def test_a_map_of_a_long_text_is_left_out_with_a_word(runs: dict[str, gf.Run]) -> None:
    text = as_text(runs["language"].look("item 1 follows item 2, and then comes").report())
    assert "tokens are too many for a map here: --html FILE" in text


def test_names_of_wide_signs_keep_the_columns(runs: dict[str, gf.Run]) -> None:
    report = runs["language"].look("item 3 follows").report()
    report["tokens"][""][1] = "日本語日本語日本語"
    lines = [line for line in as_text(report, "0.0").splitlines() if re.match(r"  \d+:", line)]
    starts = {width(re.split("[·░▒▓█]", line)[0]) for line in lines}
    assert len(starts) == 1


@pytest.mark.parametrize(("name", "head"), [("language", "x"), ("language", "2.0"), ("language", "0.2")])
def test_a_head_that_is_not_there_is_said(name: str, head: str, runs: dict[str, gf.Run]) -> None:
    with pytest.raises(UsageError, match="head="):
        as_text(runs[name].look("A line").report(), head)
    with pytest.raises(UsageError, match="has no heads"):
        as_text(runs["lstm"].look("A line").report(), "0.0")
    with pytest.raises(UsageError, match="has no encoder"):
        as_text(runs["language"].look("A line").report(), "encoder.0.0")


def test_the_keys_are_the_documented_ones(runs: dict[str, gf.Run]) -> None:
    page = (ROOT / "docs" / "looking-inside.md").read_text(encoding="utf-8")
    table = page.split("## The JSON")[1]
    documented = set(re.findall(r"`([a-z_.]+)`", "".join(re.findall(r"^\| (`[^|]*) \|", table, re.M))))
    documented = {key.split(".")[0] for key in documented} - {"cross", "version"} | {"version"}
    keys = set(runs["language"].look("A line").report())
    assert keys == documented - {"image"}
    translator = runs["translate"]
    extra = set(translator.look("3 May 1987").report()) - keys
    assert extra == {
        "cross.attention",
        *(f"{p}{k}" for p in ("encoder.", "decoder.") for k in ("attention", "rollout", "value_weighted")),
    }


def test_a_text_that_is_too_long_is_refused(runs: dict[str, gf.Run]) -> None:
    with pytest.raises(UsageError, match="more than the model's context of 48"):
        runs["language"].look("line " * 200)


def test_maps_of_a_long_text_are_left_out_unless_asked_for(
    runs: dict[str, gf.Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("glassformer.inspection.report.MOST_MAPS", 10)
    run = runs["language"]
    look = run.look("A line")
    assert look.report()["omitted"] == ["attention", "value_weighted", "rollout"]
    assert "attention" not in look.report()
    assert "attention" in look.report(maps=True)


def test_generated_tokens_are_looked_at_too(runs: dict[str, gf.Run]) -> None:
    """The very ids that greedy generation chose, not those of their text cut anew."""
    run = runs["language"]
    look, prompt = run.look("A line", tokens=5), run.look("A line")
    ids = look.trace.inputs[0][0]
    assert len(ids) == prompt.trace.inputs[0].shape[1] + 5
    assert look.trace.logits[0, -6:-1].argmax(-1).tolist() == ids[-5:].tolist()


def test_options_that_mean_nothing_to_a_task_are_refused(runs: dict[str, gf.Run]) -> None:
    for name, options in (
        ("classify", {"tokens": 3}),
        ("language", {"target": "x"}),
        ("language", {"tokens": 99}),
    ):
        with pytest.raises(UsageError):
            runs[name].look("return a line", **options)


def test_a_model_that_is_broken_is_said_to_be(runs: dict[str, gf.Run]) -> None:
    run = gf.load(runs["language"].path)
    with torch.no_grad():
        run.language_model.stack.blocks[1].mlp.down.weight[0, 0] = float("nan")  # pyright: ignore
    with pytest.raises(UsageError, match=r"it begins at 1\.mlp_out"):
        run.look("A line").report()


def test_a_page_cannot_be_broken_by_its_text(runs: dict[str, gf.Run]) -> None:
    run = runs["language"]
    text = "__REPORT__</script>\x1b[31m"
    report = run.look(text).report()
    html = as_html(report)
    data = html.split('id="report">')[1].split("</script>")[0]
    assert json.loads(data)["text"] == text and html.count("glassformer/look") == 1
    assert "\x1b" not in as_text(report)


def test_a_given_translation_is_looked_at(runs: dict[str, gf.Run]) -> None:
    look = runs["translate"].look("3 May 1987", target="1987-05-03")
    assert "".join(look.tokens["decoder."][1:]).strip() == "1987-05-03"


def test_the_command(runs: dict[str, gf.Run], tmp_path: Path) -> None:
    path, runner = str(runs["language"].path), CliRunner()
    result = runner.invoke(app, ["look", path, "A new line.", "--html", str(tmp_path / "x.html")])
    assert result.exit_code == 0, result.output
    assert "Who adds what" in result.stdout and (tmp_path / "x.html").read_text().startswith(
        "<!doctype html>"
    )
    result = runner.invoke(app, ["look", path, "A new line.", "--json", "--plots", str(tmp_path / "plots")])
    assert json.loads(result.stdout)["text"] == "A new line."
    names = {p.name for p in (tmp_path / "plots").iterdir()}
    assert names == {
        f"{n}.{e}"
        for n in ("attention", "attribution", "gradient", "heads", "lens", "rollout", "stream")
        for e in ("svg", "png", "caption.txt")
    }
    result = runner.invoke(app, ["look", path, "A new line.", "--ablate", "1.0", "--position", "1"])
    assert "at position 1" in result.stdout
    result = runner.invoke(app, ["look", path, "-"], input="A new line.\n")
    assert result.exit_code == 0
    for wrong in (
        ["look", str(tmp_path / "nowhere"), "x"],
        ["look", path, "line " * 300],
        ["look", path, "x", "--ablate", "7"],
        ["look", path, "x", "--ablate", "9.0"],
    ):
        assert runner.invoke(app, wrong).exit_code in (1, 2)


def test_the_cost_command(tmp_path: Path) -> None:
    sizes = ["--longest", "512", "--widest", "256", "--device", "cpu"]
    result = CliRunner().invoke(app, ["bench", "cost", *sizes, "--plots", str(tmp_path), "--json"])
    costs = json.loads(result.stdout)
    assert {p["part"] for p in costs["points"]} == {
        "attention, by formula",
        "attention, fused",
        "feed-forward",
        "lstm",
    }
    memory = {(f["part"], f["over"]): f["memory"] for f in costs["fits"]}
    assert memory["attention, by formula", "T"] == pytest.approx(2, abs=0.2)
    assert memory["feed-forward", "T"] == pytest.approx(1, abs=0.2)
    assert (tmp_path / "cost.svg").is_file()
