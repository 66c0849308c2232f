"""The beginning of a run directory, which can be killed at any moment and begun again.

    1. seal.json         what the others will be
    2. tokenizer.json (of a translator perhaps source_tokenizer.json), data.json, text from standard
       input, the weights of an imported model
    3. config.yaml       last: it is what makes the folder a run

A folder that holds a part of this, exactly as the seal has it, and nothing else, is a beginning that was
killed: it is made anew. Whatever else is in a folder is the user's.
"""

from pathlib import Path
from typing import Any

from torch import Tensor

from glassformer.config.saved import save_config, sealed_settings
from glassformer.config.schema import Config
from glassformer.core.errors import RunError
from glassformer.core.files import digest, is_temporary, remove, remove_temporaries, write_atomically
from glassformer.core.lock import NAME as LOCK
from glassformer.core.strict_json import dump_json
from glassformer.data.text_files import is_kept_input, keep_input
from glassformer.runs.folder import exists_already, refuse_begun
from glassformer.tokenizers.tokenizer import Tokenizer
from glassformer.training.checkpoint.run_seal import RunSeal, find_seal, save_run_weights
from glassformer.training.checkpoint.seal import NAME as SEAL

TOKENIZER, SOURCE_TOKENIZER = "tokenizer.json", "source_tokenizer.json"


def refuse_existing(folder: Path) -> None:
    refuse_begun(folder)
    if holds_something(folder):
        raise exists_already(folder)


def holds_something(folder: Path) -> bool:
    """Whether a folder holds anything but what a beginning that was killed leaves."""
    return bool(_contents(folder)) and not is_half_begun(folder)


def _contents(folder: Path) -> list[Path]:
    """What a folder holds, but for the lock and what a killed process left."""
    if not folder.is_dir():
        return []
    return [path for path in folder.iterdir() if path.name != LOCK and not is_temporary(path.name)]


def is_half_begun(folder: Path) -> bool:
    """Whether a beginning was killed here, and nothing else is in the folder."""
    try:
        seal = find_seal(folder)
        others = [path for path in _contents(folder) if path.name != SEAL and not is_kept_input(path)]
        return seal is not None and all(
            path.name in seal.files and not path.is_symlink() and seal.holds(path.name, digest(path))
            for path in others
        )
    except (RunError, OSError):
        return False


def write_beginning(
    folder: Path,
    config: Config,
    record: dict[str, Any],
    tokenizer: Tokenizer | None,
    weights: dict[str, Tensor] | None = None,
    spooled: Path | None = None,
    source_tokenizer: Tokenizer | None = None,
) -> None:
    """Write all that a run begins with; whoever calls holds the folder's lock.

    `record` is for data.json; `weights`: of a model that is trained already; `spooled`: text that came
    through standard input, which is kept with the run; `source_tokenizer`: of a translator with two.
    """
    refuse_existing(folder)  # it may have been begun since
    remove_temporaries(folder)
    for path in sorted(_contents(folder), key=lambda path: path.name == SEAL):  # the seal last
        remove(path)
    files = {"data.json": dump_json(record, indent=1).encode()}
    if tokenizer is not None:
        files[TOKENIZER] = tokenizer.dumps()
    if source_tokenizer is not None:
        files[SOURCE_TOKENIZER] = source_tokenizer.dumps()
    seal = RunSeal(folder, sealed_settings(config))
    seal.seal(files)
    for name, data in files.items():
        write_atomically(folder / name, data)
    if spooled is not None:
        keep_input(spooled, folder)
    if weights is not None:
        save_run_weights(weights, folder)
    save_config(config, folder / "config.yaml")
