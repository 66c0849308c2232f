"""Several processes that train one model, as forks of one that has loaded everything.

python -m tests.faults.ranks FOLDER KILLS     kills either rank so many times; prints a JSON object
"""

import json
import os
import random
import signal
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib.pyplot  # noqa: F401 - this and the next three so that the forks need not
import torch
import torch.distributed.checkpoint
import torch.distributed.fsdp
import torch.distributed.tensor

import glassformer as gf
import glassformer.runs.train
from glassformer.core.errors import GlassformerError
from glassformer.training.parallel import world
from tests.faults.kill import SETTINGS, result

SMALL = {**SETTINGS, "model.dropout": 0.0, "training.optimizer": "adamw", "training.batch": 8}
SMALL |= {"training.steps": 12}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def start(size: int, work: Callable[[int], None], log: Path) -> list[int]:
    """Fork `size` ranks, which have met; what they write to standard error goes to files `log`-<rank>."""
    port, children = free_port(), []
    reader, writer = os.pipe()
    join = world._join
    for rank in range(size):
        child = os.fork()
        if child == 0:
            code = 70
            try:
                os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(size))
                os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
                output = os.open(f"{log}-{rank}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
                os.dup2(output, 2)
                torch.set_num_threads(1)
                os.close(reader)
                world._join = lambda: (join(), os.write(writer, b"."))[0]
                work(rank)
                code = 0
            except GlassformerError as error:
                os.write(2, f"Error: {error}".encode())
                code = error.exit_code
            except SystemExit as error:
                code = error.code if isinstance(error.code, int) else 1
            except BaseException as error:
                os.write(2, repr(error).encode())
            finally:
                os._exit(code)
        children.append(child)
    os.close(writer)
    for _ in range(size):  # a rank that is killed before is its launcher's to miss
        os.read(reader, 1)
    os.close(reader)
    return children


def wait(children: list[int], seconds: float = 60.0) -> list[int]:
    """How each ended: the exit code, or minus the signal. Those that do not end are killed."""
    codes: dict[int, int] = {}
    began = time.monotonic()
    while len(codes) < len(children):
        for child in children:
            if child in codes:
                continue
            done, status = os.waitpid(child, os.WNOHANG)
            if done:
                codes[child] = os.waitstatus_to_exitcode(status)
            elif time.monotonic() - began > seconds:
                os.kill(child, signal.SIGKILL)
        time.sleep(0.01)
    return [codes[child] for child in children]


def train(text: Path, out: Path, settings: dict[str, Any], size: int, log: Path | None = None) -> list[int]:
    def work(rank: int) -> None:
        gf.train(text, out=out, settings=settings, resume=True)

    return wait(start(size, work, log or out.with_suffix(".log")), 120)


def write_text(folder: Path) -> Path:
    text = folder / "text.txt"
    text.write_text("".join(f"line {i % 17} of the text, and {i % 5} more words.\n" for i in range(300)))
    return text


def main() -> None:
    folder, kills = Path(sys.argv[1]), int(sys.argv[2])
    chance, text = random.Random(0), write_text(folder)
    report: dict[str, Any] = {
        "killed": 0,
        "named": 0,
        "finished": 0,
        "identical": 0,
        "slowest to end, s": 0.0,
    }
    began = time.perf_counter()
    for parallel in ("ddp", "fsdp"):
        settings = {**SETTINGS, "training.parallel": parallel, "training.batch": 4, "training.steps": 30}
        at = time.perf_counter()
        assert train(text, folder / f"whole-{parallel}", settings, 2) == [0, 0]
        whole, length = result(folder / f"whole-{parallel}"), time.perf_counter() - at
        number, done = 0, 0
        while done < kills // 2:
            out, codes = folder / f"{parallel}{number}", [-1, -1]
            number += 1
            while codes != [0, 0]:

                def work(rank: int, out: Path = out, settings: dict[str, Any] = settings) -> None:
                    gf.train(text, out=out, settings=settings, resume=True)

                output = folder / "log"
                children = start(2, work, output)
                victim = chance.randrange(2)
                if done < kills // 2:
                    time.sleep(chance.uniform(0.0, length))
                    os.kill(children[victim], signal.SIGKILL)
                at = time.perf_counter()
                codes = wait(children)
                if codes[victim] == -signal.SIGKILL:
                    done += 1
                    report["killed"] += 1
                    report["slowest to end, s"] = max(report["slowest to end, s"], time.perf_counter() - at)
                    other = Path(f"{output}-{1 - victim}").read_text()
                    # The other may have been through already, or not have met the victim yet.
                    report["named"] += f"rank {victim}" in other.lower() or codes[1 - victim] == 0
                    if codes[1 - victim] < 0:
                        raise SystemExit(f"rank {1 - victim} had to be killed; it said: {other}")
                elif codes != [0, 0]:
                    raise SystemExit(f"ended with {codes}: {Path(f'{output}-0').read_text()}")
            report["finished"] += 1
            tensors = result(out)
            same = tensors.keys() == whole.keys() and all(torch.equal(tensors[k], whole[k]) for k in whole)
            report["identical"] += same
    report["slowest to end, s"] = round(report["slowest to end, s"], 1)
    report["seconds"] = round(time.perf_counter() - began)
    sys.stdout.write(json.dumps(report) + "\n")


if __name__ == "__main__":
    main()
