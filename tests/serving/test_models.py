"""Several runs at once: loaded on demand, within a budget, reloaded under way; known by names alone."""

import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import quote

import httpx
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file

import glassformer as gf
from glassformer.core.errors import RunError, UsageError
from glassformer.serving.catalog import find_runs
from glassformer.serving.limits import LIMITS
from glassformer.serving.memory import text_bytes, weight_bytes
from glassformer.training.checkpoint.run_seal import save_run_weights
from tests.serving.conftest import Local, local, started


@pytest.fixture
def copies(runs: Path, tmp_path: Path) -> list[Path]:
    """Three runs of one size."""
    paths = [tmp_path / name for name in ("one", "two", "three")]
    for path in paths:
        shutil.copytree(runs / "items", path)
    return paths


def ask(server: Local, name: str, tokens: int = 2) -> str:
    body = {"model": name, "prompt": "item", "max_tokens": tokens, "seed": 1}
    return server.post("/v1/completions", **body)["choices"][0]["text"]  # type: ignore[index]


def size(path: Path, texts: int) -> int:
    return weight_bytes(path) + texts * text_bytes(gf.load(path).config)


def test_runs_are_loaded_when_asked_for_and_the_oldest_idle_one_goes(copies: list[Path]) -> None:
    limits = LIMITS.with_changes(["streams=4"])
    with local(*copies, limits=limits, budget=2 * size(copies[0], 4)) as server:
        assert server.models.loaded == {}
        ask(server, "one")
        ask(server, "two")
        assert set(server.models.loaded) == {"one", "two"}
        ask(server, "one")
        ask(server, "three")
        assert set(server.models.loaded) == {"one", "three"}
        assert server.client.get("/v1/models/two").json()["loaded"] is False


def test_a_run_with_streams_is_never_unloaded(copies: list[Path]) -> None:
    limits = LIMITS.with_changes(["streams=4"])
    with (
        local(*copies, limits=limits, budget=size(copies[0], 4)) as server,
        ThreadPoolExecutor(1) as pool,
    ):
        expected = ask(server, "one", 800)
        running = pool.submit(ask, server, "one", 800)
        while server.models.loaded["one"].users == 0:
            time.sleep(0.005)
        answer = server.client.post("/v1/completions", json={"model": "two", "prompt": "item"})
        assert answer.status_code == 503 and "retry-after" in answer.headers
        assert running.result() == expected
        ask(server, "two")
        assert set(server.models.loaded) == {"two"}


def test_a_run_that_cannot_fit_says_what_to_do(copies: list[Path]) -> None:
    with local(copies[0], budget=1000) as server:
        answer = server.client.post("/v1/completions", json={"model": "one", "prompt": "item"})
        assert answer.status_code == 503 and "--memory" in answer.json()["error"]["message"]


def change_weights(path: Path) -> None:
    weights = load_file(path / "model.safetensors")
    noise = torch.Generator().manual_seed(0)
    save_run_weights({n: w + 0.5 * torch.randn(w.shape, generator=noise) for n, w in weights.items()}, path)


