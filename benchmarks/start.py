"""Where the time goes before the first token, and before the first step.

    python benchmarks/start.py RUN [--device cuda] [--rounds 3]

Each row is a process of its own, timed from outside until it has ended; the least of the rounds counts, so
that what the system keeps of files is there. Then the modules whose import took longest, with what they need.
RUN is a language model; it writes on a GPU if there is one. Run it twice: the first time kernels and bytecode
may have to be made.
"""

import argparse
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

TRAIN = {"model.layers": 2, "model.heads": 4, "model.width": 128, "model.context": 64, "training.batch": 16}
IMPORT = re.compile(r"import time:\s+(\d+) \|\s+(\d+) \| +(\S+)")


def commands(run: str, device: str, folder: Path) -> dict[str, list[str]]:
    generate = ["-m", "glassformer", "generate", run, "The ", "--tokens", "1", "--greedy"]
    wishes = [word for key, value in TRAIN.items() for word in ("--set", f"{key}={value}")]
    train = ["-m", "glassformer", "train", "--set", "training.steps=1", "--set", f"training.device={device}"]
    return {
        "python": ["-c", "pass"],
        "import torch": ["-c", "import torch"],
        "… and a number on the device": ["-c", f"import torch; torch.zeros(1, device={device!r})"],
        "import glassformer.runs.train": ["-c", "import glassformer.runs.train"],
        "glassformer generate, one token": generate,
        "glassformer train, one step, evaluated": [*train, *wishes, "--out", str(folder / "run")],
    }


def seconds(command: list[str]) -> float:
    before = time.perf_counter()
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}\n{done.stderr}")
    return time.perf_counter() - before


def imports(command: list[str]) -> list[tuple[float, str]]:
    """Modules by the seconds that importing them took, with all that they import."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", *command], check=True, capture_output=True, text=True
    )
    found = [IMPORT.match(line) for line in done.stderr.splitlines()]
    return sorted(((int(m[2]) / 1e6, m[3]) for m in found if m), reverse=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("run")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        told = commands(arguments.run, arguments.device, Path(folder))
        for name, command in told.items():
            times = list[float]()
            for turn in range(arguments.rounds):
                own = [f"{word}-{turn}" if word.startswith(folder) else word for word in command]
                times.append(seconds(own))
            print(f"{name:40} {min(times):6.2f} s", flush=True)  # noqa: T201
        for spent, module in imports(told["glassformer generate, one token"])[:16]:
            print(f"  {spent:6.2f} s  import {module}")  # noqa: T201


if __name__ == "__main__":
    main()
