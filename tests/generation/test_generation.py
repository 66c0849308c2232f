"""Generation: the cache changes nothing, filters keep what they say, streams never show half a character."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from glassformer.core.errors import UsageError
from glassformer.generation.beam import beam_search
from glassformer.generation.engine import generate
from glassformer.generation.sampling import Sampler
from glassformer.generation.stream import TextStream
from glassformer.tokenizers.bpe_tokenizer import BPE
from glassformer.tokenizers.tokenizer import Byte
from glassformer.tokenizers.vocabulary import Word
from tests.conftest import tiny_model

VARIANTS = [
    {},
    {"position": "learned"},
    {"position": "sinusoidal"},
    {"position": "alibi"},
    {"position": "none"},
    {"kv_heads": 1, "value_width": 6},
    {"window": 3},
    {"placement": "post", "norm": "rms"},
]


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
@pytest.mark.parametrize("prompt_length", [1, 5, 12, 30])
def test_cached_generation_equals_the_plain_way(variant: dict[str, object], prompt_length: int) -> None:
    """Also far beyond the context (12), where the older half is dropped."""
    model = tiny_model(**variant)
    prompt = torch.randint(23, (2, prompt_length))
    results = []
    for cached in (True, False):
        step_logits: list[torch.Tensor] = []
        sampler = Sampler(seed=5)

        def choose(
            logits: torch.Tensor, sampler: Sampler = sampler, rows: list = step_logits
        ) -> torch.Tensor:
            rows.append(logits)
            return sampler(logits)

        tokens = torch.stack(list(generate(model, prompt, 40, choose, cached=cached)))
        results.append((tokens, torch.stack(step_logits)))
    assert torch.equal(results[0][0], results[1][0])
    torch.testing.assert_close(results[0][1], results[1][1], rtol=1e-4, atol=1e-5)


def test_a_cached_step_costs_one_position() -> None:
    model = tiny_model()
    widths: list[int] = []
    handle = model.stack.register_forward_pre_hook(lambda module, args: widths.append(args[0].shape[1]))
    list(generate(model, torch.randint(23, (1, 4)), 6, Sampler(0.0)))
    assert widths == [4, 1, 1, 1, 1, 1]
    handle.remove()


def test_sequences_of_a_batch_do_not_touch_each_other() -> None:
    model = tiny_model()
    a, b = torch.randint(23, (1, 5)), torch.randint(23, (1, 5))
    together = torch.stack(list(generate(model, torch.cat([a, b]), 20, Sampler(0.0))), 1)
    alone = [torch.stack(list(generate(model, x, 20, Sampler(0.0))), 1) for x in (a, b)]
    assert torch.equal(together, torch.cat(alone))


logits_strategy = st.lists(st.floats(-5, 5), min_size=2, max_size=12)


@given(logits_strategy, st.integers(1, 12))
def test_top_k_keeps_the_k_best(values: list[float], k: int) -> None:
    logits = torch.tensor([values])
    probabilities = Sampler(top_k=k).probabilities(logits)[0]
    threshold = sorted(values, reverse=True)[min(k, len(values)) - 1]
    for value, p in zip(logits[0].tolist(), probabilities.tolist(), strict=True):
        assert (p > 0) == (value >= torch.tensor(threshold).item())
    assert probabilities.sum().item() == pytest.approx(1, abs=1e-5)


@given(logits_strategy, st.floats(0.05, 1.0))
def test_top_p_keeps_the_smallest_set_that_reaches_p(values: list[float], p: float) -> None:
    logits = torch.tensor([values])
    full = logits.softmax(-1)[0]
    support = Sampler(top_p=p).probabilities(logits)[0] > 0
    mass = full[support].sum().item()
    assert mass >= p - 1e-5
    assert mass - full[support].min().item() < p + 1e-5  # one fewer would not reach it
    if (~support).any():
        assert full[support].min() >= full[~support].max()


@given(logits_strategy, st.floats(0.05, 1.0))
def test_min_p_keeps_what_is_likely_enough(values: list[float], p: float) -> None:
    full = torch.tensor([values]).softmax(-1)[0]
    probabilities = Sampler(min_p=p).probabilities(torch.tensor([values]))[0]
    for share, result in zip(full.tolist(), probabilities.tolist(), strict=True):
        if abs(share - p * full.max().item()) > 1e-6:
            assert (result > 0) == (share > p * full.max().item())


def test_sampling_follows_the_probabilities_and_the_seed() -> None:
    logits = torch.tensor([[0.0, 1.0, 2.0]]).repeat(20_000, 1)
    drawn = Sampler(temperature=0.7, seed=1)(logits)
    expected = (logits[0] / 0.7).softmax(-1)
    torch.testing.assert_close(drawn.bincount(minlength=3) / 20_000, expected, atol=0.015, rtol=0)
    assert torch.equal(drawn, Sampler(temperature=0.7, seed=1)(logits))
    assert (Sampler(0.0)(logits) == 2).all()
    assert not torch.equal(Sampler(seed=1)(logits), Sampler(seed=2)(logits))


@pytest.mark.parametrize(
    "options", [{"temperature": -1.0}, {"top_k": 0}, {"top_p": 0.0}, {"top_p": 1.5}, {"min_p": -0.1}]
)
def test_impossible_sampling_is_refused(options: dict[str, float]) -> None:
    with pytest.raises(UsageError, match="expected"):
        Sampler(**options)  # type: ignore[arg-type]


def stream_parts(
    tokenizer: Byte | BPE | Word, text: str, stop: list[str], end: bool = False
) -> tuple[list[str], bool]:
    stream = TextStream(tokenizer, tokenizer.eot_id, stop)
    ids = tokenizer.encode(text)
    assert tokenizer.eot_id is not None
    parts = [stream.feed(i) for i in ([*ids, tokenizer.eot_id, 0, 0] if end else ids)]
    ended = stream.ended
    return [*parts, stream.flush()], ended


@given(st.text(max_size=30))
def test_streams_show_whole_characters_that_join_to_the_text(text: str) -> None:
    parts, _ = stream_parts(Byte(), text, [])
    assert "".join(parts) == text
    assert all("�" not in part for part in parts) or "�" in text
    assert "".join(stream_parts(Byte(), text, [], end=True)[0]) == text


@settings(max_examples=200)
@given(st.text("abc\n", max_size=20), st.lists(st.text("abc\n", min_size=1, max_size=4), max_size=3))
def test_a_stop_string_ends_the_text_and_is_never_shown(text: str, stop: list[str]) -> None:
    parts, _ = stream_parts(Byte(), text, stop)
    ends = [text.find(s) + len(s) for s in stop if s in text]
    if not ends:
        assert "".join(parts) == text
        return
    first_end = min(ends)  # what is complete first, ends it
    cut = min(text[:first_end].find(s) for s in stop if s in text[:first_end])
    assert "".join(parts) == text[:cut]


def test_words_are_joined_by_blanks() -> None:
    word = Word.train(["one two three"])
    assert "".join(stream_parts(word, "one two three", [])[0]) == "one two three"


def test_no_step_of_a_generation_lets_cudnn_plan_for_its_length() -> None:
    """And nothing of that is left outside: not between two tokens, and not for training."""
    model = tiny_model()
    inside: list[bool] = []

    def watch(site: str, x: torch.Tensor) -> torch.Tensor:
        inside.append(torch.backends.cuda.cudnn_sdp_enabled())
        return x

    before = torch.backends.cuda.cudnn_sdp_enabled()
    steps = generate(model, torch.tensor([[1, 2]]), 3, lambda x: x.argmax(-1), new_tap=lambda _: watch)
    between = [torch.backends.cuda.cudnn_sdp_enabled() for _ in steps]
    assert before and between == [True] * 3
    assert inside and not any(inside)
    state = model.new_state(1)
    beam_search(
        lambda ids, s: model.next_scores(ids, s, watch),
        state,
        torch.tensor([[1]]),
        beams=2,
        tokens=2,
        end=None,
    )
    assert not any(inside) and torch.backends.cuda.cudnn_sdp_enabled()