@pytest.mark.parametrize("by_request", [True, False])
def test_a_reload_drops_nobody(copies: list[Path], by_request: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A text that is under way ends on the weights it began with; the next one has the new ones."""
    monkeypatch.setattr("glassformer.serving.models.LOOK_AGAIN", 0.0)
    path = copies[0]
    with local(path) as server, ThreadPoolExecutor(1) as pool:
        before, short = ask(server, "one", 800), ask(server, "one", 30)
        old = server.models.loaded["one"]
        running = pool.submit(ask, server, "one", 800)
        while old.users == 0:
            time.sleep(0.005)
        change_weights(path)
        expected = gf.load(path, device="cpu").generate("item", 30, seed=1)[0]
        if by_request:
            assert server.client.post("/v1/models/one/reload").status_code == 200
        else:
            ask(server, "one", 1)  # notices, and is answered by the old ones
            while server.models.loaded["one"] is old:
                time.sleep(0.01)
        assert not running.done() and old.retired and old.users == 1
        assert ask(server, "one", 30) == expected != short
        assert running.result() == before
        assert server.models._retired == []
        old.jobs.join(5)


def test_weights_that_are_damaged_are_not_taken(copies: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("glassformer.serving.models.LOOK_AGAIN", 0.0)
    path = copies[0]
    with local(path) as server:
        before = ask(server, "one", 20)
        data = bytearray((path / "model.safetensors").read_bytes())
        data[-5] ^= 1
        (path / "model.safetensors").write_bytes(data)
        answer = server.client.post("/v1/models/one/reload")
        assert answer.status_code == 503
        message = answer.json()["error"]["message"]
        assert "not what was written" in message and str(path.parent) not in message
        assert ask(server, "one", 20) == before
        ask(server, "one")
        assert sum("the old ones are served on" in line for line in server.log) == 1


def test_names_are_looked_up_and_never_opened(here: Local, runs: Path) -> None:
    """No name of a model leads to a path, on any route that takes one."""
    names = ["", "../items", "runs/items", str(runs / "items"), "items/", "items/../items", "..", ".", "~"]
    names += ["items\x00", "%2e%2e%2fitems", "file:///etc/passwd", "http://127.0.0.1/", "\\\\host\\share"]
    for name in names:
        body = {"model": name, "prompt": "x", "text": "x"}
        for path in ("/v1/completions", "/v1/tokenize", "/v1/look"):
            fitting = {k: v for k, v in body.items() if k != ("text" if "comp" in path else "prompt")}
            answer = here.client.post(path, json=fitting)
            assert answer.status_code == 404, (path, name, answer.text)
        written = quote(name, safe="")
        for path in (f"/v1/models/{written}", f"/v1/runs/{written}", f"/v1/runs/{written}/metrics"):
            if name.strip("."):  # which a client makes a path of before it asks
                answer = here.client.get(path, follow_redirects=False)
                assert answer.status_code in (404, 307), (path, answer.text)


def test_a_text_is_never_taken_for_a_path(
    here: Local, runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commands look whether a text is the name of an image; a request must not find out."""
    Image.new("RGB", (8, 8)).save(tmp_path / "p.png")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="is an image"):
        gf.load(runs / "items").look("p.png")
    for path, model in (("/v1/classify", "labels"), ("/v1/look", "items"), ("/v1/embeddings", "items")):
        given = {"input" if "embed" in path else "text": "p.png"}
        assert here.client.post(path, json={"model": model, **given}).status_code == 200


def test_names_of_runs(runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder in ("a", "b"):
        shutil.copytree(runs / "items", tmp_path / "runs" / folder / "items")
    assert set(find_runs([str(tmp_path / "runs" / "a" / "items")])) == {"items"}
    assert set(find_runs([str(tmp_path / "runs" / f / "items") for f in "ab"])) == {"a-items", "b-items"}
    shutil.copytree(runs / "labels", tmp_path / "runs" / "labels")
    monkeypatch.chdir(tmp_path)
    assert set(find_runs([])) == {"a-items", "b-items", "labels"}  # sweeps are folders of runs
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    with pytest.raises(RunError, match="Name one: glassformer serve RUN"):
        find_runs([])
    with pytest.raises(RunError, match="does not exist"):
        find_runs(["nowhere"])
    shutil.copytree(runs / "labels", tmp_path / "c" / "a" / "items")
    with pytest.raises(UsageError, match="would both be served as 'a-items'"):
        find_runs([str(tmp_path / "runs/a/items"), str(tmp_path / "c/a/items")])


@pytest.mark.long
def test_the_fast_step_takes_over_when_it_is_compiled(runs: Path, tmp_path: Path) -> None:
    """Texts are written at once by the open pass, and by the compiled one from then on; nobody is dropped."""
    body = {"model": "items", "prompt": "item 3", "max_tokens": 40, "seed": 3, "logprobs": 0}
    with started(str(runs / "items"), "--weights", "auto", GLASSFORMER_CACHE=str(tmp_path)) as server:

        def ask() -> tuple[str, list[float]]:
            answer = httpx.post(f"{server.url}/v1/completions", json=body, timeout=60)
            choice = answer.raise_for_status().json()["choices"][0]
            return choice["text"], choice["logprobs"]["token_logprobs"]

        text, log_probs = ask()
        deadline = time.monotonic() + 200
        while time.monotonic() < deadline:
            again, others = ask()
            assert again == text and others == pytest.approx(log_probs, abs=1e-4)
            loads = httpx.get(f"{server.url}/metrics").text
            if 'glassformer_loads_total{model="items"} 2.0' in loads:
                break
        else:
            pytest.fail("it was not loaded again")
        again, others = ask()
        assert again == text and others == pytest.approx(log_probs, abs=1e-4)
        code, said = server.stop()
        assert code == 143 and "once for this machine" in said and "Traceback" not in said
