"""Files of the user's: which there are, whether they hold text, what they are known by."""

import codecs
import hashlib
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

from glassformer.core.errors import DataError
from glassformer.core.files import cache_dir, digest, move, replacing, user_path, write_atomically
from glassformer.core.terminal import standard_input
from glassformer.data.packed import PIECE, open_packed

LARGE = 1 << 26  # bytes of a file whose digest is worth keeping
MTIME_MARGIN = 2_000_000_000  # nanoseconds after which a change would show in a file's time


def files_under(source: str) -> tuple[list[Path], list[str]]:
    """The files of a file, a folder or a pattern with *, in order, and their names."""
    root = user_path(source)
    if root.is_file():
        return [root], [root.name]
    if root.is_dir():
        paths = [p for p in root.rglob("*") if p.is_file()]
    else:
        wildcard = next((i for i, part in enumerate(root.parts) if set(part) & set("*?[")), None)
        if wildcard is None:
            raise DataError(f"there is no file or folder '{root}'.")
        pattern, root = Path(*root.parts[wildcard:]), Path(*root.parts[:wildcard])
        paths = [p for p in root.glob(str(pattern)) if p.is_file()] if root.is_dir() else []
        if not paths:
            raise DataError(f"there is no file that fits '{source}'.")
    visible = [p for p in sorted(paths) if not any(x.startswith(".") for x in p.relative_to(root).parts)]
    nonempty = [p for p in visible if p.stat().st_size > 0]
    return nonempty, [str(p.relative_to(root)) for p in nonempty]


def text_digest(path: Path, name: str, progress: Callable[[int], None] = lambda _: None) -> str:
    """Read a file once: refuse what is not text, return the digest of its content."""
    return text_digest_and_size(path, name, progress)[0]


def text_digest_and_size(
    path: Path, name: str, progress: Callable[[int], None] = lambda _: None
) -> tuple[str, int]:
    """The same with the length of its text in bytes, which differs from the file's when it is packed."""
    hasher = hashlib.sha256()
    decoder = codecs.getincrementaldecoder("utf-8")()
    size = 0
    try:
        with open_packed(path) as file:
            while block := file.read(PIECE):
                if b"\0" in block[:8192] and size == 0:
                    raise DataError(
                        f"{name} is a binary file (it holds NUL bytes), not text. If it is UTF-16 text, "
                        f"convert it: iconv -f UTF-16 -t UTF-8 '{name}' > text.txt"
                    )
                decoder.decode(block)
                hasher.update(block)
                size += len(block)
                progress(len(block))
        decoder.decode(b"", final=True)
    except UnicodeDecodeError as error:
        raise DataError(
            f"{name} is not UTF-8 text: byte 0x{error.object[error.start]:02x} near offset "
            f"{max(0, size + error.start)} fits no character. If it is Latin-1 text, convert it: "
            f"iconv -f ISO-8859-1 -t UTF-8 '{name}' > text.txt"
        ) from None
    except OSError as error:
        raise DataError(f"{name} could not be read: {error.strerror or error}.") from error
    if size == 0:
        raise DataError(f"{name} is empty: expected UTF-8 text.")
    return hasher.hexdigest(), size


def file_digest(path: Path) -> str:
    """SHA-256 of a file's bytes. That of a large one is kept in the cache until size or time change."""
    stat = path.stat()
    facts = f"{path.resolve()} {stat.st_ino} {stat.st_size} {stat.st_mtime_ns}"
    cached = cache_dir("digests") / hashlib.sha256(facts.encode(errors="surrogateescape")).hexdigest()
    is_settled = time.time_ns() - stat.st_mtime_ns > MTIME_MARGIN
    if stat.st_size >= LARGE and is_settled and cached.is_file():
        return cached.read_text(encoding="ascii")
    fingerprint = digest(path)
    if stat.st_size >= LARGE and is_settled:
        write_atomically(cached, fingerprint)
    return fingerprint


def bom_length(path: Path) -> int:
    """Length of a byte-order mark, which is no part of the text."""
    with open_packed(path) as file:
        return len(codecs.BOM_UTF8) if file.read(3) == codecs.BOM_UTF8 else 0


def spool_standard_input() -> Path:
    """Standard input can be read once only, so it is kept in the cache under its digest."""
    folder = cache_dir("stdin")
    source, spool = standard_input(), folder / f"spool-{os.getpid()}"
    with replacing(spool) as temporary, temporary.open("wb") as file:
        shutil.copyfileobj(source, file)
    return move(spool, folder / f"{digest(spool)}.txt")
