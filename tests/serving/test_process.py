"""The server as a process: where it listens, how it ends, what a kill leaves, and two of them at once."""

import hashlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import openai
import pytest

import glassformer as gf
from tests.forked import run_forked
from tests.serving.conftest import started

ROOT = Path(__file__).parents[2]
TOKEN = "a-token-of-16-ch"


def hashes(folder: Path) -> dict[str, str]:
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return {str(p.relative_to(folder)): hashlib.sha256(p.read_bytes()).hexdigest() for p in files}


def test_it_says_where_it_listens_and_ends_in_order(runs: Path, tmp_path: Path) -> None:
    """Ctrl-C while a stream is under way: the stream is told, and the exit code says which signal it was."""
    before = hashes(runs)
    long = 100_000  # tokens, more than any machine writes while texts may still end by themselves
    with started(str(runs / "items"), "--limit", f"tokens={long}", GLASSFORMER_TOKEN=TOKEN) as server:
        assert server.first.startswith("Serving one run at http://127.0.0.1:") and "items" in server.first
        client = openai.OpenAI(base_url=f"{server.url}/v1", api_key=TOKEN, max_retries=0)
        secret = "xyzzy-of-the-user"
        client.completions.create(model="items", prompt=secret, max_tokens=1)
        endless = {str(gf.load(runs / "items").tokenizer.eot_id): -100}  # else texts may end by themselves
        stream = client.completions.create(
            model="items", prompt=secret, max_tokens=long, n=8, logit_bias=endless, stream=True
        )
        next(iter(stream))
        began = time.monotonic()
        server.send(signal.SIGINT)
        time.sleep(0.5)
        with pytest.raises((httpx.ConnectError, httpx.HTTPStatusError)):  # nobody new is let in
            httpx.get(f"{server.url}/health").raise_for_status()
        with pytest.raises(openai.APIError, match="stopping"):
            for _ in stream:
                pass
        code, said = server.wait()
        assert code == 130 and time.monotonic() - began < 20
        assert "Traceback" not in said and secret not in said and TOKEN not in said
    assert hashes(runs) == before


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["nowhere"], 1, "nowhere does not exist"),
        (["RUN", "--host", "0.0.0.0"], 2, "there has to be a token"),
        (["RUN", "--token", "short"], 2, "at least 8"),
        (["RUN", "--limit", "tokns=3"], 2, "Did you mean 'tokens'?"),
        (["RUN", "--memory", "-1"], 2, "expected gigabytes"),
        (["RUN", "--port", "99999"], 2, "--port"),
        ([], 1, "there is no run under ./runs"),
        (["RUN", "--port", "BUSY"], 1, "--port 0 takes any that is free"),
        (["RUN", "--host", "no.such.host.invalid", "--token", TOKEN], 1, "cannot listen at"),
    ],
)
def test_what_cannot_be_served_is_told(
    arguments: list[str], code: int, words: str, runs: Path, tmp_path: Path
) -> None:
    with socket.socket() as busy:
        busy.bind(("127.0.0.1", 0))
        busy.listen()
        named = {"RUN": str(runs / "items"), "BUSY": str(busy.getsockname()[1])}
        done = run_forked("serve", *(named.get(a, a) for a in arguments), cwd=tmp_path)
    assert done.returncode == code and words in done.stderr, done.stderr


def test_a_kill_leaves_every_run_whole(runs: Path, tmp_path: Path) -> None:
    """kill -9 while runs are read, written with and looked into."""
    shutil.copytree(runs, tmp_path / "runs")
    before = hashes(tmp_path / "runs")
    with started(cwd=tmp_path) as server:

        def ask(i: int) -> None:
            path, body = (
                ("/v1/completions", {"model": "items", "prompt": "item", "max_tokens": 4000}),
                ("/v1/look", {"model": "masked", "text": "item ___ follows"}),
                ("/v1/models/items/reload", None),
            )[i % 3]
            with httpx.Client(base_url=server.url, timeout=30) as client, pytest.raises(httpx.HTTPError):
                while True:
                    client.post(path, json=body)

        with ThreadPoolExecutor(6) as pool:
            asked = [pool.submit(ask, i) for i in range(6)]
            time.sleep(1.5)
            server.send(signal.SIGKILL)
            for each in asked:
                each.result()
        assert server.wait()[0] == -signal.SIGKILL
    assert hashes(tmp_path / "runs") == before
    for path in sorted((tmp_path / "runs").iterdir()):
        assert gf.load(path, device="cpu").model is not None


