"""Records: every format gives the same documents, one at a time, and what is broken is named."""

import gzip
import hashlib
import json
from pathlib import Path

import pytest

from glassformer.core.errors import DataError
from glassformer.data import collection, shards, splits, text_files
from glassformer.data.datasets import open_corpus
from glassformer.data.shards import open_shards, tokenize
from glassformer.data.sources import Corpus
from glassformer.tokenizers.tokenizer import Byte
from tests.data.record_files import FORMATS, make_documents, skip_without, write_records

DOCUMENTS = make_documents(300)


def read(corpus: Corpus) -> list[tuple[str, str]]:
    """(split, text) of every document, in order."""
    documents = [(split, "".join(p.read())) for u in range(corpus.units) for split, p in corpus.parts(u)]
    sizes = [len(part) for u in range(corpus.units) for _, part in corpus.parts(u)]
    assert sizes == [len(text.encode(errors="surrogatepass")) for _, text in documents]
    return documents


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_gives_the_same_documents_and_shards(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    skip_without(name)
    monkeypatch.setattr(shards, "SHARD_TOKENS", 5000)
    corpus = open_corpus(str(write_records(DOCUMENTS, tmp_path / name)), 0.1, 0.1, newlines="keep")
    documents = read(corpus)
    assert [text for _, text in documents] == DOCUMENTS
    assert {split for split, _ in documents} == {"train", "valid", "test"}
    folder = tokenize(corpus, Byte())
    expected: dict[str, list[int]] = {}
    for split, text in documents:
        expected.setdefault(split, []).extend([256, *text.encode()])
    for split, tokens in open_shards(folder).items():
        assert tokens.read(0, len(tokens)).tolist() == expected[split]
        assert tokens.bytes == sum(len(text.encode()) for s, text in documents if s == split)
    plain = tokenize(
        open_corpus(str(write_records(DOCUMENTS, tmp_path / "b.jsonl")), 0.1, 0.1, newlines="keep"), Byte()
    )
    files = sorted(path.name for path in folder.glob("*.npy"))
    assert len(files) > 6 and files == sorted(path.name for path in plain.glob("*.npy"))
    assert all((folder / f).read_bytes() == (plain / f).read_bytes() for f in files)


def test_a_stream_of_hugging_face_gives_them_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("datasets")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    for k in range(3):
        write_records(DOCUMENTS[100 * k : 100 * (k + 1)], tmp_path / f"train-{k}.jsonl")
    write_records(DOCUMENTS[:40], tmp_path / "test-0.jsonl")
    corpus = open_corpus(f"hf:{tmp_path}", 0.1, 0.1)
    assert corpus.units == 3 and corpus.path is None and corpus.warnings == []
    assert read(corpus) == read(open_corpus(f"{tmp_path}/train-*.jsonl", 0.1, 0.1))
    assert corpus.fingerprint == open_corpus(f"hf:{tmp_path}", 0.1, 0.1).fingerprint
    other = open_corpus(f"hf:{tmp_path}@test", 0.1, 0.1)
    assert [text for _, text in read(other)] == DOCUMENTS[:40]
    assert other.fingerprint != corpus.fingerprint
    with pytest.raises(DataError, match=r"could not be opened: .*Bad split: dev"):
        open_corpus(f"hf:{tmp_path}@dev")
    with pytest.raises(DataError, match=r"'words' is not there.*id \(int64\), text \(string\)"):
        open_corpus(f"hf:{tmp_path}", field="words")
    with pytest.raises(DataError, match="expected hf:ORG/NAME"):
        open_corpus("hf:")
    monkeypatch.setattr(collection, "PROBE_BYTES", 100)
    assert "does not say how much text" in open_corpus(f"hf:{tmp_path}").warnings[0]


@pytest.mark.parametrize("ending", [".gz", ".zst"])
def test_packed_text_is_text(ending: str, tmp_path: Path) -> None:
    skip_without(ending)
    text = "".join(DOCUMENTS).encode()
    (tmp_path / "a.txt").write_bytes(text)
    path = tmp_path / f"a.txt{ending}"
    if ending == ".gz":
        path.write_bytes(gzip.compress(text[:9000]) + gzip.compress(text[9000:]) + b"\0" * 512)
    else:
        import zstandard

        path.write_bytes(zstandard.ZstdCompressor().compress(text))
    plain, unpacked = (open_corpus(str(p), 0.1, 0.1) for p in (tmp_path / "a.txt", path))
    assert plain.rule == unpacked.rule
    for split in ("train", "valid", "test"):
        assert list(plain.texts(split)) == list(unpacked.texts(split)) != []


def test_a_folder_may_hold_texts_and_records_together(tmp_path: Path) -> None:
    write_records(DOCUMENTS[:50], tmp_path / "a.jsonl")
    (tmp_path / "b.txt").write_text(DOCUMENTS[50], encoding="utf-8", newline="")
    (tmp_path / "c.txt.gz").write_bytes(gzip.compress(DOCUMENTS[51].encode()))
    (tmp_path / "picture.png").write_bytes(b"\x89PNG\0\0")
    corpus = open_corpus(str(tmp_path), 0.2, 0.0, newlines="keep")
    assert [text for _, text in read(corpus)] == DOCUMENTS[:52]
    assert "picture.png" in corpus.warnings[0]
    assert "test" not in corpus.splits
    assert [s for s, _ in read(corpus.whole())] == ["all"] * 52
    assert corpus.fingerprint != open_corpus(str(tmp_path), 0.1, 0.0).fingerprint
    write_records([*DOCUMENTS[:49], "another"], tmp_path / "a.jsonl")
    assert corpus.fingerprint != open_corpus(str(tmp_path), 0.2, 0.0).fingerprint


def test_the_digest_of_a_large_file_is_kept_until_it_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(text_files, "LARGE", 1)
    path = write_records(DOCUMENTS, tmp_path / "a.jsonl")
    monkeypatch.setattr(text_files, "MTIME_MARGIN", -(10**9))  # as if it were an old one
    first = text_files.file_digest(path)
    assert first == hashlib.sha256(path.read_bytes()).hexdigest()
    monkeypatch.setattr(text_files.hashlib, "file_digest", None)
    assert text_files.file_digest(path) == first
    monkeypatch.undo()
    write_records(DOCUMENTS[::-1], path)
    assert text_files.file_digest(path) == hashlib.sha256(path.read_bytes()).hexdigest() != first


def test_duplicates_never_straddle_splits(tmp_path: Path) -> None:
    corpus = open_corpus(str(write_records(DOCUMENTS + DOCUMENTS[::-1], tmp_path / "a.jsonl")), 0.2, 0.2)
    splits: dict[str, set[str]] = {}
    for split, text in read(corpus):
        splits.setdefault(text, set()).add(split)
    assert all(len(names) == 1 for names in splits.values())


def test_few_documents_are_cut_and_nothing_is_lost(tmp_path: Path) -> None:
    texts = ["a line of text\n" * 40, "one \ud800 surrogate\n" * 30]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps({"text": t}) + "\n" for t in texts))
    corpus = open_corpus(str(tmp_path / "a.jsonl"), 0.2, 0.1)
    assert corpus.rule.startswith("scattered blocks")
    assert "".join(text for _, text in read(corpus)) == "".join(texts)
    corpus = open_corpus(str(tmp_path / "a.jsonl"), 0.2, 0.1, split="name")
    assert corpus.rule.startswith("the end of each document")
    parts = read(corpus)
    assert [split for split, _ in parts] == ["train", "valid", "test"] * 2
    assert "".join(text for _, text in parts) == "".join(texts)
    assert set(open_shards(tokenize(corpus, Byte()))) == {"train", "valid", "test"}


