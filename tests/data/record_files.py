"""The same documents in every format that records come in."""

import gzip
import json
import random
from collections.abc import Sequence
from pathlib import Path

import pytest

FORMATS = ["a.jsonl", "a.ndjson", "a.jsonl.gz", "a.json.gz", "a.jsonl.zst", "a.parquet"]


def make_documents(count: int, seed: int = 0) -> list[str]:
    """Documents of unequal length, with line ends, quotes and signs of several bytes."""
    draw = random.Random(seed)
    words = ["ein", "Wörtchen", '"quoted"', "日本", "back\\slash", "tab\there", "🙂", "the", "of", "and"]
    ends = ["\n", " ", "", "\r\n", "\u2028"]
    return [
        f"{i}: " + " ".join(draw.choices(words, k=draw.randint(1, 60))) + draw.choice(ends)
        for i in range(count)
    ]


def write_records(documents: Sequence[str], path: Path, field: str = "text") -> Path:
    """Written with the plain tools, which are the oracle of the readers."""
    lines = "".join(
        json.dumps({"id": i, field: text}, ensure_ascii=i % 2 == 0) + "\n" for i, text in enumerate(documents)
    ).encode()
    if path.suffix == ".parquet":
        import pyarrow
        import pyarrow.parquet

        table = pyarrow.table({"id": range(len(documents)), field: list(documents)})
        pyarrow.parquet.write_table(table, path, row_group_size=100)
    elif path.suffix == ".zst":
        import zstandard

        half = lines.index(b"\n", len(lines) // 2) + 1  # two frames, as parallel tools write them
        packed = [zstandard.ZstdCompressor().compress(part) for part in (lines[:half], lines[half:])]
        path.write_bytes(b"".join(packed))
    else:
        path.write_bytes(gzip.compress(lines) if path.suffix == ".gz" else lines)
    return path


def skip_without(name: str) -> None:
    if name.endswith(".zst"):
        pytest.importorskip("zstandard")
    if name.endswith(".parquet"):
        pytest.importorskip("pyarrow")
