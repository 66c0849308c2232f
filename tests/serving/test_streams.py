"""Texts side by side: each is its own, a fault in one is nobody else's, and a full queue says so."""

import json
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from glassformer.serving import asked
from glassformer.serving.limits import LIMITS
from tests.serving.conftest import Local, local


class Faulty:
    """A constraint that breaks after some tokens: a bug in one request's own part of the work."""

    def __init__(self, error: Exception):
        self.left, self.error = 3, error

    def allowed(self) -> np.ndarray | None:
        self.left -= 1
        if self.left < 0:
            raise self.error
        return None

    def accept(self, token: int) -> bool:
        return True


def events(text: str) -> list[Any]:
    lines = [line.removeprefix("data: ") for line in text.split("\n\n") if line]
    return [line if line == "[DONE]" else json.loads(line) for line in lines]


def test_a_fault_ends_its_stream_with_an_error_and_nothing_else(
    runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = "the words of the user"
    monkeypatch.setattr(asked, "regex_constraint", lambda tokenizer, pattern: Faulty(RuntimeError(secret)))
    with local(runs / "items") as server, ThreadPoolExecutor(9) as pool:

        def ask(i: int) -> str:
            body: dict[str, Any] = {"model": "items", "prompt": "item", "max_tokens": 40, "seed": i}
            if i == 4:
                body["regex"] = "x"
            return server.client.post("/v1/completions", json={**body, "stream": True}).text

        alone = [ask(i) for i in range(4)]
        answers = list(pool.map(ask, range(9)))
        broken = events(answers.pop(4))
        assert broken[-1]["error"]["type"] == "server_error" and len(broken) > 1
        assert "finish_reason" in broken[0]["choices"][0] and secret not in json.dumps(broken)
        for answer in answers:
            assert events(answer)[-1] == "[DONE]" and '"error"' not in answer

        def text_of(answer: str) -> str:
            return "".join(e["choices"][0]["text"] for e in events(answer) if e != "[DONE]")

        assert [text_of(a) for a in answers[:4]] == [text_of(a) for a in alone]
        assert len(server.log) == 1 and "RuntimeError" in server.log[0] and secret not in server.log[0]
        body = {"model": "items", "prompt": "item", "regex": "x"}
        assert server.client.post("/v1/completions", json=body).status_code == 500  # not streamed


def test_a_broken_engine_ends_what_was_there_and_another_takes_over(runs: Path) -> None:
    with local(runs / "items") as server, ThreadPoolExecutor(2) as pool:
        body = {"model": "items", "prompt": "item", "max_tokens": 4000, "stream": True}
        server.post("/v1/completions", model="items", prompt="item", max_tokens=1)
        writer = server.models.loaded["items"].writer
        assert writer is not None
        answer = pool.submit(server.client.post, "/v1/completions", json=body)
        while not writer.engine.running:
            time.sleep(0.01)

        def broken() -> None:
            raise ZeroDivisionError

        writer.engine._admit = broken  # type: ignore[method-assign]
        assert events(answer.result().text)[-1]["error"]["type"] == "server_error"
        assert "a new one takes over" in "".join(server.log)
        server.post("/v1/completions", model="items", prompt="item", max_tokens=3)


def test_a_full_queue_is_told_with_the_time_to_wait(runs: Path) -> None:
    limits = LIMITS.with_changes(["streams=2", "queue=2"])
    with local(runs / "items", limits=limits) as server, ThreadPoolExecutor(4) as pool:
        body = {"model": "items", "prompt": "item", "max_tokens": 1200}
        server.post("/v1/completions", model="items", prompt="item", max_tokens=1)
        writer = server.models.loaded["items"].writer
        assert writer is not None
        busy = [pool.submit(server.client.post, "/v1/completions", json=body) for _ in range(4)]
        deadline = time.monotonic() + 10
        while len(writer.engine) < 4 and time.monotonic() < deadline:
            time.sleep(0.01)
        answer = server.client.post("/v1/completions", json=body)
        assert answer.status_code == 429 and int(answer.headers["retry-after"]) >= 1
        assert answer.json()["error"]["type"] == "rate_limit_error"
        assert all(each.result().status_code == 200 for each in busy)  # who was first is not disturbed
        server.post("/v1/completions", model="items", prompt="item", max_tokens=1)


def test_other_work_has_a_bounded_queue_too(runs: Path) -> None:
    with (
        local(runs / "items", limits=LIMITS.with_changes(["jobs=1"])) as server,
        ThreadPoolExecutor(12) as pool,
    ):
        server.post("/v1/completions", model="items", prompt="item", max_tokens=1)
        body = {"model": "items", "text": "item 3 follows item 4"}
        answers = list(pool.map(lambda _: server.client.post("/v1/look", json=body), range(12)))
        codes = {answer.status_code for answer in answers}
        assert codes == {200, 429}
        assert all("retry-after" in answer.headers for answer in answers if answer.status_code == 429)


def test_texts_go_on_while_others_look(here: Local) -> None:
    """Both threads read one model: what a text becomes is the same."""
    body = {"model": "items", "prompt": "item 3", "max_tokens": 60, "seed": 5}
    alone = here.post("/v1/completions", **body)
    look_alone = here.post("/v1/look", model="items", text="item 3 follows")
    with ThreadPoolExecutor(4) as pool:
        looks = [pool.submit(here.post, "/v1/look", model="items", text="item 3 follows") for _ in range(4)]
        texts = [pool.submit(here.post, "/v1/completions", **body) for _ in range(8)]
        for text in texts:
            assert text.result()["choices"] == alone["choices"]  # type: ignore[index]
        for look in looks:
            assert look.result() == look_alone


def test_a_stream_on_a_recurrent_model(here: Local) -> None:
    answer = here.post("/v1/completions", model="recurrent", prompt="item " * 30, max_tokens=100, seed=1)
    assert answer["usage"]["completion_tokens"] == 100 or answer["choices"][0]["finish_reason"] == "stop"  # type: ignore[index]
