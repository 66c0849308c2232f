"""Documents from Hugging Face `datasets`, as a stream: hf:NAME[/CONFIG][@SPLIT].

NAME is ORG/NAME of the hub, or a local folder that `datasets` can read. Nothing is downloaded whole, and no
code of a data set is ever run: the versions of `datasets` that are asked for cannot.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from glassformer.core.errors import DataError
from glassformer.core.strict_json import dump_json
from glassformer.data.catalog import HUB_PREFIX
from glassformer.data.newlines import Newlines
from glassformer.data.packed import require_package
from glassformer.data.records import MAX_RECORD_BYTES, Document, missing_field, record_too_large, text_of
from glassformer.data.sources import Part

UNKNOWN_SIZE = 1e9  # bytes that a stream which does not say is taken to hold


def parse(source: str) -> tuple[str, str | None, str]:
    """Name, configuration and split of hf:NAME[/CONFIG][@SPLIT]."""
    rest, _, split = source.removeprefix(HUB_PREFIX).partition("@")
    pieces = rest.split("/")
    if not rest or not all(pieces[1:]):
        raise DataError(f"'{source}': expected hf:ORG/NAME, hf:ORG/NAME/CONFIG, each perhaps with @SPLIT.")
    if Path(rest).exists() or len(pieces) < 3:
        return rest, None, split or "train"
    return "/".join(pieces[:2]), "/".join(pieces[2:]), split or "train"


class HubShard:
    """One of the files that a stream is made of. What comes is what the stream says it is."""

    text_digest = None

    def __init__(
        self, stream: Any, source: str, index: int, count: int, field: str, newlines: Newlines, size: float
    ):
        self.newlines: Newlines = newlines
        self.stream, self.index, self.count, self.field, self.size = stream, index, count, field, size
        self.name = f"{source}, shard {index}"

    def documents(self) -> Iterator[Part]:
        rows = iter(self.stream.shard(num_shards=self.count, index=self.index))
        number = 0
        while True:
            try:
                row = next(rows, None)
            except Exception as error:  # whatever a reader of `datasets` or the network raises
                raise DataError(f"{self.name} broke off after row {number}: {_short(error)}") from error
            if row is None:
                return
            number += 1
            text = text_of(row, self.field, f"{self.name}, row {number}", self.newlines)
            if len(text) > MAX_RECORD_BYTES:
                raise record_too_large(f"{self.name}, row {number}")
            if text:
                yield Document(text)

    def total(self, read: int, count: int) -> float:
        return self.size


def open_hub(source: str, field: str, newlines: Newlines) -> tuple[list[HubShard], str, bool]:
    """The shards of a stream, what it is known by, and whether it says how much it holds."""
    datasets = require_package("datasets", source)
    name, config, split = parse(source)
    try:
        builder = datasets.load_dataset_builder(name, config)
        stream = builder.as_streaming_dataset(split=split)
    except Exception as error:  # whatever `datasets` or the network raises
        raise DataError(f"{source} could not be opened: {_short(error)}") from error
    if stream.features and field not in stream.features:
        raise missing_field(
            source, field, {n: str(getattr(f, "dtype", "list")) for n, f in stream.features.items()}
        )
    if stream.features:
        stream = stream.select_columns([field])  # the others need not even be decoded
    split_info = (builder.info.splits or {}).get(split)
    size = getattr(split_info, "num_bytes", None)
    files = getattr(builder.config, "data_files", None)
    identity = [name, config, split, builder.hash, str(builder.info.version), size]
    identity.append(sorted(map(str, getattr((files or {}).get(split), "origin_metadata", []))))
    shards = [
        HubShard(
            stream, source, i, stream.num_shards, field, newlines, (size or UNKNOWN_SIZE) / stream.num_shards
        )
        for i in range(stream.num_shards)
    ]
    return shards, dump_json(identity), bool(size)


def _short(error: Exception) -> str:
    return " ".join(str(error).split())[:300] or type(error).__name__
