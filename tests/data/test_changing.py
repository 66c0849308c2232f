"""Text that changes while it is read: shards are of the text that was fingerprinted, or are not kept."""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from glassformer.core.errors import DataError
from glassformer.data import shards, sources, text_files
from glassformer.data.datasets import open_corpus
from glassformer.data.shards import open_shards, tokenize
from glassformer.data.text_files import file_digest
from glassformer.tokenizers.tokenizer import Byte
from tests.data.record_files import make_documents, skip_without, write_records
from tests.data.test_restart import fork

LINES = [f"{i}: a line of the text that is to be read\n" for i in range(30_000)]


@pytest.fixture(autouse=True)
def _small_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GLASSFORMER_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(sources, "PIECE", 1 << 15)
    monkeypatch.setattr(shards, "SHARD_TOKENS", 100_000)


def write(kind: str, folder: Path, other: bool) -> Path:
    texts = make_documents(400, seed=int(other))
    if kind == "text":
        path = folder / "a.txt"
        path.write_text("".join(LINES).replace("line", "lime" if other else "line"))
        return path
    return write_records(texts, folder / f"a.{kind}")


@pytest.mark.parametrize("kind", ["text", "jsonl", "jsonl.gz", "parquet"])
def test_a_source_that_changes_while_it_is_tokenized(kind: str, tmp_path: Path) -> None:
    skip_without(kind)
    path = write(kind, tmp_path, other=False)
    original = path.read_bytes()
    whole = {
        s: t.read(0, len(t)).tolist()
        for s, t in open_shards(tokenize(open_corpus(str(path)), Byte())).items()
    }
    for folder in (tmp_path / "cache" / "shards").iterdir():
        folder.rename(tmp_path / "first")
    corpus = open_corpus(str(path))
    write(kind, tmp_path, other=True)  # after its fingerprint was taken
    with pytest.raises(DataError, match=r"has changed since it was opened: nothing of it was kept"):
        tokenize(corpus, Byte())
    assert list((tmp_path / "cache" / "shards").iterdir()) == []
    path.write_bytes(original)
    again = open_shards(tokenize(open_corpus(str(path)), Byte()))
    assert {s: t.read(0, len(t)).tolist() for s, t in again.items()} == whole


def test_a_change_in_the_middle_is_noticed(tmp_path: Path) -> None:
    """Both what was read before it and what was read after it are of some version of the file, but of two."""
    path = write("text", tmp_path, other=False)
    corpus, calls = open_corpus(str(path)), []

    def change(size: int) -> None:
        calls.append(size)
        if len(calls) == 4:
            with path.open("r+b") as file:
                file.seek(-200, os.SEEK_END)
                file.write(b"x" * 200)

    with pytest.raises(DataError, match="has changed since it was opened"):
        tokenize(corpus, Byte(), change)
    with path.open("r+b") as file:
        file.truncate(5000)
    with pytest.raises(DataError, match="has changed since it was opened"):
        tokenize(corpus, Byte())


@pytest.mark.skipif(not hasattr(os, "fork"), reason="kills a child of its own")
def test_a_draft_of_other_bytes_is_not_gone_on_with(tmp_path: Path) -> None:
    """The text was another for a while, a process was killed meanwhile, and then it was restored."""
    path = write("text", tmp_path, other=False)
    original = path.read_bytes()
    whole = {
        s: t.read(0, len(t)).tolist()
        for s, t in open_shards(tokenize(open_corpus(str(path)), Byte())).items()
    }
    (done,) = (tmp_path / "cache" / "shards").iterdir()
    done.rename(tmp_path / "first")
    corpus = open_corpus(str(path))
    path.write_bytes(original.replace(b"line", b"lime"))
    assert fork(lambda: tokenize(corpus, Byte(), killer(120))) == -signal.SIGKILL
    assert list((tmp_path / "cache" / "shards").glob(".draft-*/journal.json"))
    path.write_bytes(original)
    said: list[str] = []
    again = open_shards(tokenize(open_corpus(str(path)), Byte(), say=said.append))
    assert {s: t.read(0, len(t)).tolist() for s, t in again.items()} == whole
    assert len(said) == 1 and "made from other text: begun anew" in said[0]


def killer(after: int) -> Callable[[int], None]:
    calls = 0

    def progress(size: int) -> None:
        nonlocal calls
        calls += 1
        if calls == after:
            os.kill(os.getpid(), signal.SIGKILL)

    return progress


def test_the_digest_of_a_large_file_is_never_stale(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Size, time and inode are what they were; the time of the last change, which nobody can set, is not."""
    monkeypatch.setattr(text_files, "LARGE", 10)
    monkeypatch.setattr(text_files, "MTIME_MARGIN", 0)
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"a" * 100)
    os.utime(path, ns=(1, 1))
    time.sleep(0.02)
    first = file_digest(path)
    assert first == file_digest(path) and list((tmp_path / "cache" / "digests").iterdir())
    before = path.stat()
    with path.open("r+b") as file:
        file.write(b"b")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    after = path.stat()
    assert (before.st_ino, before.st_size, before.st_mtime_ns) == (
        after.st_ino,
        after.st_size,
        after.st_mtime_ns,
    )
    assert file_digest(path) != first
