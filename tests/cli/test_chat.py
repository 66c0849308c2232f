"""`glassformer chat`, `tokenizer merges`, and the seed that repeats a generation."""

import json
import os
import pty
import time
from pathlib import Path

import pytest

import glassformer as gf
from glassformer.generation.sampling import Sampler
from tests.forked import run_forked

SMALL = {"model.layers": 1, "model.width": 16, "model.context": 16, "training.batch": 4, "training.steps": 4}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, gf.Run]:
    folder = tmp_path_factory.mktemp("chat")
    text = folder / "my.txt"
    text.write_text("".join(f"item {i % 10} and item {i % 7}.\n" for i in range(400)))
    table = folder / "labels.tsv"
    table.write_text("".join(f"item {i}\t{'even' if i % 2 == 0 else 'odd'}\n" for i in range(200)))
    pairs = folder / "pairs.tsv"
    pairs.write_text("".join(f"item {i}\titem {i + 1}\n" for i in range(200)))
    sources = {"language": text, "masked": text, "classify": table, "translate": pairs}
    return {
        task: gf.train(source, task=task, out=folder / task, settings=SMALL)
        for task, source in sources.items()
    }


def talk(run: gf.Run, *lines: str) -> tuple[str, str]:
    done = run_forked("chat", str(run.path), input="\n".join(lines) + "\n")
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr


def test_a_language_model_goes_on_from_what_was_typed(runs: dict[str, gf.Run]) -> None:
    out, _ = talk(runs["language"], "/temperature 0", "/tokens 6", "item", "", "/quit", "not read")
    expected = runs["language"].generate("item", 6, temperature=0)[0]
    more = runs["language"].generate("item" + expected, 6, temperature=0)[0]
    assert out == f"item{expected}\n{more}\n"


def test_probabilities_are_shown_on_request(runs: dict[str, gf.Run]) -> None:
    out, err = talk(runs["language"], "/tokens 1", "/probs", "item", "/probs", "item")
    shown = [line for line in out.splitlines() if "%" in line]
    assert len(shown) == 1 and shown[0].count("%") == 4  # the token that was drawn, and the three likeliest
    assert "Probabilities are shown." in err and "Probabilities are not shown." in err
    out, _ = talk(runs["masked"], "a ___ b", "/probs", "a ___ b")
    assert out.count("blank 1") == 1
    out, _ = talk(runs["translate"], "item 3", "/probs", "item 3")
    assert len(out.splitlines()) > 2
    out, _ = talk(runs["classify"], "item 3")
    assert "even" in out and "odd" in out


def test_a_seed_repeats_an_answer_and_mistakes_are_told(runs: dict[str, gf.Run]) -> None:
    out, err = talk(runs["language"], "/seed 7", "/tokens 20", "item", "item", "/seed none", "item", "/seed")
    expected = "item" + runs["language"].generate("item", 20, temperature=0.8, seed=7)[0] + "\n"
    assert out.startswith(expected * 2)
    assert "seed is not set; the last answer's was " in err
    _, err = talk(
        runs["language"], "/temprature 3", "/temperature hot", "/temperature -1", "/tokens 0", "/help"
    )
    assert "Did you mean 'temperature'?" in err and "/temperature hot: expected a number" in err
    assert "temperature -1.0: expected 0" in err and "/tokens 0: expected at least 1" in err
    assert "/probs  " in err


def test_on_a_terminal_it_asks_keeps_its_history_and_ends_with_ctrl_d(
    runs: dict[str, gf.Run], tmp_path: Path
) -> None:
    child, screen = pty.fork()
    if child == 0:
        import sys

        os.environ["GLASSFORMER_CACHE"] = str(tmp_path)
        sys.stdin, sys.stdout, sys.stderr = (os.fdopen(n, m) for n, m in ((0, "r"), (1, "w"), (2, "w")))
        sys.argv = ["glassformer", "chat", str(runs["language"].path), "--tokens", "3"]
        from glassformer.cli.main import main

        try:
            main()
        finally:
            sys.stdout.flush()
            os._exit(0)
    written, sent = b"", 0
    end = time.monotonic() + 30
    while time.monotonic() < end:
        try:
            written += os.read(screen, 1 << 16)
        except OSError:
            break
        if sent < 2 and written.rstrip().endswith(b">"):
            os.write(screen, (b"item\n", b"\x04")[sent])
            sent, written = sent + 1, written + b" "
    os.waitpid(child, 0)
    assert sent == 2 and b"Ctrl-D ends" in written
    assert (tmp_path / "chat-history").read_text().split()[-1] == "item"


def test_generate_says_the_seed_that_repeats_it(runs: dict[str, gf.Run]) -> None:
    path = str(runs["language"].path)
    first = json.loads(run_forked("generate", path, "item", "--json", "--n", "2").stdout)
    again = run_forked("generate", path, "item", "--json", "--n", "2", "--seed", str(first["seed"])).stdout
    assert json.loads(again) == first and first["seed"] is not None
    assert json.loads(run_forked("generate", path, "item", "--json", "--greedy").stdout)["seed"] is None
    run = runs["language"]
    (one,) = gf.generate(run.language_model, run.tokenizer, "item", 20)
    (two,) = gf.generate(run.language_model, run.tokenizer, "item", 20, sampler=Sampler(seed=one.seed))
    assert one == two and one.seed is not None


def test_the_merges_of_a_tokenizer_in_the_order_learned(tmp_path: Path) -> None:
    tokenizer = gf.BPE.train(["ab ab ab ab abc abc äö äö äö"], 262)
    tokenizer.save(tmp_path / "t.json")
    done = run_forked("tokenizer", "merges", "t.json", "--json", cwd=tmp_path)
    listed = json.loads(done.stdout)
    assert listed["total"] == len(tokenizer.merges) == len(listed["merges"])
    assert [tuple(merge["ids"]) for merge in listed["merges"]] == tokenizer.merges
    assert listed["merges"][0] | {"number": 1} == listed["merges"][0]
    for merge in listed["merges"]:
        assert tokenizer.token_bytes(merge["id"]) == b"".join(map(tokenizer.token_bytes, merge["ids"]))
    done = run_forked("tokenizer", "merges", "t.json", "--first", "2", cwd=tmp_path)
    assert len(done.stdout.splitlines()) == 3 and "more; --first" in done.stderr
    gf.Byte().save(tmp_path / "bytes.json")
    assert run_forked("tokenizer", "merges", "bytes.json", cwd=tmp_path).returncode == 2
