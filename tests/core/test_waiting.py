"""Threads wait awake on a quiet machine and asleep on a busy one; nothing else about them changes."""

import json
import os
import subprocess
import sys
import threading

import pytest

from glassformer.core.waiting import QUIET_LOOKS, Load, seconds_in_line

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="only there the count of /proc is kept")


def test_a_busy_machine_is_seen_at_once_and_a_quiet_one_after_several_looks() -> None:
    load = Load()
    assert not load.look(0.05)
    assert load.look(0.6)
    assert all(load.look(0.0) for _ in range(QUIET_LOOKS - 1))
    assert load.look(0.15)  # in between: nothing changes, and the quiet looks are counted anew
    assert all(load.look(0.0) for _ in range(QUIET_LOOKS - 1))
    assert not load.look(0.0)


@LINUX
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


SLEEPERS = """
import json, os, threading, torch
from glassformer.core.waiting import Sleepers
torch.set_num_threads(2)
x = torch.randn(300, 300)
first = (x @ x).sum().item(), len(os.listdir("/proc/self/task"))
sleepers = Sleepers()
sleepers.hold()
sleepers.hold()  # once is enough
held = (x @ x).sum().item(), len(os.listdir("/proc/self/task")), torch.get_num_threads()
sleepers.release()
sleepers.release()
import time; time.sleep(0.3)
print(json.dumps([first, held, len(os.listdir("/proc/self/task"))]))
"""


@LINUX
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


@LINUX
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
import threading, time, torch
torch.set_num_threads(2)
from glassformer.core import waiting
waiting.adapt_waiting()
x = torch.randn(256, 256)
def team():
    return any(t.name == "sleepers" for t in threading.enumerate())
def until(wanted, seconds):
    end = time.monotonic() + seconds
    while team() != wanted and time.monotonic() < end:
        for _ in range(50):
            torch.relu(x @ x)
    return team() == wanted
import subprocess, sys, os
loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2 * os.cpu_count())]
try:
    print(until(True, 20))
finally:
    for loop in loops:
        loop.kill()
"""


@LINUX
def test_beside_busy_programs_threads_are_put_to_sleep() -> None:
    assert python(BESIDE).strip() == "True"


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
