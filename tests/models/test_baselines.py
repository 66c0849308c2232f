"""The baselines: Kneser-Ney against its formula with dictionaries, the bag of words against scikit-learn."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from glassformer.models.bag_of_words import Bag, Features
from glassformer.models.ngram import NGram


def by_formula(text: list[int], vocab: int, order: int, history: list[int], word: int) -> float:
    """Interpolated Kneser-Ney, straight from its definition."""
    p = 1.0 / vocab
    for k in range(1, order + 1):
        raw = Counter(tuple(text[i : i + k]) for i in range(len(text) - k + 1))
        if k < order:
            longer = {tuple(text[i : i + k + 1]) for i in range(len(text) - k)}
            before = Counter(gram[1:] for gram in longer)
            counts = {gram: max(before[gram], 1) for gram in raw}
        else:
            counts = dict(raw)
        if len(history) < k - 1:
            break
        h = tuple(history[len(history) - (k - 1) :])
        total = sum(c for gram, c in counts.items() if gram[:-1] == h)
        if total == 0:
            break
        once, twice = (sum(c == n for c in counts.values()) for n in (1, 2))
        D = once / (once + 2 * twice) if once and twice else 0.5
        types = sum(gram[:-1] == h for gram in counts)
        p = (max(counts.get((*h, word), 0) - D, 0) + D * types * p) / total
    return p


@settings(max_examples=30, deadline=None)
@given(
    text=st.lists(st.integers(0, 4), min_size=6, max_size=60),
    held_out=st.lists(st.integers(0, 4), min_size=1, max_size=12),
    order=st.integers(1, 4),
)
def test_kneser_ney_is_its_formula(text: list[int], held_out: list[int], order: int) -> None:
    model = NGram(np.array(text), 5, order)
    expected = [by_formula(text, 5, order, held_out[:i], held_out[i]) for i in range(len(held_out))]
    np.testing.assert_allclose(model.probabilities(np.array(held_out)), expected, rtol=1e-12)


def test_probabilities_sum_to_one_for_any_history() -> None:
    draw = np.random.default_rng(0)
    model = NGram(draw.integers(0, 20, 3000), 20, 4)
    for _ in range(10):
        history = draw.integers(0, 20, 5)
        total = sum(model.probabilities(np.append(history, w))[-1] for w in range(20))
        assert total == pytest.approx(1.0, abs=1e-12)


def test_it_beats_the_uniform_model_on_text_with_structure() -> None:
    text = np.tile([1, 2, 3, 4, 5, 0], 200)
    assert (NGram(text, 6, 3).probabilities(text[:60])[3:] > 0.9).all()


def test_the_bag_of_words_is_logistic_regression() -> None:
    sklearn = pytest.importorskip("sklearn.linear_model")
    draw = np.random.default_rng(1)
    words = [f"w{i}" for i in range(30)]
    texts = [" ".join(draw.choice(words, 8)) for _ in range(200)]
    labels = [int("w1" in t.split()) + int("w2" in t.split()) for t in texts]
    bag = Bag(Features(texts), labels, 3, penalty=1e-3)
    features = np.array([[w in t.split() for w in sorted(words)] for t in texts], float)
    peer = sklearn.LogisticRegression(C=1 / (2 * 1e-3 * len(texts)), tol=1e-8, max_iter=5000)
    peer.fit(features, labels)
    np.testing.assert_allclose(bag.scores(texts).exp().numpy(), peer.predict_proba(features), atol=5e-3)
