"""The record of a run: `metrics.jsonl`, one JSON object per line, and TensorBoard files on request."""

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

from glassformer.core.errors import UsageError
from glassformer.core.files import open_log, own_folder, read_bytes, write_atomically, writing
from glassformer.core.strict_json import dump_json


class MetricsLog:
    """Appends to `metrics.jsonl`, after `step`: what was logged of later steps is dropped, it comes again."""

    def __init__(self, path: Path | None, step: int = 0, tensorboard: bool = False):
        """Without a path nothing is kept: of several processes one keeps the record."""
        self.path = path
        if path is None:
            return
        if path.is_file():
            records = [line for line in read_metrics(path) if line["step"] <= step]
            write_atomically(path, "".join(dump_json(line) + "\n" for line in records))
        self._file = open_log(path)
        self._board = _open_board(own_folder(path.parent / "tensorboard")) if tensorboard else None

    def write(self, record: dict[str, Any]) -> None:
        if self.path is None:
            return
        with writing(self.path):
            self._file.write(dump_json(record) + "\n")
            self._file.flush()
        if self._board is not None:
            prefix = record.get("split", "train")
            for key, value in record.items():
                if isinstance(value, int | float) and key != "step":
                    self._board.add_scalar(f"{prefix}/{key}", value, record["step"])

    def close(self) -> None:
        if self.path is None:
            return
        with suppress(OSError):  # a write that failed has been reported already
            self._file.close()
        if self._board is not None:
            self._board.close()


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """All complete lines; a last line cut off by a crash is passed over."""
    return parse_metrics(read_bytes(path))


def parse_metrics(data: bytes) -> list[dict[str, Any]]:
    records: list[dict[str, Any]] = []
    for line in data.splitlines():
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(record, dict) and isinstance(record.get("step"), int):
            records.append(record)
    return records


def _open_board(folder: Path) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise UsageError(
            "training.tensorboard needs the tensorboard package: pip install 'glassformer[tensorboard]'"
        ) from None
    return SummaryWriter(str(folder))
