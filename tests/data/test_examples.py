"""Examples from files of every kind, and those that are made here."""

import datetime
import gzip
import hashlib
import json
import sysconfig
from pathlib import Path

import numpy as np
import pytest

from glassformer.core.errors import DataError, GlassformerError, UsageError
from glassformer.data.catalog import DATASETS, File, Published
from glassformer.data.datasets import open_examples, task_of
from glassformer.data.examples import divide_examples, label_names
from glassformer.data.generated import dates, digits, docstrings, pycode
from glassformer.data.generated.dates import _ordinal, _year
from glassformer.data.tables import own_examples, read_examples
from tests.data.test_sources import server  # noqa: F401


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.tsv", 'good "film"\t1\nbad film\t0\n'),
        ("a.tsv", 'label\ttext\n1\tgood "film"\n0\tbad film\n'),
        ("a.csv", 'text,label\n"good ""film""",1\nbad film,0\n'),
        ("a.csv", '\ufefftext,label\n"good ""film""",1\nbad film,0'),
        ("a.jsonl", '{"text": "good \\"film\\"", "label": 1}\n\n{"sentence": "bad film", "label": "0"}\n'),
    ],
)
def test_labelled_texts_are_read_from_tables(tmp_path: Path, name: str, text: str) -> None:
    examples = read_examples(write(tmp_path / name, text), "classify", None)
    assert examples == [('good "film"', "1"), ("bad film", "0")]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.txt", "the DET\ncat NOUN\n\nruns VERB\n"),
        ("a.conll", "the\tx\tDET\ncat\ty\tNOUN\n\n\nruns\tz\tVERB"),
        (
            "a.jsonl",
            '{"words": ["the", "cat"], "tags": ["DET", "NOUN"]}\n{"tokens": ["runs"], "tags": ["VERB"]}',
        ),
    ],
)
def test_tagged_words_are_read(tmp_path: Path, name: str, text: str) -> None:
    examples = read_examples(write(tmp_path / name, text), "tag", None)
    assert examples == [(["the", "cat"], ["DET", "NOUN"]), (["runs"], ["VERB"])]


def test_parallel_texts_are_read_line_by_line(tmp_path: Path) -> None:
    one = write(tmp_path / "a.en", "one\n\ntwo\n")
    other = write(tmp_path / "a.de", "eins\n\nzwei\n")
    assert read_examples(one, "translate", str(other)) == [("one", "eins"), ("two", "zwei")]
    assert read_examples(write(tmp_path / "a.tsv", "one\teins\n"), "translate", None) == [("one", "eins")]


@pytest.mark.parametrize(
    ("task", "name", "text", "message"),
    [
        ("classify", "a.tsv", "good film\t1\nbad film\n", r"line 2: expected 2 columns, found 1"),
        ("classify", "a.tsv", "only a text\n", r"expected two columns, text and label"),
        ("classify", "a.jsonl", '{"text": "x"}\n', r"line 1: expected a JSON object"),
        ("classify", "a.jsonl", "no json\n", r"line 1: expected a JSON object"),
        ("classify", "a.txt", "text\n", r"expected .tsv, .csv or .jsonl"),
        ("tag", "a.txt", "the DET\ncat\n", r"line 2: expected a word and its tag"),
        ("tag", "a.jsonl", '{"words": ["a"], "tags": []}', r"as many tags as words"),
        ("translate", "a.en", "one\n", r"other language is missing.*target="),
        ("classify", "a.tsv", "", r"is empty"),
        ("classify", "a.tsv", "\n\n", r"holds no examples"),
        ("classify", "a.tsv", "1\tgood film\tyes\n", r"3 columns, and it is not clear.*data.label_column"),
        ("translate", "a.tsv", "one\teins\tun\n", r"3 columns and no header"),
        ("translate", "a.csv", "target,english\neins,one\n", r"its header names target, but none of source"),
    ],
)
def test_wrong_tables_are_named_with_the_line(
    tmp_path: Path, task: str, name: str, text: str, message: str
) -> None:
    with pytest.raises(GlassformerError, match=message):
        read_examples(write(tmp_path / name, text), task, None)


