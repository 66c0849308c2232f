"""`glassformer generate`: forms, drafts, precisions, probabilities, and what it refuses."""

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

import glassformer as gf
from glassformer.cli.main import app

SMALL = {"model.layers": 1, "model.width": 16, "model.heads": 2, "model.context": 48, "training.steps": 8}


@pytest.fixture(scope="module")
def runs(text_file: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("generate")
    large = gf.train(str(text_file), out=folder / "large", settings={**SMALL, "model.layers": 2})
    file = {"tokenizer.file": str(large.path / "tokenizer.json")}
    gf.train(str(text_file), out=folder / "small", settings={**SMALL, **file})
    gf.train(str(text_file), out=folder / "bytes", settings={**SMALL, "tokenizer.kind": "byte"})
    return {name: str(folder / name) for name in ("large", "small", "bytes")}


def generate(run: str, *arguments: str) -> Result:
    return CliRunner().invoke(app, ["generate", run, *arguments])


def found(run: str, *arguments: str) -> dict:
    done = generate(run, *arguments, "--json")
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def test_forms_are_kept(runs: dict[str, str], tmp_path: Path) -> None:
    pattern = "item [0-9]{1,3}(, item [0-9])?"
    for text in found(runs["large"], "new ", "--regex", pattern, "--n", "3", "--seed", "1")["texts"]:
        assert re.fullmatch(pattern, text)
    schema = tmp_path / "schema.json"
    schema.write_text('{"type": "array", "items": {"enum": [1, 22]}, "minItems": 2, "maxItems": 3}')
    (text,) = found(runs["bytes"], "", "--json-schema", str(schema), "--seed", "2")["texts"]
    assert set(json.loads(text)) <= {1, 22} and len(json.loads(text)) in (2, 3)


def test_a_draft_changes_nothing_but_the_time(runs: dict[str, str]) -> None:
    options = ("item", "--tokens", "40", "--seed", "3", "--n", "2")
    alone = found(runs["large"], *options)["texts"]
    assert found(runs["large"], *options, "--draft", runs["small"])["texts"] == alone
    done = generate(runs["large"], "item", "--draft", runs["bytes"])
    assert done.exit_code == 2 and "tokenizers differ" in done.output
    assert gf.load(runs["large"]).generate("item", 40, seed=3, temperature=0.8, n=2) == alone


def test_how_likely_and_how_drawn(runs: dict[str, str]) -> None:
    options = ("item", "--tokens", "6", "--seed", "3", "--top-k", "5")
    told = found(runs["large"], *options, "--probs")
    (tokens,) = told["tokens"]
    assert len(tokens) == 6 and all(
        token["log_prob"] <= 0 and len(token["likeliest"]) == 3 for token in tokens
    )
    assert "".join(token["text"] for token in tokens) == told["texts"][0]
    drawn = found(runs["large"], *options, "--draws")["draws"]
    assert [row["id"] for row in drawn] == [token["id"] for token in tokens]
    assert all(row["left"] <= 5 and row["raw"] <= 1 and row["cut"] >= row["tempered"] for row in drawn)
    shown = generate(runs["large"], *options, "--draws").stdout
    assert "tempered" in shown and shown.count("%") == 18
    assert generate(runs["large"], *options, "--probs").stdout.count("%") == 24


def test_draws_are_those_of_the_text_also_with_a_form(runs: dict[str, str]) -> None:
    told = found(
        runs["bytes"], "item", "--draws", "--regex", "[0-9]{6}", "--seed", "1", "--frequency-penalty", "2"
    )
    assert "".join(row["text"] for row in told["draws"][:6]) == told["texts"][0]
    assert all(row["left"] <= 10 for row in told["draws"][:6])
    short = generate(runs["bytes"], "item", "--regex", "[0-9]{30}", "--tokens", "5", "--seed", "1")
    assert "before the form was complete" in short.stderr


def test_penalties_reach_the_text(runs: dict[str, str]) -> None:
    free = found(runs["bytes"], "item", "--greedy", "--tokens", "20")["texts"][0]
    once = found(runs["bytes"], "item", "--greedy", "--tokens", "20", "--presence-penalty", "100")["texts"][0]
    assert len(set(once)) > len(set(free))
    (bias,) = found(runs["bytes"], "item", "--tokens", "4", "--seed", "1", "--bias", "65=100")["texts"]
    assert bias == "AAAA"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--bias", "x=1"], "expected ID=VALUE"),
        (["--weights", "int4"], "expected f32"),
        (["--regex", "[a"], "cannot be used"),
        (["--regex", "a", "--json-schema", "no.json"], "cannot be read"),
        (["--probs", "--draws"], "choose one"),
        (["--draws", "--n", "2"], "one text"),
        (["--draft", "small", "--probs"], "leave it out"),
        (["--draft", "small", "--presence-penalty", "1"], "leave it out"),
        (["--bias", "9999=1"], "outside the vocabulary"),
        (["--presence-penalty", "1000"], "expected"),
        (["--beams", "2", "--regex", "a"], "beam search"),
        (["--beams", "2", "--draft", "large"], "beam search"),
        (["--draft", "nowhere"], "does not exist"),
    ],
)
def test_mistakes_are_told(runs: dict[str, str], arguments: list[str], message: str) -> None:
    done = generate(runs["large"], "item", *[runs.get(a, a) for a in arguments])
    assert done.exit_code in (1, 2) and message in done.output and "Traceback" not in done.output


def test_the_cost_of_fewer_bits_is_measured(runs: dict[str, str]) -> None:
    done = CliRunner().invoke(app, ["eval", runs["large"], "--weights", "int8", "--json"])
    told = json.loads(done.stdout)
    assert told["perplexity_cost"] == pytest.approx(
        told["int8"]["perplexity"] / told["f32"]["perplexity"] - 1
    )
    assert 0 < abs(told["perplexity_cost"]) < 0.05
    shown = CliRunner().invoke(app, ["eval", runs["large"], "--weights", "bf16"]).stdout
    assert "bf16 weights: perplexity" in shown
    wrong = CliRunner().invoke(app, ["eval", runs["large"], "--weights", "f64"])
    assert wrong.exit_code == 2 and "expected bf16 or int8" in wrong.output
