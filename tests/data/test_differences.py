"""Splits of different kinds: named where they are, and not where text is as usual."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from glassformer.config.data import DataConfig
from glassformer.data.datasets import open_corpus
from glassformer.data.differences import difficulties, unlike
from glassformer.data.shards import Tokens, open_shards, tokenize
from glassformer.tasks.language_model import LanguageTask
from glassformer.tokenizers.load import Byte

WORDS = ["dog", "cats", "runs", "over", "the", "hills", "and", "far", "away", "in", "a", "town", "of", "rain"]


@pytest.fixture
def book(tmp_path: Path) -> Path:
    """A story with a licence at its end, as such books have."""
    draw = np.random.default_rng(0)
    story = "\n\n".join(" ".join(draw.choice(WORDS, 30)) + "." for _ in range(600))
    licence = "".join(
        f"{i}.{i % 7} LICENSEE SHALL NOT {i * 37 % 1000}; WARRANTY (C) {1900 + i}\n\n" for i in range(160)
    )
    (tmp_path / "book.txt").write_text(f"{story}\n\n*** END ***\n\n{licence}")
    return tmp_path / "book.txt"


def test_a_licence_at_the_end_is_scattered_and_its_end_alone_is_named(book: Path) -> None:
    scattered = LanguageTask(open_corpus(str(book)), Byte(), DataConfig())
    assert not any("different kinds" in line for line in scattered.report())
    share = {
        s: t.count("LICENSEE") / len(t)
        for s in ("train", "valid", "test")
        for t in ["".join(scattered.source.texts(s))]
    }
    assert max(share["valid"], share["test"]) < 3 * share["train"], share
    ends = LanguageTask(open_corpus(str(book), split="name"), Byte(), DataConfig())
    (line,) = [line for line in ends.report() if "different kinds" in line]
    assert "train" in line and "test" in line and "bits per byte" in line
    assert ends.facts()["byte_pair_bits"]["test"] > 1.5 * ends.facts()["byte_pair_bits"]["train"]


def test_the_measure_is_the_cross_entropy_of_byte_pairs() -> None:
    """Against counting with dictionaries, each training byte without itself."""
    draw = np.random.default_rng(1)
    train, valid = (draw.choice(list(b"abcab"), n) for n in (2048, 1024))
    found = difficulties({"train": Tokens([train], 2048), "valid": Tokens([valid], 1024)}, Byte())
    pieces = {"train": train.reshape(-1, 256), "valid": valid.reshape(-1, 256)}
    pairs = [(int(a), int(b)) for row in pieces["train"] for a, b in pairwise(row)]
    for name, rows in pieces.items():
        own, bits = float(name == "train"), []
        for row in rows:
            for a, b in pairwise(row.tolist()):
                single = (sum(y == b for _, y in pairs) - own + 1) / (len(pairs) - own + 256)
                before = sum(x == a for x, _ in pairs) - own
                bits.append(-np.log2((pairs.count((a, b)) - own + 8 * single) / (before + 8)))
            if len(bits) > 600:
                break
        assert found[name].bits == pytest.approx(np.mean(bits), abs=0.05)
    assert unlike(found) == []


def test_usual_text_is_not_called_unlike() -> None:
    for name in ("pronouns", "repeats"):
        corpus = open_corpus(name)
        found = difficulties(open_shards(tokenize(corpus, Byte())), Byte())
        assert set(found) == {"train", "valid", "test"} and unlike(found) == []
