"""Writing files so that a crash, a full disk or a second process never leaves half of one."""

import errno
import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from glassformer.core.errors import DiskError

_REASONS = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "your disk quota is used up",
    errno.EROFS: "the file system is read-only",
    errno.EACCES: "permission is denied",
    errno.EPERM: "permission is denied",
}


_UMASK = os.umask(0)  # it can only be asked for by setting it
os.umask(_UMASK)


def cache_root() -> Path:
    """glassformer's cache: `GLASSFORMER_CACHE`, or a folder in the user's cache; it need not be there yet."""
    root = os.environ.get("GLASSFORMER_CACHE")
    if not root:
        root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "glassformer"
    return Path(root).resolve()


def cache_dir(*parts: str) -> Path:
    """A folder of the cache, made where it is missing."""
    folder = cache_root().joinpath(*parts)
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    return folder


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn the operating system's refusal to write into a message that says what to do."""
    try:
        yield
    except OSError as error:
        # NumPy tells of a full disk in words alone.
        short_write = error.errno is None and any(w in str(error) for w in ("requested", "free space"))
        reason = _REASONS.get(errno.ENOSPC if short_write else error.errno or 0)
        if reason is None:
            raise
        raise DiskError(
            f"{path} could not be written: {reason}. What was saved before is untouched; make room or choose "
            "another place, then run the same command again (a run that has begun: with --resume)."
        ) from error


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A place to write what is to be `path`: readers see the old file or the new one, never a part."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with writing(path):
        try:
            yield temporary
            temporary.chmod(0o666 & ~_UMASK)  # some libraries keep what they write to the user alone
            with temporary.open("rb") as file:
                os.fsync(file.fileno())
            temporary.replace(path)
            sync_folder(path.parent)
        finally:
            temporary.unlink(missing_ok=True)


def write_atomically(path: Path, data: bytes | str) -> None:
    """Replace `path` by `data`, at once."""
    with replacing(path) as temporary:
        temporary.write_bytes(data.encode() if isinstance(data, str) else data)


def digest(path: Path) -> str:
    """The SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sync_folder(folder: Path) -> None:
    """Have the names in a folder on the disk, where a system can do that."""
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
