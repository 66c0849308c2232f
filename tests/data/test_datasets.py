"""`load_dataset`: one way from a SOURCE to data, whatever the source is and whoever names the task."""

from pathlib import Path

import pytest

from glassformer.core.errors import DataError, UsageError
from glassformer.data.datasets import load_dataset, open_corpus, open_examples
from glassformer.data.examples import Examples
from glassformer.data.sources import Corpus
from tests.data.record_files import make_documents, write_records


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "a.txt").write_text("".join(f"line {i} of a text\n" for i in range(200)))
    (tmp_path / "reviews.tsv").write_text("".join(f"film {i}\t{i % 2}\n" for i in range(40)))
    (tmp_path / "words.conll").write_text("the DET\ncat NOUN\n\n" * 3)
    (tmp_path / "a.en").write_text("one\ntwo\n")
    (tmp_path / "a.de").write_text("eins\nzwei\n")
    write_records(make_documents(60), tmp_path / "b.jsonl", field="body")
    return tmp_path


def test_text_and_its_shares(folder: Path) -> None:
    corpus = load_dataset(folder / "a.txt", valid=0.2, test=0.1)
    assert isinstance(corpus, Corpus)
    assert corpus == open_corpus(str(folder / "a.txt"), 0.2, 0.1)
    assert corpus.bytes("valid") == pytest.approx(0.2 * (folder / "a.txt").stat().st_size, rel=0.2)
    assert load_dataset(folder / "a.txt", "masked").fingerprint == load_dataset(folder / "a.txt").fingerprint


def test_a_pattern_and_records_with_their_field(folder: Path) -> None:
    records = load_dataset(folder / "*.jsonl", field="body", newlines="keep")
    assert isinstance(records, Corpus) and records.units == 1
    texts = {text for split in records.splits for text in records.texts(split)}
    assert texts == set(make_documents(60))
    with pytest.raises(DataError, match="the field 'text' is not there"):
        load_dataset(folder / "*.jsonl")


def test_examples_by_their_task(folder: Path) -> None:
    reviews = load_dataset(folder / "reviews.tsv", "classify", valid=0.1, test=0.1)
    assert isinstance(reviews, Examples)
    assert reviews.splits == open_examples(str(folder / "reviews.tsv"), "classify", None, 0.1, 0.1).splits
    assert sum(map(len, reviews.splits.values())) == 40
    tagged = load_dataset(folder / "words.conll", "tag").whole()
    assert tagged.splits["all"] == [(["the", "cat"], ["DET", "NOUN"])] * 3


def test_a_target_makes_it_a_translation(folder: Path) -> None:
    pairs = load_dataset(folder / "a.en", target=folder / "a.de")
    assert isinstance(pairs, Examples)
    assert pairs.whole().splits["all"] == [("one", "eins"), ("two", "zwei")]


def test_a_name_is_for_the_task_it_was_made_for(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    corpus = load_dataset("repeats")
    assert isinstance(corpus, Corpus) and corpus.name == "repeats"
    with pytest.raises(UsageError, match="'dates' holds examples, for the task translate; this needs text"):
        load_dataset("dates", "language")
    with pytest.raises(UsageError, match="'repeats' is for the task language, not tag"):
        load_dataset("repeats", "tag")
    monkeypatch.chdir(folder)
    (folder / "repeats").write_text("a file that is called like a data set comes first\n")
    assert isinstance(own := load_dataset("repeats"), Corpus) and own.path == folder / "repeats"


def test_what_is_not_there_is_said(folder: Path) -> None:
    with pytest.raises(DataError, match=r"no file, folder or data set 'repeat'\. Did you mean 'repeats'"):
        load_dataset("repeat")
    with pytest.raises(UsageError, match=r"no task 'clasify'\. Did you mean 'classify'.*Tasks: language"):
        load_dataset(folder / "reviews.tsv", "clasify")
