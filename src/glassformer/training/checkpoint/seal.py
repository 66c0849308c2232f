"""Seals: what the files of a folder must hash to, so that a damaged one is never taken for whole.

A seal is one line of JSON that also hashes itself. One flipped bit anywhere in the folder breaks it.
"""

import hashlib
import json
from pathlib import Path
from typing import Any

from glassformer.core.files import digest, read_bytes, sync_folder, write_atomically
from glassformer.core.strict_json import dump_json

NAME = "seal.json"
UNSEALED = ("model.safetensors", "optimizer.safetensors", "state.json")  # what old checkpoints are made of


def write_seal(folder: Path, known: dict[str, str] | None = None) -> None:
    """Seal all files of a folder, and have folder and files on the disk; `known`: digests taken already."""
    names = sorted(path.name for path in folder.iterdir() if path.name != NAME)
    files = {name: (known or {}).get(name) or digest(folder / name) for name in names}
    write_atomically(folder / NAME, _text(files))
    sync_folder(folder)


def find_damage(folder: Path) -> str | None:
    """Why a folder is not what was sealed; None if it is."""
    path = folder / NAME
    if not folder.is_dir():
        return "it is not there"
    if not path.is_file():  # before there were seals
        missing = [n for n in UNSEALED if not (folder / n).is_file() or not (folder / n).stat().st_size]
        return f"{missing[0]} is missing" if missing else None
    try:
        text = read_bytes(path)
        files = dict(json.loads(text)["files"])
        if text != _text(files).encode():
            return f"{NAME} has been changed"
        for name, sealed in files.items():
            if Path(name).name != name:
                return f"{NAME} names a file outside: {name}"
            if digest(folder / name) != sealed:
                return f"{name} is not what was written"
    except FileNotFoundError as error:
        return f"{Path(str(error.filename)).name} is missing"
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        return f"{NAME} cannot be read ({type(error).__name__})"
    return None


def _text(files: dict[str, Any]) -> str:
    body = dump_json(files, sort_keys=True)
    own = hashlib.sha256(body.encode()).hexdigest()
    return dump_json({"format_version": 1, "files": files, "of_files": own}, sort_keys=True)
