"""Runs and their metrics: whole lines only, by a cursor that notices when the record was written anew."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import glassformer as gf
from tests.serving.conftest import Local, local


def test_runs_and_their_settings(here: Local, runs: Path) -> None:
    listed: Any = here.client.get("/v1/runs").json()
    assert {run["id"] for run in listed["data"]} == {"items", "recurrent", "masked", "labels", "pairs"}
    one: Any = here.client.get("/v1/runs/items").json()
    run = gf.load(runs / "items")
    assert one["finished"] and one["task"] == "language" and one["result"]["steps"] == 40
    assert one["settings"]["model"]["width"] == run.config.model.width
    assert str(runs.parent) not in json.dumps(one)  # where things lie is not told
    assert here.client.get("/v1/runs/nothing").status_code == 404


def test_a_record_page_by_page(here: Local, runs: Path) -> None:
    expected, rows, cursor = gf.load(runs / "items").metrics, list[Any](), ""
    while True:
        page: Any = here.client.get("/v1/runs/items/metrics", params={"after": cursor, "limit": 7}).json()
        assert len(page["data"]) <= 7 and not page["reset"]
        rows, cursor = rows + page["data"], page["next"]
        if not page["has_more"]:
            break
    assert rows == expected and len(rows) > 14
    after: Any = here.client.get("/v1/runs/items/metrics", params={"after": cursor}).json()
    assert after["data"] == [] and after["next"] == cursor and not after["reset"]


def test_a_record_that_grows_and_one_that_is_written_anew(runs: Path, tmp_path: Path) -> None:
    path = tmp_path / "live"
    shutil.copytree(runs / "items", path)
    record = path / "metrics.jsonl"

    def line(step: int) -> str:
        return json.dumps({"step": step, "split": "train", "loss": 1 / step}) + "\n"

    with local(path) as server:

        def page(cursor: str = "") -> Any:
            return server.client.get("/v1/runs/live/metrics", params={"after": cursor}).json()

        def steps(answer: Any) -> list[int]:
            return [row["step"] for row in answer["data"]]

        record.write_text("".join(map(line, range(1, 6))) + line(6)[:-4])  # the last one is on its way
        first = page()
        assert steps(first) == [1, 2, 3, 4, 5]
        record.write_text("".join(map(line, range(1, 9))))
        second = page(first["next"])
        assert steps(second) == [6, 7, 8] and not second["reset"]
        record.write_text("".join(map(line, range(1, 4))) + line(44))  # resumed from step 3
        third = page(second["next"])
        assert steps(third) == [1, 2, 3, 44] and third["reset"]
        record.write_text("".join(line(1) for _ in range(20)))  # as long as before, and another
        assert page(third["next"])["reset"]
        record.unlink()
        assert page(third["next"])["data"] == []


@pytest.mark.parametrize("cursor", ["x", "-1-a", "12", "1e3-a", "9" * 40 + "-a", "٣-a"])
def test_what_is_no_cursor_is_refused(here: Local, cursor: str) -> None:
    answer = here.client.get("/v1/runs/items/metrics", params={"after": cursor})
    assert answer.status_code == 400 and answer.json()["error"]["param"] == "after"


def test_a_limit_of_rows(here: Local) -> None:
    assert here.client.get("/v1/runs/items/metrics", params={"limit": 0}).status_code == 400
    assert here.client.get("/v1/runs/items/metrics", params={"limit": 10**9}).status_code == 200
