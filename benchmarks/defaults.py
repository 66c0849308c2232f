"""Are the defaults right? Small sets of labels, tags and pairs: the default, a search by hand, the baselines.

    python benchmarks/defaults_data.py FOLDER            make the sets
    python benchmarks/defaults.py run FOLDER             `glassformer train SET`, nothing else said, for each
    python benchmarks/defaults.py search FOLDER          the same with other tokenizers, shapes and dropout
    python benchmarks/defaults.py show                   the table of what is kept in defaults.json

Each training has two cores to itself, as many side by side as the machine has (--at-once). The search chooses
by validation, and its test score is that of the chosen. A default is right when its test score is not below
the best baseline by more than its interval, and near the search's.

What is kept as `search` was tried on a GPU in bfloat16, over a wider grid than `search` trains here: each
label says tokenizer, model, dropout, and steps × batch.
"""

import argparse
import itertools
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from typing import Any

KEPT = Path(__file__).with_suffix(".json")
TOKENIZERS = {
    "char": ("char", 512),
    "bpe1k": ("bpe", 1000),
    "bpe2k": ("bpe", 2000),
    "bpe4k": ("bpe", 4000),
    "bpe8k": ("bpe", 8000),
    "word": ("word", 20000),
}
TWO = {"layers": 2, "width": 128, "heads": 4}
MODELS: dict[str, dict[str, Any]] = {
    "transformer": TWO,
    "transformer, shift": {**TWO, "shift": "layers"},
    "transformer 192, shift": {"layers": 2, "width": 192, "heads": 6, "shift": "layers"},
    "transformer 3 × 256": {"layers": 3, "width": 256, "heads": 8},
    "lstm": {"family": "lstm", "layers": 1, "width": 128, "pooling": "attention"},
    "lstm 2 × 192": {"family": "lstm", "layers": 2, "width": 192},
    "gru 256": {"family": "gru", "layers": 1, "heads": 1, "width": 256},
}
# By task: the tokenizers, the models, and the rest; passes over the examples.
GRIDS: dict[str, tuple[list[str], list[str], dict[str, dict[str, Any]], int]] = {
    "classify": (
        ["char", "bpe1k", "bpe2k", "bpe4k", "bpe8k", "word"],
        ["transformer", "transformer, shift", "lstm"],
        {
            "dropout 0.3": {"model.dropout": 0.3},
            "dropout 0.5, tokens 0.3": {"model.dropout": 0.5, "training.token_dropout": 0.3},
        },
        8,
    ),
    "tag": (
        ["char", "bpe1k", "bpe4k", "word"],
        ["transformer", "transformer, shift", "lstm", "lstm 2 × 192"],
        {"dropout 0.3": {"model.dropout": 0.3}},
        20,
    ),
    "translate": (
        ["bpe1k", "bpe2k", "bpe4k", "bpe8k"],
        ["transformer", "transformer, shift", "transformer 192, shift", "transformer 3 × 256", "gru 256"],
        {
            "dropout 0.1": {"model.dropout": 0.1, "training.label_smoothing": 0.1},
            "dropout 0.3, tokens 0.1": {
                "model.dropout": 0.3,
                "training.token_dropout": 0.1,
                "training.label_smoothing": 0.1,
            },
        },
        20,
    ),
}


def glassformer(arguments: list[str], cores: set[int]) -> dict[str, Any]:
    """One command with --json, on these cores and no GPU."""
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": str(len(cores))}
    done = subprocess.run(
        [sys.executable, "-m", "glassformer", *arguments, "--json"],
        capture_output=True,
        text=True,
        env=environment,
        preexec_fn=lambda: os.sched_setaffinity(0, cores),
    )
    if done.returncode:
        raise SystemExit(f"glassformer {' '.join(arguments)}\n{done.stderr}")
    return json.loads(done.stdout)


def measure(folder: Path, settings: dict[str, Any], cores: set[int]) -> dict[str, Any]:
    """A training on one set, and what it reaches on validation and test."""
    with tempfile.TemporaryDirectory() as scratch:
        run, given = f"{scratch}/run", [f"--set={k}={v}" for k, v in settings.items()]
        began = time.monotonic()
        result = glassformer(
            ["train", str(folder), "--task", folder.parent.name, "--out", run, *given], cores
        )
        seconds = time.monotonic() - began
        test = glassformer(["eval", run, "--split", "test"], cores)
        config = _config(Path(run))
    name = "bleu" if folder.parent.name == "translate" else "accuracy"
    return {
        "valid": result["valid"][name],
        "test": test[name],
        "n": test.get("n"),
        "interval": test.get("interval"),
        "baselines": test["floor"],
        "seconds": round(seconds, 1),
        "steps": result["steps"],
        "best_step": result["best_step"],
        "chosen": config,
    }


def _config(run: Path) -> dict[str, Any]:
    import yaml

    config = yaml.safe_load((run / "config.yaml").read_text(encoding="utf-8"))
    model, training, tokenizer = config["model"], config["training"], config["tokenizer"]
    return {
        "tokenizer": {k: tokenizer[k] for k in ("kind", "vocab")},
        "model": {k: model[k] for k in ("family", "layers", "width", "context", "dropout", "shift")},
        "training": {k: training[k] for k in ("batch", "steps", "token_dropout", "label_smoothing")},
    }


