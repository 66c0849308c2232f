"""Many streams and slow clients for a while: no error, no growth, and the slow ones slow nobody.

Short here; ten minutes by `make test-serve` (GLASSFORMER_SOAK_SECONDS).
"""

import asyncio
import os
import sys
from pathlib import Path

import pytest

import glassformer as gf
from tests.serving.conftest import SMALL, started
from tests.serving.load import Load, resident, under_load

SECONDS = float(os.environ.get("GLASSFORMER_SOAK_SECONDS", "5"))
LONG = SECONDS >= 60
STREAMS, SLOW = (64, 16) if LONG else (16, 4)
GROWTH, TIMES = 0.02, 2.0  # what may grow, and how much longer a gap may be


@pytest.fixture(scope="module")
def run(runs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose context takes the texts of the test."""
    out = tmp_path_factory.mktemp("soak") / "items"
    more = {"model.context": 256, "training.steps": 5, "tokenizer.kind": "byte"}
    gf.train(runs.parent / "items.txt", out=out, settings={**SMALL, **more})
    return out


def report(name: str, load: Load) -> str:
    gaps = f"p50 {1e3 * load.percentile(0.5):.1f} ms, p99 {1e3 * load.percentile(0.99):.1f} ms"
    return f"{name}: {load.texts} texts, {load.tokens} tokens, {len(load.errors)} errors, {gaps}"


def test_streams_and_slow_clients_together(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    body = {"model": "items", "prompt": "item 3", "max_tokens": 100, "temperature": 0.8}
    with started(str(run), "--weights", "auto" if LONG else "open") as server:

        def load(streams: int, slow: int, seconds: float) -> tuple[Load, Load]:
            return asyncio.run(under_load(server.port, body, streams, slow, seconds))

        alone = idle = Load()
        load(STREAMS, SLOW, SECONDS / 4)  # so that everything that is made once has been made
        if LONG:
            alone, _ = load(1, 0, SECONDS / 20)
            idle, _ = load(STREAMS, 0, SECONDS / 10)
        before = resident(server.pid)
        quick, slowly = load(STREAMS, SLOW, SECONDS)
        after = resident(server.pid)
        code, said = server.stop()
    grown = after / before - 1
    with capsys.disabled():
        if LONG:
            lines = [report("one stream alone", alone), report(f"{STREAMS} streams", idle)]
            lines += [
                report(f"{STREAMS} streams beside {SLOW} slow clients", quick),
                report("the slow", slowly),
            ]
            lines.append(f"memory {before} kB, then {after} kB: {grown:+.2%}")
            sys.stderr.write("\n" + "\n".join(lines) + "\n")
    assert code == 143 and "Traceback" not in said, said
    assert quick.errors == [] and slowly.errors == [] and alone.errors == []
    assert quick.texts > STREAMS / 2 and slowly.tokens > 0
    if LONG:  # seconds on a machine that others use too say little
        assert grown <= GROWTH
        assert quick.percentile(0.99) <= TIMES * idle.percentile(0.99)
    else:
        assert grown <= 0.10
