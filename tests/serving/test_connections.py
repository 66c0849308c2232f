"""Connections that would hold the server for nothing are ended: slow heads, slow bodies, no readers."""

import json
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

import glassformer as gf
from tests.serving.conftest import Process, started
from tests.serving.load import head


@pytest.fixture(scope="module")
def strict(runs: Path) -> Iterator[Process]:
    """A server with little patience."""
    limits = {
        "head_seconds": 1,
        "body_seconds": 1,
        "idle_seconds": 1,
        "unread_seconds": 1,
        "unread_parts": 64,
        "connections": 12,
    }
    changes = [word for name, value in limits.items() for word in ("--limit", f"{name}={value}")]
    with started(str(runs / "items"), *changes) as process:
        body = {"model": "items", "prompt": "item", "max_tokens": 1}
        httpx.post(f"{process.url}/v1/completions", json=body, timeout=60)
        yield process
        code, said = process.stop()
        assert code == 143 and "Traceback" not in said, said


def connect(server: Process, receive: int | None = None) -> socket.socket:
    client = socket.socket()
    if receive is not None:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive)
    client.settimeout(10)
    client.connect(("127.0.0.1", server.port))
    return client


def answer_of(client: socket.socket) -> bytes:
    """Everything until the server closes."""
    data = b""
    while block := client.recv(1 << 16):
        data += block
    return data


def count(server: Process, name: str) -> float:
    """A number of /metrics, summed over its labels."""
    lines = httpx.get(f"{server.url}/metrics").text.splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(name))


def wait_for(server: Process, name: str, value: float, seconds: float = 10.0) -> float:
    deadline = time.monotonic() + seconds
    while (found := count(server, name)) != value and time.monotonic() < deadline:
        time.sleep(0.05)
    return found


@pytest.mark.parametrize("sent", [b"", b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"])
def test_a_slow_head_is_not_waited_for(strict: Process, sent: bytes) -> None:
    began, client = time.monotonic(), connect(strict)
    client.sendall(sent)
    answer = answer_of(client)
    assert time.monotonic() - began < 5 and b" 408 " in answer and b'"error"' in answer


def test_a_head_that_drips_is_not_waited_for(strict: Process) -> None:
    """Each byte comes in time; the whole does not."""
    client, began, answer = connect(strict), time.monotonic(), b""
    client.settimeout(0.2)
    for byte in b"GET /health HTTP/1.1\r\nHost: localhost\r\nX-Slow: " + b"x" * 100:
        try:
            client.sendall(bytes([byte]))
            answer += client.recv(4096)
        except TimeoutError:
            continue
        except OSError:
            break
        if answer:
            break
    assert b" 408 " in answer and time.monotonic() - began < 5


def test_also_the_second_request_of_a_connection(strict: Process) -> None:
    client = connect(strict)
    client.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
    first = client.recv(1 << 16)
    client.sendall(b"GET /hea")
    assert b" 200 " in first and b" 408 " in answer_of(client)


def test_an_idle_connection_is_closed(strict: Process) -> None:
    client = connect(strict)
    client.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert answer_of(client).count(b"HTTP/1.1") == 1


def test_a_slow_body_is_not_waited_for(strict: Process) -> None:
    client = connect(strict)
    whole = head("/v1/completions", b"{" + b" " * 500)
    client.sendall(whole[:-400])
    answer = answer_of(client)
    assert b" 408 " in answer and b'"error"' in answer


def test_a_large_head_is_refused(strict: Process) -> None:
    client = connect(strict)
    client.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\nX-Large: " + b"x" * 40_000)
    answer = answer_of(client)
    assert b" 400 " in answer and b'"error"' in answer


@pytest.mark.parametrize(
    "garbage",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 64,  # somebody speaks TLS
        b"GET / HTTP/9.9\r\n\r\n",
        b"\r\n\r\n\r\n",
        b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
        b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: -5\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n",
        b"GET /health HTTP/1.1\r\n\r\n",
    ],
)
def test_garbage_is_refused(strict: Process, garbage: bytes) -> None:
    client = connect(strict)
    client.sendall(garbage)
    answer = answer_of(client)
    assert b"HTTP/1.1 4" in answer or answer == b""
    assert httpx.get(f"{strict.url}/health").status_code == 200


def test_more_connections_than_there_may_be(strict: Process) -> None:
    clients = [connect(strict) for _ in range(30)]
    answers = [answer_of(client) for client in clients]
    assert sum(b" 503 " in answer for answer in answers) >= 15
    assert all(b" 503 " in answer or b" 408 " in answer for answer in answers)
    assert httpx.get(f"{strict.url}/health").status_code == 200


def test_who_goes_away_stops_the_work(strict: Process, runs: Path) -> None:
    """In the middle of a stream, and while waiting for a whole text."""
    name = 'glassformer_texts_total{ending="cancelled"'
    endless = {str(gf.load(runs / "items").tokenizer.eot_id): -100}  # else texts may end by themselves
    for stream in (True, False):
        before = count(strict, name)
        client = connect(strict)
        body: dict[str, object] = {"model": "items", "prompt": "item", "max_tokens": 4096, "n": 4}
        body |= {"stream": stream, "logit_bias": endless}
        client.sendall(head("/v1/completions", json.dumps(body).encode()))
        if stream:
            client.recv(200)
        else:
            assert wait_for(strict, 'glassformer_texts_running{model="items"}', 4) == 4
        client.close()
        assert wait_for(strict, name, before + 4) == before + 4
        assert wait_for(strict, 'glassformer_texts_running{model="items"}', 0) == 0


def test_who_does_not_read_is_cut_off_and_others_are_not(strict: Process) -> None:
    cancelled = 'glassformer_texts_total{ending="cancelled"'
    before = count(strict, cancelled)
    client = connect(strict, receive=4096)
    body = {"model": "items", "prompt": "item", "max_tokens": 4096, "stream": True, "n": 16, "logprobs": 20}
    client.sendall(head("/v1/completions", json.dumps(body).encode()))
    asked = {"model": "items", "prompt": "item", "max_tokens": 5}
    deadline = time.monotonic() + 30
    while count(strict, cancelled) == before and time.monotonic() < deadline:
        assert httpx.post(f"{strict.url}/v1/completions", json=asked, timeout=20).status_code == 200
    assert count(strict, cancelled) > before  # some may have ended by themselves
    assert wait_for(strict, 'glassformer_texts_running{model="items"}', 0) == 0
    assert wait_for(strict, "glassformer_requests_open", 1) == 1  # the one that asks
    read = 0
    with pytest.raises(OSError):  # it was reset: nothing waits for this client any more
        while block := client.recv(1 << 20):
            read += len(block)
        raise ConnectionResetError(f"closed after {read} bytes")
