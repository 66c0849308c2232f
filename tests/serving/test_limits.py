"""Nothing larger than its limit is begun: each is refused by name, and before the run is even loaded."""

from dataclasses import fields
from pathlib import Path

import pytest

from glassformer.core.errors import UsageError
from glassformer.serving.limits import LIMITS
from tests.serving.conftest import local

TIGHT = {
    "prompts": 2,
    "characters": 50,
    "tokens": 10,
    "n": 2,
    "texts": 3,
    "logprobs": 3,
    "stop": 2,
    "stop_characters": 5,
    "bias": 2,
    "form_characters": 20,
    "beams": 2,
    "look_tokens": 8,
    "edits": 1,
}
CHAT = {"messages": [{"role": "user", "content": "x"}]}
CASES = [
    ("/v1/completions", {"prompt": "x" * 51}, "prompt"),
    ("/v1/completions", {"prompt": ["x"] * 3}, "prompt"),
    ("/v1/completions", {"prompt": [1] * 51}, "prompt"),
    ("/v1/completions", {"max_tokens": 11}, "max_tokens"),
    ("/v1/completions", {"n": 3}, "n"),
    ("/v1/completions", {"prompt": ["x", "y"], "n": 2}, "n"),
    ("/v1/completions", {"logprobs": 4}, "logprobs"),
    ("/v1/completions", {"stop": ["a", "b", "c"]}, "stop"),
    ("/v1/completions", {"stop": "abcdef"}, "stop"),
    ("/v1/completions", {"stop": ""}, "stop"),
    ("/v1/completions", {"logit_bias": {"1": 1, "2": 1, "3": 1}}, "logit_bias"),
    ("/v1/completions", {"regex": "a" * 21}, "regex"),
    ("/v1/completions", {"stream_options": {"include_usage": True}}, "stream_options"),
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": "x" * 51}]}, "messages"),
    ("/v1/chat/completions", {**CHAT, "max_completion_tokens": 11}, "max_tokens"),
    ("/v1/chat/completions", {**CHAT, "max_completion_tokens": 1, "max_tokens": 1}, "max_tokens"),
    ("/v1/chat/completions", {**CHAT, "logprobs": True, "top_logprobs": 4}, "top_logprobs"),
    ("/v1/chat/completions", {**CHAT, "top_logprobs": 1}, "top_logprobs"),
    ("/v1/embeddings", {"input": ["x"] * 3}, "input"),
    ("/v1/embeddings", {"input": "x" * 51}, "input"),
    ("/v1/tokenize", {"text": "x" * 51}, "text"),
    ("/v1/detokenize", {"tokens": [1] * 51}, "tokens"),
    ("/v1/classify", {"text": ["x"] * 3}, "text"),
    ("/v1/fill", {"text": "x" * 51}, "text"),
    ("/v1/translate", {"text": "x", "beams": 3}, "beams"),
    ("/v1/look", {"text": "x" * 51}, "text"),
    ("/v1/look", {"text": "x", "tokens": 9}, "tokens"),
    ("/v1/look", {"text": "x", "edits": [{"site": "0.z"}] * 2}, "edits"),
]


def test_limits_are_held_before_anything_is_loaded(runs: Path) -> None:
    limits = LIMITS.with_changes([f"{name}={value}" for name, value in TIGHT.items()])
    with local(runs / "items", limits=limits) as server:
        for path, asked, param in CASES:
            answer = server.client.post(path, json={"model": "items", **asked})
            assert answer.status_code == 400, (path, asked, answer.text)
            assert answer.json()["error"]["param"] == param, (path, asked, answer.text)
        assert server.models.loaded == {}
        # What needs the tokenizer is refused before anything is computed.
        answer = server.client.post("/v1/look", json={"model": "items", "text": "x y z x y z"})
        assert answer.json()["error"]["param"] == "text"
        schema = {"type": "json_schema", "json_schema": {"schema": {"enum": ["a long one", "another"]}}}
        asked = {"model": "items", "prompt": "x", "max_tokens": 1, "response_format": schema}
        answer = server.client.post("/v1/completions", json=asked)
        assert answer.json()["error"]["param"] == "response_format"


def test_what_is_recorded_is_bounded(runs: Path) -> None:
    with local(
        runs / "items", limits=LIMITS.with_changes(["look_numbers=20000", "json_numbers=60"])
    ) as server:
        answer = server.client.post("/v1/look", json={"model": "items", "text": "item 3 follows " * 3})
        assert answer.status_code == 400 and "numbers to record" in answer.json()["error"]["message"]
        asked = {"model": "items", "text": "item", "sites": ["0.z"]}
        answer = server.client.post("/v1/look/values", json=asked)
        assert answer.status_code == 400 and answer.json()["error"]["param"] == "format"
        assert (
            server.client.post("/v1/look/values", json={**asked, "format": "safetensors"}).status_code == 200
        )


def test_limits_have_names_and_the_docs_list_them() -> None:
    assert LIMITS.with_changes(["n=3"]).n == 3
    with pytest.raises(UsageError, match="Did you mean 'tokens'"):
        LIMITS.with_changes(["token=3"])
    for wrong in ("n=0", "n=-1", "n=x", "n"):
        with pytest.raises(UsageError, match="a whole number above 0"):
            LIMITS.with_changes([wrong])
    page = (Path(__file__).parents[2] / "docs" / "serving.md").read_text(encoding="utf-8")
    for field in fields(LIMITS):
        assert f"| `{field.name}` | {getattr(LIMITS, field.name):,} |" in page, field.name
