"""Tiny runs of every task, made once, and servers for them: in this process, and as one of its own."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from starlette.testclient import TestClient

import glassformer as gf
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
    """A folder with a run of each kind."""
    folder = tmp_path_factory.mktemp("served")
    text = folder / "items.txt"
    lines = [f"item {i % 10} follows item {(i - 1) % 10}, so schön ist das.\n" for i in range(400)]
    text.write_text("".join(lines), encoding="utf-8")
    (folder / "r.tsv").write_text(
        "\n".join(f"a {w} film {i}\t{v}" for i in range(40) for w, v in (("good", "yes"), ("bad", "no")))
    )
    for side, words in (("en", "number {} is here"), ("de", "die nummer {} ist hier")):
        (folder / f"p.{side}").write_text("\n".join(words.format(i % 40) for i in range(200)))
    bpe = {"tokenizer.kind": "bpe", "tokenizer.vocab": 290, "model.context": 64}
    place = folder / "runs"
    gf.train(text, out=place / "items", settings={**SMALL, **bpe})
    gf.train(text, out=place / "recurrent", settings={**SMALL, "model.family": "gru", "training.steps": 5})
    gf.train(text, task="masked", out=place / "masked", settings={**SMALL, **bpe, "training.steps": 5})
    few = {**SMALL, "training.steps": 5}
    gf.train(folder / "r.tsv", task="classify", out=place / "labels", settings=few)
    gf.train(folder / "p.en", target=folder / "p.de", out=place / "pairs", settings=few)
    return place


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
    models = Models(find_runs(map(str, paths)), limits, counts, budget, log.append)
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

    process: subprocess.Popen[str]
    port: int
    first: str  # what it said first

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def stop(self, number: int = signal.SIGTERM) -> tuple[int, str]:
        """Its exit code, and what else it said."""
        self.process.send_signal(number)
        _, said = self.process.communicate(timeout=20)
        return self.process.returncode, said


@contextmanager
def started(*arguments: str, cwd: Path | None = None, **environment: str) -> Iterator[Process]:
    """`glassformer serve ARGUMENTS`, at a port that is free."""
    process = subprocess.Popen(
        [sys.executable, "-m", "glassformer", "serve", "--port", "0", *arguments],
        cwd=cwd,
        env={**os.environ, "OMP_WAIT_POLICY": "PASSIVE", **environment},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stderr is not None
        first = process.stderr.readline()
        found = re.search(r"http://[^ ]*:(\d+)", first)
        assert found, first + process.stderr.read()
        yield Process(process, int(found[1]), first)
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()


@pytest.fixture(scope="session")
def server(runs: Path) -> Iterator[Process]:
    with started(str(runs)) as process:
        yield process
        code, said = process.stop()
        assert code == 143 and "Traceback" not in said, said
