"""The seal of a run directory: what its files must hash to, and the settings it was made with.

    seal.json
        files      the SHA-256 of tokenizer.json (of a translator perhaps source_tokenizer.json), data.json,
                   model.safetensors, result.json and metrics.jsonl
        settings   every setting that the model, its data or its numbers depend on (config.yaml has them all)
        of_these   the SHA-256 of both

It is the first file of a run, so that a beginning which was killed is known for what it is. The weights are
replaced while training goes on; in the moment of renaming the seal names those before and those after.
"""

import hashlib
import json
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from torch import Tensor

from glassformer.core.errors import RunError
from glassformer.core.files import (
    LARGEST,
    digest,
    digest_of,
    open_regular,
    read_bytes,
    write_atomically,
)
from glassformer.core.strict_json import dump_json
from glassformer.training.checkpoint.seal import NAME
from glassformer.training.checkpoint.weights import save_tensors

WEIGHTS = "model.safetensors"
RESULTS = ("result.json", "metrics.jsonl")  # what is sealed when training has ended
PLAN = "training.steps"  # which may become more; while that is written, the seal does not name it
FORMAT_VERSION = 1
TRIES = 5  # for a file that is replaced while it is read
T = TypeVar("T")


@dataclass
class RunSeal:
    """What was sealed."""

    folder: Path
    settings: dict[str, Any]
    files: dict[str, list[str]] = field(default_factory=dict)  # name: the digests it may have

    def seal(self, contents: dict[str, bytes]) -> None:
        """Seal files by what will be in them."""
        self.files |= {name: [hashlib.sha256(data).hexdigest()] for name, data in contents.items()}
        self.write()

    def write(self) -> None:
        write_atomically(self.folder / NAME, _text(self.files, self.settings))

    def refuse(self, name: str, found: str | None) -> RunError:
        """What to say of a file that is not what was sealed."""
        if found is None:
            return RunError(f"{self.folder / name} is missing. Restore it, or train a new run.")
        if name not in self.files:
            hint = "Training did not get to its end: go on with --resume." if name in RESULTS else ""
            return RunError(f"{self.folder / name} is not sealed with its run. {hint}".strip())
        return RunError(
            f"{self.folder / name} is not what was written: its SHA-256 is {found[:12]}…, sealed is "
            f"{self.files[name][-1][:12]}…. Restore the file, or train a new run."
        )

    def holds(self, name: str, found: str) -> bool:
        return found in self.files.get(name, ())


def find_seal(folder: Path) -> RunSeal | None:
    """The seal of a run, unbroken; None where there is none."""
    path = folder / NAME
    try:
        data = read_bytes(path, 1 << 24)
        content = json.loads(data)
        files, settings = dict(content["files"]), dict(content["settings"])
        if data != _text(files, settings).encode():
            raise ValueError("it has been changed")
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        reason = getattr(error, "strerror", None) or "it is not what was written"
        raise RunError(
            f"{path} cannot be taken for a seal: {reason}. Restore it, or train a new run."
        ) from None
    return RunSeal(folder, settings, files)


def _text(files: dict[str, list[str]], settings: dict[str, Any]) -> str:
    body = {"files": files, "settings": settings}
    own = hashlib.sha256(dump_json(body, sort_keys=True).encode()).hexdigest()
    return dump_json({"format_version": FORMAT_VERSION, **body, "of_these": own}, sort_keys=True, indent=1)


def require_seal(folder: Path) -> RunSeal:
    seal = find_seal(folder)
    if seal is None:
        raise RunError(
            f"{folder / NAME} is missing, so nothing says that the run is what was trained. Restore it."
        )
    return seal


def read_sealed(folder: Path, name: str, sealed: bool, most: int = LARGEST) -> bytes:
    """A small file of a run, checked against the seal; of a run that is not `sealed`, as it is."""
    data = read_bytes(folder / name, most)
    if sealed:
        seal, found = require_seal(folder), hashlib.sha256(data).hexdigest()
        if not seal.holds(name, found):
            raise seal.refuse(name, found)
    return data


def load_sealed(folder: Path, name: str, load: Callable[[Path], T], sealed: bool) -> T:
    """What `load` makes of a large file of a run, which is hashed meanwhile and checked before it is given.

    A training may replace the file at any moment; then it is loaded once more.
    """
    path = folder / name
    if not sealed:
        return load(path)
    for _ in range(TRIES):
        error: RunError | None = None
        loaded: list[T] = []
        try:
            with open_regular(path) as file, ThreadPoolExecutor(1, "hashing") as pool:
                seal = require_seal(folder)
                hashing = pool.submit(digest_of, file)
                try:
                    loaded = [load(path)]
                except RunError as failure:
                    error = failure
                found = hashing.result()
                replaced = not os.path.samestat(os.fstat(file.fileno()), path.stat())
        except OSError as failure:
            raise RunError(f"{path} cannot be read: {failure.strerror or failure}.") from None
        if replaced:
            continue
        if not seal.holds(name, found):
            raise seal.refuse(name, found)
        if error is not None:
            raise error
        return loaded[0]
    raise RunError(f"{path} was replaced each time it was read: try again when the training has ended.")


def save_run_weights(weights: dict[str, Tensor], folder: Path) -> None:
    """The weights of a run; where it has a seal, sealed."""
    seal = find_seal(folder)

    def seal_both(temporary: Path) -> None:
        if seal is not None:
            seal.files[WEIGHTS] = [*seal.files.get(WEIGHTS, [])[-1:], digest(temporary)]
            seal.write()

    save_tensors(weights, folder / WEIGHTS, written=seal_both)
    if seal is not None:
        seal.files[WEIGHTS] = seal.files[WEIGHTS][-1:]
        seal.write()


def seal_results(folder: Path) -> None:
    """After the last file of a training is written."""
    seal = find_seal(folder)
    if seal is not None:
        seal.files |= {name: [digest(folder / name)] for name in RESULTS}
        seal.write()


def unseal_results(folder: Path) -> None:
    """Before a training goes on: its record and its result will be others. Its record must be its own."""
    seal, record = find_seal(folder), RESULTS[1]
    if seal is not None and record in seal.files:
        read_sealed(folder, record, True)
    if seal is not None and any(name in seal.files for name in RESULTS):
        seal.files = {name: digests for name, digests in seal.files.items() if name not in RESULTS}
        seal.write()


def reseal_settings(folder: Path, settings: dict[str, Any], write: Callable[[], None]) -> None:
    """Change the settings of a run by `write`; meanwhile the seal names those that stay."""
    seal = require_seal(folder)
    as_read: dict[str, Any] = json.loads(dump_json(settings))  # keys are texts there
    stay = {key: value for key, value in seal.settings.items() if as_read.get(key) == value}
    seal.settings = {key: value for key, value in stay.items() if key != PLAN}  # which says: not complete
    seal.write()
    write()
    complete_settings(folder, settings)


def complete_settings(folder: Path, settings: dict[str, Any]) -> None:
    """Seal the settings; also after a kill between the steps of `reseal_settings`."""
    seal = find_seal(folder)
    if seal is not None and PLAN not in seal.settings:
        seal.settings = settings
        seal.write()