def variants(task: str, rows: int) -> Iterator[tuple[str, dict[str, Any]]]:
    tokenizers, models, rest, epochs = GRIDS[task]
    batch = min(32, max(8, rows // 20))
    steps = min(2000, max(300, epochs * rows // batch))
    for tokenizer, model, (kind, more) in itertools.product(tokenizers, models, rest.items()):
        name, vocab = TOKENIZERS[tokenizer]
        yield (
            f"{tokenizer}, {model}, {kind}",
            {
                "tokenizer.kind": name,
                "tokenizer.vocab": vocab,
                **{f"model.{k}": v for k, v in MODELS[model].items()},
                "training.steps": steps,
                "training.batch": batch,
                **more,
            },
        )


def each(work: list[tuple[Any, ...]], do: Callable[..., None], at_once: int) -> None:
    """Everything of a list, so many at once, each with two cores of its own."""
    free: SimpleQueue[set[int]] = SimpleQueue()
    available = sorted(os.sched_getaffinity(0))
    for i in range(at_once):
        free.put(set(available[2 * i : 2 * i + 2]) or set(available))

    def one(arguments: tuple[Any, ...]) -> None:
        cores = free.get()
        try:
            do(*arguments, cores)
        finally:
            free.put(cores)

    with ThreadPoolExecutor(at_once) as pool:
        list(pool.map(one, work))


def keep(task: str, name: str, part: str, value: Any) -> None:
    with LOCK:
        kept = json.loads(KEPT.read_text(encoding="utf-8")) if KEPT.exists() else {}
        kept.setdefault(f"{task}/{name}", {})[part] = value
        KEPT.write_text(
            json.dumps(kept, indent=1, ensure_ascii=False, sort_keys=True) + "\n", encoding="utf-8"
        )


LOCK = threading.Lock()


def sets(folder: Path, only: str) -> list[Path]:
    found = [path for task in GRIDS for path in sorted((folder / task).iterdir()) if only in str(path)]
    return sorted(found, key=lambda p: p.parent.name != "translate")  # the longest first


def rows_in(folder: Path) -> tuple[int, int]:
    file = next(folder.glob("train.*"))
    return sum(1 for _ in file.open(encoding="utf-8")), file.stat().st_size


def run_defaults(folder: Path, only: str, at_once: int) -> None:
    def one(path: Path, cores: set[int]) -> None:
        rows, size = rows_in(path)
        keep(path.parent.name, path.name, "rows", rows)
        keep(path.parent.name, path.name, "bytes", size)
        keep(path.parent.name, path.name, "default", measure(path, {}, cores))
        sys.stderr.write(f"{path.name} done\n")

    each([(path,) for path in sets(folder, only)], one, at_once)


def run_search(folder: Path, only: str, at_once: int) -> None:
    for path in sets(folder, only):
        work = [(path, *variant) for variant in variants(path.parent.name, rows_in(path)[0])]
        tried: dict[str, Any] = {}
        each([(tried, *arguments) for arguments in work], _try, at_once)
        keep(path.parent.name, path.name, "search", tried)


def _try(tried: dict[str, Any], path: Path, label: str, settings: dict[str, Any], cores: set[int]) -> None:
    found = measure(path, settings, cores)
    tried[label] = {"valid": found["valid"], "test": found["test"]}


def show() -> None:
    """The table of docs/data.md."""
    out = sys.stdout.write
    out("| set | examples | text | default | baseline | best of a search | tried | seconds |\n")
    out("|---|---|---|---|---|---|---|---|\n")
    for name, entry in sorted(json.loads(KEPT.read_text(encoding="utf-8")).items()):
        default = entry["default"]
        baseline, score = max(default["baselines"].items(), key=lambda item: item[1])
        percent = default["interval"] is not None

        def figure(value: float, percent: bool = percent) -> str:
            return f"{value:.1%}" if percent else f"{value:.1f}"

        mine = figure(default["test"])
        if percent:
            mine += f" ± {100 * (default['interval'][1] - default['interval'][0]) / 2:.1f}"
        search = entry.get("search", {})
        best = max(search, key=lambda label: search[label]["valid"], default="")
        found = f"{figure(search[best]['test'])} ({best})" if best else ""
        out(
            f"| {name} | {entry['rows']:,} | {entry['bytes'] / 1e6:.2f} MB | {mine} | "
            f"{figure(score)} ({baseline}) | {found} | {len(search)} | {default['seconds']:.0f} |\n"
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["run", "search", "show"])
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--only", default="", help="sets whose path has this in it")
    parser.add_argument("--at-once", type=int, default=max(1, (os.cpu_count() or 2) // 2))
    arguments = parser.parse_args()
    if arguments.what == "show":
        show()
    else:
        work = run_defaults if arguments.what == "run" else run_search
        work(arguments.folder, arguments.only, arguments.at_once)
