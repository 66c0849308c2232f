"""Splits by content: copies on one side, of a long text scattered blocks; older runs keep their splits."""

import hashlib
import random
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from glassformer.data.datasets import open_corpora, open_corpus
from glassformer.data.sources import SPLITS, Corpus, Span
from glassformer.data.splits import HELD_OUT, blocks_of, divide
from tests.data.record_files import make_documents, write_records


def prose(paragraphs: int, seed: int = 0) -> str:
    draw = random.Random(seed)
    words = [f"{a}{b}{c}" for a in "bdfgklmn" for b in "aeiou" for c in "rstnlm"]
    sentence = lambda: " ".join(draw.choices(words, k=draw.randint(4, 12))).capitalize() + "."  # noqa: E731
    return "\n\n".join(" ".join(sentence() for _ in range(draw.randint(2, 6))) for _ in range(paragraphs))


def texts(corpus: Corpus) -> dict[str, list[str]]:
    return {split: ["".join(span.read()) for span in spans] for split, spans in corpus.splits.items()}


def met(corpus: Corpus) -> dict[str, set[str]]:
    """The documents, or sections, of each split, as they are read."""
    found: dict[str, set[str]] = {split: set() for split in SPLITS}
    for unit in range(corpus.units):
        for split, part in corpus.parts(unit):
            found[split].add("".join(part.read()))
    return found


def test_copies_in_a_folder_fall_on_one_side(tmp_path: Path) -> None:
    documents = [prose(4, seed) for seed in range(40)]
    for i, text in enumerate(documents):
        (tmp_path / f"{i}.txt").write_text(text)
        (tmp_path / f"copy of {i}.txt").write_text(f"  {text.upper()}\r\n")  # the same to a reader
    splits = {
        s: {hashlib.md5("".join(t.lower().split()).encode()).digest() for t in found}
        for s, found in texts(open_corpus(str(tmp_path), 0.1, 0.1)).items()
    }
    assert splits["valid"] and splits["test"]
    assert not splits["train"] & (splits["valid"] | splits["test"]) and not splits["valid"] & splits["test"]


@pytest.mark.parametrize("copies", [1, 2, 5])
def test_few_copies_of_one_text_are_cut_alike(tmp_path: Path, copies: int) -> None:
    text = prose(400)
    for i in range(copies):
        (tmp_path / f"{i}.txt").write_text(text)
    corpus = open_corpus(str(tmp_path))
    by_name = {s: {} for s in SPLITS}
    for split, spans in corpus.splits.items():
        for span in spans:
            by_name[split].setdefault(span.name, []).append((span.start, span.end))
    for places in by_name.values():
        assert len(places) == copies and len({tuple(p) for p in places.values()}) == 1
    assert corpus.rule.startswith("scattered blocks by a hash of what they say")


def test_what_is_held_out_of_one_text_is_scattered_over_it(tmp_path: Path) -> None:
    path = tmp_path / "book.txt"
    path.write_text(prose(2000))
    size = path.stat().st_size
    corpus = open_corpus(str(path))
    for split in ("valid", "test"):
        spans = corpus.splits[split]
        assert corpus.bytes(split) == pytest.approx(0.05 * size, rel=0.15)
        assert len(spans) > 5 and spans[0].start < size / 3 and spans[-1].end > size * 2 / 3
        assert max(map(len, spans)) < size / 20
    data = path.read_bytes()
    starts = [span.start for spans in corpus.splits.values() for span in spans if span.start]
    assert all(data[start - 2 : start] == b"\n\n" for start in starts)  # where paragraphs begin
    covered = sorted((span.start, span.end) for spans in corpus.splits.values() for span in spans)
    assert covered[0][0] == 0 and covered[-1][1] == size
    assert all(a[1] == b[0] for a, b in pairwise(covered))
    assert "".join(corpus.whole().texts("all")) == path.read_text()
    assert open_corpus(str(path)).fingerprint == corpus.fingerprint


def test_the_second_half_of_a_doubled_text_is_cut_like_the_first(tmp_path: Path) -> None:
    text = prose(600)
    (tmp_path / "a.txt").write_text(text + "\n\n" + text)
    held = texts(open_corpus(str(tmp_path / "a.txt")))
    train = "".join(held["train"])
    inside = [t for t in held["valid"] + held["test"] if t.strip() in train]
    assert len(inside) <= 2  # around the seam, where the cuts have not met again