def test_only_new_lines_end_a_line(tmp_path: Path) -> None:
    """Python's splitlines would also cut at U+2028 and U+0085, which are part of some texts."""
    text = json.dumps({"text": "a\u2028b", "label": "x"}, ensure_ascii=False)
    assert read_examples(write(tmp_path / "a.jsonl", text), "classify", None) == [("a\u2028b", "x")]
    one, other = write(tmp_path / "a.en", "a\x85b\nc\n"), write(tmp_path / "a.de", "d\ne\n")
    assert read_examples(one, "translate", str(other)) == [("a\x85b", "d"), ("c", "e")]


def test_a_document_may_be_a_cell(tmp_path: Path) -> None:
    long = "word " * 60_000
    examples = read_examples(write(tmp_path / "a.tsv", f"{long}\t1\n"), "classify", None)
    assert examples == [(long.strip(), "1")]


def test_parallel_texts_of_unequal_length_are_refused(tmp_path: Path) -> None:
    one, other = write(tmp_path / "a.en", "one\ntwo\n"), write(tmp_path / "a.de", "eins\n")
    with pytest.raises(DataError, match=r"has 2 lines and .* has 1"):
        read_examples(one, "translate", str(other))


def test_equal_inputs_fall_into_one_split() -> None:
    examples = [(f"text {i % 100}", str(i)) for i in range(1000)]
    splits, _ = divide_examples(examples, 0.2, 0.2)
    inputs = {split: {text for text, _ in part} for split, part in splits.items()}
    assert all(len(part) > 50 for part in splits.values())
    assert not inputs["train"] & inputs["valid"] and not inputs["train"] & inputs["test"]
    assert not inputs["valid"] & inputs["test"]


def test_a_folder_names_its_splits(tmp_path: Path) -> None:
    for name, text in (("train", "a\t0\nb\t1\n"), ("dev", "c\t1\n"), ("test", "d\t0\n")):
        write(tmp_path / f"{name}.tsv", text)
    examples = own_examples(str(tmp_path), "classify", None, 0.1, 0.1)
    assert {split: len(e) for split, e in examples.splits.items()} == {"train": 2, "valid": 1, "test": 1}
    (tmp_path / "train.tsv").unlink()
    with pytest.raises(DataError, match="expected a file named train"):
        own_examples(str(tmp_path), "classify", None, 0.1, 0.1)


def test_labels_are_sorted_numbers_by_value() -> None:
    assert label_names([("", "10"), ("", "9"), ("", "b"), ("", "a")]) == ["9", "10", "a", "b"]
    assert label_names([([], ["B", "A"]), ([], ["C"])]) == ["A", "B", "C"]


def test_no_spelling_of_a_held_out_date_is_trained_on() -> None:
    splits = dates.examples().splits
    days = {split: {iso for _, iso in examples} for split, examples in splits.items()}
    assert not days["train"] & days["valid"] and not days["train"] & days["test"]
    assert not days["valid"] & days["test"]
    assert min(len(s) for s in days.values()) > 400
    for spelled, iso in splits["test"][:200]:
        day = datetime.date.fromisoformat(iso)
        assert day.strftime("%b") in spelled
        assert str(day.year) in spelled or _year(day.year) in spelled
        assert str(day.day) in spelled or _ordinal(day.day) in spelled


@pytest.mark.parametrize(
    ("year", "words"),
    [
        (1987, "nineteen eighty-seven"),
        (1900, "nineteen hundred"),
        (1905, "nineteen oh five"),
        (2000, "two thousand"),
        (2007, "two thousand and seven"),
        (2030, "twenty thirty"),
    ],
)
def test_years_are_spelled_as_people_say_them(year: int, words: str) -> None:
    assert _year(year) == words


def test_ordinals_are_spelled_right() -> None:
    expected = {
        1: "first",
        3: "third",
        12: "twelfth",
        20: "twentieth",
        21: "twenty-first",
        31: "thirty-first",
    }
    assert {n: _ordinal(n) for n in expected} == expected


def test_docstrings_are_labelled_with_the_topic_of_their_module() -> None:
    train = docstrings.examples().splits["train"]
    assert label_names(train) == sorted(docstrings.TOPICS) and len(train) > 1000
    topics = {topic for text, topic in train if "asyncio" in text}
    assert "concurrency" in topics
    assert all(20 <= len(text) <= 600 and "  " not in text and "\n" not in text for text, _ in train)


