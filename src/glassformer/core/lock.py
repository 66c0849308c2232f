"""One process in a folder at a time. The lock is the system's, so that it goes with the process."""

import os
import platform
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from glassformer.core.errors import RunError
from glassformer.core.files import writing

NAME = ".lock"
PATIENCE = 0.2  # seconds between two tries


@contextmanager
def locked(folder: Path, wait: bool = False) -> Iterator[None]:
    """Hold the folder, or say who does; `wait`: until it is free."""
    with writing(folder):
        file = (folder / NAME).open("a+", encoding="utf-8")
    with file:
        while not _take(file.fileno()):
            if wait:
                time.sleep(PATIENCE)
                continue
            file.seek(0)
            holder = file.read(100).strip() or "another process"
            raise RunError(
                f"{folder} is being trained by {holder}. Wait for it to end, or choose another --out."
            )
        file.truncate(0)
        file.write(f"process {os.getpid()} on {platform.node()}")
        file.flush()
        yield


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
