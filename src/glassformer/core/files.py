"""The one way to files: written whole or not at all and never through a link, read only when they are files.

    replacing          a file that takes the place of another at once; a link there is replaced, not followed
    open_log           a file that grows: never through a link
    make_folder        a folder; `own_folder` one of ours inside another, which must not be a link
    remove             what stands at a path, and nothing behind a link
    read_bytes         a regular file of bounded size: no device, no pipe, nothing endless

A crash, a full disk or a second process never leaves half of a file.
"""

import errno
import hashlib
import json
import os
import re
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from glassformer.core.errors import DiskError, RunError, UsageError

_REASONS = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "your disk quota is used up",
    errno.EROFS: "the file system is read-only",
    errno.EACCES: "permission is denied",
    errno.EPERM: "permission is denied",
    errno.ENAMETOOLONG: "its name is too long",
}

LARGEST = 1 << 28  # bytes of a file that is read whole, unless told
_NO_FOLLOW = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
_NO_WAIT = getattr(os, "O_NONBLOCK", 0)  # a pipe nobody writes to would be waited for
_TEMPORARY = re.compile(r"\..+\.\d+\.tmp")


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
    return make_folder(cache_root().joinpath(*parts))


def user_path(name: str | Path) -> Path:
    """A path as a person gives it: `~` is the home folder, unless no user is called so."""
    try:
        return Path(name).expanduser()
    except RuntimeError:  # a file whose name begins with ~
        return Path(name)


def names_in(folder: Path) -> list[str]:
    """What is in a folder, to hint at what may have been meant; nothing where it cannot be read."""
    try:
        return [path.name for path in folder.iterdir()]
    except OSError:
        return []


def whole_path(name: str | Path) -> Path:
    """A path as a person gives it, absolute and with its links followed."""
    try:
        return user_path(name).resolve()
    except (RuntimeError, OSError):
        raise UsageError(
            f"{name} is a link that leads to itself: expected one that leads to a file"
        ) from None


def inside(folder: Path, name: str) -> Path:
    """A place in a folder by a name that is one: not a path that leads out of it, or deeper into it."""
    if name in ("", ".", "..") or any(c in "/\\" or not c.isprintable() for c in name):
        raise UsageError(f"'{name}' is no name for a folder in {folder}: expected one without / and \\")
    return folder / name


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


def make_folder(path: Path) -> Path:
    """The folder, and those above it, made where they are missing."""
    with writing(path):
        try:
            path.mkdir(parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError):
            raise RunError(f"{path} is needed as a folder, and a file is in the way.") from None
    return path


def own_folder(path: Path) -> Path:
    """A folder that we empty again, so it must be a real one: what a link leads to is not ours."""
    if path.is_symlink():
        raise RunError(f"{path} is a link, and what it leads to is not touched. Put a real folder there.")
    return make_folder(path)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A place to write what is to be `path`: readers see the old file or the new one, never a part."""
    of_the_system = path.absolute().parent == Path("/dev") or path.absolute().is_relative_to("/proc")
    if of_the_system or (path.exists() and not path.is_file()):
        raise RunError(f"{path} is no regular file, so nothing is written there. Choose another name.")
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with writing(path):
        try:
            temporary.unlink(missing_ok=True)
            os.close(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NO_FOLLOW, 0o600))
            yield temporary
            temporary.chmod(0o666 & ~_UMASK)  # some libraries keep what they write to the user alone
            with temporary.open("rb") as file:
                os.fsync(file.fileno())
            temporary.replace(path)
            sync_folder(path.parent)
        finally:
            temporary.unlink(missing_ok=True)


def is_temporary(name: str) -> bool:
    """Whether a file of this name is one that a killed process did not get to rename."""
    return _TEMPORARY.fullmatch(name) is not None


def remove_temporaries(folder: Path) -> None:
    """Remove what killed processes left; whoever calls holds the folder's lock."""
    for path in folder.iterdir():
        if is_temporary(path.name):
            remove(path)


def write_atomically(path: Path, data: bytes | str) -> None:
    """Replace `path` by `data`, at once."""
    with replacing(path) as temporary:
        # A name that is not UTF-8 shows as \\udcff, which JSON and YAML read back as it was.
        temporary.write_bytes(data.encode(errors="backslashreplace") if isinstance(data, str) else data)


def open_log(path: Path, mode: str = "a") -> IO[Any]:
    """A file that grows, opened to append (`a`, `ab`), or to read and append (`a+`); never through a link."""
    access = os.O_RDWR if "+" in mode else os.O_WRONLY
    with writing(path):
        try:
            descriptor = os.open(path, access | os.O_CREAT | os.O_APPEND | _NO_FOLLOW | _NO_WAIT, 0o666)
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.EMLINK, errno.ENXIO, errno.EISDIR):
                raise RunError(
                    f"{path} is a link or no file, so nothing is written there. Remove it."
                ) from None
            raise
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise RunError(f"{path} is no regular file, so nothing is written there. Remove it.")
    return os.fdopen(descriptor, mode, encoding=None if "b" in mode else "utf-8")


def move(path: Path, to: Path) -> Path:
    """Give what we made another name, at once; what stood there is replaced, and a link not followed."""
    with writing(to):
        path.replace(to)
        sync_folder(to.parent)
    return to


def remove(path: Path) -> None:
    """Remove a file, a folder or a link, as far as that can be done; what a link leads to stays."""
    with suppress(OSError):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def open_regular(path: Path) -> IO[bytes]:
    """A file to read; what is no regular file, a device or a pipe, is an OSError and never waited for."""
    descriptor = os.open(path, os.O_RDONLY | _NO_WAIT | getattr(os, "O_BINARY", 0))
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is no regular file", str(path))
    return os.fdopen(descriptor, "rb")


def read_bytes(path: Path, most: int = LARGEST) -> bytes:
    """A regular file, whole, if it has no more than so many bytes; else an OSError."""
    with open_regular(path) as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise OSError(errno.EFBIG, f"it has more than {most:,} bytes", str(path))
    return data


def read_text(path: Path, most: int = LARGEST) -> str:
    """The same as text; what is not UTF-8 is a ValueError."""
    return read_bytes(path, most).decode()


def read_json(path: Path, most: int = LARGEST) -> Any:
    """The same as JSON; what is none, or too deep, is a ValueError."""
    try:
        return json.loads(read_text(path, most))
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def digest(path: Path) -> str:
    """The SHA-256 of a file."""
    with open_regular(path) as file:
        return digest_of(file)


def digest_of(file: IO[bytes]) -> str:
    """The SHA-256 of an open file."""
    return hashlib.file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type]


def sync_folder(folder: Path) -> None:
    """Have the names in a folder on the disk, where a system can do that."""
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def in_bytes(size: float) -> str:
    """A size as a person reads it: 140 bytes, 3.2 KB, 1.25 MB."""
    if size < 1000:
        return f"{size:.0f} bytes"
    return f"{size / 1e3:.1f} KB" if size < 1e5 else f"{size / 1e6:.2f} MB"
