"""A model that is behind its baselines is told so."""

from glassformer.evaluation.verdict import verdict


def test_a_model_behind_the_best_baseline_is_told_so_with_what_to_do() -> None:
    said = verdict(("bits per byte", 1.9, False), {"3-gram": 2.1, "5-gram": 1.7}, advice="train longer")
    assert said == "A baseline beats this model, 5-gram: 1.7 against 1.9 bits per byte. Train longer."
    assert verdict(("accuracy", 0.9, True), {"majority": 0.5, "bag of words": 0.8}) == (
        "Better than the best baseline, bag of words: 90.0% against 80.0%."
    )


def test_a_baseline_within_the_interval_is_neither_better_nor_worse() -> None:
    said = verdict(("accuracy", 0.79, True), {"bag of words": 0.80}, (0.75, 0.83))
    assert said == "About as good as the best baseline, bag of words: 79.0% against 80.0%."
    assert verdict(("accuracy", 0.79, True), {}) == ""


def test_a_tie_is_no_defeat_and_what_is_no_number_is_said() -> None:
    assert verdict(("BLEU", 0.0, True), {"the source itself": 0.0}).startswith("About as good")
    assert "no bits per byte" in verdict(("bits per byte", float("nan"), False), {"5-gram": 1.7})
    assert verdict(("bits per byte", 1.0, False), {"5-gram": float("nan")}) == ""
