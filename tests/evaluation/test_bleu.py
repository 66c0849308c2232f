"""Translations measured: BLEU is sacrebleu's, the loss is that of the target tokens."""

import math

import numpy as np
import pytest
import sacrebleu
from hypothesis import given, settings
from hypothesis import strategies as st

from glassformer.evaluation.bleu import Translation, corpus_bleu, evaluate_translation, sentence_scores
from glassformer.objectives.translation import Translating
from tests.evaluation.fakes import TranslationLookup, log_table

REFERENCES = ["the cat sat on the mat .", "a dog runs through the tall grass", "two men talk"]
HYPOTHESES = ["the cat sat on a mat .", "a dog runs through the tall grass", "men"]
END = 3
# The probabilities of the next token after each; END begins a target and ends it.
MODEL = TranslationLookup(
    log_table([0.1, 0.2, 0.3, 0.4], [0.4, 0.3, 0.2, 0.1], [0.25] * 4, [0.7, 0.1, 0.1, 0.1])
)
WORDS = ["the", "a", "cat", "dog", "sat", "ran", "on", ".", "mat"]
sentences = st.lists(st.sampled_from(WORDS), max_size=12).map(" ".join)


def objective(*targets: list[int]) -> Translating:
    return Translating([np.array([0, 1])] * len(targets), [np.array(t, np.int64) for t in targets], END)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(sentences, sentences), min_size=1, max_size=5))
def test_bleu_is_what_sacrebleu_says(pairs: list[tuple[str, str]]) -> None:
    hypotheses, references = (list(side) for side in zip(*pairs, strict=True))
    score, signature = corpus_bleu(hypotheses, references)
    assert score == sacrebleu.corpus_bleu(hypotheses, [references]).score
    assert signature.startswith("nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:")


def test_perfect_and_empty_hypotheses() -> None:
    assert corpus_bleu(REFERENCES, REFERENCES)[0] == pytest.approx(100)
    assert corpus_bleu([""] * 3, REFERENCES)[0] == 0
    assert sentence_scores(["the cat", ""], ["the cat", "the cat"]) == [pytest.approx(100), 0]


def test_the_loss_is_that_of_every_target_token_and_the_end() -> None:
    result = evaluate_translation(MODEL, objective([0, 1], [2]), "valid", REFERENCES[:2])
    nats = [-math.log(p) for p in (0.7, 0.2, 0.1, 0.1, 0.25)]  # END→0, 0→1, 1→END; END→2, 2→END
    assert result.loss == pytest.approx(sum(nats) / 5, rel=1e-6)
    assert result.perplexity == pytest.approx(math.exp(result.loss))
    assert (result.tokens, result.n, result.split) == (5, 2, "valid")


@settings(max_examples=30, deadline=None)
@given(st.lists(st.lists(st.integers(0, 2), max_size=9), min_size=1, max_size=8))
def test_the_loss_does_not_depend_on_how_targets_are_batched(targets: list[list[int]]) -> None:
    result = evaluate_translation(MODEL, objective(*targets), "valid", [""] * len(targets))
    log_p = MODEL.table.detach()
    steps = [pair for t in targets for pair in zip([END, *t], [*t, END], strict=True)]
    assert result.tokens == len(steps)
    assert result.loss == pytest.approx(-sum(log_p[a, b].item() for a, b in steps) / len(steps), rel=1e-5)


def test_without_translating_there_is_a_loss_and_no_bleu() -> None:
    """While a model is trained, decoding every sentence would take too long: the loss decides."""
    result = evaluate_translation(MODEL, objective([0]), "valid", REFERENCES[:1])
    assert result.bleu is result.signature is result.exact_match is None
    assert result.score == ("loss", result.loss, False) and result.criterion == result.loss
    assert result.as_dict().keys() == {"split", "loss", "perplexity", "tokens", "n"}
    assert "BLEU" not in result.summary() and [name for name, _ in result.table()][1] == "loss"


def test_with_translations_bleu_and_exact_matches_are_counted() -> None:
    result = evaluate_translation(MODEL, objective([0], [1], [2]), "test", REFERENCES, lambda: HYPOTHESES)
    assert result.bleu == sacrebleu.corpus_bleu(HYPOTHESES, [REFERENCES]).score
    assert result.exact_match == pytest.approx(1 / 3)
    assert result.score == ("BLEU", result.bleu, True)
    assert result.as_dict().keys() == {
        *("split", "loss", "perplexity", "tokens", "bleu", "signature", "exact_match", "n")
    }
    assert result.summary().endswith("exact 33.33%")
    assert ("exact match", "33.33% of 3") in result.table()


def test_every_sentence_needs_its_hypothesis() -> None:
    with pytest.raises(ValueError):
        evaluate_translation(MODEL, objective([0], [1]), "test", REFERENCES[:2], lambda: HYPOTHESES[:1])


def test_a_baseline_without_a_loss_leaves_it_out() -> None:
    nothing = float("nan")
    result = Translation("valid", nothing, nothing, 0, 12.5, "signature", 0.25, 4)
    assert result.as_dict() == {
        "split": "valid",
        "tokens": 0,
        "bleu": 12.5,
        "signature": "signature",
        "exact_match": 0.25,
        "n": 4,
    }
