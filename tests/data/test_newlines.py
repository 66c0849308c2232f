"""Line ends: whatever system a text comes from, a model reads \\n; unless it is told to keep them."""

import gzip
import io
import json
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

import glassformer as gf
from glassformer.config.saved import load_config
from glassformer.data import newlines
from glassformer.data.columns import TableWish
from glassformer.data.datasets import load_dataset, open_corpus
from glassformer.data.mixtures import open_mix
from glassformer.data.newlines import UnifiedStream, Unifier, unified, unified_blocks
from glassformer.data.shards import open_shards, tokenize
from glassformer.data.sources import Corpus
from glassformer.data.tables import read_examples
from glassformer.data.text_files import PIECE, read_facts
from glassformer.tokenizers.load import Byte
from tests.data.record_files import write_records

ENTRIES = [f"Entry {i}\n\nWörter und {i * i} more of it.\n\n" for i in range(400)]
UNIX = "".join(ENTRIES)
WINDOWS, MAC = UNIX.replace("\n", "\r\n"), UNIX.replace("\n", "\r")


def joined(corpus: Corpus) -> str:
    """All text in its order."""
    return "".join("".join(p.read()) for unit in range(corpus.units) for _, p in corpus.parts(unit))


@given(st.text(alphabet="a\r\n\té", max_size=40), st.integers(1, 7))
def test_blocks_give_what_the_whole_gives(text: str, size: int) -> None:
    """A line end may lie across the border of two blocks."""
    expected = unified(text).encode()
    data = text.encode()
    unifier = Unifier()
    blocks = [unifier.feed(data[at : at + size]) for at in range(0, len(data), size)]
    assert b"".join([*blocks, unifier.end()]) == expected
    assert unifier.found == ("\r" in text)
    assert "\r" not in unified(text) and unified(text, "keep") == text


def test_a_stream_gives_it_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(newlines, "PIECE", 7)
    assert io.BufferedReader(UnifiedStream(io.BytesIO(WINDOWS.encode())), 5).read() == UNIX.encode()
    assert all(unified_blocks(io.BytesIO(b"\r\n\r\n\r"), Unifier()))


@pytest.mark.parametrize("data", [WINDOWS, MAC, "\ufeff" + WINDOWS], ids=["windows", "mac", "mark"])
@pytest.mark.parametrize("rule", ["content", "name"])
def test_a_file_of_another_system_is_the_same_corpus(
    tmp_path: Path, data: str, rule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("sources", "packed", "newlines"):
        monkeypatch.setattr(f"glassformer.data.{module}.PIECE", 997)
    (tmp_path / "a.txt").write_bytes(data.encode())
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "a.txt").write_bytes(UNIX.encode())
    here, unix = (open_corpus(str(p), split=rule) for p in (tmp_path / "a.txt", tmp_path / "b" / "a.txt"))  # type: ignore[arg-type]
    assert joined(here) == joined(unix) == UNIX
    sizes = {split: here.bytes(split) for split in here.splits}
    assert sizes == {split: unix.bytes(split) for split in unix.splits} and all(sizes.values())
    for split in unix.splits:
        assert "".join(here.texts(split)) == "".join(unix.texts(split))
    shards = open_shards(tokenize(here, Byte()))
    assert {split: tokens.bytes for split, tokens in shards.items()} == sizes
    kept = open_corpus(str(tmp_path / "a.txt"), newlines="keep")
    assert joined(kept) == data.removeprefix("\ufeff") and kept.fingerprint != here.fingerprint


def test_every_source_is_normalised(tmp_path: Path) -> None:
    rows = [entry.replace("\n", "\r\n") for entry in ENTRIES]
    (tmp_path / "packed.txt.gz").write_bytes(gzip.compress(WINDOWS.encode()))
    (tmp_path / "folder").mkdir()
    for i in range(3):
        (tmp_path / "folder" / f"{i}.txt").write_bytes(f"{i} {WINDOWS}".encode())
    write_records(rows, tmp_path / "a.jsonl")
    sources = [tmp_path / "packed.txt.gz", tmp_path / "folder", tmp_path / "a.jsonl"]
    if pytest.importorskip("pyarrow"):
        sources.append(write_records(rows, tmp_path / "a.parquet"))
    for source in map(str, sources):
        assert "\r" not in joined(open_corpus(source)) != "", source
        assert "\r" in joined(open_corpus(source, newlines="keep")), source
        assert open_corpus(source).fingerprint != open_corpus(source, newlines="keep").fingerprint
    mix = open_mix({str(sources[0]): 1.0, str(sources[2]): 1.0}, 0.1, 0.1, "text")
    assert all("\r" not in text for text in mix.texts())


