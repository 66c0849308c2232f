"""Tiny runs of every task, made once, and servers for them: in this process, and as one of its own."""

import multiprocessing
import os
import re
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from starlette.testclient import TestClient

import glassformer as gf
from glassformer.cli.main import main
from glassformer.serving.address import Names
from glassformer.serving.app import make_app
from glassformer.serving.catalog import find_runs
from glassformer.serving.counts import Counts
from glassformer.serving.guard import Guard
from glassformer.serving.limits import LIMITS, Limits
from glassformer.serving.models import Models

SMALL = {
    "model.layers": 2,
    "model.width": 32,
    "model.heads": 2,
    "training.batch": 8,
    "training.steps": 40,
    "training.eval_every": 40,
    "training.compile": "off",
    "training.device": "cpu",
}


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run of each kind; of several processes that test, one makes it."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "served"
    try:
        folder.mkdir()
    except FileExistsError:
        while not (folder / "done").exists():
            time.sleep(0.1)
    else:
        make_runs(folder)
        (folder / "done").touch()
    return folder / "runs"


def make_runs(folder: Path) -> None:
    text = folder / "items.txt"
    lines = [f"item {i % 10} follows item {(i - 1) % 10}, so schön ist das.\n" for i in range(400)]
    text.write_text("".join(lines), encoding="utf-8")
    (folder / "r.tsv").write_text(
        "\n".join(f"a {w} film {i}\t{v}" for i in range(40) for w, v in (("good", "yes"), ("bad", "no")))
    )
    for side, words in (("en", "number {} is here"), ("de", "die nummer {} ist hier")):
        (folder / f"p.{side}").write_text("\n".join(words.format(i % 40) for i in range(200)))
    bpe = {"tokenizer.kind": "bpe", "tokenizer.vocab": 290, "model.context": 64}
    place, few = folder / "runs", {**SMALL, "training.steps": 5}
    gf.train(text, out=place / "items", settings={**SMALL, **bpe})
    gf.train(text, out=place / "recurrent", settings={**few, "model.family": "gru"})
    gf.train(text, task="masked", out=place / "masked", settings={**few, **bpe})
    gf.train(folder / "r.tsv", task="classify", out=place / "labels", settings=few)
    gf.train(folder / "p.en", target=folder / "p.de", out=place / "pairs", settings=few)


@dataclass
class Local:
    """A server inside this process."""

    client: TestClient
    guard: Guard
    models: Models
    log: list[str]  # what its own log says: faults

    def post(self, path: str, **body: object) -> object:
        answer = self.client.post(path, json=body)
        assert answer.status_code == 200, answer.text
        return answer.json()


@contextmanager
def local(
    *paths: Path, limits: Limits = LIMITS, budget: int | None = None, token: str | None = None
) -> Iterator[Local]:
    counts, log = Counts(), list[str]()
    models = Models(find_runs(map(str, paths)), limits, counts, budget, log.append, weights="open")
    guard = make_app(models, Names.of("127.0.0.1"), limits, counts, token, log.append)
    with TestClient(guard, base_url="http://localhost") as client:
        yield Local(client, guard, models, log)


@pytest.fixture(scope="session")
def here(runs: Path) -> Iterator[Local]:
    with local(runs) as server:
        yield server
        assert server.log == []


@dataclass
class Process:
    """A server in a process of its own."""

    process: ForkServerProcess
    port: int
    first: str  # what it said first
    said: Path  # where all of it is

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self.process.pid is not None
        return self.process.pid

    def send(self, number: int) -> None:
        os.kill(self.pid, number)

    def wait(self) -> tuple[int | None, str]:
        """Its exit code (as `subprocess` has it), and all that it said."""
        self.process.join(30)
        return self.process.exitcode, self.said.read_text(encoding="utf-8")

    def stop(self, number: int = signal.SIGTERM) -> tuple[int | None, str]:
        self.send(number)
        return self.wait()


# One process has imported everything that is heavy, and a server is a fork of it: seconds saved each time.
FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["glassformer.serving.server", "glassformer.cli.main"])
os.environ["OMP_WAIT_POLICY"] = "PASSIVE"


def serve_here(arguments: list[str], cwd: str, environment: dict[str, str], said: str) -> None:
    """`glassformer serve ARGUMENTS` in this process, which is new."""
    os.environ.update(environment)
    os.chdir(cwd)
    with Path(said).open("w", encoding="utf-8", buffering=1) as file, Path(os.devnull).open("w") as nowhere:
        os.dup2(file.fileno(), 2)
        sys.stdout, sys.stderr = nowhere, file
        sys.argv = ["glassformer", "serve", *arguments]
        main()


@contextmanager
def started(*arguments: str, cwd: Path | None = None, **environment: str) -> Iterator[Process]:
    """`glassformer serve ARGUMENTS`, at a port that is free; nothing is compiled unless it is asked for."""
    if "--weights" not in arguments:
        arguments = (*arguments, "--weights", "open")
    cache = {"GLASSFORMER_CACHE": os.environ["GLASSFORMER_CACHE"]}
    with TemporaryDirectory() as folder:
        said = Path(folder) / "said"
        asked = (["--port", "0", *arguments], str(cwd or "."), {**cache, **environment}, str(said))
        process = FORKS.Process(target=serve_here, args=asked, daemon=True)
        process.start()
        try:
            while process.is_alive() and not (said.is_file() and "\n" in said.read_text(encoding="utf-8")):
                time.sleep(0.02)
            first = said.read_text(encoding="utf-8").partition("\n")[0]
            found = re.search(r"http://[^ ]*:(\d+)", first)
            assert found, said.read_text(encoding="utf-8")
            yield Process(process, int(found[1]), first, said)
        finally:
            process.kill()
            process.join()


@pytest.fixture(scope="session")
def server(runs: Path) -> Iterator[Process]:
    with started(str(runs)) as process:
        yield process
        code, said = process.stop()
        assert code == 143 and "Traceback" not in said, said
