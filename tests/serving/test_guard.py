"""Who may ask: every route is behind the guard, and nothing of a request is logged."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.routing import APIRoute
from starlette.routing import BaseRoute, Route

from glassformer.core.errors import UsageError
from glassformer.serving.address import Names, check_address, host_name
from glassformer.serving.app import make_app
from glassformer.serving.counts import Counts
from glassformer.serving.limits import LIMITS
from glassformer.serving.models import Models
from tests.serving.conftest import Local, local

TOKEN = "a-token-of-16-ch"


@pytest.fixture(scope="module")
def guarded(runs: Path) -> Iterator[Local]:
    with local(runs, token=TOKEN) as server:
        yield server


def all_routes() -> list[tuple[str, str]]:
    """Method and path of every route there is, also those that FastAPI adds."""
    guard = make_app(Models({}, LIMITS, Counts()), Names.of("127.0.0.1"), LIMITS, Counts())

    def walk(routes: list[BaseRoute]) -> Iterator[tuple[str, str]]:
        for route in routes:
            inner = getattr(route, "original_router", None) or getattr(route, "app", None)
            if isinstance(route, Route | APIRoute):
                for method in sorted(route.methods or ()):
                    yield method, route.path
            elif inner is not None and hasattr(inner, "routes"):
                yield from walk(inner.routes)
            else:
                raise AssertionError(f"a route of a kind that this test does not know: {route!r}")

    return list(walk(guard.app.routes))  # type: ignore[attr-defined]


ROUTES = all_routes()


def test_the_routes_are_a_decision() -> None:
    """Adding one means changing this list, and the docs."""
    assert sorted({path for _, path in ROUTES}) == [
        "/health",
        "/metrics",
        "/openapi.json",
        "/v1/chat/completions",
        "/v1/classify",
        "/v1/completions",
        "/v1/detokenize",
        "/v1/embeddings",
        "/v1/fill",
        "/v1/look",
        "/v1/look/attribution",
        "/v1/look/values",
        "/v1/models",
        "/v1/models/{model}",
        "/v1/models/{model}/reload",
        "/v1/runs",
        "/v1/runs/{run}",
        "/v1/runs/{run}/metrics",
        "/v1/tokenize",
        "/v1/translate",
    ]
    page = (Path(__file__).parents[2] / "docs" / "serving.md").read_text(encoding="utf-8")
    for _, path in ROUTES:
        assert path.replace("{model}", "NAME").replace("{run}", "NAME") in page, path


@pytest.mark.parametrize(("method", "path"), ROUTES)
def test_every_route_is_guarded(guarded: Local, method: str, path: str) -> None:
    path = path.replace("{model}", "items").replace("{run}", "items")
    right = {"authorization": f"Bearer {TOKEN}"}

    def ask(**headers: str) -> int:
        return guarded.client.request(method, path, headers=headers).status_code

    assert ask(**right, host="evil.example") == 403
    assert ask(**right, host="127.0.0.1.evil.example:80") == 403
    assert ask(**right, origin="http://evil.example") == 403
    assert ask(**right, origin="null") == 403
    assert ask(**right, origin="http://localhost:81") == 403
    assert ask(**right, origin="http://localhost") in (200, 400)  # a page of our own; without a body
    if path != "/health":
        assert ask() == 401
        assert ask(authorization=f"Bearer {TOKEN}x") == 401
        assert ask(authorization=f"Basic {TOKEN}") == 401
        assert ask(authorization="Bearer") == 401
    assert ask(**right) in (200, 400)


def test_who_is_refused_is_not_listened_to(guarded: Local) -> None:
    answer = guarded.client.post("/v1/completions", content=b"x" * 100)
    assert answer.status_code == 401 and answer.headers["connection"] == "close"


def test_no_other_site_is_let_in(guarded: Local) -> None:
    """No CORS: a browser is told of no origin that may read, and asks for none in vain."""
    asked = {"origin": "http://evil.example", "access-control-request-method": "POST"}
    answer = guarded.client.options("/v1/completions", headers=asked)
    assert answer.status_code == 403
    answer = guarded.client.get("/health", headers={"origin": "http://localhost"})
    assert not [name for name in answer.headers if name.startswith("access-control")]
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["content-security-policy"].startswith("default-src 'none'")


def test_what_is_open_says_nothing(guarded: Local) -> None:
    assert guarded.client.get("/health").json() == {"status": "ok"}


def test_unknown_routes_and_methods_are_errors_in_the_same_form(here: Local) -> None:
    assert here.client.get("/v2").json()["error"]["code"] == "unknown_route"
    answer = here.client.get("/v1/completions")
    assert answer.status_code == 405 and answer.json()["error"]["code"] == "wrong_method"
    answer = here.client.post("/v1/completions", content=b"{", headers={"content-type": "application/json"})
    assert answer.status_code == 400 and answer.json()["error"]["code"] == "invalid_json"
    for body in (b'"' + b"[" * 100_000, b"[" * 100_000, b"\xff\xfe", b"null", b'{"model": 1e999}', b""):
        answer = here.client.post(
            "/v1/completions", content=body, headers={"content-type": "application/json"}
        )
        assert answer.status_code == 400 and set(answer.json()["error"]) == {
            "message",
            "type",
            "param",
            "code",
        }


def test_a_body_is_counted_while_it_comes(runs: Path) -> None:
    with local(runs / "items", limits=LIMITS.with_changes(["body_bytes=1000"])) as server:
        asked = {"model": "items", "prompt": "x" * 2000}
        answer = server.client.post("/v1/completions", json=asked)
        assert answer.status_code == 413 and answer.json()["error"]["code"] == "request_too_large"

        def chunks() -> Iterator[bytes]:
            for _ in range(20):
                yield b" " * 100

        assert server.client.post("/v1/completions", content=chunks()).status_code == 413
        assert server.client.get("/health").status_code == 200


@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("localhost", "localhost"),
        ("LOCALHOST:80", "localhost"),
        ("[::1]:80", "::1"),
        ("[::1]", "::1"),
        ("a.example.", "a.example"),
        ("a:b", None),
        ("", None),
        (":80", None),
        ("[::1", None),
        ("[::1]x", None),
        ("a@b:80:80", None),
    ],
)
def test_hosts_are_read_strictly(host: str, name: str | None) -> None:
    assert host_name(host) == name


def test_names_of_a_server() -> None:
    loopback = Names.of("127.0.0.1", ["box.example"])
    assert all(loopback.include(h) for h in ("localhost", "127.0.0.1:1", "[::1]", "box.example:99"))
    assert not any(loopback.include(h) for h in ("10.0.0.1", "evil.example", "localhost.evil.example"))
    everywhere = Names.of("0.0.0.0")
    assert everywhere.include("10.0.0.1:80") and not everywhere.include("evil.example")


def test_other_machines_need_a_token() -> None:
    check_address("127.0.0.1", None)
    check_address("localhost", None)
    for host in ("0.0.0.0", "192.168.0.1", "::", "box.example"):
        with pytest.raises(UsageError, match="there has to be a token"):
            check_address(host, None)
        check_address(host, TOKEN)
    with pytest.raises(UsageError, match="at least 8"):
        check_address("127.0.0.1", "short")
