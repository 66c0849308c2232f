"""Records that are broken, or made to harm: each is named, and memory stays what it was."""

import gzip
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from glassformer.core.errors import DataError, UsageError
from glassformer.data import packed, records, shards
from glassformer.data.datasets import open_corpus
from glassformer.data.records import Parquet
from tests.data.record_files import make_documents, skip_without, write_records

DOCUMENTS = make_documents(300)


BROKEN = {
    "broken": ('{"text": "a"}\n{"text": "b\n', r"a\.jsonl, line 2 is not JSON: .* \(character 12\)"),
    "a number": ('{"text": "a"}\n\n7\n', "line 3: expected a JSON object, found number"),
    "deep": ("[" * 100_000, "line 1 is not JSON: it holds a number too long, or is nested too deeply"),
    "no field": (
        '{"content": "a", "id": 3, "more": null}\n',
        r"line 1: the field 'text' is not there. Its fields: content \(text\), id \(number\), more \(null\)."
        ".*data.field.: .NAME",
    ),
    "no text": ('{"text": ["a"]}\n', r"the field 'text' is list, not text"),
    "empty": ("\n \n", "holds no documents"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_broken_lines_are_named(case: str, tmp_path: Path) -> None:
    content, message = BROKEN[case]
    (tmp_path / "a.jsonl").write_text(content)
    with pytest.raises(DataError, match=message):
        open_corpus(str(tmp_path / "a.jsonl"))


def test_broken_files_are_named(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(b'{"text": "Gr\xfc\xdfe"}\n')
    with pytest.raises(DataError, match="line 1 is not JSON: it is not UTF-8"):
        open_corpus(str(tmp_path / "a.jsonl"))
    for name in ("a.jsonl.gz", "a.jsonl.zst"):
        skip_without(name)
        whole = write_records(DOCUMENTS, tmp_path / name).read_bytes()
        for kept in (0, 10, len(whole) // 2, len(whole) - 3):
            (tmp_path / name).write_bytes(whole[:kept])
            with pytest.raises(DataError, match=rf"{name} ends in the middle: it was cut off"):
                open_corpus(str(tmp_path / name))
        (tmp_path / name).write_bytes(b"no such thing" * 100)
        with pytest.raises(DataError, match=r"is damaged: (gz|zst) cannot unpack it"):
            open_corpus(str(tmp_path / name))
    text = tmp_path / "b.txt.gz"
    text.write_bytes(gzip.compress("".join(DOCUMENTS).encode())[:-20])
    (tmp_path / "c.txt").write_text("a text beside it")
    with pytest.raises(DataError, match="ends in the middle"):
        open_corpus(f"{tmp_path}/*.txt*")
    with pytest.raises(DataError, match="no file that fits"):
        open_corpus(f"{tmp_path}/*.text")


def test_broken_parquet_is_named(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    import pyarrow.parquet as parquet

    path = tmp_path / "a.parquet"
    path.write_text("no parquet at all")
    with pytest.raises(DataError, match=r"a\.parquet is no Parquet file, or damaged"):
        open_corpus(str(path))
    write_records(DOCUMENTS, path)
    with pytest.raises(DataError, match=r"'words' is not there. Its fields: id \(int64\), text \(string\)"):
        open_corpus(str(path), field="words")
    with pytest.raises(DataError, match=r"row 1: the field 'id' is number, not text"):
        open_corpus(str(path), field="id")
    parquet.write_table(pyarrow.table({"text": ["a", None]}), path)
    with pytest.raises(DataError, match="row 2: the field 'text' is null, not text"):
        open_corpus(str(path))


def test_traps_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(json.dumps({"text": "a" * (1 << 21)}).encode()))
    monkeypatch.setattr(records, "MAX_RECORD_BYTES", 1 << 20)
    with pytest.raises(DataError, match=r"line 1: one document of more than 1 MiB. Put a text"):
        open_corpus(str(tmp_path / "a.jsonl.gz"))
    monkeypatch.setattr(packed, "RATIO_FLOOR", 1 << 19)
    with pytest.raises(DataError, match="unpacks to more than 500 times its size"):
        open_corpus(str(tmp_path / "a.jsonl.gz"))
    skip_without(".parquet")
    with pytest.raises(DataError, match="row 1: one document of more than 1 MiB"):
        open_corpus(str(write_records(["a" * (1 << 21)], tmp_path / "a.parquet")))


@pytest.mark.parametrize(
    ("source", "package"), [("a.jsonl.zst", "zstandard"), ("a.parquet", "pyarrow"), ("hf:a/b", "datasets")]
)
def test_a_missing_package_is_named(
    source: str, package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.jsonl.zst").write_bytes(b"x")
    Path("a.parquet").write_bytes(b"x")
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(UsageError, match=rf"needs the package {package}: pip install 'glassformer\[data\]'"):
        open_corpus(source)


def test_nothing_trusts_the_code_of_a_data_set() -> None:
    package = Path(records.__file__).parents[1]
    assert not [p for p in package.rglob("*.py") if "trust_remote_code" in p.read_text(encoding="utf-8")]


MEASURED = """
import gzip, json, random, resource, sys
from pathlib import Path
from glassformer.data import shards
from glassformer.data.datasets import open_corpus
from glassformer.data.records import Parquet
from glassformer.tokenizers.tokenizer import Byte
import numpy as np

class Quick(Byte):
    def array(self, text, threads=None):
        return np.frombuffer(text.encode(), np.uint8).astype(np.int32)

path = Path(sys.argv[1])
draw = random.Random(0)
words = [f"w{draw.randrange(10**6)}" for _ in range(2000)]
passages = [" ".join(draw.choices(words, k=290)) for _ in range(200)]
with gzip.open(path, "wt", compresslevel=1) as file:
    for i in range(2500):
        file.write(json.dumps({"text": f"{i} " + " ".join(draw.choices(passages, k=10))}) + "\\n")
shards.SHARD_TOKENS = 1 << 20
def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
before = peak()
corpus = open_corpus(str(path))
folder = shards.tokenize(corpus, Quick())
print(sum(t.bytes for t in shards.open_shards(folder).values()) >> 20, peak() - before)
"""


def test_memory_does_not_grow_with_the_text(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, str(tmp_path / "big.jsonl.gz")],
        capture_output=True,
        text=True,
        check=True,
    )
    read_mib, grown_mib = map(int, done.stdout.split())
    assert read_mib >= 50 and grown_mib < 25, done.stdout


def test_ids_across_many_files_read_as_one_array() -> None:
    tokens = shards.Tokens([np.arange(i, i + 1) for i in range(500)], 500)
    assert tokens.read(250, 400).tolist() == list(range(250, 400))


def test_a_small_parquet_file_cannot_fill_the_memory(tmp_path: Path) -> None:
    """One long value, two thousand times: a few hundred bytes on the disk."""
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "bomb.parquet"
    indices = arrow.array([0] * 2000, arrow.int32())
    column = arrow.DictionaryArray.from_arrays(indices, arrow.array(["x " * 500_000]))
    parquet.write_table(arrow.table({"text": column}), path, compression="zstd", store_schema=False)
    assert path.stat().st_size < 10_000
    before = arrow.total_allocated_bytes()
    documents = Parquet(path, path.name, "text").documents()
    assert [len(next(documents)) for _ in range(20)] == [1_000_000] * 20
    assert arrow.total_allocated_bytes() - before < 200_000_000  # a batch written out: a thousand million
    documents.close()
