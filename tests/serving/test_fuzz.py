"""Requests that schemathesis makes up from our own description: no server error, no hang.

Ten for each route here; 50,000 by `make test-serve` (GLASSFORMER_SCHEMATHESIS).
"""

import os
import sys
import time
from collections import Counter
from dataclasses import dataclass, field

import httpx
import hypothesis
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, strategies
from schemathesis import GenerationMode

from tests.serving.conftest import Process

REQUESTS = int(os.environ.get("GLASSFORMER_SCHEMATHESIS", "190"))
FIRST = int(os.environ.get("GLASSFORMER_SEED", "0"))
LONGEST = 20.0  # seconds that an answer may take
ROUND = 200  # requests to a route, before the next one's turn
NAMES = ("items", "labels", "masked", "pairs", "recurrent")
FREELY = hypothesis.settings(
    deadline=None, database=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck)
)


@dataclass
class Seen:
    statuses: Counter[int] = field(default_factory=Counter)
    slowest: float = 0.0


def ask(url: str, case: schemathesis.Case, name: str | None, seen: Seen) -> None:
    """Send a made-up request; with the name of a run, so that not nearly all end at an unknown model."""
    if name and isinstance(case.body, dict) and "model" in case.body:
        case.body = {**case.body, "model": name}
    if name and case.path_parameters:
        case.path_parameters = dict.fromkeys(case.path_parameters, name)
    began = time.monotonic()
    response = case.call(base_url=url, timeout=LONGEST)
    seen.slowest = max(seen.slowest, time.monotonic() - began)
    seen.statuses[response.status_code] += 1
    assert response.status_code < 500, (case.as_curl_command(), response.text)
    if response.status_code >= 400:
        told = response.json()["error"]
        assert set(told) == {"message", "type", "param", "code"}, response.text


def test_made_up_requests_find_no_server_error_and_no_hang(
    server: Process, capsys: pytest.CaptureFixture[str]
) -> None:
    schema = schemathesis.openapi.from_url(f"{server.url}/openapi.json")
    operations = [result.ok() for result in schema.get_all_operations()]
    assert len(operations) == 19
    seen, modes = Seen(), (GenerationMode.POSITIVE, GenerationMode.NEGATIVE)
    each, seed = min(ROUND, -(-REQUESTS // len(operations))), FIRST
    names = strategies.one_of(strategies.none(), strategies.sampled_from(NAMES))
    while seen.statuses.total() < REQUESTS:  # a route that takes nothing has few requests to make up
        for operation in operations:
            cases = strategies.one_of([operation.as_strategy(generation_mode=mode) for mode in modes])

            @hypothesis.seed(seed)
            @hypothesis.settings(FREELY, max_examples=each)
            @hypothesis.given(case=cases, name=names)
            def made_up(case: schemathesis.Case, name: str | None) -> None:
                ask(server.url, case, name, seen)

            made_up()
        seed += 1
    assert httpx.get(f"{server.url}/health").status_code == 200
    if REQUESTS > 1000:
        with capsys.disabled():
            counts = dict(sorted(seen.statuses.items()))
            sys.stderr.write(
                f"\n{seen.statuses.total()} requests, slowest {seen.slowest:.2f} s, by status {counts}\n"
            )
    assert seen.statuses[200] > REQUESTS / 20
