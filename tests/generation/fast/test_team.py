"""Threads: when helpers are left out, and that a team ends."""

import gc
import threading
import weakref

from glassformer.generation.fast.team import AGAIN, ALONE, LONGEST_ALONE, Waits
from tests.conftest import tiny_model
from tests.generation.fast.reading import new_step, read


class Clock:
    def __init__(self) -> None:
        self.time = 100.0

    def __call__(self) -> float:
        return self.time


def test_helpers_are_left_out_while_they_are_waited_for_again_and_again() -> None:
    clock = Clock()
    waits = Waits(clock)
    waits.count(1)
    assert not waits.is_alone  # once is nothing
    clock.time += 2 * AGAIN
    waits.count(2)
    assert not waits.is_alone
    clock.time += AGAIN / 2
    waits.count(3)
    assert waits.is_alone
    clock.time += 1.1 * ALONE
    assert not waits.is_alone  # another try
    waits.count(5)
    clock.time += 1.9 * ALONE
    assert waits.is_alone  # twice as long
    for total in range(7, 30, 2):
        clock.time += 2 * LONGEST_ALONE if waits.is_alone else 0.01
        waits.count(total)
    clock.time += 1.01 * LONGEST_ALONE
    assert not waits.is_alone
    clock.time += 100
    waits.count(40)
    clock.time += 1.1 * ALONE
    assert not waits.is_alone  # after a quiet time it begins anew


def test_a_team_that_nobody_has_ends_its_threads() -> None:
    step = new_step(tiny_model(), threads=3)
    read(step, [1, 2, 3], [1, 1, 1])
    assert sum(thread.name == "decoding" for thread in threading.enumerate()) >= 2
    gone = weakref.ref(step)
    del step
    gc.collect()
    assert gone() is None
    assert not [thread for thread in threading.enumerate() if thread.name == "decoding"]
