"""Batches made ahead are those that would be made on the spot, and nothing stays behind."""

import gc
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from glassformer.objectives.objective import Batch
from glassformer.training.loop import Trainer
from glassformer.training.parallel.world import World
from glassformer.training.reader import Reader
from glassformer.training.schedule import BatchSizes
from tests.training.small import CPU, configure, make_objective, make_trainer, weights

SIZES = BatchSizes(4, {3: 8, 6: 16})


def reader(accumulate: int = 2, world: World | None = None) -> Reader:
    """One that makes batches ahead however small they are."""
    ahead = Reader(make_objective(configure()), SIZES, accumulate, world or World(), CPU)
    ahead.least_seconds = 0.0
    return ahead


def trainer_ahead(folder: Path, **training: Any) -> Trainer:
    trainer = make_trainer(folder, configure(**training))
    trainer.reader.least_seconds = 0.0
    return trainer


def threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name == "batches"}


def wait_until(true: Any) -> None:
    for _ in range(500):
        if true():
            return
        time.sleep(0.01)
    raise AssertionError("it did not come")


@settings(deadline=None, max_examples=30)
@given(st.lists(st.tuples(st.integers(0, 9), st.booleans()), min_size=1, max_size=8), st.integers(0, 1))
def test_any_order_of_steps_gives_the_batches_of_each(asked: list[tuple[int, bool]], rank: int) -> None:
    ahead, objective = reader(world=World(rank, 2)), make_objective(configure())
    for step, prepares in asked:
        got = ahead.read(step, prepares)
        size, first = SIZES.size(step), SIZES.consumed(step)
        own = size // 2 // 2  # of each micro-batch, one of two processes has half
        expected = [objective.batch(first + i * size // 2 + rank * own, own) for i in range(2)]
        assert [set(b) for b in got.batches] == [set(b) for b in expected]
        for batch, other in zip(got.batches, expected, strict=True):
            assert all(torch.equal(batch[name], other[name]) for name in other)
        assert (got.targets, got.tokens) == (size // 2 * 12, size // 2 * 12)
    ahead.close()
    assert ahead._thread is None


@pytest.mark.parametrize("changes", [{}, {"accumulate": 2, "batch_growth": {3: 6, 7: 8}}])
def test_training_is_the_same_to_the_bit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any]
) -> None:
    ahead = trainer_ahead(tmp_path / "ahead", **changes)
    ahead.run()
    plain = Reader.read
    monkeypatch.setattr(Reader, "read", lambda self, step, ahead=True: plain(self, step, ahead=False))
    on_the_spot = make_trainer(tmp_path / "on the spot", configure(**changes))
    on_the_spot.run()
    for name, expected in weights(on_the_spot).items():
        assert torch.equal(weights(ahead)[name], expected), name


def test_the_next_step_is_made_while_this_one_computes_and_no_later_one() -> None:
    ahead, calls = reader(1), []
    plain = ahead.objective.batch

    def batch(first: int, count: int) -> Batch:
        calls.append((first, threading.current_thread().name))
        return plain(first, count)

    ahead.objective.batch = batch
    ahead.read(0)
    wait_until(lambda: len(calls) == 2)
    assert calls == [(0, "MainThread"), (4, "batches")]
    ahead.read(1, ahead=False)
    ahead.wait()
    assert len(calls) == 2
    ahead.close()


def test_a_small_batch_is_made_on_the_spot_and_a_slow_one_ahead() -> None:
    ahead = reader(1)
    ahead.least_seconds = 0.2
    plain, pause = ahead.objective.batch, [0.0]

    def batch(first: int, count: int) -> Batch:
        time.sleep(pause[0])
        return plain(first, count)

    ahead.objective.batch = batch
    ahead.read(0)
    assert ahead._thread is None
    pause[0] = 0.25
    ahead.read(1)
    assert ahead._thread is not None
    ahead.close()


def test_a_batch_that_fails_fails_in_its_own_step(tmp_path: Path) -> None:
    trainer = trainer_ahead(tmp_path)
    plain = trainer.objective.batch

    def batch(first: int, count: int) -> Batch:
        if first == 5 * 4:
            raise OSError("the disk with the shards is gone")
        return plain(first, count)

    trainer.objective.batch = batch  # type: ignore[method-assign]
    with pytest.raises(OSError, match="shards is gone"):
        trainer.run()
    assert trainer.progress.step == 5
    assert trainer.reader._thread is None


def test_what_fails_and_is_never_asked_for_is_not_heard_of() -> None:
    ahead = reader(1)
    plain = ahead.objective.batch

    def batch(first: int, count: int) -> Batch:
        if first >= 4:
            raise OSError("no such shard")
        return plain(first, count)

    ahead.objective.batch = batch
    again = ahead.read(0), ahead.read(0, ahead=False)  # as after a rollback
    assert torch.equal(again[0].batches[0]["inputs"], again[1].batches[0]["inputs"])
    ahead.close()


def test_no_thread_stays_behind(tmp_path: Path) -> None:
    before = threads()  # of trainers that other tests have made and somebody still holds
    trainer_ahead(tmp_path).run()
    assert threads() <= before
    forgotten = reader()
    assert threads() <= before  # none before there is something to make: a process may fork until then
    forgotten.read(0)
    (thread,) = threads() - before
    del forgotten
    gc.collect()
    wait_until(lambda: not thread.is_alive())
