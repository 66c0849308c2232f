"""Files of the user's: which there are, whether they hold text, what they are known by."""

import codecs
import hashlib
import os
import re
import shlex
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from glassformer.core.errors import DataError
from glassformer.core.files import (
    cache_dir,
    cache_root,
    digest,
    make_folder,
    move,
    open_regular,
    read_bytes,
    replacing,
    user_path,
    write_atomically,
    writing,
)
from glassformer.core.lock import NAME as LOCK
from glassformer.core.terminal import standard_input
from glassformer.data.newlines import PIECE, Newlines, Unifier, unified_blocks
from glassformer.data.packed import StreamedText, is_packed, open_packed

RUN_CONFIG, CONFIG_START = "config.yaml", b"format_version:"  # what makes a folder a run, and how it begins
BEGINNING = ("seal.json", "tokenizer.json", "data.json")  # what a run has before its configuration
STDIN = "stdin"  # the folder, in the cache and in a run, of text that came through standard input
SPOOLED = re.compile(r"[0-9a-f]{64}\.txt")
COMPARISON = "compare.html"  # what a sweep writes beside its runs
DIGEST = 16  # bytes of the hash by which a document is known again
_LOWER, _BLANKS = bytes(range(256)).lower(), b" \t\n\v\f\r"
LARGE = 1 << 26  # bytes of a file whose digest is worth keeping
MTIME_MARGIN = 2_000_000_000  # nanoseconds after which a change would show in a file's time


def files_under(source: str) -> tuple[list[Path], list[str]]:
    """The files of a file, a folder or a pattern with *, in order, and their names.

    What the program itself wrote is no text of the user's: run folders, the page of a sweep and the cache are
    passed over wherever they lie; a file of theirs that is named itself is taken.
    """
    paths, names = visible_files(source)
    if user_path(source).is_file():
        return paths, names
    nonempty = [(p, name) for p, name in zip(paths, names, strict=True) if p.stat().st_size > 0]
    return [p for p, _ in nonempty], [name for _, name in nonempty]


def visible_files(source: str) -> tuple[list[Path], list[str]]:
    """The same with those that are empty."""
    root = user_path(source)
    if root.is_file():
        return [root], [root.name]
    if root.is_dir():
        if is_run_folder(root):
            raise DataError(f"{root} is a run directory: it holds a model, not text.")
        paths = [p for p in _walk(root) if p.is_file()]
    else:
        wildcard = next((i for i, part in enumerate(root.parts) if set(part) & set("*?[")), None)
        if wildcard is None:
            raise DataError(f"there is no file or folder '{root}'.")
        pattern, root = Path(*root.parts[wildcard:]), Path(*root.parts[:wildcard])
        known: dict[Path, bool] = {}
        found = root.glob(str(pattern)) if root.is_dir() else ()
        paths = [p for p in found if p.is_file() and not _is_own_output(p, root, known)]
        if not paths:
            raise DataError(f"there is no file that fits '{source}'.")
    visible = [p for p in sorted(paths) if not any(x.startswith(".") for x in p.relative_to(root).parts)]
    return visible, [str(p.relative_to(root)) for p in visible]


def is_run_folder(folder: Path) -> bool:
    """Whether a folder is a run directory, or one that is being begun."""
    try:
        with open_regular(folder / RUN_CONFIG) as file:
            return file.read(len(CONFIG_START)) == CONFIG_START
    except OSError:
        begun = (folder / LOCK).is_file()
        return begun and any((folder / name).is_file() for name in BEGINNING)


def _walk(folder: Path) -> Iterator[Path]:
    """All files below a folder but those of runs and of the cache; links to folders are not followed."""
    cache = cache_root()
    for parent, folders, files in os.walk(folder):
        here = Path(parent)
        inside = [here / name for name in folders]
        runs = {path.name for path in inside if is_run_folder(path)}
        folders[:] = [p.name for p in inside if p.name not in runs and p.resolve() != cache]
        yield from (here / name for name in files if not (runs and name == COMPARISON))


def _is_own_output(path: Path, root: Path, known: dict[Path, bool]) -> bool:
    """Whether a file below `root` is one that the walk through a folder passes over."""
    for folder in path.parents:
        if folder == root:
            break
        if folder not in known:
            known[folder] = is_run_folder(folder) or folder.resolve() == cache_root()
        if known[folder]:
            return True
    return path.name == COMPARISON and any(is_run_folder(p) for p in path.parent.iterdir() if p.is_dir())


class NotTextError(DataError):
    """A file that is no text: what it is in a word or two, and how to make text of it, if that can be."""

    def __init__(self, message: str, kind: str, remedy: str = ""):
        super().__init__(f"{message} {remedy}".strip())
        self.kind = kind
        self.remedy = "" if kind == "binary" else remedy


@dataclass(frozen=True)
class TextFacts:
    """What one reading of a text file tells; all of it is of the text, unpacked and with its line ends as
    they are wanted.
    """

    digest: str  # SHA-256 of all of it
    text_digest: str  # of what stands after a byte-order mark, which is no part of the text
    content: bytes  # hash of the text in its normal form; none of a long one, which may never need it
    start: int  # length of the mark
    size: int
    place: Path | StreamedText  # where its bytes are read from


def text_digest(path: Path, name: str) -> str:
    """Read a file once: refuse what is not text, return the digest of its content."""
    return read_facts(path, name, "keep").digest


