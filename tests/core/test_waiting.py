"""Threads wait awake on a quiet machine and asleep on a busy one; nothing else about them changes."""

import json
import os
import subprocess
import sys
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from glassformer.core.waiting import (
    QUIET_LOOKS,
    Load,
    Sleepers,
    Watcher,
    has_gnu_openmp,
    seconds_in_line,
    teams_needed,
)

HERE = pytest.mark.skipif(
    seconds_in_line() is None or not has_gnu_openmp(), reason="no count in /proc, or another OpenMP"
)


def test_a_busy_machine_is_seen_at_once_and_a_quiet_one_after_several_looks() -> None:
    load = Load()
    assert not load.look(0.05)
    assert load.look(0.6)
    assert all(load.look(0.0) for _ in range(QUIET_LOOKS - 1))
    assert load.look(0.15)  # in between: nothing changes, and the quiet looks are counted anew
    assert all(load.look(0.0) for _ in range(QUIET_LOOKS - 1))
    assert not load.look(0.0)


@HERE
def test_standing_in_line_is_counted() -> None:
    """Two threads on one core: each waits while the other runs."""
    code = """
import os, threading, time
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
from glassformer.core.waiting import seconds_in_line
child = os.fork()
until = time.monotonic() + 1.0
while time.monotonic() < until:
    pass
if child == 0:
    os._exit(0)
os.waitpid(child, 0)
print(sum(seconds_in_line().values()))
"""
    assert float(python(code)) > 0.2
    own = seconds_in_line()
    assert own is not None and str(threading.get_native_id()) in own


@given(threads=st.integers(2, 200), cores=st.integers(1, 200))
def test_sleepers_are_enough_and_no_more(threads: int, cores: int) -> None:
    """The library counts one, and of each team all threads but its leader: more than there are cores."""

    def counted(teams: int) -> int:
        return 1 + (teams + 1) * (threads - 1)

    teams = teams_needed(threads, cores)
    assert counted(teams) > cores
    assert teams == 1 or counted(teams - 1) <= cores


def test_threads_are_put_to_sleep_while_they_stand_in_line_and_woken_after() -> None:
    class Counted(Sleepers):
        held = False

        def hold(self) -> None:
            self.held = True

        def release(self) -> None:
            self.held = False

    watcher = Watcher()
    watcher.sleepers = sleepers = Counted()
    seen = []
    for in_line in (0.01, 0.9, 0.5, *[0.02] * QUIET_LOOKS, 0.03):
        watcher.look(in_line)
        seen.append(sleepers.held)
    assert seen == [False, True, True, *[True] * (QUIET_LOOKS - 1), False, False]


SLEEPERS = """
import json, os, time, torch
from glassformer.core.waiting import Sleepers
torch.set_num_threads(2)
x = torch.randn(300, 300)

def tasks():
    return len(os.listdir("/proc/self/task"))

first = (x @ x).sum().item(), tasks()
sleepers = Sleepers()
sleepers.hold()
sleepers.hold()  # once is enough
held = (x @ x).sum().item(), tasks(), torch.get_num_threads()
sleepers.release()
sleepers.release()
end = time.monotonic() + 20
while tasks() > first[1] and time.monotonic() < end:
    time.sleep(0.05)
print(json.dumps([first, held, tasks()]))
"""


@HERE
def test_sleepers_come_and_go_and_change_no_result() -> None:
    (value, threads), (held_value, held_threads, computing), after = json.loads(python(SLEEPERS))
    assert held_value == value and computing == 2
    assert held_threads >= threads + 2  # a team of two
    assert after == threads


WATCH = """
import os, torch
torch.set_num_threads({threads})
from glassformer.core.waiting import adapt_waiting, can_adapt
adapt_waiting()
adapt_waiting()
import threading
print(can_adapt(), sum(t.name == "waiting" for t in threading.enumerate()))
"""


@HERE
@pytest.mark.parametrize(
    ("threads", "said", "expected"),
    [
        (2, {}, "True 1"),
        (1, {}, "False 0"),
        (2, {"OMP_WAIT_POLICY": "PASSIVE"}, "False 0"),
        (2, {"GOMP_SPINCOUNT": "1000"}, "False 0"),
    ],
)
def test_it_is_left_to_the_user_who_said_something(threads: int, said: dict[str, str], expected: str) -> None:
    assert python(WATCH.format(threads=threads), said).strip() == expected


BESIDE = """
import os, subprocess, sys, threading, time, torch
torch.set_num_threads(2)
from glassformer.core.waiting import adapt_waiting
adapt_waiting()
x = torch.randn(256, 256)

def asleep(wanted, seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for _ in range(50):
            torch.relu(x @ x)
        if any(t.name == "sleepers" for t in threading.enumerate()) == wanted:
            return True
    return False

loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2 * os.cpu_count())]
try:
    put_to_sleep = asleep(True, 20)
finally:
    for loop in loops:
        loop.kill()
print(put_to_sleep, asleep(False, 30))
"""


@HERE
@pytest.mark.long
def test_beside_busy_programs_threads_are_put_to_sleep_and_woken() -> None:
    assert python(BESIDE).strip() == "True True"


def python(code: str, said: dict[str, str] | None = None) -> str:
    """What a Python of its own prints: how threads wait is settled once for a process."""
    keep = {k: v for k, v in os.environ.items() if not k.startswith(("OMP_", "GOMP_"))}
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**keep, **(said or {})},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
