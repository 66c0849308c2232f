"""Shards hold exactly the text; batches are a pure function of (seed, step)."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from glassformer.core.errors import DataError, DiskError
from glassformer.data import shards as shards_module
from glassformer.data import sources
from glassformer.data.batches import Windows
from glassformer.data.datasets import open_corpus
from glassformer.data.order import fold_seed, shuffled
from glassformer.data.shards import Tokens, open_shards, require, tokenize
from glassformer.tokenizers.load import train_tokenizer
from glassformer.tokenizers.tokenizer import Byte


def test_shards_hold_the_text_and_are_made_once(
    text_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GLASSFORMER_CACHE", str(tmp_path))
    monkeypatch.setattr(shards_module, "SHARD_TOKENS", 1000)
    corpus = open_corpus(str(text_file), 0.1, 0.1)
    tokenizer = train_tokenizer("bpe", corpus.texts(), 300)
    progress: list[int] = []
    folder = tokenize(corpus, tokenizer, progress.append)
    splits = open_shards(folder)
    for split, tokens in splits.items():
        ids = tokens.read(0, len(tokens)).tolist()
        assert ids[0] == tokenizer.eot_id
        assert tokenizer.decode(ids[1:]) == "".join(corpus.texts(split))
        assert tokens.bytes == corpus.bytes(split)
    index = json.loads((folder / "shards.json").read_text())
    assert index["text_fingerprint"] == corpus.fingerprint
    calls = len(progress)
    assert tokenize(corpus, tokenizer, progress.append) == folder and len(progress) == calls  # skipped
    assert tokenize(corpus, Byte()) != folder


def test_tokenizing_in_pieces_equals_tokenizing_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GLASSFORMER_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(sources, "PIECE", 1 << 15)
    path = tmp_path / "long.txt"
    path.write_text("def f(x):\n    return x\n\n\n  'text'  \n" * 4000)
    corpus = open_corpus(str(path), 0.05, 0.05)
    tokenizer = train_tokenizer("bpe", [path.read_text()[:20_000]], 300)
    pieces = list(corpus.texts("train"))
    assert len(pieces) > 3
    tokens = open_shards(tokenize(corpus, tokenizer))["train"]
    assert tokens.read(1, len(tokens)).tolist() == tokenizer.encode("".join(pieces))


def test_several_files_read_as_one_array() -> None:
    tokens = Tokens([np.arange(0, 5), np.arange(5, 7), np.arange(7, 20)], 20)
    for start in range(20):
        for stop in range(start, 21):
            assert tokens.read(start, stop).tolist() == list(range(start, stop))


def test_a_full_disk_leaves_nothing_behind(
    text_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GLASSFORMER_CACHE", str(tmp_path))

    def full(*_: object, **__: object) -> None:
        raise OSError("3362221 requested and 1038272 written")  # NumPy's way of saying it

    monkeypatch.setattr(shards_module.np, "save", full)
    corpus = open_corpus(str(text_file), 0.1, 0.1)
    with pytest.raises(DiskError, match="the disk is full"):
        tokenize(corpus, Byte())
    assert list((tmp_path / "shards").iterdir()) == []


def test_a_missing_or_short_split_is_explained() -> None:
    short = {"train": Tokens([np.arange(5)], 5)}
    with pytest.raises(DataError, match="has no test split; it has train"):
        require(short, "test", 2, "x")
    with pytest.raises(DataError, match="holds 5 tokens, and at least 66 are needed"):
        require(short, "train", 66, "x")


@given(st.integers(1, 500), st.integers(0, 2**63))
def test_the_shuffle_is_a_permutation(n: int, key: int) -> None:
    assert sorted(shuffled(np.arange(n), n, key).tolist()) == list(range(n))


def test_the_shuffle_is_random_enough() -> None:
    n = 1000
    orders = np.stack([shuffled(np.arange(n), n, key) for key in range(200)])
    means = orders.mean(axis=0)  # of each place over keys: near the middle
    assert abs(means.mean() - (n - 1) / 2) < 1
    assert means.std() < 3 * n / math.sqrt(12 * 200)
    assert len({tuple(o[:5]) for o in orders}) == 200


def test_seeds_differ() -> None:
    seeds = [fold_seed(a, b, c) for a in range(5) for b in range(20) for c in range(3)]
    assert len(set(seeds)) == len(seeds)


@given(st.integers(40, 300), st.integers(2, 12), st.integers(0, 5))
def test_an_epoch_visits_every_window_once(length: int, context: int, seed: int) -> None:
    windows = Windows(Tokens([np.arange(length)], length), context, seed)
    for epoch in range(3):
        starts = windows.starts(epoch * windows.per_epoch, windows.per_epoch)
        assert len(set(starts.tolist())) == windows.per_epoch
        assert (np.diff(np.sort(starts)) == context).all()
        assert starts.min() >= 0 and starts.max() + context + 1 <= length


@given(st.integers(0, 1000), st.integers(1, 9), st.integers(1, 9))
def test_samples_do_not_depend_on_how_they_are_asked_for(first: int, one: int, other: int) -> None:
    windows = Windows(Tokens([np.arange(200)], 200), 7, seed=3)
    together = windows.read(first, one + other)
    apart = np.concatenate([windows.read(first, one), windows.read(first + one, other)])
    assert (together == apart).all()
    assert (together[:, 1:] == together[:, :-1] + 1).all()
