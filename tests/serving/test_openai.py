"""The official client finds what it expects: texts, streams, probabilities, counts, errors."""

import math

import httpx
import openai
import pytest

import glassformer as gf
from tests.serving.conftest import Process


@pytest.fixture(scope="module")
def client(server: Process) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)


@pytest.fixture(scope="module")
def run(runs: object) -> gf.Run:
    return gf.load(f"{runs}/items", device="cpu")


def test_models_are_listed(client: openai.OpenAI) -> None:
    names = {model.id for model in client.models.list()}
    assert names == {"items", "labels", "masked", "pairs", "recurrent"}
    assert client.models.retrieve("items").owned_by == "glassformer"
    with pytest.raises(openai.NotFoundError, match="there are items, labels, masked"):
        client.models.retrieve("nothing")


def test_a_text_is_what_the_run_writes(client: openai.OpenAI, run: gf.Run) -> None:
    answer = client.completions.create(model="items", prompt="item 3", max_tokens=20, seed=7, n=3)
    texts = run.generate("item 3", 20, n=3, seed=7)
    assert [choice.text for choice in answer.choices] == texts
    assert [choice.index for choice in answer.choices] == [0, 1, 2]
    assert answer.usage is not None and answer.usage.completion_tokens <= 60
    assert answer.usage.prompt_tokens == 1 + len(run.tokenizer.encode("item 3"))
    assert answer.object == "text_completion" and answer.id.startswith("cmpl-")
    greedy = client.completions.create(model="items", prompt="item 3", max_tokens=9, temperature=0)
    assert greedy.choices[0].text == run.generate("item 3", 9, temperature=0)[0]


def test_several_prompts_are_answered_as_each_alone(client: openai.OpenAI, run: gf.Run) -> None:
    prompts = ["item 3", "item 4 follows", "so"]
    together = client.completions.create(model="items", prompt=prompts, max_tokens=12, seed=5, n=2)
    alone = [client.completions.create(model="items", prompt=p, max_tokens=12, seed=5, n=2) for p in prompts]
    assert [c.text for c in together.choices] == [c.text for answer in alone for c in answer.choices]
    ids = [[run.tokenizer.eot_id or 0, *run.tokenizer.encode(p)] for p in prompts]
    by_ids = client.completions.create(model="items", prompt=ids, max_tokens=12, seed=5, n=2)
    assert [c.text for c in by_ids.choices] == [c.text for c in together.choices]


def test_a_stream_is_the_same_text_with_its_counts(client: openai.OpenAI) -> None:
    asked = {"model": "items", "prompt": "item", "max_tokens": 25, "seed": 3, "n": 2, "logprobs": 3}
    whole = client.completions.create(**asked)
    chunks = list(client.completions.create(**asked, stream=True, stream_options={"include_usage": True}))
    assert chunks[-1].usage is not None and chunks[-1].choices == []
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens  # type: ignore[union-attr]
    for choice in whole.choices:
        parts = [c.choices[0] for c in chunks[:-1] if c.choices[0].index == choice.index]
        assert "".join(p.text for p in parts) == choice.text
        assert parts[-1].finish_reason == choice.finish_reason
        assert all(p.finish_reason is None for p in parts[:-1])
        tokens = [t for p in parts if p.logprobs for t in p.logprobs.tokens or []]
        assert choice.logprobs is not None and tokens == choice.logprobs.tokens
    assert len({chunk.id for chunk in chunks}) == 1


def test_probabilities_are_those_of_the_model(client: openai.OpenAI, run: gf.Run) -> None:
    """Of the prompt (echo) and of what was written, beside a plain forward pass."""
    import torch

    answer = client.completions.create(
        model="items", prompt="item 3 follows", max_tokens=8, logprobs=4, echo=True, temperature=0
    )
    choice = answer.choices[0]
    found = choice.logprobs
    assert found is not None and found.tokens and found.token_logprobs and found.text_offset
    ids = [run.tokenizer.eot_id, *run.tokenizer.encode("item 3 follows")]
    text = run.generate("item 3 follows", 8, temperature=0)[0]
    assert choice.text == "item 3 follows" + text
    written = [
        choice.text[a:b] for a, b in zip(found.text_offset, [*found.text_offset[1:], None], strict=True)
    ]
    assert written == found.tokens
    ids += run.tokenizer.encode(text)
    if len(ids) == len(found.tokens) + 1:  # else the model cut its text otherwise than the tokenizer would
        with torch.no_grad():
            log_probs = run.model(torch.tensor([ids]))[0].log_softmax(-1)
        expected = [float(log_probs[i, token]) for i, token in enumerate(ids[1:])]
        assert found.token_logprobs == pytest.approx(expected, abs=1e-4)
    for token, value, best in zip(found.tokens, found.token_logprobs, found.top_logprobs or [], strict=True):
        assert best[token] == value and 4 <= len(best) <= 5
        assert sum(math.exp(v) for v in best.values()) <= 1.0001


def test_a_prompt_can_be_scored_without_writing(client: openai.OpenAI) -> None:
    asked = {"model": "items", "prompt": "item 3", "echo": True, "logprobs": 0}
    scored = client.completions.create(**asked, max_tokens=0).choices[0]
    longer = client.completions.create(**asked, max_tokens=3, temperature=0).choices[0]
    assert scored.text == "item 3" and scored.logprobs and longer.logprobs
    n = len(scored.logprobs.tokens or [])
    assert longer.logprobs.token_logprobs[:n] == pytest.approx(scored.logprobs.token_logprobs, abs=1e-5)  # type: ignore[index]


