"""One process in a folder at a time. The lock is the system's, so that it goes with the process."""

import os
import platform
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from glassformer.core.errors import RunError
from glassformer.core.files import open_log

NAME = ".lock"
PATIENCE = 0.2  # seconds between two tries


@contextmanager
def locked(folder: Path, wait: bool = False) -> Iterator[None]:
    """Hold the folder, or say who does; `wait`: until it is free, unless its holder is frozen."""
    with open_log(folder / NAME, "a+") as file:
        while not _take(file.fileno()):
            file.seek(0)
            holder = file.read(100).strip() or "another process"
            frozen = _frozen(holder)
            if wait and frozen is None:
                time.sleep(PATIENCE)
                continue
            if frozen is not None:
                raise RunError(
                    f"{folder} is held by {holder}, which is frozen (Ctrl-Z, or SIGSTOP). Let it go on with "
                    f"kill -CONT {frozen}, or end it with kill -KILL {frozen}; nothing that is saved is lost."
                )
            raise RunError(
                f"{folder} is being trained by {holder}. Wait for it to end, or choose another --out."
            )
        file.truncate(0)
        file.write(f"process {os.getpid()} on {platform.node()}")
        file.flush()
        yield


def _frozen(holder: str) -> int | None:
    """The number of the process that holds a lock, if it is one of this machine and stopped."""
    match = re.fullmatch(r"process (\d+) on (.*)", holder, re.DOTALL)
    if match is None or match[2] != platform.node():
        return None
    try:
        status = Path(f"/proc/{match[1]}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:  # another system, or it has just ended
        return None
    return int(match[1]) if status.rpartition(")")[2].split()[:1] in (["T"], ["t"]) else None


def _take(descriptor: int) -> bool:
    try:
        import fcntl
    except ImportError:  # not a POSIX system: it has a lock of another kind
        import msvcrt

        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined]
        except OSError:
            return False
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:  # a file system without locks
        raise RunError(
            f"no lock can be had there ({error.strerror}): choose a folder on another disk"
        ) from None
    return True
