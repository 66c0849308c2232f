"""Every other route gives what the Python API gives, to the last digit."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load

import glassformer as gf
from glassformer.core.strict_json import dump_json
from tests.serving.conftest import Local


def opened(runs: Path, name: str) -> gf.Run:
    return gf.load(runs / name, device="cpu")


def as_json(value: Any) -> Any:
    return json.loads(dump_json(value))


def test_translate(here: Local, runs: Path) -> None:
    texts = ["number 3 is here", "", "number 17 is here"]
    answer: Any = here.post("/v1/translate", model="pairs", text=texts, beams=2)
    expected = opened(runs, "pairs").translate(texts, beams=2)
    assert [pair["target"] for pair in answer["translations"]] == expected
    assert here.post("/v1/translate", model="pairs", text="Ü")["unseen"] == ["Ü"]  # type: ignore[index]


def test_a_translation_is_drawn_if_that_is_asked_for(here: Local, runs: Path) -> None:
    text, drawing = "number 3 is here", {"temperature": 2.0, "top_k": 9}
    texts = [text, "", text]
    answer: Any = here.post("/v1/translate", model="pairs", text=texts, seed=4, **drawing)
    expected = opened(runs, "pairs").translate(texts, seed=4, **drawing)  # type: ignore[arg-type]
    assert [pair["target"] for pair in answer["translations"]] == expected and answer["seed"] == 4
    first: Any = here.post("/v1/translate", model="pairs", text=text, **drawing)
    again: Any = here.post("/v1/translate", model="pairs", text=text, seed=first["seed"], **drawing)
    assert first == again and "seed" not in here.post("/v1/translate", model="pairs", text=text)  # type: ignore[operator]
    both = here.client.post("/v1/translate", json={"model": "pairs", "text": text, "top_k": 3, "beams": 2})
    assert both.status_code == 400 and both.json()["error"]["param"] == "top_k"


def test_classify(here: Local, runs: Path) -> None:
    texts = ["a good film", " ", "a bad film 3"]
    answer: Any = here.post("/v1/classify", model="labels", text=texts)
    assert answer["texts"] == [as_json(each.as_json()) for each in opened(runs, "labels").label(texts)]


def test_fill(here: Local, runs: Path) -> None:
    answer: Any = here.post("/v1/fill", model="masked", text="item ___ follows item ___", top=3)
    filled = opened(runs, "masked").fill("item ___ follows item ___", 3)
    assert answer["texts"] == [{"text": filled.text, "blanks": as_json(filled.blanks)}]
    refused = here.client.post("/v1/fill", json={"model": "masked", "text": "no blank"})
    assert refused.status_code == 400 and "___" in refused.json()["error"]["message"]


def test_tokenize_and_back(here: Local, runs: Path) -> None:
    run, text = opened(runs, "items"), "item 3 — schön 🦆 <|endoftext|>"
    answer: Any = here.post("/v1/tokenize", model="items", text=text)
    assert answer["tokens"] == run.tokenizer.encode(text) and answer["count"] == len(answer["tokens"])
    assert here.post("/v1/detokenize", model="items", tokens=answer["tokens"]) == {"text": text}
    marked: Any = here.post("/v1/tokenize", model="items", text=text, specials=True)
    assert marked["tokens"][-1] == run.tokenizer.eot_id


@pytest.mark.parametrize(
    ("path", "model", "route"),
    [
        ("/v1/completions", "labels", "/v1/classify"),
        ("/v1/translate", "items", "/v1/completions"),
        ("/v1/classify", "masked", "/v1/fill"),
        ("/v1/fill", "pairs", "/v1/translate"),
    ],
)
def test_another_task_is_refused_with_the_route_that_fits(
    here: Local, path: str, model: str, route: str
) -> None:
    asked = {"model": model, "prompt" if "comp" in path else "text": "x"}
    answer = here.client.post(path, json=asked)
    assert answer.status_code == 400 and route in answer.json()["error"]["message"]


@pytest.mark.parametrize("model", ["items", "masked", "labels", "pairs", "recurrent"])
def test_a_look_is_the_report_of_the_run(here: Local, runs: Path, model: str) -> None:
    text = "number 3 is here" if model == "pairs" else "item 3"
    answer: Any = here.post("/v1/look", model=model, text=text)
    expected = as_json(opened(runs, model).look(text).report())
    assert answer.pop("run") == model and expected.pop("run") != model  # by its name, not by its place
    assert answer == expected


def test_a_look_with_edits_and_at_a_position(here: Local, runs: Path) -> None:
    edits = [
        {"site": "0.z", "heads": [1]},
        {"site": "1.resid", "kind": "steer", "value": [0.5] * 32, "strength": 2.0, "positions": [1]},
        {"site": "0.mlp_out", "kind": "put", "value": 0.25, "positions": [-1]},
    ]
    answer: Any = here.post("/v1/look", model="items", text="item 3", edits=edits, position=1, maps=True)
    made = [
        gf.edit.zero("0.z", heads=1),
        gf.edit.steer("1.resid", torch.full((32,), 0.5), 2.0, positions=[1]),
        gf.edit.put("0.mlp_out", 0.25, positions=[-1]),
    ]
    expected = as_json(opened(runs, "items").look("item 3", edits=made).report(True, 1))
    assert {**answer, "run": ""} == {**expected, "run": ""}


def test_values_as_json_and_as_tensors(here: Local, runs: Path) -> None:
    asked = {"model": "items", "text": "item 3 follows", "sites": ["z", "1.resid", "logits"]}
    look = opened(runs, "items").look("item 3 follows", sites=asked["sites"])
    values: Any = here.post("/v1/look/values", **asked)
    data = here.client.post("/v1/look/values", json={**asked, "format": "safetensors"})
    by_header = here.client.post(
        "/v1/look/values", json=asked, headers={"accept": "application/octet-stream"}
    )
    assert data.headers["content-type"] == by_header.headers["content-type"] == "application/octet-stream"
    tensors = load(data.content)
    assert all(load(by_header.content)[site].equal(x) for site, x in tensors.items())
    assert set(tensors) == set(values["sites"]) == set(look.sites)
    for site in look.sites:
        torch.testing.assert_close(tensors[site], look[site][0])  # another thread may add in another order
        assert torch.tensor(values["sites"][site]["values"]).equal(tensors[site])
        assert values["sites"][site]["shape"] == list(look[site][0].shape)


def test_attribution_as_json_and_as_tensors(here: Local, runs: Path) -> None:
    look = opened(runs, "items").look("item 3")
    shares, logit, error = look.attribution(5, 1, 7)
    asked = {"model": "items", "text": "item 3", "output": 5, "against": 7, "position": 1}
    answer: Any = here.post("/v1/look/attribution", **asked)
    assert answer["parts"] == pytest.approx(shares, abs=1e-5) and answer["logit"] == pytest.approx(logit)
    assert answer["error"] < 1e-5 and error < 1e-5
    data = here.client.post("/v1/look/attribution", json={**asked, "format": "safetensors"}).content
    assert load(data)["shares"].tolist() == list(answer["parts"].values())
    length = int.from_bytes(data[:8], "little")
    about = json.loads(data[8 : 8 + length])["__metadata__"]
    assert json.loads(about["parts"]) == list(shares)
    best: Any = here.post("/v1/look/attribution", model="items", text="item 3")
    assert sum(best["parts"].values()) == pytest.approx(best["logit"], rel=1e-4)
    assert best["output"]["id"] == int(look.logits().argmax())
    named: Any = here.post(
        "/v1/look/attribution", model="items", text="item 3", output=best["output"]["name"]
    )
    assert named["parts"] == best["parts"]


@pytest.mark.parametrize(
    ("path", "asked"),
    [
        ("/v1/look", {"edits": [{"site": "nothing"}]}),
        ("/v1/look", {"edits": [{"site": "0.z", "heads": [9]}]}),
        ("/v1/look", {"edits": [{"site": "0.z", "kind": "put"}]}),
        ("/v1/look", {"edits": [{"site": "0.z", "value": 1.0}]}),
        ("/v1/look", {"edits": [{"site": "0.z", "kind": "put", "value": [[1], [1, 2]]}]}),
        ("/v1/look", {"edits": [{"site": "0.resid", "kind": "steer", "value": [1, 2, 3]}]}),
        ("/v1/look", {"edits": [{"site": "0.z", "kind": "steer", "value": 1.0, "heads": [0]}]}),
        ("/v1/look", {"position": 99}),
        ("/v1/look", {"target": "x"}),
        ("/v1/look", {"text": "item " * 100}),
        ("/v1/look/values", {"sites": ["nothing"]}),
        ("/v1/look/values", {"sites": []}),
        ("/v1/look/attribution", {"output": 5000}),
        ("/v1/look/attribution", {"output": "no such token"}),
        ("/v1/look/attribution", {"position": 99}),
        ("/v1/look/attribution", {"model": "recurrent"}),
        ("/v1/embeddings", {"model": "items", "input": "item " * 100}),
        ("/v1/embeddings", {"model": "items", "input": "x", "dimensions": 3}),
    ],
)
def test_what_cannot_be_looked_at_is_refused(here: Local, path: str, asked: dict[str, Any]) -> None:
    asked = asked if path == "/v1/embeddings" else {"model": "items", "text": "item 3", **asked}
    answer = here.client.post(path, json=asked)
    assert answer.status_code == 400 and answer.json()["error"]["message"], answer.text
