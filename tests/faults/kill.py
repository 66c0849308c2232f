"""Kill a training again and again, at any moment and in the middle of saves, and see what resuming gives.

python -m tests.faults.kill FOLDER KILLS TERMS     prints a JSON object; `make test-faults` has 200 and 50

This process only imports; every training is a fork of it, so that a life costs no loading of torch.
"""

import json
import os
import random
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

import glassformer as gf
from glassformer.core.errors import Interrupted
from glassformer.training import loop

SETTINGS = {
    "tokenizer.kind": "char",
    "model.layers": 1,
    "model.heads": 2,
    "model.width": 16,
    "model.context": 16,
    "model.dropout": 0.1,
    "training.steps": 150,
    "training.batch": 2,
    "training.accumulate": 2,
    "training.checkpoint_every": 4,
    "training.eval_every": 50,
    "training.compile": "off",
    "training.device": "cpu",
}


def train(text: Path, out: Path, tell: int | None) -> int:
    """In a fork: begin or go on, telling the parent when a save begins. Gives the exit code."""
    torch.set_num_threads(1)
    plain = loop.save_checkpoint

    def telling(*args: Any, **kwargs: Any) -> Any:
        if tell is not None:
            os.write(tell, b"s")
        return plain(*args, **kwargs)

    loop.save_checkpoint = telling
    try:
        gf.train(text, out=out, settings=SETTINGS, resume=True)
    except Interrupted as stopped:
        return stopped.exit_code
    return 0


def life(work: Callable[[int], int], end: Callable[[int, int], None]) -> int:
    """Fork, let the parent end it, and give how it ended: the exit code, or minus the signal."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        code = 70
        try:
            os.close(reader)
            sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115
            code = work(writer)
        finally:
            os._exit(code)
    os.close(writer)
    end(child, reader)
    _, status = os.waitpid(child, 0)
    os.close(reader)
    return os.waitstatus_to_exitcode(status)


def report(text: str) -> None:
    """What a long test has found, past what pytest and its workers keep to themselves."""
    (sys.__stderr__ or sys.stderr).write(text)


def result(out: Path) -> dict[str, torch.Tensor]:
    """All that a run ends in: its best weights, its last ones, and its optimizers."""
    last = json.loads((out / "checkpoints" / "latest.json").read_text())["checkpoint"]
    files = {"best": out / "model.safetensors"}
    files |= {path.stem: path for path in (out / "checkpoints" / last).glob("*.safetensors")}
    return {f"{name}.{key}": t for name, path in files.items() for key, t in load_file(path).items()}


def after(seconds: float, number: int, took: list[float]) -> Callable[[int, int], None]:
    """End it so much later; `took` gets the seconds until it was gone."""

    def end(child: int, reader: int) -> None:
        time.sleep(seconds)
        began = time.perf_counter()
        os.kill(child, number)
        while os.read(reader, 1):  # nothing more comes when its end is closed
            pass
        took.append(time.perf_counter() - began)

    return end


def in_a_save(which: int, later: float) -> Callable[[int, int], None]:
    def end(child: int, reader: int) -> None:
        for _ in range(which):
            if not os.read(reader, 1):
                return  # it ended before
        time.sleep(later)
        os.kill(child, signal.SIGKILL)

    return end


def main() -> None:
    folder, kills, terms = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    chance = random.Random(0)
    text = folder / "text.txt"
    text.write_text("".join(f"line {i % 17} of the text, and {i % 5} more words.\n" for i in range(300)))
    began = time.perf_counter()
    assert life(lambda _: train(text, folder / "whole", None), lambda *_: None) == 0
    whole, length = result(folder / "whole"), time.perf_counter() - began
    counts = {
        "killed": 0,
        "killed in a save": 0,
        "terminated": 0,
        "resumed": 0,
        "finished": 0,
        "identical": 0,
    }
    number, took = 0, [0.0]
    while counts["killed"] < kills or counts["terminated"] < terms:
        out, code = folder / f"run{number}", -1
        number += 1
        while code != 0:
            saving = counts["killed"] % 2 == 0
            stop = signal.SIGTERM if counts["killed"] >= kills else signal.SIGKILL
            if counts["killed"] >= kills and counts["terminated"] >= terms:
                end = lambda *_: None  # noqa: E731
            elif stop == signal.SIGTERM or not saving:
                end = after(chance.uniform(0.0, 0.7 * length), stop, took if stop == signal.SIGTERM else [])
            else:
                end = in_a_save(chance.randint(1, 8), chance.uniform(0.0, 0.02))
            counts["resumed"] += out.exists()
            code = life(lambda tell, out=out: train(text, out, tell), end)
            if code == -signal.SIGKILL:
                counts["killed"] += 1
                counts["killed in a save"] += saving
            elif code in (143, -signal.SIGTERM):
                counts["terminated"] += 1
            elif code != 0:
                raise SystemExit(f"a training ended with {code}")
        counts["finished"] += 1
        tensors = result(out)
        counts["identical"] += tensors.keys() == whole.keys() and all(
            torch.equal(tensors[k], whole[k]) for k in whole
        )
    counts["slowest to stop, ms"] = round(1000 * max(took))
    counts["seconds"] = round(time.perf_counter() - began)
    sys.stdout.write(json.dumps(counts) + "\n")


if __name__ == "__main__":
    main()