def test_a_mix_has_one_threshold(tmp_path: Path) -> None:
    """A small file whose documents are all in a large one too, of which much less is held out."""
    small = make_documents(150)
    large = [f"{i}: {text}" for i, text in enumerate(make_documents(900, seed=1) * 6)] + small
    big, little = (write_records(d, tmp_path / n) for d, n in ((large, "big.jsonl"), (small, "little.jsonl")))
    apart = [met(open_corpus(str(p))) for p in (big, little)]
    assert sum((tmp_path / n).stat().st_size for n in ("big.jsonl", "little.jsonl")) > HELD_OUT / 2
    together = [met(c) for c in open_corpora([str(big), str(little)], 0.05, 0.05, "text", "auto")]
    for one, other in ((0, 1), (1, 0)):
        for held in ("valid", "test"):
            assert not together[one][held] & together[other]["train"]
    assert together[1]["train"] and (together[0]["valid"] | together[1]["valid"]) and apart


def test_a_text_beside_records_that_hold_it_too(tmp_path: Path) -> None:
    """In one source it is cut, as it is most of it; so it is in the other."""
    text = prose(300)
    (tmp_path / "a.txt").write_text(text)
    write_records([*(prose(6, seed) for seed in range(1, 900)), text], tmp_path / "b.jsonl")
    sources = [str(tmp_path / "a.txt"), str(tmp_path / "b.jsonl")]
    one, other = (met(c) for c in open_corpora(sources, 0.05, 0.05, "text", "auto"))
    held = one["valid"] | one["test"]
    assert held and not any(t in train for t in held for train in other["train"])


def test_text_that_only_repeats_itself_is_divided_at_its_end(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("the same line again\n" * 900)
    corpus = open_corpus(str(tmp_path / "a.txt"))
    assert "as it repeats itself" in corpus.rule and corpus.bytes("valid") and corpus.bytes("test")


@settings(max_examples=60)
@given(st.text(min_size=1, max_size=3000), st.floats(0.02, 0.4), st.floats(0, 0.4))
def test_nothing_is_lost_and_no_character_is_cut(text: str, valid: float, test: float) -> None:
    data = text.encode(errors="ignore") * 3
    if not data:
        return
    for rule in ("content", "name"):
        splits, _ = divide([Span("x", data, 0, len(data))], valid, test, rule)
        spans = sorted((s for part in splits.values() for s in part), key=lambda s: s.start)
        assert "".join(piece for span in spans for piece in span.read()) == data.decode()


def test_blocks_do_not_depend_on_how_a_text_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = prose(500).encode()
    (tmp_path / "a").write_bytes(data)
    whole = list(blocks_of(Span("a", data, 0, len(data))))
    monkeypatch.setattr("glassformer.data.sources.PIECE", 777)
    assert list(blocks_of(Span("a", tmp_path / "a", 0, len(data)))) == whole
    assert sum(size for _, size in whole) == len(data) and len(whole) > 50


def test_older_runs_have_the_splits_they_had(tmp_path: Path) -> None:
    """What `name` gives, written down when there was nothing else."""
    for i in range(60):
        (tmp_path / f"{i:02}.txt").write_text(f"document {i}\n" * 5)
    corpus = open_corpus(str(tmp_path), 0.2, 0.1, split="name")
    names = {split: sorted(int(s.name[:2]) for s in spans) for split, spans in corpus.splits.items()}
    assert names["valid"] == [6, 8, 18, 20, 24, 27, 28, 34, 39, 56, 59] and names["test"] == [5, 45, 49, 58]
    assert corpus.fingerprint == "259975c5353ca93f12ba808738b371025908fb5950b4dcc09819bb57ada295d4"
    few = tmp_path / "few.txt"
    few.write_text("".join(f"line {i}\n" for i in range(1000)))
    ends = open_corpus(str(few), 0.1, 0.1, split="name")
    spans = [ends.splits[s][0] for s in SPLITS]
    assert [(s.start, s.end) for s in spans] == [(0, 7117), (7117, 8008), (8008, 8890)]
    assert ends.fingerprint == "87cc3415de2d410e226c8ec93afd9b9ce9b97ff33ed937cf768dc2f3d02a519a"
    records = {
        120: "20e09f23d91541ff5d10afd4348a3408b4d06ff9a5055c728b80ebe76a341382",  # by a hash of their text
        12: "e0c50cb00e1b7f0acf4483f95eece0d81422e93bf8a55a67bb71525f1d1822f1",  # the ends of few
    }
    for count, fingerprint in records.items():
        name = "r.jsonl" if count == 120 else "r2.jsonl"
        path = write_records(make_documents(count), tmp_path / name)
        assert open_corpus(str(path), 0.1, 0.1, split="name", newlines="keep").fingerprint == fingerprint