def test_stop_strings_end_a_text_and_its_tokens(client: openai.OpenAI, run: gf.Run) -> None:
    text = run.generate("item 3", 30, temperature=0)[0]
    stop = text[8:11]
    answer = client.completions.create(
        model="items", prompt="item 3", max_tokens=30, temperature=0, stop=[stop], logprobs=1
    ).choices[0]
    assert answer.text == text[: text.index(stop)] and answer.finish_reason == "stop"
    assert answer.logprobs and "".join(answer.logprobs.tokens or []).startswith(answer.text)
    assert max(answer.logprobs.text_offset or [0]) < len(answer.text)


def test_chat(client: openai.OpenAI, run: gf.Run) -> None:
    messages = [{"role": "system", "content": "so"}, {"role": "user", "content": "item"}]
    asked = {"model": "items", "messages": messages, "seed": 2, "logprobs": True, "top_logprobs": 2}
    answer = client.chat.completions.create(**asked, max_completion_tokens=12)
    choice = answer.choices[0]
    expected = run.generate(
        "system: so\nuser: item\nassistant:", 12, seed=2, stop=["\nuser:", "\nsystem:", "\nassistant:"]
    )[0]
    assert choice.message.content == expected and choice.message.role == "assistant"
    assert choice.logprobs and choice.logprobs.content and len(choice.logprobs.content[0].top_logprobs) == 2
    first = choice.logprobs.content[0]
    assert bytes(first.bytes or []).decode(errors="replace") == first.token
    parts = list(client.chat.completions.create(**asked, max_tokens=12, stream=True))
    assert parts[0].choices[0].delta.role == "assistant"
    assert "".join(part.choices[0].delta.content or "" for part in parts) == expected
    assert parts[-1].choices[0].finish_reason == choice.finish_reason


def test_forms(client: openai.OpenAI) -> None:
    import json
    import re

    body = {"regex": r"[0-9]{3} (yes|no)"}
    text = client.completions.create(model="items", prompt="item", max_tokens=40, extra_body=body, seed=1)
    assert re.fullmatch(body["regex"], text.choices[0].text) and text.choices[0].finish_reason == "stop"
    schema = {"type": "object", "properties": {"a": {"enum": ["x", "y"]}}, "required": ["a"]}
    form = {
        "type": "json_schema",
        "json_schema": {"name": "it", "schema": {**schema, "additionalProperties": False}},
    }
    answer = client.chat.completions.create(
        model="items",
        messages=[{"role": "user", "content": "item"}],
        response_format=form,  # type: ignore[arg-type]
        max_tokens=40,
        seed=1,
    )
    assert json.loads(answer.choices[0].message.content or "")["a"] in ("x", "y")
    with pytest.raises(openai.BadRequestError, match="regular expression") as refused:
        client.completions.create(model="items", prompt="item", extra_body={"regex": "(["})
    assert refused.value.param == "regex"
    for place in ("http://127.0.0.1:9/x.json", "file:///etc/passwd"):  # nothing is fetched for a request
        form = {"type": "json_schema", "json_schema": {"name": "it", "schema": {"$ref": place}}}
        with pytest.raises(openai.BadRequestError, match="schema cannot be used"):
            client.completions.create(model="items", prompt="item", extra_body={"response_format": form})


def test_embeddings(client: openai.OpenAI, run: gf.Run) -> None:
    answer = client.embeddings.create(model="items", input=["item 3", "so schön"])
    assert len(answer.data) == 2 and len(answer.data[0].embedding) == run.config.model.width
    assert sum(x * x for x in answer.data[0].embedding) == pytest.approx(1, abs=1e-4)
    plain = client.embeddings.create(model="items", input="so schön", encoding_format="float")
    assert plain.data[0].embedding == pytest.approx(answer.data[1].embedding, abs=1e-6)
    assert answer.usage.prompt_tokens == sum(1 + len(run.tokenizer.encode(t)) for t in ("item 3", "so schön"))
    assert client.embeddings.create(model="labels", input="a good film").data[0].embedding


@pytest.mark.parametrize(
    ("asked", "code", "param"),
    [
        ({"suffix": "."}, "unsupported_parameter", "suffix"),
        ({"best_of": 3}, None, "best_of"),
        ({"extra_body": {"mirostat": 2}}, "unknown_parameter", "mirostat"),
        ({"temperature": -1}, "invalid_value", "temperature"),
        ({"max_tokens": 0}, None, "max_tokens"),
        ({"prompt": "item " * 300}, "context_length_exceeded", "prompt"),
        ({"prompt": [[100000]]}, None, "prompt"),
        ({"prompt": []}, None, "prompt"),
        ({"logit_bias": {"x": 1}}, None, "logit_bias"),
    ],
)
def test_what_cannot_be_is_refused_by_name(
    client: openai.OpenAI, asked: dict[str, object], code: str | None, param: str
) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        client.completions.create(**{"model": "items", "prompt": "item", **asked})  # type: ignore[arg-type]
    assert refused.value.param == param and refused.value.code == code
    assert param in refused.value.message and refused.value.type == "invalid_request_error"


def test_what_changes_nothing_is_accepted(client: openai.OpenAI) -> None:
    client.chat.completions.create(
        model="items",
        messages=[{"role": "user", "content": [{"type": "text", "text": "item"}]}],
        max_tokens=2,
        user="me",
        metadata={"a": "b"},
        store=False,
        tools=[],
    )


def test_the_weights_are_named_by_their_hash(client: openai.OpenAI, server: Process) -> None:
    asked = {"model": "items", "prompt": "item", "max_tokens": 1}
    answer = httpx.post(f"{server.url}/v1/completions", json=asked).json()
    assert answer["system_fingerprint"].startswith("gf-") and len(answer["system_fingerprint"]) == 15
