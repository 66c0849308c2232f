"""Sampling and streams: filters keep what they say, draws are a function, nobody sees half a character."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from glassformer.core.errors import UsageError
from glassformer.generation.noise import gumbel, key_of
from glassformer.generation.sampling import Said, Sampler, choose, stages, weigh
from glassformer.generation.stream import TextStream
from glassformer.tokenizers.bpe_tokenizer import BPE
from glassformer.tokenizers.tokenizer import Byte
from glassformer.tokenizers.vocabulary import Word

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
    rows, places = [Sampler(temperature=0.7, seed=1)] * 20_000, range(20_000)
    drawn = choose(logits, rows, places)
    expected = (logits[0] / 0.7).softmax(-1)
    torch.testing.assert_close(drawn.bincount(minlength=3) / 20_000, expected, atol=0.015, rtol=0)
    assert torch.equal(drawn, choose(logits, rows, places))
    assert (choose(logits, [Sampler(0.0)] * 20_000, places) == 2).all()
    assert not torch.equal(drawn, choose(logits, [Sampler(temperature=0.7, seed=2)] * 20_000, places))
    by_seed = choose(logits, [Sampler(seed=seed) for seed in range(20_000)], [5] * 20_000)
    torch.testing.assert_close(
        by_seed.bincount(minlength=3) / 20_000, logits[0].softmax(-1), atol=0.015, rtol=0
    )


@given(st.integers(0, 2**63 - 1), st.integers(0, 2**40), st.integers(0, 2**20))
def test_the_random_numbers_are_the_documented_hash(seed: int, position: int, token: int) -> None:
    """Once more in Python's whole numbers, which never wrap around by themselves."""

    def mix(x: int) -> int:
        x %= 2**64
        x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
        x = (x ^ (x >> 27)) * 0x94D049BB133111EB % 2**64
        return x ^ (x >> 31)

    bits = mix(mix(mix(seed) + position) + (token + 1) * 0x9E3779B97F4A7C15)
    uniform = ((bits >> 12) + 0.5) / 2**52
    keys = torch.tensor([key_of(seed, position)])
    assert float(gumbel(keys, torch.tensor([token]))[0, 0]) == pytest.approx(-math.log(-math.log(uniform)))


@given(logits_strategy, st.integers(0, 99), st.sampled_from([None, 3]), st.sampled_from([None, 0.8]))
def test_the_stages_of_a_choice_lead_to_it(
    values: list[float], seed: int, k: int | None, p: float | None
) -> None:
    logits, sampler = torch.tensor(values), Sampler(0.7, top_k=k, top_p=p, seed=seed, bias={1: 2.0})
    shown = stages(logits, weigh(logits, sampler, Said()), sampler, 4)
    assert float(shown.weighed[1]) == pytest.approx(values[1] + 2.0, abs=1e-5)
    torch.testing.assert_close(shown.tempered, shown.weighed / 0.7)
    assert shown.chosen == int(choose(shown.weighed[None], [sampler], [4])) == int(shown.noisy.argmax())
    assert torch.isfinite(shown.cut[shown.chosen])
    torch.testing.assert_close(shown.cut.softmax(-1), sampler.probabilities(shown.weighed[None])[0])


def test_rows_with_other_wishes_are_drawn_as_if_alone() -> None:
    logits = torch.randn(6, 40, generator=torch.Generator().manual_seed(0))
    rows = [
        Sampler(0.0),
        Sampler(seed=1),
        Sampler(0.5, 4, seed=1),
        Sampler(top_p=0.5, seed=2),
        Sampler(min_p=0.1, seed=3),
        Sampler(seed=1),
    ]
    together = choose(logits, rows, range(6)).tolist()
    assert together == [int(choose(logits[i : i + 1], [rows[i]], [i])) for i in range(6)]


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