def test_the_words_of_a_line_are_tagged_with_what_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = Path(sysconfig.get_paths()["stdlib"])  # all of it takes seconds
    for name in ("textwrap.py", "heapq.py", "bisect.py", "shlex.py"):
        (tmp_path / name).write_bytes((library / name).read_bytes())
    line = "    return self.width(2, 'a', end=os.sep) + len(x)"
    write(tmp_path / "own.py", f"import os\nclass A(B):\n  def f(self, x):\n{line}\n")
    write(tmp_path / "broken.py", "def (")
    monkeypatch.setattr(sysconfig, "get_paths", lambda: {"stdlib": str(tmp_path)})
    splits = pycode.examples().splits
    examples = [example for part in splits.values() for example in part]
    assert len(examples) > 500 and all(len(words) == len(tags) for words, tags in examples)
    assert set(label_names(examples)) == {
        *("attribute", "call", "class", "function", "keyword", "method", "module"),
        *("number", "operator", "parameter", "string", "variable"),
    }
    tags = next(dict(zip(*example, strict=True)) for example in examples if "width" in example[0][:4])
    assert tags == {
        "return": "keyword",
        "self": "variable",
        "width": "method",
        "2": "number",
        "'a'": "string",
        "end": "parameter",
        "os": "variable",
        "sep": "attribute",
        "len": "call",
        "x": "variable",
        **dict.fromkeys(".(,=)+", "operator"),
    }


def test_an_image_is_cut_into_patches_row_by_row() -> None:
    pytest.importorskip("sklearn")
    from sklearn.datasets import load_digits

    source = load_digits()
    for patches, label in digits.examples().splits["train"][:20]:
        assert patches.shape == (16, 4)
        whole = patches.reshape(4, 4, 2, 2).swapaxes(1, 2).reshape(8, 8)
        matches = np.flatnonzero(np.isclose(source.images / 16, whole).all(axis=(1, 2)))
        assert label in source.target[matches].astype(str)


def test_a_source_says_what_it_is_for(tmp_path: Path) -> None:
    assert [task_of(s) for s in ("sst2", "multi30k", "dates", "pycode", "shakespeare", "digits")] == [
        *("classify", "translate", "translate", "tag", "language", "classify")
    ]
    own = write(tmp_path / "a.txt", "text")
    assert (task_of(str(own)), task_of(str(own), "b.txt")) == ("language", "translate")
    with pytest.raises(UsageError, match="for the task translate, not classify"):
        open_examples("dates", "classify", None, 0.1, 0.1)
    with pytest.raises(DataError, match=r"Did you mean 'sst2'\? Data sets: "):
        open_examples("sst", "classify", None, 0.1, 0.1)


def test_files_of_a_set_are_downloaded_one_by_one(
    server: tuple[str, Path],  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    url, root = server
    monkeypatch.setenv("GLASSFORMER_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("GLASSFORMER_DATA", raising=False)
    sides = {"en": b"one\ntwo\n", "de": b"eins\nzwei\n"}
    for side, text in sides.items():
        (root / f"t.{side}.gz").write_bytes(gzip.compress(text))
    files = {
        f"{split} {side}": File(
            f"{split}.{side}", hashlib.sha256(text).hexdigest(), urls=(f"{url}/t.{side}.gz",)
        )
        for split in ("train", "valid")
        for side, text in sides.items()
    }
    dataset = Published(about="a test", folder="pairs", files=files, task="translate", rule="as published")
    monkeypatch.setitem(DATASETS, "pairs", dataset)
    examples = open_examples("pairs", "translate", None, 0.1, 0.1)
    assert examples.splits["valid"] == [("one", "eins"), ("two", "zwei")] and examples.warnings == []
    (tmp_path / "cache" / "data" / "pairs" / "train.en").unlink()
    (root / "t.en.gz").write_bytes(gzip.compress(b"tampered"))
    with pytest.raises(DataError, match="not the published file"):
        open_examples("pairs", "translate", None, 0.1, 0.1)


def test_the_real_sets_are_as_published(shared_data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GLASSFORMER_DATA", str(shared_data))
    for name, task, sizes in (
        ("sst2", "classify", (6920, 872, 1821)),
        ("multi30k", "translate", (29000, 1014, 1000)),
    ):
        examples = open_examples(name, task, None, 0.1, 0.1)
        assert tuple(len(e) for e in examples.splits.values()) == sizes
        assert examples.warnings == []
        assert all(isinstance(x, str) and isinstance(y, str) and x and y for x, y in examples.splits["test"])
