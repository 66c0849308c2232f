"""Labels and translations from the command line."""

import json
from pathlib import Path

from tests.cli.test_cli import FAST
from tests.forked import run_forked


def test_tasks_from_the_command_line(tmp_path: Path) -> None:
    rows = [f"{w} film {i}\t{label}" for i in range(60) for w, label in (("good", "1"), ("bad", "0"))]
    (tmp_path / "reviews.tsv").write_text("\n".join(rows))
    (tmp_path / "a.en").write_text("\n".join(f"number {i}" for i in range(100)))
    (tmp_path / "a.de").write_text("\n".join(f"nummer {i}" for i in range(100)))
    small = [*FAST[:-4], "--set", "training.batch=8", "--set", "training.steps=20", "--json"]
    made = run_forked("train", "reviews.tsv", "--task", "classify", "--out", "c", *small, cwd=tmp_path)
    assert made.returncode == 0, made.stderr
    assert {"accuracy", "n", "interval"} <= set(json.loads(made.stdout)["valid"])
    made = run_forked("train", "a.en", "--target", "a.de", "--out", "t", *small, cwd=tmp_path)
    assert made.returncode == 0, made.stderr
    assert {"bleu", "signature", "exact_match"} <= set(json.loads(made.stdout)["valid"])

    found = run_forked("classify", "c", "good film 3", "--json", cwd=tmp_path)
    assert set(json.loads(found.stdout)["texts"][0]["probabilities"]) == {"0", "1"}
    lines = run_forked("translate", "t", "--beams", "2", cwd=tmp_path, input="number 1\nnumber 2\n")
    assert lines.returncode == 0 and len(lines.stdout.splitlines()) == 2
    drawn = [run_forked("translate", "t", "number 3", "--seed", "5", "--json", cwd=tmp_path) for _ in "ab"]
    assert drawn[0].stdout == drawn[1].stdout and json.loads(drawn[0].stdout)["seed"] == 5
    both = run_forked("translate", "t", "number 3", "--top-k", "5", "--beams", "2", cwd=tmp_path)
    assert both.returncode == 2 and "--top-k: beam search" in both.stderr
    wrong = run_forked("translate", "c", "text", cwd=tmp_path)
    assert wrong.returncode == 2 and "learned the task classify" in wrong.stderr
    errors = run_forked("eval", "c", "--errors", cwd=tmp_path)
    assert "what is taken for what" in errors.stdout
    both = run_forked("compare", "c", "t", "--html", "c.html", cwd=tmp_path)
    assert both.returncode == 0 and "baseline: majority" in both.stdout, both.stderr
    assert (tmp_path / "c.html").is_file()
    nothing = run_forked("classify", "c", cwd=tmp_path, input="")
    assert nothing.returncode == 2 and "nothing to read" in nothing.stderr


def test_line_n_of_the_output_answers_line_n_of_the_input(tmp_path: Path) -> None:
    """Blank lines stay in their places, Windows line ends are no text, characters never seen are named."""
    rows = [f"{label},{w} film {i}" for i in range(60) for w, label in (("good", "1"), ("bad", "0"))]
    (tmp_path / "reviews.csv").write_text("\n".join(rows))  # the label in front, no header, no --task
    small = [*FAST[:-4], "--set", "training.batch=8", "--set", "training.steps=2"]
    made = run_forked("train", "reviews.csv", "--out", "c", *small, cwd=tmp_path)
    assert made.returncode == 0, made.stderr
    assert "taken for texts with labels" in made.stderr and "the label from column 1" in made.stderr
    given = "good film\r\n\r\nbad film é\r\n"
    said = run_forked("classify", "c", cwd=tmp_path, input=given)
    assert [bool(line) for line in said.stdout.split("\n")[:-1]] == [True, False, True]
    assert said.stderr.count("has é: ") == 1
    answer = json.loads(run_forked("classify", "c", "--json", cwd=tmp_path, input=given).stdout)
    assert [text["text"] for text in answer["texts"]] == ["good film", "", "bad film é"]
    assert answer["texts"][1] == {"text": "", "label": None, "probabilities": {}}
    assert answer["unseen"] == ["é"]
    look = run_forked("look", "c", "a film €", cwd=tmp_path)
    assert look.returncode == 0 and "no training text of c has €: " in look.stderr
    named = ["--text-column", "2", "--label-column", "1", "--out", "n"]
    again = run_forked("train", "reviews.csv", *named, *small, cwd=tmp_path)
    assert again.returncode == 0 and "taken" not in again.stderr, again.stderr


def test_prompts_and_blanks_name_what_was_never_seen(tmp_path: Path, text_file: Path) -> None:
    small = [*FAST, "--set", "training.steps=2"]
    for task in ("language", "masked"):
        made = run_forked("train", str(text_file), "--task", task, "--out", task, *small, cwd=tmp_path)
        assert made.returncode == 0, made.stderr
    written = run_forked("generate", "language", "item 日", "--tokens", "2", "--json", cwd=tmp_path)
    assert json.loads(written.stdout)["unseen"] == ["日"] and "has 日: " in written.stderr
    assert not run_forked("generate", "language", "item\r\n", "--tokens", "2", cwd=tmp_path).stderr
    filled = run_forked("fill", "masked", "--json", cwd=tmp_path, input="item ___\n\n___ Q\n")
    answer = json.loads(filled.stdout)
    assert [len(text["blanks"]) for text in answer["texts"]] == [1, 0, 1]
    assert answer["unseen"] == ["Q"]