def test_no_more_is_held_out_than_is_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(splits, "HELD_OUT", 4000)
    corpus = open_corpus(str(write_records(DOCUMENTS, tmp_path / "a.jsonl.gz")), 0.3, 0.3, newlines="keep")
    total = sum(len(text.encode()) for text in DOCUMENTS)
    assert sum(corpus.bytes(split) for split in corpus.splits) == pytest.approx(total, abs=3)
    held_out = sum(len(text.encode()) for split, text in read(corpus) if split == "valid")
    assert 0.3 * 4000 < held_out < 2 * 4000 < 0.3 * total
    for k in range(40):  # most files are not looked into: their size tells
        write_records(DOCUMENTS, tmp_path / f"{k}.jsonl.gz")
    many = open_corpus(str(tmp_path), 0.3, 0.3, "text", newlines="keep")
    assert sum(many.sizes) == pytest.approx(41 * total, rel=0.01)


def test_a_sample_comes_from_all_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for k in range(4):
        write_records([f"{k} {text}" for text in DOCUMENTS], tmp_path / f"{k}.jsonl")
    corpus = open_corpus(str(tmp_path), 0.1, 0.1)
    train = [text for split, text in read(corpus) if split == "train"]
    assert list(corpus.texts()) == train
    for share in (0.02, 0.1, 0.5):
        limit = int(share * corpus.bytes("train"))
        sample = list(corpus.texts(limit=limit))
        assert set(sample) <= set(train) and {text[0] for text in sample} == set("0123")
        assert sum(len(t.encode()) for t in sample) == pytest.approx(limit, rel=0.4)
    monkeypatch.setattr(collection, "SAMPLE_FILES", 2)
    assert {text[0] for text in corpus.texts(limit=corpus.bytes("train") // 10)} == set("02")
