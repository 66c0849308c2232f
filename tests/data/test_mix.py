"""Mixing: exact shares, any sample known without counting up to it, and runs that go on to the bit."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file

import glassformer as gf
from glassformer.config.recipes import parse_overrides
from glassformer.config.schema import flatten
from glassformer.core.errors import DataError, RunError, UsageError
from glassformer.data.batches import PERIOD, Mixed, Windows, shares_of
from glassformer.data.order import fold_seed
from glassformer.data.shards import Blend, Tokens, blend, require
from tests.data.record_files import make_documents, write_records

SMALL = {
    "model.layers": 1,
    "model.width": 16,
    "model.heads": 2,
    "model.context": 16,
    "training.steps": 4,
    "training.batch": 4,
    "training.eval_every": 2,
    "training.checkpoint_every": 2,
    "training.keep": 5,
    "training.compile": "off",
    "training.device": "cpu",
}


def three(weights: list[float], lengths: tuple[int, ...] = (300, 90, 2000)) -> Blend:
    """Sources whose ids tell where they come from: thousands for the source, the rest for the place."""
    splits = [
        {"train": Tokens([np.arange(n) + 10_000 * i], n), "valid": Tokens([np.full(9, i)], 9)}
        for i, n in enumerate(lengths[: len(weights)])
    ]
    joined = blend(splits, weights)
    assert joined["valid"].read(0, 99).tolist() == [i for i in range(len(weights)) for _ in range(9)]
    train = joined["train"]
    assert isinstance(train, Blend)
    return train


@given(
    st.lists(st.floats(0.02, 1), min_size=1, max_size=3),
    st.integers(0, 3 * PERIOD),
    st.lists(st.integers(1, 400), min_size=1, max_size=5),
    st.integers(0, 2**40),
)
@settings(max_examples=50, suppress_health_check=[HealthCheck.too_slow])
def test_samples_do_not_depend_on_how_they_are_asked_for(
    weights: list[float], first: int, counts: list[int], seed: int
) -> None:
    mixed = Mixed(three(weights), 7, seed)
    together = mixed.read(first, sum(counts))
    starts = np.cumsum([first, *counts])
    apart = [mixed.read(int(at), count) for at, count in zip(starts, counts, strict=False)]
    assert (together == np.concatenate(apart)).all()


@given(st.lists(st.floats(0.02, 1), min_size=1, max_size=3), st.integers(0, 2**40))
@settings(max_examples=30, suppress_health_check=[HealthCheck.too_slow])  # each reads four thousand windows
def test_shares_are_exact_and_each_source_is_read_in_its_own_order(weights: list[float], seed: int) -> None:
    mixed = Mixed(three(weights), 7, seed)
    n = 2 * PERIOD
    ids = mixed.read(0, n)
    source = ids[:, 0] // 10_000
    for i, weight in enumerate(weights):
        for period in (source[:PERIOD], source[PERIOD:]):
            assert abs((period == i).sum() - PERIOD * weight / sum(weights)) < 1
        # The slow way: the windows of the source alone, one after the other.
        alone = Windows(three(weights).sources[i], 7, fold_seed(seed, i + 1))
        assert (ids[source == i] == alone.read(0, int((source == i).sum()))).all()
    if len(weights) > 1:
        assert (source[:PERIOD] != source[PERIOD:]).any()  # another order in every period


def test_shares_add_up_and_none_is_lost() -> None:
    assert shares_of([1, 1, 1]) == [334, 333, 333]
    assert shares_of([7, 3]) == [700, 300]
    assert shares_of([0.001, 0.999]) == [1, 999]
    with pytest.raises(UsageError, match="the weight 1 is less than one sample in 1,000"):
        shares_of([1, 100_000])


def test_a_short_source_is_named() -> None:
    with pytest.raises(DataError, match="train split of one source holds 90 tokens, and at least 200"):
        require({"train": three([1, 1, 1])}, "train", 200, "x")


def test_the_statistics_of_a_blend_follow_the_weights() -> None:
    both = three([3, 1])
    assert both.bytes_per_token == 1.0 and len(both) == 390
    beginning = both.beginning(40)
    assert (beginning < 10_000).sum() == 30 and len(beginning) == 40


@pytest.fixture
def sources(tmp_path: Path) -> dict[str, float]:
    write_records(make_documents(400), tmp_path / "a.jsonl.gz")
    write_records(make_documents(300, seed=1) + make_documents(50), tmp_path / "b.jsonl")
    (tmp_path / "c.txt").write_text("A text beside the records, line by line.\n" * 200)
    return {str(tmp_path / "a.jsonl.gz"): 5, str(tmp_path / "b.jsonl"): 3, str(tmp_path / "c.txt"): 2}


@pytest.mark.parametrize("task", ["language", "masked"])
def test_a_mix_trains_and_resumes_to_the_bit(
    task: str, sources: dict[str, float], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {**SMALL, "data.mix": sources, "data.dedup": True}
    run = gf.train(task=task, out=tmp_path / "run", settings=settings)
    data = run.data
    assert data["dropped"] >= 50 and data["source"].startswith("mix of 50 % ")
    assert [(m["source"], m["weight"]) for m in data["mix"]] == list(sources.items())
    assert all(len(m["text_fingerprint"]) == 64 and m["tokens"]["train"] > 0 for m in data["mix"])
    assert data["tokens"]["valid"] == sum(m["tokens"]["valid"] for m in data["mix"])
    assert json.loads(json.dumps(run.evaluate().as_dict())) == run.result["valid"]
    assert run.mistakes("valid").show() and run.result["floor_scores"]
    other = run.evaluate(data=str(tmp_path / "c.txt")).as_dict()
    assert other["split"] == "all" and other != run.result["valid"]

    broken = tmp_path / "broken"
    shutil.copytree(tmp_path / "run", broken)
    shutil.rmtree(broken / "checkpoints" / "step-00000004")
    monkeypatch.chdir(tmp_path)
    relative = {Path(name).name: weight for name, weight in sources.items()}
    gf.train(task=task, out=broken, settings={**settings, "data.mix": relative}, resume=True)
    one, other = (
        load_file(f / "checkpoints" / "step-00000004" / "model.safetensors")
        for f in (tmp_path / "run", broken)
    )
    assert all(torch.equal(one[k], other[k]) for k in one)

    with pytest.raises(UsageError, match=r"data\.mix"):
        gf.train(task=task, out=broken, settings={"data.mix": {**relative, "c.txt": 3}}, resume=True)
    write_records(make_documents(299, seed=1), tmp_path / "b.jsonl")
    with pytest.raises(RunError, match=r"the text of mix of .* is not the one"):
        gf.train(out=broken, resume=True)


def test_records_train_and_resume(sources: dict[str, float], tmp_path: Path) -> None:
    path = next(iter(sources))
    run = gf.train(path, out=tmp_path / "run", settings=SMALL)
    assert run.config.data.source == path and "hash of what they say" in run.data["rule"]
    assert run.evaluate(data=path).split == "all"  # type: ignore[attr-defined]
    shutil.rmtree(tmp_path / "run" / "checkpoints" / "step-00000004")
    again = gf.train(path, out=tmp_path / "run", settings=SMALL, resume=True)
    assert json.loads(json.dumps(again.evaluate().as_dict())) == run.result["valid"]


def test_a_mix_can_be_said_on_the_command_line() -> None:
    mix = {"hf:org/name@train": 0.5, "a b.jsonl": 2.0}
    assert flatten({"data.mix": mix}) == flatten({"data": {"mix": mix}}) == {"data.mix": mix}
    assert parse_overrides([f"data.mix={json.dumps(mix)}"]) == {"data": {"mix": mix}}
    assert parse_overrides(["data.mix={hf:org/name@train: 0.5, a b.jsonl: 2}"]) == {"data": {"mix": mix}}


@pytest.mark.parametrize(
    ("source", "settings", "message"),
    [
        ("c.txt", {"data.mix": {"c.txt": 1}}, "leave SOURCE out"),
        (None, {"data.mix": {"c.txt": 1, "pydocs": 0}}, "data.mix: Input should be greater than 0"),
        (None, {"data.mix": {"c.txt": 1, "pydocs": -2}}, "data.mix: Input should be greater than 0"),
        (None, {"data.mix": {"c.txt": 1, "pydocs": 1e-9}}, "less than one sample in 1,000"),
        (None, {"data.mix": {"c.txt": 1, "pidocs": 1}}, "no file, folder or data set 'pidocs'. Did you mean"),
        (None, {"data.mix": {"c.txt": 1, "sst2": 1}}, "'sst2' holds examples"),
        (None, {"data.mix": {"c.txt": 1, "-": 1}}, "standard input cannot be"),
        (None, {"data.mix": {"c.txt": 1}, "model.family": "lstm"}, "model.family lstm reads .* streams"),
        (None, {"data.mix": {"c.txt": 1}, "task": "classify"}, "for language and masked, not for classify"),
        ("c.txt", {"data.dedup": True, "task": "classify"}, "for language and masked, not for classify"),
    ],
)
def test_what_cannot_be_mixed_is_refused(
    source: str | None, settings: dict, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("c.txt").write_text("A text, line by line.\n" * 200)
    with pytest.raises((UsageError, DataError), match=message):
        gf.train(source, out=tmp_path / "run", settings={**SMALL, **settings})
    assert not (tmp_path / "run").exists()
