"""Sealed shards: whatever is changed in them is found before it is used, and made again from the text."""

import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from glassformer.core import blocks as blocks_module
from glassformer.core.blocks import BLOCK
from glassformer.core.errors import DataError
from glassformer.data import shards
from glassformer.data.datasets import open_corpus
from glassformer.data.shards import ShardFolder, Tokens, open_shards, tokenize
from glassformer.data.sources import Corpus
from glassformer.tokenizers.tokenizer import Byte


@pytest.fixture
def corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Corpus:
    monkeypatch.setenv("GLASSFORMER_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(shards, "SHARD_TOKENS", 150_000)
    (tmp_path / "a.txt").write_text("".join(f"{i}: a line of some text, {i % 97}\n" for i in range(20_000)))
    return open_corpus(str(tmp_path / "a.txt"))


def everything(splits: dict[str, Tokens]) -> dict[str, bytes]:
    return {split: tokens.read(0, len(tokens)).tobytes() for split, tokens in splits.items()}


def flipped(path: Path, at: int = -1000) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def swapped(one: Path, other: Path) -> None:
    first, second = one.read_bytes(), other.read_bytes()
    one.write_bytes(second)
    other.write_bytes(first)


def edited(folder: Path) -> None:
    index = json.loads((folder / "shards.json").read_text())
    index["splits"]["valid"], index["splits"]["test"] = index["splits"]["test"], index["splits"]["valid"]
    (folder / "shards.json").write_text(json.dumps(index))


def shuffled(folder: Path) -> None:
    ids = np.load(folder / "valid-00000.npy")
    np.save(folder / "valid-00000.npy", np.random.default_rng(0).permutation(ids))


def beyond(folder: Path) -> None:
    ids = np.load(folder / "train-00001.npy")
    ids[-5:] = 60_000
    np.save(folder / "train-00001.npy", ids)


def piped(path: Path) -> None:
    """A pipe that nobody writes to: whoever opens it to read waits for ever."""
    path.unlink()
    os.mkfifo(path)


DAMAGE: dict[str, Callable[[Path], object]] = {
    "a flipped bit in train": lambda f: flipped(f / "train-00001.npy"),
    "a flipped bit in a header": lambda f: flipped(f / "train-00000.npy", 20),
    "valid shuffled": shuffled,
    "valid and train exchanged": lambda f: swapped(f / "valid-00000.npy", f / "valid-00001.npy"),
    "ids beyond the vocabulary": beyond,
    "cut off": lambda f: (f / "train-00000.npy").write_bytes((f / "train-00000.npy").read_bytes()[:-70_000]),
    "empty": lambda f: (f / "test-00000.npy").write_bytes(b""),
    "gone": lambda f: (f / "test-00000.npy").unlink(),
    "longer": lambda f: (f / "valid-00000.npy").open("ab").write(b"\0\0"),
    "splits exchanged in the index": edited,
    "an index that is a pipe": lambda f: piped(f / "shards.json"),
    "digests that are a pipe": lambda f: piped(f / "blocks.bin"),
    "ids that are a pipe": lambda f: piped(f / "train-00000.npy"),
    "no index": lambda f: (f / "shards.json").unlink(),
    "an index that is none": lambda f: (f / "shards.json").write_text("[1]"),
    "an index that is deep": lambda f: (f / "shards.json").write_text("[" * 100_000),
    "other digests": lambda f: flipped(f / "blocks.bin", 3),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_what_is_damaged_is_made_again_and_said(corpus: Corpus, damage: str) -> None:
    folder = tokenize(corpus, Byte())
    whole = everything(open_shards(folder))
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    DAMAGE[damage](folder)
    said: list[str] = []
    assert tokenize(corpus, Byte(), say=said.append) == folder
    splits = open_shards(folder, lambda: tokenize(corpus, Byte(), say=said.append, thorough=True))
    assert everything(splits) == whole
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    assert len(said) == 1 and "were damaged" in said[0] and "made again from the text" in said[0]
    assert "\n" not in said[0]


def test_a_folder_of_another_text_is_not_used(corpus: Corpus, tmp_path: Path) -> None:
    (tmp_path / "b.txt").write_text("".join(f"{i}: another text\n" for i in range(20_000)))
    mine, other = tokenize(corpus, Byte()), tokenize(open_corpus(str(tmp_path / "b.txt")), Byte())
    whole = everything(open_shards(mine))
    mine.rename(tmp_path / "away")
    other.rename(mine)
    said: list[str] = []
    assert everything(open_shards(tokenize(corpus, Byte(), say=said.append))) == whole
    assert "of another text" in said[0]


def test_opening_reads_nothing_and_each_block_is_checked_once(
    corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tokenize(corpus, Byte())
    checked: list[int] = []
    digest = blocks_module.block_digest
    monkeypatch.setattr(blocks_module, "block_digest", lambda b: checked.append(len(b)) or digest(b))
    splits = open_shards(tokenize(corpus, Byte()))
    assert checked == [] and folder.is_dir()
    splits["train"].read(1000, 1010)
    splits["train"].read(1000, 2000)
    assert checked == [BLOCK]
    splits["train"].read(BLOCK // 2 - 100, BLOCK // 2 + 100)
    assert checked == [BLOCK] * 2


def test_damage_that_comes_while_it_is_used_is_repaired(corpus: Corpus) -> None:
    folder = tokenize(corpus, Byte())
    whole = everything(open_shards(folder))
    said: list[str] = []
    splits = open_shards(folder)
    train = splits["train"].arrays[0]
    assert isinstance(train, shards.ShardFile)
    train.folder.rebuild = lambda: tokenize(corpus, Byte(), say=said.append, thorough=True)
    splits["train"].read(0, 10)
    flipped(folder / "train-00000.npy", 100_000)
    assert everything(splits) == whole and len(said) == 1


def test_the_background_finds_what_nobody_reads(corpus: Corpus) -> None:
    folder = tokenize(corpus, Byte())
    whole = everything(open_shards(folder))
    flipped(folder / "test-00000.npy")
    said: list[str] = []
    opened = ShardFolder(folder, lambda: tokenize(corpus, Byte(), say=said.append, thorough=True))
    opened.check_in_background()
    splits = opened.splits()
    until = time.monotonic() + 20
    while not opened.damaged and time.monotonic() < until:
        time.sleep(0.01)
    splits["valid"].read(0, 10)  # another split is read, and all is mended
    assert said and everything(open_shards(folder)) == whole == everything(splits)


def test_damage_without_text_to_make_it_from_is_an_error(corpus: Corpus, tmp_path: Path) -> None:
    folder = tokenize(corpus, Byte())
    flipped(folder / "train-00001.npy")
    splits = open_shards(folder)
    with pytest.raises(DataError, match=r"train-00001\.npy is not what was written"):
        everything(splits)
    (tmp_path / "a.txt").write_text("other text\n" * 1000)
    splits = open_shards(folder, lambda: tokenize(corpus, Byte(), thorough=True))
    with pytest.raises(DataError, match=r"a\.txt has changed since it was opened"):
        everything(splits)


def test_the_digests_of_documents_are_sealed_too(corpus: Corpus) -> None:
    folder = tokenize(corpus, Byte(), after=[])
    before = (folder / "seen.bin").read_bytes()
    flipped(folder / "seen.bin", 5)
    said: list[str] = []
    tokenize(corpus, Byte(), after=[], say=said.append)
    assert (folder / "seen.bin").read_bytes() == before and "seen.bin" in said[0]
