"""Shards that were killed half-way go on, to the same bytes; and duplicates are dropped exactly."""

import json
import os
import random
import signal
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from glassformer.data import shard_writer as draft_module
from glassformer.data import shards, sources
from glassformer.data.datasets import open_corpus
from glassformer.data.digests import DigestSet
from glassformer.data.shards import dropped, open_shards, tokenize
from glassformer.data.sources import Corpus
from glassformer.tokenizers.load import train_tokenizer
from glassformer.tokenizers.tokenizer import Byte, Tokenizer
from tests.data.record_files import make_documents, write_records

DOCUMENTS = make_documents(120)
DOUBLED = [DOCUMENTS[k // 2] for k in range(240)]


def fork(work: Callable[[], object]) -> int:
    """Do it in a child of its own; returns its exit status, negative when a signal ended it."""
    child = os.fork()
    if child == 0:
        try:
            work()
        except BaseException:
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def killed_at(moment: int, corpus: Corpus, tokenizer: Tokenizer, after: list[Path] | None) -> int:
    """Tokenize until the moment-th thing that touches the disk, then SIGKILL."""

    def work() -> None:
        left = moment

        def counting(act: Callable[..., object]) -> Callable[..., object]:
            def wrapper(*arguments: object, **options: object) -> object:
                nonlocal left
                left -= 1
                if left == 0:
                    os.kill(os.getpid(), signal.SIGKILL)
                return act(*arguments, **options)

            return wrapper

        np.save = counting(np.save)
        os.fsync = counting(os.fsync)
        Path.replace = counting(Path.replace)  # type: ignore[method-assign]
        draft_module.write_atomically = counting(draft_module.write_atomically)
        tokenize(corpus, tokenizer, after=after)

    return fork(work)


@pytest.fixture
def caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    monkeypatch.setattr(shards, "SHARD_TOKENS", 8000)
    return lambda name: monkeypatch.setenv("GLASSFORMER_CACHE", str(tmp_path / name))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="kills a child of its own")
@pytest.mark.parametrize("kind", ["records", "without duplicates", "one text", "bpe"])
def test_killed_anywhere_the_shards_are_the_same(
    kind: str, tmp_path: Path, caches: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    caches("whole")
    tokenizer: Tokenizer = Byte()
    if kind == "bpe":
        tokenizer = train_tokenizer("bpe", DOCUMENTS, 300)
    if kind == "one text":  # goes on in the midst of a document
        monkeypatch.setattr(sources, "PIECE", 1 << 16)
        (tmp_path / "a.txt").write_text("".join(f"{i}: a line of a long text\n" for i in range(9000)))
        corpus = open_corpus(str(tmp_path / "a.txt"))
        assert len(list(corpus.texts())) > 2
    else:
        for k in range(3):
            write_records(DOUBLED[80 * k : 80 * (k + 1)], tmp_path / f"{k}.jsonl.gz")
        corpus = open_corpus(f"{tmp_path}/*.jsonl.gz", 0.1, 0.1)
    after = [] if kind == "without duplicates" else None
    whole = content(tokenize(corpus, tokenizer, after=after))
    assert len(whole) > 4

    moment, kills, resumed = 1, 0, 0
    while True:
        caches(f"broken {moment}")
        status = killed_at(moment, corpus, tokenizer, after)
        if status == 0:
            break
        assert status == -signal.SIGKILL
        kills += 1
        if moment % 3 == 0:  # twice, at another place
            killed_at(5, corpus, tokenizer, after)
        journals = list((tmp_path / f"broken {moment}" / "shards").glob(".draft-*/journal.json"))
        progress: list[int] = []
        folder = tokenize(corpus, tokenizer, progress.append, after)
        assert content(folder) == whole, moment
        assert list(folder.parent.iterdir()) == [folder]
        if journals:
            assert not progress or progress[0] > 0  # it went on, or only its name was missing
            resumed += 1
        moment += 1 + moment // 12
    assert kills > 8 and resumed > 4


@pytest.mark.skipif(not hasattr(os, "fork"), reason="kills a child of its own")
def test_a_damaged_draft_is_begun_anew(tmp_path: Path, caches: Callable[[str], None]) -> None:
    corpus = open_corpus(str(write_records(DOUBLED, tmp_path / "a.jsonl")), 0.1, 0.1)
    caches("whole")
    whole = content(tokenize(corpus, Byte(), after=[]))
    for k, (name, change) in enumerate(
        [
            ("train-00000.npy", lambda data: data[:-1] + b"\xff"),
            ("journal.json", lambda data: data[:-9]),
            ("journal.json", lambda data: data.replace(b'"place"', b'"plaice"')),
            ("seen.bin", lambda data: data[:16]),
        ]
    ):
        caches(str(k))
        assert killed_at(20, corpus, Byte(), []) == -signal.SIGKILL
        (path,) = (tmp_path / str(k) / "shards").glob(f".draft-*/{name}")
        path.write_bytes(change(path.read_bytes()))
        assert content(tokenize(corpus, Byte(), after=[])) == whole


@pytest.mark.skipif(not hasattr(os, "fork"), reason="kills a child of its own")
def test_two_processes_make_one(tmp_path: Path, caches: Callable[[str], None]) -> None:
    corpus = open_corpus(str(write_records(DOUBLED, tmp_path / "a.jsonl")), 0.1, 0.1)
    caches("whole")
    whole = content(tokenize(corpus, Byte()))
    caches("shared")
    wrote = tmp_path / "wrote"

    def work() -> None:
        def note(size: int) -> None:
            time.sleep(0.001)
            with wrote.open("a") as file:
                file.write(f"{os.getpid()}\n")

        tokenize(corpus, Byte(), note)

    other = os.fork()
    if other == 0:
        work()
        os._exit(0)
    assert fork(work) == 0
    assert os.waitstatus_to_exitcode(os.waitpid(other, 0)[1]) == 0
    assert len(set(wrote.read_text().split())) == 1  # the other one waited
    assert content(tokenize(corpus, Byte())) == whole


def test_a_forgotten_draft_is_removed(tmp_path: Path, caches: Callable[[str], None]) -> None:
    caches("c")
    old, new = (tmp_path / "c" / "shards" / f".draft-{name}" for name in ("old", "new"))
    for folder in (old, new):
        folder.mkdir(parents=True)
    os.utime(old, (0, 0))
    tokenize(open_corpus(str(write_records(DOCUMENTS, tmp_path / "a.jsonl"))), Byte())
    assert new.exists() and not old.exists()


def test_duplicates_are_dropped_across_sources(tmp_path: Path, caches: Callable[[str], None]) -> None:
    caches("c")
    draw = random.Random(0)
    folders: list[Path] = []
    earlier: set[str] = set()
    for k in range(3):
        texts = draw.choices(DOCUMENTS, k=150)
        corpus = open_corpus(str(write_records(texts, tmp_path / f"{k}.jsonl")), 0.1, 0.1, newlines="keep")
        fresh = [t for i, t in enumerate(texts) if t not in earlier and t not in texts[:i]]
        earlier |= set(texts)
        folders.append(tokenize(corpus, Byte(), after=list(folders)))
        texts_kept = [
            text
            for tokens in open_shards(folders[-1]).values()
            for text in Byte().decode(tokens.read(0, len(tokens))).split("<|endoftext|>")
            if text
        ]
        assert sorted(texts_kept) == sorted(fresh)
        assert dropped(folders[-1]) == len(texts) - len(fresh)
        assert json.loads((folders[-1] / "shards.json").read_text())["dropped"] == len(texts) - len(fresh)
    assert tokenize(corpus, Byte()) != folders[-1] and dropped(tokenize(corpus, Byte())) == 0


@settings(max_examples=50)
@given(st.lists(st.integers(0, 50) | st.integers(0, 2**128 - 1), max_size=200), st.integers(1, 50))
def test_the_table_of_digests_is_a_set(numbers: list[int], at_once: int) -> None:
    """One by one, and many at once; zeros, which are no document's digest, are never in it."""
    table, known = DigestSet(), {0}
    table.add(bytes(16))
    for n in numbers:
        if n:
            assert table.add(n.to_bytes(16, sys.byteorder)) == (n not in known)
            known.add(n)
    assert len(table) == len(known) - 1
    with tempfile.TemporaryDirectory() as folder:
        together = DigestSet()
        for i in range(0, len(numbers), at_once):
            path = Path(folder, "digests")
            path.write_bytes(b"".join(n.to_bytes(16, sys.byteorder) for n in numbers[i : i + at_once]))
            together.load(path)
    assert len(together) == len(table)
    assert not any(together.add(n.to_bytes(16, sys.byteorder)) for n in numbers)


def test_a_document_costs_few_bytes(tmp_path: Path) -> None:
    digests = np.random.default_rng(0).integers(1, 2**63, (400_000, 2), np.uint64)
    (tmp_path / "seen.bin").write_bytes(digests.tobytes())
    table = DigestSet()
    tracemalloc.start()
    for part in np.split(digests, 400):
        for key in part[:100]:
            assert table.add(key.tobytes())
    assert table.size <= 33 * len(table)
    table.load(tmp_path / "seen.bin")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(table) == len(digests) and table.size <= 33 * len(table)
    assert peak < 2 * 33 * len(table) + (1 << 25)
    assert not table.add(digests[77].tobytes())
