"""Checkpoints: everything a trajectory depends on, as safetensors and JSON.

    checkpoints/step-00000500/
        model.safetensors       the weights
        optimizer.safetensors   each optimizer's tensors, named <optimizer>.<parameter>.<key>
        carried.safetensors     what goes from batch to batch: the state of a recurrent model (else empty)
        state.json              step, best result, scaler, versions
        seal.json               what each of these must hash to (seal.py)
    checkpoints/latest.json     the name of the newest complete one

Where weights lie over several processes (fsdp), shard-<n>-of-<N>.safetensors take the place of the first two,
written by one process each, in the format of PyTorch's distributed checkpoints; and each process has a
carried-<n>.safetensors of its own. What order and randomness need is not here: they follow from (seed, step).

A checkpoint is written beside its place: 1. every file, to the disk itself; 2. the seal, then the folder;
3. the folder gets its name, which is one step; 4. the pointer moves; 5. the oldest are dropped. Whatever
happens on the way, the newest one with an unbroken seal is whole, and it is what a run goes on from.
"""

import json
import os
import re
from collections.abc import Callable
from pathlib import Path

from glassformer.core.errors import DiskError, RunError
from glassformer.core.files import (
    digest,
    make_folder,
    move,
    own_folder,
    remove,
    write_atomically,
    writing,
)
from glassformer.core.strict_json import dump_json
from glassformer.training.checkpoint.seal import find_damage, write_seal
from glassformer.training.checkpoint.snapshot import Snapshot
from glassformer.training.checkpoint.weights import save_tensors
from glassformer.training.parallel.world import ALONE, World

NAME = re.compile(r"step-\d{8,}")
DRAFT = re.compile(r"\.draft-step-\d{8,}-.+")


def save_checkpoint(folder: Path, snapshot: Snapshot, keep: int, world: World = ALONE) -> Path:
    """Write one checkpoint, move the pointer, then drop the oldest beyond `keep`.

    Every process writes its files; the leader does the rest when all have.
    """
    final = folder / f"step-{snapshot.step:08d}"
    suffix = f"-{world.token or os.getpid()}"
    draft = folder / f".draft-{final.name}{suffix}"
    own_folder(folder)
    with writing(final):
        try:
            _publish_digests(world, snapshot, lambda: _write_files(draft, snapshot))
            if not world.is_main:
                return final
            for stale in folder.iterdir():  # by a process that was killed
                # Of this one's, another process may be at the next already.
                if DRAFT.fullmatch(stale.name) and not stale.name.endswith(suffix):
                    remove(stale)
            digests = _gather_digests(world, snapshot)
            if absent := sorted(name for name in digests if not (draft / name).is_file()):
                raise RunError(
                    f"{draft / absent[0]} was written by another process and is not there: the run directory "
                    "must be on a disk that all processes see."
                )
            write_atomically(draft / "state.json", dump_json(snapshot.state, indent=1))
            write_seal(draft, digests)
            if find_damage(final) is not None:  # else this step was saved before, and it is the same
                remove(final)
                move(draft, final)
        finally:
            if world.is_main:
                remove(draft)
    write_atomically(folder / "latest.json", dump_json({"checkpoint": final.name}))
    _prune(folder, final, keep)
    return final


def _write_files(draft: Path, snapshot: Snapshot) -> dict[str, str]:
    """This process's files; gives what they hash to where others must know it."""
    make_folder(draft)
    for name, file in snapshot.files.items():
        save_tensors(file.tensors, draft / name, file.metadata)
    return {name: digest(draft / name) for name in snapshot.files} if snapshot.number is not None else {}


def _publish_digests(world: World, snapshot: Snapshot, write: Callable[[], dict[str, str]]) -> None:
    if world.size == 1:
        write()
        return
    key = f"saved/{snapshot.number}/{world.rank}"
    try:
        world.publish(key, dump_json({"files": write()}))
    except Exception as error:
        world.publish(key, dump_json({"failed": str(error)}))
        raise


def _gather_digests(world: World, snapshot: Snapshot) -> dict[str, str]:
    """What the files of all processes hash to, when they are there."""
    digests: dict[str, str] = {}
    for rank in range(world.size if world.size > 1 else 0):
        message = json.loads(world.wait_for(f"saved/{snapshot.number}/{rank}"))
        if "failed" in message:
            raise DiskError(f"rank {rank}: {message['failed']}")
        digests |= message["files"]
    return digests


def _prune(folder: Path, newest: Path, keep: int) -> None:
    """Drop the oldest beyond `keep`; and later ones, for the run would not be here if they had been whole."""
    checkpoints = checkpoints_in(folder)
    place = checkpoints.index(newest)
    for other in checkpoints[: max(0, place + 1 - keep)] + checkpoints[place + 1 :]:
        remove(other)


def checkpoints_in(folder: Path) -> list[Path]:
    """Its checkpoints, the oldest first: real folders that are named as ours are, and nothing else."""
    if folder.is_symlink() or not folder.is_dir():
        return []
    own = [p for p in folder.iterdir() if NAME.fullmatch(p.name) and p.is_dir() and not p.is_symlink()]
    return sorted(own, key=lambda path: int(path.name.removeprefix("step-")))


def latest_checkpoint(folder: Path, warn: Callable[[str], None] = lambda _: None) -> Path | None:
    """The newest whole one, whether or not the pointer survived; `warn` is told of those passed over."""
    if folder.is_symlink():
        raise RunError(f"{folder} is a link: put the folder itself there, or start a new run.")
    checkpoints = checkpoints_in(folder)[::-1]
    reasons: list[str] = []
    for checkpoint in checkpoints:
        reason = find_damage(checkpoint)
        if reason is None:
            for warning in reasons:
                warn(f"{warning}; going on from {checkpoint.name} instead")
            return checkpoint
        reasons.append(f"{checkpoint} is damaged: {reason}")
    if reasons:
        raise RunError(f"{reasons[0]}. No older checkpoint is whole either; start a new run.")
    return None
