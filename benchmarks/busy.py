"""What training keeps of its speed on a machine that does something else too.

    python benchmarks/busy.py                          as glassformer sets it
    python benchmarks/busy.py --wait spin,sleep,7000   and beside other ways of waiting (GOMP_SPINCOUNT)

Trains the demo's recipe alone, beside one and two busy loops, and beside a second training, for some seconds
each, in turns, and prints tokens a second and the share of the first way alone. Run it on a quiet machine.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from statistics import median

LOOP = "while True: pass"
CASES = {"alone": (1, 0), "beside a busy loop": (1, 1), "beside two": (1, 2), "two trainings": (2, 0)}
WAYS = {"ours": {}, "spin": {"OMP_WAIT_POLICY": "ACTIVE"}, "sleep": {"OMP_WAIT_POLICY": "PASSIVE"}}
WAYS["system"] = {"GOMP_SPINCOUNT": "300000"}  # what libgomp does when nothing is said
TOKENS = 8 * 128


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--wait", default="ours", help="ours, system, spin, sleep, or a number of turns")
    parser.add_argument("--seconds", type=float, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cases", type=int, default=len(CASES), help="only so many, from the first")
    parser.add_argument("--json", help="keep the figures in this file")
    options = parser.parse_args()
    ways, cases = options.wait.split(","), dict(list(CASES.items())[: options.cases])
    figures: dict[str, dict[str, list[float]]] = {way: {case: [] for case in cases} for way in ways}
    for _ in range(options.rounds):
        for case, (trainings, loops) in cases.items():
            for way in ways:
                environment = WAYS.get(way) or ({} if way == "ours" else {"GOMP_SPINCOUNT": way})
                figures[way][case] += measure(trainings, loops, environment, options.seconds)
    first = median(figures[ways[0]]["alone"])
    print(f"{'':12}" + "".join(f"{case:>24}" for case in cases))  # noqa: T201
    for way in ways:
        cells = [(median(figures[way][case]), figures[way][case]) for case in cases]
        print(f"{way:12}" + "".join(f"{f'{value:,.0f} ({value / first:.2f})':>24}" for value, _ in cells))  # noqa: T201
    if options.json:
        Path(options.json).write_text(json.dumps({"tokens_per_second": figures}, indent=1) + "\n")


def measure(trainings: int, loops: int, environment: dict[str, str], seconds: float) -> list[float]:
    """Tokens a second of each training, counted while all of them run."""
    inherited = {k: v for k, v in os.environ.items() if k not in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        runs = [folder / str(i) for i in range(trainings)]
        for run in runs:
            stack.callback(stop, start(train_command(run), {**inherited, **environment}))
        while any(steps(run) < 20 for run in runs):
            time.sleep(0.2)
        for _ in range(loops):
            stack.callback(stop, start([sys.executable, "-c", LOOP], inherited))
        time.sleep(1)
        before, began = [steps(run) for run in runs], time.perf_counter()
        time.sleep(seconds)
        passed = time.perf_counter() - began
        return [(steps(run) - done) * TOKENS / passed for run, done in zip(runs, before, strict=True)]


def train_command(run: Path) -> list[str]:
    every = [f"training.{name}_every=2000" for name in ("eval", "checkpoint", "sample")]
    settings = [word for key in ["training.steps=2000", *every] for word in ("--set", key)]
    return [sys.executable, "-m", "glassformer", "train", "--recipe", "pydocs", "--out", str(run), *settings]


def start(command: list[str], environment: dict[str, str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )


def stop(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()


def steps(run: Path) -> int:
    log = run / "metrics.jsonl"
    return log.read_bytes().count(b"\n") if log.is_file() else 0


if __name__ == "__main__":
    main()
