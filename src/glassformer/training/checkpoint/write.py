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
import shutil
from collections.abc import Callable
from pathlib import Path

from glassformer.core.errors import DiskError, RunError
from glassformer.core.files import digest, sync_folder, write_atomically, writing
from glassformer.training.checkpoint.seal import broken, put_seal
from glassformer.training.checkpoint.snapshot import Snapshot
from glassformer.training.checkpoint.weights import save_tensors
from glassformer.training.parallel.world import ALONE, World


def save_checkpoint(folder: Path, snapshot: Snapshot, keep: int, world: World = ALONE) -> Path:
    """Write one checkpoint, move the pointer, then drop the oldest beyond `keep`.

    Every process writes its files; the leader does the rest when all have.
    """
    final = folder / f"step-{snapshot.step:08d}"
    mine = f"-{world.token or os.getpid()}"
    draft = folder / f".draft-{final.name}{mine}"
    with writing(final):
        try:
            _let_others_know(world, snapshot, lambda: _write_files(draft, snapshot))
            if not world.is_main:
                return final
            for abandoned in folder.glob(".draft-*"):  # by a process that was killed
                if not abandoned.name.endswith(mine):  # else another process may be at the next one already
                    shutil.rmtree(abandoned, ignore_errors=True)
            written = _wait_for_others(world, snapshot)
            if lost := sorted(name for name in written if not (draft / name).is_file()):
                raise RunError(
                    f"{draft / lost[0]} was written by another process and is not there: the run directory "
                    "must be on a disk that all processes see."
                )
            write_atomically(draft / "state.json", json.dumps(snapshot.state, indent=1))
            put_seal(draft, written)
            if broken(final) is not None:  # else this step was saved before, and it is the same
                shutil.rmtree(final, ignore_errors=True)
                draft.replace(final)
            sync_folder(folder)
        finally:
            if world.is_main:
                shutil.rmtree(draft, ignore_errors=True)
    write_atomically(folder / "latest.json", json.dumps({"checkpoint": final.name}))
    _prune(folder, final, keep)
    return final


def _write_files(draft: Path, snapshot: Snapshot) -> dict[str, str]:
    """This process's files; gives what they hash to where others must know it."""
    draft.mkdir(parents=True, exist_ok=True)
    for name, held in snapshot.files.items():
        save_tensors(held.tensors, draft / name, held.metadata)
    return {name: digest(draft / name) for name in snapshot.files} if snapshot.number is not None else {}


def _let_others_know(world: World, snapshot: Snapshot, write: Callable[[], dict[str, str]]) -> None:
    if world.size == 1:
        write()
        return
    key = f"saved/{snapshot.number}/{world.rank}"
    try:
        world.publish(key, json.dumps({"files": write()}))
    except Exception as error:
        world.publish(key, json.dumps({"failed": str(error)}))
        raise


def _wait_for_others(world: World, snapshot: Snapshot) -> dict[str, str]:
    """What the files of all processes hash to, when they are there."""
    digests: dict[str, str] = {}
    for rank in range(world.size if world.size > 1 else 0):
        said = json.loads(world.wait_for(f"saved/{snapshot.number}/{rank}"))
        if "failed" in said:
            raise DiskError(f"rank {rank}: {said['failed']}")
        digests |= said["files"]
    return digests


def _prune(folder: Path, newest: Path, keep: int) -> None:
    """Drop the oldest beyond `keep`; and later ones, for the run would not be here if they had been whole."""
    there = sorted(folder.glob("step-*"))
    place = there.index(newest)
    for other in there[: max(0, place + 1 - keep)] + there[place + 1 :]:
        shutil.rmtree(other, ignore_errors=True)


def latest_checkpoint(folder: Path, warn: Callable[[str], None] = lambda _: None) -> Path | None:
    """The newest whole one, whether or not the pointer survived; `warn` is told of those passed over."""
    there = sorted(folder.glob("step-*"), reverse=True)
    reasons: list[str] = []
    for checkpoint in there:
        reason = broken(checkpoint)
        if reason is None:
            for passed in reasons:
                warn(f"{passed}; going on from {checkpoint.name} instead")
            return checkpoint
        reasons.append(f"{checkpoint} is damaged: {reason}")
    if reasons:
        raise RunError(f"{reasons[0]}. No older checkpoint is whole either; start a new run.")
    return None
