"""From a text file to a run, through the Python API."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from safetensors.torch import load_file
from tokenizers import Tokenizer as HFTokenizer
from typer.testing import CliRunner

import glassformer as gf
from glassformer.cli.main import app
from glassformer.core.errors import DataError, RunError, UsageError
from glassformer.runs.choose_tokenizer import choose_tokenizer

SMALL: dict[str, Any] = {
    "model.layers": 1,
    "model.width": 16,
    "model.heads": 2,
    "model.context": 16,
    "training.batch": 8,
    "training.steps": 60,
    "training.eval_every": 20,
    "training.sample_every": 30,
    "training.lr": 0.02,
}


@pytest.fixture(scope="module")
def run(text_file: Path, tmp_path_factory: pytest.TempPathFactory) -> gf.Run:
    return gf.train(str(text_file), out=tmp_path_factory.mktemp("runs") / "run", settings=SMALL)


def test_a_run_directory_is_complete_and_readable_by_standard_tools(run: gf.Run) -> None:
    config = yaml.safe_load((run.path / "config.yaml").read_text())
    assert config["format_version"] == 2
    assert config["model"]["layers"] == 1 and config["model"]["vocab"] == len(run.tokenizer)
    assert config["training"]["compile"] in ("on", "off")  # resolved
    weights = load_file(run.path / "model.safetensors")
    assert set(weights) == set(run.model.state_dict())
    peer = HFTokenizer.from_file(str(run.path / "tokenizer.json"))
    assert peer.encode("item 3 follows").ids == run.tokenizer.encode("item 3 follows")
    records = [json.loads(line) for line in (run.path / "metrics.jsonl").read_text().splitlines()]
    assert [r["step"] for r in records if r["split"] == "valid"] == [20, 40, 60]
    data = json.loads((run.path / "data.json").read_text())
    assert len(data["text_fingerprint"]) == 64
    result = json.loads((run.path / "result.json").read_text())
    assert result["steps"] == 60 and result["tokens"] == 60 * 8 * 16
    assert (run.path / "loss.svg").read_text().startswith("<?xml")
    assert (run.path / "loss.png").read_bytes().startswith(b"\x89PNG")


def test_it_has_learned_something(run: gf.Run) -> None:
    result = run.evaluate()
    assert result.loss < 2.0 < math.log(len(run.tokenizer))
    assert result.loss == json.loads((run.path / "result.json").read_text())["valid"]["loss"]
    assert run.evaluate("test").split == "test"
    assert run.evaluate(stride=4).loss < result.loss  # more context for each token


def test_other_text_is_measured_whole(run: gf.Run, tmp_path: Path) -> None:
    other = tmp_path / "other.txt"
    other.write_text("item 4 follows item 3, and then comes a new line.\n")
    result = run.evaluate(data=str(other))
    assert (result.split, result.bytes, result.tokens) == ("all", 50, 50)
    with pytest.raises(DataError):
        run.evaluate(data=str(tmp_path / "nothing.txt"))
    with pytest.raises(UsageError, match="stride 17: expected 1 to 16"):
        run.evaluate(stride=17)


def test_changed_weights_write_another_text(run: gf.Run) -> None:
    """What was read with the old ones is not taken for theirs."""
    mine, prompt = gf.load(run.path), "item 3 follows item 2, and then comes "
    before = mine.generate(prompt, 20, temperature=0)
    with torch.no_grad():
        mine.language_model.unembedding.weight.mul_(-1)
        for block in mine.language_model.stack.blocks:
            block.mlp.up.weight.mul_(-1)  # type: ignore[union-attr]
    after = mine.generate(prompt, 20, temperature=0)
    assert after != before and after == mine.generate(prompt, 20, temperature=0, cached=False)


def test_a_text_is_scored_begun_and_ended_at_the_context(run: gf.Run) -> None:
    scored = run.score("item 3", likeliest=2)
    assert scored[0].log_prob is None and all(len(token.likeliest) == 2 for token in scored[1:])
    assert "".join(run.tokenizer.decode([t.id], specials=False) for t in scored) == "item 3"
    texts: list = []
    for _ in run.stream(
        "item ", 30, sampler=gf.Sampler(seed=1), forced="99 is", slides=False, on_text=texts.extend
    ):
        pass
    assert texts[0].text.startswith("99 is") and texts[0].handle.ending == "full"
    with pytest.raises(UsageError, match="leave one of the two out"):
        run.generate("item", 5, cached=False, weights="f32")
    with pytest.raises(UsageError, match="no precision"):
        run.rounded("auto")


def test_it_talks(run: gf.Run) -> None:
    texts = run.generate("item 3 ", 40, n=3, seed=1, temperature=1.5)
    assert len(texts) == 3 and len(set(texts)) == 3
    assert texts == run.generate("item 3 ", 40, n=3, seed=1, temperature=1.5)
    greedy = run.generate("item 3 ", 40, temperature=0)[0]
    assert greedy == run.generate("item 3 ", 40, temperature=0, cached=False)[0]
    words = (
        greedy.replace(",", " ").replace(".", " ").split()[1:-1]
    )  # whole ones: the first and last may be cut
    known = {"item", "follows", "and", "then", "comes", "a", "new", "line"}
    assert words and sum(word in known or word.isdigit() for word in words) >= len(words) / 2, greedy
    stopped = run.generate("item 3 ", 40, temperature=0, stop=[greedy[5:8]])[0]
    assert greedy[5:8] not in stopped and greedy.startswith(stopped)
    assert run.generate(tokens=5)[0]  # from nothing
    sampler = gf.Sampler(seed=4)
    streamed = ["".join(part for (part,) in run.stream("item", 10, sampler=sampler)) for _ in range(2)]
    assert streamed == run.generate("item", 10, seed=4) * 2  # one sampler begins anew each time


def test_what_a_way_of_writing_ignores_is_refused(run: gf.Run) -> None:
    for option in ({"temperature": 0.7}, {"top_k": 3}, {"seed": 0}, {"stop": ["x"]}, {"cached": False}):
        with pytest.raises(UsageError, match=f"{next(iter(option))}: beam search"):
            run.generate("item", 4, beams=2, **option)
    with pytest.raises(UsageError, match="2 beams end in 2 texts"):
        run.generate("item", 4, beams=2, n=3)
    with pytest.raises(UsageError, match="length_penalty belongs to beam search"):
        run.generate("item", 4, length_penalty=0.5)
    with pytest.raises(UsageError, match="beams means nothing to the task language"):
        run.mistakes(beams=2)
    assert run.generate("item", 4, beams=2, length_penalty=0.5)
    for options in (
        ["--beams", "2", "--top-k", "3"],
        ["--beams", "2", "--greedy"],
        ["--greedy", "--seed", "1"],
    ):
        done = CliRunner().invoke(app, ["generate", str(run.path), "item", "--tokens", "4", *options])
        assert done.exit_code == 2 and "leave out" in done.output, options


def test_loading_gives_the_same_model(run: gf.Run) -> None:
    again = gf.load(run.path)
    ids = torch.randint(len(run.tokenizer), (1, 8))
    assert torch.equal(again.model(ids), run.model(ids))
    assert repr(again).startswith(f"Run({str(run.path)!r}, language, transformer, ")


def test_starting_from_another_run(run: gf.Run, text_file: Path, tmp_path: Path) -> None:
    settings = {"training.steps": 1, "training.lr": 1e-9, "training.muon_lr": 1e-9, "training.batch": 8}
    tuned = gf.train(str(text_file), out=tmp_path / "tuned", init=run.path, settings=settings)
    assert tuned.evaluate().loss == pytest.approx(run.evaluate().loss, abs=1e-4)
    assert tuned.tokenizer.to_json() == run.tokenizer.to_json()
    frozen = gf.train(
        str(text_file),
        out=tmp_path / "frozen",
        init=run.path,
        settings={**settings, "training.lr": 0.1, "training.steps": 3, "training.freeze": ["stack"]},
    )
    assert frozen.result["best_step"] == 0  # so high a rate only spoils what it began with, which is kept
    last = load_file(frozen.path / "checkpoints" / "step-00000003" / "model.safetensors")
    before, after = run.model.state_dict(), last
    assert [n for n in before if not torch.equal(before[n], after[n])] == ["unembedding.weight"]
    assert json.loads((frozen.path / "result.json").read_text())["frozen"] > 0


@pytest.mark.parametrize("kind", ["byte", "char", "word", "pairs", "bpe"])
def test_every_tokenizer_trains(text_file: Path, tmp_path: Path, kind: str) -> None:
    few = {**SMALL, "training.steps": 2, "tokenizer.kind": kind, "tokenizer.vocab": 300}
    made = gf.train(str(text_file), out=tmp_path / kind, settings=few)
    assert made.tokenizer.kind == kind
    assert made.evaluate().bytes == made.data["bytes"]["valid"]


def test_a_tokenizer_of_ones_own(text_file: Path, tmp_path: Path) -> None:
    gf.BPE.train([text_file.read_text()], 280).save(tmp_path / "mine.json")
    settings = {**SMALL, "training.steps": 2, "tokenizer.file": str(tmp_path / "mine.json")}
    made = gf.train(str(text_file), out=tmp_path / "run", settings=settings)
    assert len(made.tokenizer) == 280 and made.config.tokenizer.kind == "bpe"


def test_changed_text_is_refused(tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("a line of text that will change\n" * 100)
    made = gf.train(str(text), out=tmp_path / "run", settings={**SMALL, "training.steps": 2})
    text.write_text("another line of text, and longer\n" * 100)
    with pytest.raises(RunError, match=r"is not the one .* was begun with.*data=.*text\.txt"):
        made.evaluate()
    assert made.evaluate(data=str(text)).split == "all"
    with pytest.raises(RunError, match="is not the one"):
        gf.train(str(text), out=tmp_path / "run", resume=True)


def test_broken_run_directories_are_explained(run: gf.Run, tmp_path: Path) -> None:
    import shutil

    broken = tmp_path / "broken"
    shutil.copytree(run.path, broken)
    (broken / "model.safetensors").write_bytes(b"not safetensors")
    with pytest.raises(RunError, match="is not what was written"):
        _ = gf.load(broken).model
    (broken / "model.safetensors").unlink()
    with pytest.raises(RunError, match=r"no model\.safetensors yet"):
        _ = gf.load(broken).model
    text = (broken / "config.yaml").read_text()
    (broken / "config.yaml").write_text(text.replace("format_version: 2", "format_version: 99"))
    with pytest.raises(RunError, match="format_version 99"):
        gf.load(broken)
    (broken / "config.yaml").write_text("{{{ no yaml")
    with pytest.raises(UsageError, match="not valid YAML"):
        gf.load(broken)


def test_sizes_follow_the_text() -> None:
    cpu, gpu = torch.device("cpu"), torch.device("cuda")
    assert choose_tokenizer(80_000, 70, cpu)[0]["kind"] == "char"
    assert choose_tokenizer(80_000, 3000, cpu)[0] == {"kind": "bpe", "vocab": 512}
    vocabularies = [choose_tokenizer(10**n, 500, gpu)[0]["vocab"] for n in range(5, 12)]
    assert vocabularies == sorted(vocabularies) and vocabularies[-1] == 32768
    assert (
        choose_tokenizer(10**9, 500, cpu)[0]["vocab"]
        < choose_tokenizer(10**9, 500, cpu, minutes=120)[0]["vocab"]
    )


def test_automatic_sizes_say_what_and_why(text_file: Path, tmp_path: Path) -> None:
    from glassformer.training.display import Silent

    class Notes(Silent):
        def __init__(self) -> None:
            self.notes: list[str] = []

        def note(self, text: str) -> None:
            self.notes.append(text)

    display = Notes()
    made = gf.train(
        str(text_file), out=tmp_path / "run", settings={"training.minutes": 0.03}, display=display
    )
    assert [n.split(":")[0] for n in display.notes[:4]] == ["Data", "Warning", "Model", "Training"]
    assert "is in the training text too" in display.notes[1]  # which only repeats ten lines
    planned = int(display.notes[3].split()[1])  # on a busy machine it is held to its time, with fewer
    assert 0 < made.config.training.steps <= planned
    assert made.config.training.patience > 0


def test_a_link_that_leads_to_itself_is_said(
    tmp_path: Path, text_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text = tmp_path / "text.txt"
    text.write_text(text_file.read_text())
    gf.train(str(text), out=tmp_path / "run", settings={**SMALL, "training.steps": 2})
    text.unlink()
    text.symlink_to(text)
    with pytest.raises(UsageError, match="a link that leads to itself"):
        gf.train("text.txt", out=tmp_path / "run", resume=True)
    with pytest.raises(DataError, match="there is no file"):
        gf.load(tmp_path / "run").evaluate()
