"""How long a user waits: for a command's first words on a terminal, in its longest silence, for an error.

    python benchmarks/first_words.py [--repeats 5]        (a quiet machine; half a minute)

Trains a small run first. The median of each is printed, and written to first_words.json.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.cli.test_silence import silences  # the same clock as the test that keeps it

KEPT = Path(__file__).with_suffix(".json")
SMALL = ["--set", "model.layers=2", "--set", "model.width=64", "--set", "training.steps=60"]
COMMANDS = {
    "train": ["train", "my.txt", "--out", "new", *SMALL],
    "eval": ["eval", "run"],
    "generate": ["generate", "run", "A line", "--tokens", "40"],
    "look": ["look", "run", "A line of my own"],
    "compare": ["compare", "run", "run"],
}
MISTAKES = {
    "a missing file": ["train", "nowhere.txt"],
    "a missing run": ["eval", "nowhere"],
    "a wrong setting": ["train", "my.txt", "--set", "model.layer=3"],
    "a wrong flag": ["train", "my.txt", "--epochs", "3"],
}


def answered(arguments: list[str], folder: Path) -> float:
    began = time.monotonic()
    command = [sys.executable, "-m", "glassformer", *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, check=False)
    assert done.returncode, arguments
    return time.monotonic() - began


def measure(repeats: int) -> dict[str, dict[str, float]]:
    figures: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        (folder / "my.txt").write_text("".join(f"Line {i} says {i * i % 97}.\n" for i in range(4000)))
        for name in ("run", "run"):  # the first fills caches
            subprocess.run(["rm", "-rf", str(folder / name)], check=True)
            command = [sys.executable, "-m", "glassformer", "train", "my.txt", "--out", name, *SMALL]
            subprocess.run(command, cwd=folder, check=True, capture_output=True)
        for name, arguments in COMMANDS.items():
            times = []
            for _ in range(repeats):
                subprocess.run(["rm", "-rf", str(folder / "new")], check=True)
                times.append(silences(*arguments, cwd=folder)[:2])
            first, silence = (statistics.median(column) for column in zip(*times, strict=True))
            figures[name] = {"first words": round(first, 2), "longest silence": round(silence, 2)}
        for name, arguments in MISTAKES.items():
            times = [answered(arguments, folder) for _ in range(repeats)]
            figures[name] = {"answered": round(statistics.median(times), 2)}
    return figures


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=5)
    figures = measure(parser.parse_args().repeats)
    for name, row in figures.items():
        shown = ", ".join(f"{what} {seconds:.2f} s" for what, seconds in row.items())
        sys.stdout.write(f"{name:16} {shown}\n")
    KEPT.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
