"""Trainings of the same model by one process and by several: what they read, and what comes out.

python -m tests.faults.agree FOLDER [all]     prints a JSON object; `all`: every kind of model and optimizer
"""

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from glassformer.training.log import read_metrics
from glassformer.training.loop import Trainer
from tests.faults.ranks import SMALL, train, write_text

LAYOUTS = {"one": (1, "ddp"), "ddp": (2, "ddp"), "fsdp": (2, "fsdp"), "fsdp of 4": (4, "fsdp")}
OTHERS = {  # what else is trained by one and by two
    "muon": {"training.optimizer": "muon", "training.weight_decay": 0.1},
    "sgd": {"training.optimizer": "sgd"},
    "frozen": {"training.freeze": ["stack.embedding"]},
    "tied": {"model.tied": True, "training.accumulate": 1},
    "grown": {"training.batch_growth": {4: 16}},
    "lstm": {"model.family": "lstm"},
    "window": {"model.family": "window"},
    "masked": {"task": "masked"},
}


def losses(out: Path) -> list[float]:
    return [line["loss"] for line in read_metrics(out / "metrics.jsonl") if line["split"] == "train"]


def furthest(a: list[float], b: list[float]) -> float:
    return max(abs(x - y) for x, y in zip(a, b, strict=True))


def watch_samples(folder: Path) -> None:
    """Have every process write down which samples it reads, step by step."""
    plain = Trainer.run

    def run(self: Trainer) -> Any:
        make, read, step = self.reader.make, self.objective.batch, [0]

        def make_step(number: int) -> Any:
            step[0] = number
            return make(number)

        def batch(first: int, count: int) -> Any:
            with (folder / f"samples-{os.getpid()}").open("a") as file:
                file.write("".join(f"{step[0]}:{n} " for n in range(first, first + count)))
            return read(first, count)

        self.reader.make, self.objective.batch = make_step, batch  # type: ignore[method-assign]
        return plain(self)

    Trainer.run = run  # type: ignore[method-assign]


def samples(folder: Path, steps: int, batch: int) -> bool:
    """Whether the samples of every step were read in it, each by one process; and forget them."""
    read: list[str] = []
    for path in folder.glob("samples-*"):
        read += path.read_text().split()
        path.unlink()
    return sorted(read) == sorted(f"{n // batch}:{n}" for n in range(steps * batch))


def cut_back(run: Path, to: Path) -> Path:
    """A copy of a run that was stopped at its first checkpoint."""
    shutil.copytree(run, to)
    _, *later = sorted((to / "checkpoints").glob("step-*"))
    for path in (*later, to / "result.json", to / "model.safetensors"):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    return to


def same(a: Path, b: Path) -> bool:
    x, y = load_file(a / "model.safetensors"), load_file(b / "model.safetensors")
    return x.keys() == y.keys() and all(torch.equal(x[k], y[k]) for k in x)


def main() -> None:
    folder = Path(sys.argv[1])
    text = write_text(folder)
    watch_samples(folder)
    base = {**SMALL, "training.checkpoint_every": 6, "training.keep": 9, "training.eval_every": 12}
    report: dict[str, Any] = {"samples": {}, "losses": {}, "resumed": {}, "identical": {}, "others": {}}
    for name, (size, parallel) in LAYOUTS.items():
        out = folder / name.replace(" ", "-")
        assert train(text, out, {**base, "training.parallel": parallel}, size) == [0] * size, name
        report["samples"][name] = samples(folder, 12, 8)
        report["losses"][name] = furthest(losses(out), losses(folder / "one"))
    for source, size, parallel in (
        ("fsdp", 1, "ddp"),
        ("fsdp", 2, "fsdp"),
        ("fsdp", 4, "fsdp"),
        ("ddp", 1, "ddp"),
        ("ddp", 4, "ddp"),
        ("one", 2, "fsdp"),
        ("fsdp", 2, "ddp"),
    ):
        out = cut_back(folder / source, folder / f"{source}-then-{size}-{parallel}")
        assert train(text, out, {**base, "training.parallel": parallel}, size) == [0] * size, out.name
        report["resumed"][out.name] = furthest(losses(out), losses(folder / source))
        if size == 2 and parallel == source:
            report["identical"][out.name] = same(out, folder / source)
    for name in OTHERS if "all" in sys.argv else ("muon", "lstm"):
        changes = OTHERS[name]
        settings = {**base, **changes}
        curves = {}
        sharded = "ddp" if "model.family" in changes else "fsdp"
        for size, parallel in ((1, "ddp"), (2, sharded)):
            out = folder / f"{name}-{size}"
            assert train(text, out, {**settings, "training.parallel": parallel}, size) == [0] * size, out.name
            curves[size] = losses(out)
        out = cut_back(folder / f"{name}-2", folder / f"{name}-again")
        assert train(text, out, {**settings, "training.parallel": "ddp"}, 1) == [0], out.name
        report["others"][name] = furthest(curves[1], curves[2])
        report["resumed"][name] = furthest(losses(out), curves[2])
    sys.stdout.write(json.dumps(report) + "\n")


if __name__ == "__main__":
    main()
