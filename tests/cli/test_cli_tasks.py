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
    wrong = run_forked("translate", "c", "text", cwd=tmp_path)
    assert wrong.returncode == 2 and "learned the task classify" in wrong.stderr
    errors = run_forked("eval", "c", "--errors", cwd=tmp_path)
    assert "what is taken for what" in errors.stdout
    both = run_forked("compare", "c", "t", "--html", "c.html", cwd=tmp_path)
    assert both.returncode == 0 and "floor: majority" in both.stdout, both.stderr
    assert (tmp_path / "c.html").is_file()
    nothing = run_forked("classify", "c", cwd=tmp_path, input="")
    assert nothing.returncode == 2 and "nothing to read" in nothing.stderr
