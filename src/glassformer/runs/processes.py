"""Training by several processes: when to start them, and what they must agree on."""

import os
from pathlib import Path
from typing import Any

from glassformer.config.saved import load_config
from glassformer.config.schema import flatten
from glassformer.config.section import Settings
from glassformer.core.errors import UsageError
from glassformer.core.strict_json import dump_json


def processes_to_start(asked: Settings, folder: Path, resume: bool) -> int:
    """How many this process has to start; 1 when it is one of them already, or enough by itself."""
    if "WORLD_SIZE" in os.environ:
        return 1
    count = asked.get("training", {}).get("processes")
    if count is None and resume and (folder / "config.yaml").is_file():
        count = load_config(folder / "config.yaml").training.processes
    if count == 0:
        import torch

        count = torch.cuda.device_count()
    return count or 1


def as_arguments(
    source: Any, out: Path, settings: Settings | None, processes: int, resume: bool, **options: Any
) -> list[str]:
    """The command line that says what a call of `train` said."""
    arguments = ["train", f"--out={out}"]
    for name, value in options.items():
        if value is not None:
            arguments += [f"--{name}={value}"]
    for key, value in flatten(settings or {}).items():
        if key != "training.processes":
            arguments += ["--set", f"{key}={dump_json(value, ensure_ascii=False, default=str)}"]
    arguments += ["--set", f"training.processes={processes}", *(["--resume"] if resume else [])]
    return [*arguments, *(["--", str(source)] if source is not None else [])]  # its name may begin with -


def check_division(training: Settings, processes: int) -> None:
    """Every batch that the settings name must fall into equal parts."""
    accumulate = training.get("accumulate", 1)
    parts = accumulate * processes
    for size in (training.get("batch", parts), *training.get("batch_growth", {}).values()):
        if size % parts:
            near = max(parts, round(size / parts) * parts)
            raise UsageError(
                f"a batch of {size} does not divide among {processes} processes"
                f"{f' of {accumulate} micro-batches each' if parts > processes else ''}: "
                f"set training.batch to a multiple of {parts}, such as {near}"
            )