def test_the_cells_of_tables_are_normalised(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b'"one\r\n\r\ntwo",yes\r\n"three",no\r\n')
    rows = [{"text": "one\r\n\r\ntwo", "label": "yes"}, {"text": "three", "label": "no"}]
    (tmp_path / "a.jsonl").write_bytes("".join(json.dumps(row) + "\r\n" for row in rows).encode())
    for name in ("a.csv", "a.jsonl"):
        path = tmp_path / name
        assert read_examples(path, "classify") == [("one\n\ntwo", "yes"), ("three", "no")]
        kept = read_examples(path, "classify", None, TableWish(newlines="keep"))
        assert kept == [("one\r\n\r\ntwo", "yes"), ("three", "no")]
    for side in ("en", "de"):
        (tmp_path / f"a.{side}").write_bytes(f"one {side}\r\ntwo {side}\r\n".encode())
    pairs = load_dataset(tmp_path / "a.en", target=tmp_path / "a.de").whole()
    assert pairs.splits["all"] == [("one en", "one de"), ("two en", "two de")]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, gf.Run]:
    """A run on a Windows file as it is read now, and as it was read before there was a choice."""
    folder = tmp_path_factory.mktemp("windows")
    (folder / "a.txt").write_bytes(WINDOWS.encode())
    small = {"model.layers": 1, "model.width": 16, "model.heads": 2, "model.context": 32, "training.batch": 4}
    small |= {"training.steps": 3, "tokenizer.kind": "char"}
    return {
        way: gf.train(folder / "a.txt", out=folder / way, settings={**small, "data.newlines": way})
        for way in ("normalise", "keep")
    }


def test_prompts_are_read_as_the_text_was(runs: dict[str, gf.Run], tmp_path: Path) -> None:
    now, before = runs["normalise"], runs["keep"]
    assert "\r" not in now.data["characters"] and "\r" in before.data["characters"]
    assert now.generate("Entry\r\n", 8, seed=1) == now.generate("Entry\n", 8, seed=1)
    assert now.look("Entry\r\n").text == "Entry\n" and before.look("Entry\r\n").text == "Entry\r\n"
    assert now.unseen("Entry\r\n ö €") == ["€"]
    (tmp_path / "b.txt").write_bytes(WINDOWS[:4000].encode())
    (tmp_path / "c.txt").write_bytes(WINDOWS[:4000].replace("\r", "").encode())
    windows, unix = (now.evaluate(data=str(tmp_path / f"{name}.txt")) for name in "bc")
    assert windows == unix
    kept = before.evaluate(data=str(tmp_path / "b.txt")).as_dict()["bytes"]
    assert kept == len(WINDOWS[:4000].encode()) > windows.as_dict()["bytes"]


def test_a_run_made_before_keeps_its_line_ends(runs: dict[str, gf.Run]) -> None:
    """Its config.yaml does not say; text and fingerprint are those it was begun with."""
    run = runs["keep"]
    path = run.path / "config.yaml"
    config = yaml.safe_load(path.read_text())
    del config["data"]["newlines"]
    path.write_text(yaml.safe_dump(config, sort_keys=False))
    assert load_config(path).data.newlines == "keep"
    again = gf.load(run.path)
    assert again.evaluate() == run.evaluate()
    assert gf.train(out=run.path, resume=True).data == run.data


def test_a_file_is_known_by_all_of_it_also_where_line_ends_make_it_smaller(tmp_path: Path) -> None:
    """Above the size of a block as it lies there, below it as it is read."""
    line = "0123456789\n"
    text = line * (PIECE // len(line) - 1)
    assert len(text) <= PIECE < len(text.replace("\n", "\r\n"))
    for name, end in (("lf", "\n"), ("crlf", "\r\n")):
        for last in ("one", "two"):
            (tmp_path / f"{name}-{last}").write_bytes((text + last).replace("\n", end).encode())
    facts = {p.name: read_facts(p, p.name) for p in tmp_path.iterdir()}
    assert facts["crlf-one"].content != facts["crlf-two"].content or not facts["crlf-one"].content