def test_two_processes_behind_a_balancer_need_no_shared_state(runs: Path) -> None:
    """Requests that go to either in turn are answered alike: all a text depends on is in its request."""
    with started(str(runs / "items")) as one, started(str(runs / "items")) as other:
        with ThreadPoolExecutor(8) as pool:

            def ask(i: int, seed: int) -> str:
                url = (one, other)[i % 2].url
                body = {"model": "items", "prompt": f"item {seed}", "max_tokens": 30, "seed": seed, "n": 2}
                answer = httpx.post(f"{url}/v1/completions", json=body, timeout=60)
                answer.raise_for_status()
                told = answer.json()
                return json.dumps([told["choices"], told["system_fingerprint"]])

            first = list(pool.map(ask, range(12), range(12)))
            second = list(pool.map(ask, range(1, 13), range(12)))  # each by the other one
        assert first == second and len(set(first)) > 6
        cursor = httpx.get(f"{one.url}/v1/runs/items/metrics", params={"limit": 3}).json()["next"]
        rest = [
            httpx.get(f"{s.url}/v1/runs/items/metrics", params={"after": cursor}).json() for s in (one, other)
        ]
        assert rest[0] == rest[1] and not rest[0]["reset"]
        other.send(signal.SIGKILL)  # one of them goes; the other knows nothing of it
        assert ask(0, 3) == first[3]


def shell_blocks(page: Path) -> list[str]:
    return re.findall(r"^```sh\n(.*?)^```", page.read_text(encoding="utf-8"), re.M | re.S)


@pytest.mark.parametrize("page", ["README.md", "docs/serving.md"])
def test_the_lines_of_the_docs_do_what_they_say(page: str, runs: Path, tmp_path: Path) -> None:
    """`glassformer serve … &` and the curls behind it, exactly as they are written."""
    blocks = [
        block for block in shell_blocks(ROOT / page) if "glassformer serve" in block and "curl" in block
    ]
    assert blocks
    shutil.copytree(runs, tmp_path / "runs")
    shutil.copytree(runs / "items", tmp_path / "runs" / "mine")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    (tmp_path / "bin").mkdir()
    command = tmp_path / "bin" / "glassformer"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m glassformer "$@" --port {port} --weights open\n')
    command.chmod(0o755)
    environment = {
        **os.environ,
        "PATH": f"{command.parent}:{os.environ['PATH']}",
        "OMP_WAIT_POLICY": "PASSIVE",
    }
    for block in blocks:
        lines = block.replace("\\\n", " ").splitlines()
        serves = [line for line in lines if line.startswith("glassformer serve")]
        asks = [line for line in lines if line.startswith("curl")]
        assert len(serves) == 1 and serves[0].split("#")[0].strip().endswith("&") and asks
        script = [f"cd {tmp_path}", serves[0].split("#")[0], "server=$!"]
        script += [f"until curl -sf http://127.0.0.1:{port}/health > waiting; do sleep 0.1; done"]
        for i, line in enumerate(asks):
            script.append(f"{line.replace('8000', str(port))} > answer{i} && echo >> answer{i}")
        script += ["kill -TERM $server", "wait $server", "echo ended $?"]
        done = subprocess.run(
            ["sh", "-c", "\n".join(script)], env=environment, capture_output=True, text=True, timeout=120
        )
        assert "ended 143" in done.stdout, done.stdout + done.stderr
        for i, line in enumerate(asks):
            answer = (tmp_path / f"answer{i}").read_bytes()
            assert answer and not answer.startswith(b'{"error"'), (line, answer, done.stderr)