def read_facts(path: Path, name: str, newlines: Newlines = "normalise") -> TextFacts:
    """Read a file once: refuse what is not text, return what it is known by."""
    given = shlex.quote(name if path.parent.name == STDIN else str(path))
    unifier = Unifier()
    hasher, content = hashlib.sha256(), hashlib.sha256()
    after_mark: Any = None
    decoder = codecs.getincrementaldecoder("utf-8")()
    size = start = blocks = 0
    try:
        with open_packed(path) as file:
            whole = iter(lambda: file.read(PIECE), b"")
            for block in whole if newlines == "keep" else unified_blocks(file, unifier):
                if b"\0" in block[:8192] and size == 0:
                    utf16 = block.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
                    raise NotTextError(
                        f"{name} is a binary file (it holds NUL bytes), not text.",
                        "UTF-16" if utf16 else "binary",
                        f"If it is UTF-16 text, convert it: iconv -f UTF-16 -t UTF-8 {given} > text.txt",
                    )
                decoder.decode(block)
                hasher.update(block)
                text = block
                if size == 0 and block.startswith(codecs.BOM_UTF8):
                    start, after_mark = len(codecs.BOM_UTF8), hashlib.sha256()
                    text = block[start:]
                if after_mark is not None:
                    after_mark.update(text)
                if size == 0:
                    content.update(normal_form(text))
                size += len(block)
                blocks += 1
        decoder.decode(b"", final=True)
    except UnicodeDecodeError as error:
        if error.reason == "unexpected end of data":  # which the decoder says of the end of the file alone
            whole = path.stat().st_size - len(error.object) + error.start
            command = f"Cut that off: head -c {whole} {given} > text.txt"
            raise NotTextError(
                f"{name} ends in the middle of a character, as if it was cut off there.",
                "ends in the middle of a character",
                "Unpack it, and cut that off." if is_packed(path) else command,
            ) from None
        raise NotTextError(
            f"{name} is not UTF-8 text: byte 0x{error.object[error.start]:02x} near offset "
            f"{max(0, size + error.start)} fits no character.",
            "not UTF-8",
            f"If it is Latin-1 text, convert it: iconv -f ISO-8859-1 -t UTF-8 {given} > text.txt",
        ) from None
    except OSError as error:
        reason = error.strerror or str(error)
        raise NotTextError(f"{name} could not be read: {reason}.", f"could not be read: {reason}") from error
    if size == start:
        raise NotTextError(f"{name} is empty: expected UTF-8 text.", "empty")
    text_digest = hasher if after_mark is None else after_mark
    known = content.digest()[:DIGEST] if blocks == 1 else b""
    streamed = is_packed(path) or unifier.found
    place = StreamedText(path, size, unifier.found) if streamed else path
    return TextFacts(hasher.hexdigest(), text_digest.hexdigest(), known, start, size, place)


def normal_form(data: bytes) -> bytes:
    """Text as it is compared: a to z for A to Z, and no blanks or line ends."""
    return data.translate(_LOWER, _BLANKS)


def file_identity(path: Path) -> str:
    """What changes whenever a file does. Size and time of a file can be set; the time of its last change of
    any kind cannot.
    """
    stat = path.stat()
    return f"{path.resolve()} {stat.st_ino} {stat.st_size} {stat.st_mtime_ns} {stat.st_ctime_ns}"


def file_digest(path: Path) -> str:
    """SHA-256 of a file's bytes. That of a large one is kept in the cache until the file changes."""
    stat, identity = path.stat(), file_identity(path)
    cached = cache_dir("digests") / hashlib.sha256(identity.encode(errors="surrogateescape")).hexdigest()
    is_settled = time.time_ns() - max(stat.st_mtime_ns, stat.st_ctime_ns) > MTIME_MARGIN
    if stat.st_size >= LARGE and is_settled and cached.is_file():
        known = read_bytes(cached).decode("ascii", errors="replace")
        if len(known) == 2 * hashlib.sha256().digest_size:
            return known
    fingerprint = digest(path)
    if stat.st_size >= LARGE and is_settled and file_identity(path) == identity:
        write_atomically(cached, fingerprint)
    return fingerprint


def keep_input(spooled: Path, folder: Path) -> None:
    """Have text that came through standard input in a run's folder too: the cache may be cleared.

    It is the same file under a second name where the system can do that, else a copy.
    """
    kept = folder / STDIN / spooled.name
    make_folder(kept.parent)
    with writing(kept):
        try:
            os.link(spooled, kept)
        except FileExistsError:
            pass
        except OSError:  # another disk, or one without links
            with replacing(kept) as temporary:
                shutil.copyfile(spooled, temporary)


def is_kept_input(path: Path) -> bool:
    """Whether this is the folder that `keep_input` makes, with nothing else in it."""
    return (
        path.name == STDIN
        and path.is_dir()
        and not path.is_symlink()
        and all(SPOOLED.fullmatch(file.name) and file.is_file() for file in path.iterdir())
    )


def find_input(source: str, folder: Path) -> str:
    """Where a run's text from standard input lies now; any other source is where it was."""
    path = Path(source)
    if path.parent.name != STDIN or not SPOOLED.fullmatch(path.name) or path.is_file():
        return source
    kept = folder / STDIN / path.name
    if kept.is_file():
        return str(kept)
    raise DataError(
        f"the text of {folder} came through standard input and was kept in the cache, which was cleared. "
        f"Put the same text there again: cat TEXT > {path}"
    )


def spool_standard_input() -> Path:
    """Standard input can be read once only, so it is kept in the cache under its digest."""
    folder = cache_dir(STDIN)
    source, spool = standard_input(), folder / f"spool-{os.getpid()}"
    with replacing(spool) as temporary, temporary.open("wb") as file:
        shutil.copyfileobj(source, file)
    return move(spool, folder / f"{digest(spool)}.txt")
