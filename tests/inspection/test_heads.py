"""Kinds of heads are found in weights made to be of that kind, and in a model that needed one to learn."""

from pathlib import Path

import pytest
import torch

import glassformer as gf
from glassformer.core.errors import UsageError
from glassformer.inspection import heads
from glassformer.inspection.cost import EXPECTED, Point, fit, measure, peak_memory
from glassformer.inspection.relations import parse, relations, sentences
from glassformer.inspection.trace import record_trace
from tests.models.families import VOCAB, ids, make


@pytest.mark.parametrize(
    ("kind", "distance"), [("previous", 1), ("itself", 0), ("duplicate", 8), ("induction", 7)]
)
def test_a_head_that_looks_so_far_back_is_called_by_its_name(kind: str, distance: int) -> None:
    T = 17  # a mark and eight tokens said twice
    A = torch.zeros(3, 2, T, T)
    rows = torch.arange(T)
    A[:, 0, rows, (rows - distance).clamp_min(0)] = 1.0
    A[:, 1, rows] = (torch.ones(T, T).tril() / rows[:, None].add(1))[None]
    scores = heads._scores(A)
    assert scores[kind][0] == pytest.approx(1.0) and scores[kind][1] < 0.2
    assert heads.HeadScores(0, 0, {k: v[0] for k, v in scores.items()}).kind == kind
    assert scores["spread"][1] == pytest.approx(1.0, abs=1e-4) and scores["spread"][0] == pytest.approx(
        0.0, abs=1e-4
    )
    assert scores["positional"] == pytest.approx([1.0, 1.0])


def test_repeated_sequences_are_what_they_say() -> None:
    sequences = heads.repeated_sequences(23, 20, avoid=[22])
    assert sequences.shape == (16, 19) and bool((sequences[:, 0] == 22).all())
    assert torch.equal(sequences[:, 1:10], sequences[:, 10:]) and not (sequences[:, 1:] == 22).any()
    assert all(len(set(row[1:10].tolist())) == 9 for row in sequences)
    with pytest.raises(UsageError, match="room"):
        heads.repeated_sequences(23, 4)


def test_each_kind_of_ablation_changes_that_head_alone() -> None:
    model = make("language", "transformer")
    trace = record_trace(model, ids(3, 9))
    for kind in ("zero", "mean", "resample"):
        z = record_trace(model, ids(3, 9), edits=[heads.ablation(trace, 0, 1, kind)])["0.z"]
        assert torch.equal(z[:, 0], trace["0.z"][:, 0]) and not torch.allclose(z[:, 1], trace["0.z"][:, 1])
    with pytest.raises(UsageError, match="no ablation"):
        heads.ablation(trace, 0, 1, "twice")


@pytest.mark.long
def test_the_recipe_grows_an_induction_head_that_the_report_finds(tmp_path: Path) -> None:
    """Two layers: in the first, heads that look one back; in the second, one that finds what came after."""
    run = gf.train(
        recipe="induction", out=tmp_path / "run", settings={"training.steps": 250, "training.decay": 0.2}
    )
    report = run.look("Xq3fTzXq3f").report()
    kinds = {(h["layer"], h["kind"]) for h in report["heads"]}
    assert (0, "previous") in kinds
    top = max(report["heads"], key=lambda h: h["scores"]["induction"])
    assert top["layer"] == 1 and top["scores"]["induction"] > 0.25
    copying = report["copying"]
    assert copying["saved"] > 0.5
    assert (copying["without"]["layer"], copying["without"]["head"]) == (top["layer"], top["head"])
    assert copying["without"]["saved"] < 0.5 * copying["saved"]
    tokenizer = run.tokenizer
    sequences = heads.repeated_sequences(len(tokenizer), 65, avoid=[tokenizer.eot_id or 0])
    savings = {(i, h): c.saved for i, h, c in heads.ablate_each(run.model, sequences)}
    others = [saved for (i, h), saved in savings.items() if i == 1 and h != top["head"]]
    assert savings[1, top["head"]] < min(others)  # no other head of its layer matters as much


def test_the_list_of_sentences_is_well_marked() -> None:
    by_relation = sentences()
    assert set(by_relation) == {"pronoun", "verb"} and all(
        len(examples) >= 20 for examples in by_relation.values()
    )
    for examples in by_relation.values():
        for sentence in examples:
            (a, b), (c, d) = sentence.target, sentence.source
            assert a < b <= c < d <= len(sentence.text) and not set(sentence.text) & set("[]{}")
    one = parse("The [queen] said {she} left.")
    assert (one.text[slice(*one.target)], one.text[slice(*one.source)]) == ("queen", "she")


def test_a_relation_is_the_weight_on_the_word_meant() -> None:
    """Even weights on everything before give just what the report calls an even look."""
    model = make("language", "distance", context=100)
    with torch.no_grad():
        for block in model.stack.blocks:  # pyright: ignore
            block.attention.scores.zero_()

    def encode(text: str) -> tuple[list[int], list[tuple[int, int]]]:
        return [ord(c) % VOCAB for c in text], [(i, i + 1) for i in range(len(text))]

    for relation in relations(model, encode, 100):
        assert relation.sentences >= 20
        for row in relation.weights:
            assert row == pytest.approx([relation.even] * 2, rel=1e-4)


def test_exponents_are_found_in_costs_that_have_them() -> None:
    sizes = [(128, 64), (256, 64), (512, 64), (1024, 64), (512, 128), (512, 256)]
    points = [
        Point(part, T, C, 1e-9 * T**t * C**c, 4 * T**m)
        for part, (t, c, m) in EXPECTED.items()
        for T, C in sizes
    ]
    for exponents in fit(points):
        assert exponents.time == pytest.approx(exponents.expected_time)
        assert exponents.expected_memory is None or exponents.memory == pytest.approx(
            exponents.expected_memory
        )


def test_memory_is_what_tensors_take() -> None:
    device = torch.device("cpu")

    def work() -> None:
        a = torch.ones(1000, 1000)  # 4 MB
        b = a + 1
        del a
        b.add_(1)

    assert 8_000_000 <= peak_memory(work, device) < 8_200_000
    formula, fused = (measure(part, 512, 64, device, repeats=1) for part in list(EXPECTED)[:2])
    assert formula.bytes > 4 * fused.bytes and formula.seconds > 0
