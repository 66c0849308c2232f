"""A watch over the other processes: one that dies or hangs ends the rest, which say its number.

Every process leaves a sign of life in the common store once a second, from a thread of its own, and reads the
others'. One that leaves none for a while is dead, or frozen with all its threads. One that lives but does not
get on keeps the others waiting; after a longer while the one that has got least far is named, and all end.
"""

import json
import os
import socket
import sys
import threading
import time
import traceback
from contextlib import suppress
from typing import Any

from torch.distributed import Store  # type: ignore[attr-defined]

from glassformer.core.errors import UsageError
from glassformer.core.strict_json import dump_json

BEAT = 1.0  # seconds between signs of life
SILENCE = 15.0  # seconds without one after which a process counts as gone
STUCK = 600.0  # seconds in which nobody gets on; the first step of a large model is compiled in minutes
EXIT_CODE = 1
STARTING, FINISHING = "starting", "finishing"  # phases in which one works and the others wait for it
ALIKE = ("evaluation", "saving")  # phases that take what they take, as long as all are in them


class Watch(threading.Thread):
    def __init__(self, store: Store, rank: int, size: int, keeper: str):
        super().__init__(daemon=True, name="watch")
        self.store, self.rank, self.size, self.keeper = store, rank, size, keeper
        try:
            self.stuck = float(os.environ.get("GLASSFORMER_STUCK", STUCK))
        except ValueError:
            raise UsageError(
                f"GLASSFORMER_STUCK is {os.environ['GLASSFORMER_STUCK']}: expected a number of seconds"
            ) from None
        self.main = threading.main_thread().ident
        self._place, self._phase, self._since = 0, STARTING, time.monotonic()
        self._count, self._ended, self._writing = 0, threading.Event(), threading.Lock()
        # rank: its last sign, and when it changed
        self._heartbeats: dict[int, tuple[dict[str, Any], float]] = {}

    def set_phase(self, phase: str) -> None:
        """Called by the main thread whenever it gets on: processes pass the same phases in the same order."""
        self._place, self._phase, self._since = self._place + 1, phase, time.monotonic()

    def beat(self, **more: Any) -> None:
        who = f"process {os.getpid()} on {socket.gethostname()}"
        with self._writing:
            if self._ended.is_set() and not more:
                return  # a good-bye is the last that is said
            self._count += 1
            sign = {"n": self._count, "who": who, "place": self._place, "phase": self._phase}
            self.store.set(f"beat/{self.rank}", dump_json({**sign, "where": self._where(), **more}))

    def finish(self, failed: str | None = None) -> None:
        """Say good-bye: silence from here on means nothing. With a message, the others end as well."""
        self._ended.set()
        try:
            self.beat(done=True, **({"failed": failed} if failed is not None else {}))
        except RuntimeError:  # whoever kept the store is gone, and with it those to tell
            return

    def run(self) -> None:
        try:
            while not self._ended.wait(BEAT):
                self.beat()
                self._read_heartbeats()
                self._check()
        except RuntimeError:
            if not self._ended.is_set():
                self._end(f"{self.keeper} is gone", quiet=self.keeper != "rank 0" and self.rank != 0)

    def _read_heartbeats(self) -> None:
        now = time.monotonic()
        for rank in range(self.size):
            key = f"beat/{rank}"
            if rank == self.rank or (rank not in self._heartbeats and not self.store.check([key])):
                continue  # itself, or one that has not come yet
            sign = json.loads(self.store.get(key))
            if rank not in self._heartbeats or self._heartbeats[rank][0]["n"] != sign["n"]:
                self._heartbeats[rank] = sign, now

    def _check(self) -> None:
        now = time.monotonic()
        for rank, (sign, changed) in self._heartbeats.items():
            if sign.get("ended"):
                self._end(sign["ended"])
            if sign.get("failed"):
                self._end(f"rank {rank} ({sign['who']}) ended: {sign['failed']}", quiet=rank == 0)
            if not sign.get("done") and now - changed > SILENCE:
                self._end(f"rank {rank} ({sign['who']}) has not been heard of for {now - changed:.0f} s")
        if now - self._since > self.stuck and self._phase not in (STARTING, FINISHING):
            own = {"place": self._place, "phase": self._phase, "where": self._where(), "who": "this process"}
            all_ = {self.rank: own, **{r: s for r, (s, _) in self._heartbeats.items() if not s.get("done")}}
            last = min(s["place"] for s in all_.values())
            late = sorted(r for r, s in all_.items() if s["place"] == last)
            level = len(late) == len(all_)
            if level and self._phase in ALIKE:
                return
            report = "; ".join(f"rank {r} at {s['phase']} ({s['where']})" for r, s in sorted(all_.items()))
            names = "all in one place" if level else f"rank {', '.join(map(str, late))} behind the others"
            self._end(f"nothing has moved for {self.stuck:.0f} s, {names}: {report}")

    def rendezvous(self, seconds: float) -> None:
        """Wait until all have been heard of."""
        began = time.monotonic()
        while missing := [r for r in range(self.size) if not self.store.check([f"beat/{r}"])]:
            if time.monotonic() - began > seconds:
                raise RuntimeError(f"rank {', '.join(map(str, missing))} did not come")
            time.sleep(0.05)

    def find_missing(self) -> str | None:
        """After a collective failed: wait until it shows who is missing, but not for long."""
        began = time.monotonic()
        while time.monotonic() - began < SILENCE:
            for rank, (sign, changed) in list(self._heartbeats.items()):
                if not sign.get("done") and time.monotonic() - changed > 4 * BEAT:
                    return f"Rank {rank} ({sign['who']}) is gone."
            time.sleep(0.2)
        return None

    def wait_for_others(self, seconds: float = 10.0) -> None:
        """Wait for the others to say good-bye: with this process the store goes."""
        began = time.monotonic()
        with suppress(RuntimeError, ValueError):
            while time.monotonic() - began < seconds:
                self._read_heartbeats()
                now = time.monotonic()
                if all(sign.get("done") or now - at > 4 * BEAT for sign, at in self._heartbeats.values()):
                    return
                time.sleep(0.05)

    def leader_failed(self) -> bool:
        """Whether rank 0 ends for a reason of its own too, and says it."""
        for _ in range(20):
            if json.loads(self.store.get("beat/0")).get("failed"):
                return True
            time.sleep(0.1)
        return False

    def _where(self) -> str:
        frame = sys._current_frames().get(self.main or 0)
        if frame is None:
            return "?"
        own = [f for f in traceback.extract_stack(frame) if "glassformer" in f.filename]
        last = own[-1] if own else traceback.extract_stack(frame)[-1]
        return f"{os.path.basename(last.filename)}:{last.lineno}"  # noqa: PTH119

    def _end(self, why: str, quiet: bool = False) -> None:
        """From this thread, since the main one may be waiting in a collective for ever."""
        if not quiet:
            cursor = "\x1b[?25h" if sys.stderr.isatty() else ""
            sys.stderr.write(f"{cursor}\nError: {why}. Rank {self.rank} ends too. Go on with --resume.\n")
            sys.stderr.flush()
        self._ended.set()
        with suppress(RuntimeError):
            self.beat(done=True, ended=why)  # so that the others say the same
        os._exit(EXIT_CODE)
