"""Kinds of heads are found in weights made to be of that kind, and in a model that needed one to learn."""

from pathlib import Path

import pytest
import torch

import glassformer as gf
from glassformer.core.errors import UsageError
from glassformer.inspection import heads
from glassformer.inspection.cost import EXPECTED, Point, fit, measure, peak_memory
from glassformer.inspection.maps import pattern
from glassformer.inspection.trace import record_trace
from tests.models.families import ids, make


@pytest.mark.parametrize(
    ("kind", "distance"), [("previous", 1), ("next", -1), ("itself", 0), ("duplicate", 8), ("induction", 7)]
)
def test_a_head_that_looks_so_far_back_is_called_by_its_name(kind: str, distance: int) -> None:
    T = 17  # a mark and eight tokens said twice
    A = torch.zeros(3, 2, T, T)
    rows = torch.arange(T)
    A[:, 0, rows, (rows - distance).clamp(0, T - 1)] = 1.0
    A[:, 1, rows] = (torch.ones(T, T).tril() / rows[:, None].add(1))[None]
    scores = heads._scores(A, causal=False)
    assert scores[kind][0] == pytest.approx(1.0) and scores[kind][1] < 0.2
    assert heads.HeadScores(0, 0, {k: v[0] for k, v in scores.items()}).kind == kind
    assert scores["spread"][1] == pytest.approx(1.0, abs=1e-4) and scores["spread"][0] == pytest.approx(
        0.0, abs=1e-4
    )
    assert scores["positional"] == pytest.approx([1.0, 1.0])


@pytest.mark.parametrize(("task", "scored"), [("language", False), ("masked", True), ("classify", True)])
def test_what_cannot_look_forward_is_not_scored_for_it(task: str, scored: bool) -> None:
    trace = record_trace(make(task, "transformer"), ids(3, 9))
    every = heads.score_heads(trace)
    assert all(("next" in h.scores) == scored for h in every)
    assert ("next" in heads.named_kinds(every[0].scores)) == scored
    if not scored:  # what is left out is nothing
        assert float(torch.stack([pattern(trace, i)[:, :, 3, 4] for i in range(2)]).max()) == 0.0


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
