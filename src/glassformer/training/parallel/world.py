"""Several processes that train one model: who each of them is, and the little they say to each other.

They are started by torchrun, by Slurm or by `training.processes` (launch.py), and know their place from the
environment: RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT. A process that finds none is alone, and
everything here is then the identity. On one machine nothing listens but on the loopback interface.
"""

import os
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from itertools import count
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed import PrefixStore, Store, TCPStore  # type: ignore[attr-defined]

from glassformer.core.errors import GlassformerError, Interrupted, RunError, UsageError
from glassformer.core.terminal import is_one_of_several
from glassformer.training.parallel.watch import Watch

LOOPBACK = ("127.0.0.1", "localhost")
AGAIN = "The run is as its last checkpoint has it: go on with the same command and --resume."
JOINING = timedelta(minutes=5)  # for all processes to come
LAUNCHED = "GLASSFORMER_LAUNCHED"  # set by launch.py for the processes it starts
JOINED = count()  # trainings of this process so far
WORKING = timedelta(days=7)  # for one collective: the watch decides sooner that something is wrong


@dataclass
class World:
    """This process among `size`; `local` is its number on its own machine."""

    rank: int = 0
    size: int = 1
    local: int = 0
    store: Store | None = None
    watch: Watch | None = None
    token: str = ""  # of this start of all of them

    @property
    def is_main(self) -> bool:
        """Whether it is the one that shows, logs and decides."""
        return self.rank == 0

    def shard(self, first: int, count: int) -> tuple[int, int]:
        """The samples of first … first+count−1 that are this process's."""
        own = count // self.size
        return first + self.rank * own, own

    def all_reduce(self, *numbers: float) -> list[float]:
        """Each number summed over all processes."""
        if self.size == 1:
            return list(numbers)
        tensor = torch.tensor(numbers, dtype=torch.float64)
        dist.all_reduce(tensor)
        return tensor.tolist()

    def all_gather(self, number: float) -> list[float]:
        """The number of every process, by rank."""
        return self.all_reduce(*(number if rank == self.rank else 0.0 for rank in range(self.size)))

    def barrier(self) -> None:
        if self.size > 1:
            dist.barrier()

    def publish(self, key: str, value: str) -> None:
        if self.store is not None:
            self.store.set(key, value)

    def wait_for(self, key: str) -> str:
        """What another process tells, however long that takes; a process that is gone ends the wait."""
        assert self.store is not None
        while not self.store.check([key]):
            time.sleep(0.02)
        return self.store.get(key).decode()

    def set_phase(self, phase: str) -> None:
        """Where this process stands now, for the others to see should it get stuck."""
        if self.watch is not None:
            self.watch.set_phase(phase)


ALONE = World()


@contextmanager
def init_world() -> Iterator[World]:
    """The world this process was started in; left in good order whatever happens."""
    if not is_one_of_several():
        yield ALONE
        return
    world = _join()
    assert world.watch is not None
    try:
        yield world
        world.watch.finish()
    except GlassformerError as error:
        world.watch.finish(failed="" if isinstance(error, Interrupted) else str(error))
        if not world.is_main and (isinstance(error, Interrupted) or world.watch.leader_failed()):
            raise SystemExit(error.exit_code) from None  # the leader says it
        raise
    except Exception as error:
        if LAUNCHED in os.environ and isinstance(error, RuntimeError) and _lost(error):
            raise SystemExit(1) from None  # its launcher sees who is gone, and says it
        missing = world.watch.find_missing() if isinstance(error, RuntimeError) else None
        if missing is None:
            world.watch.finish(failed=f"{type(error).__name__}: {error}")
            raise
        raise RunError(f"{missing} This rank, {world.rank}, ends too. {AGAIN}") from None
    finally:
        if world.is_main and not store_is_external():
            world.watch.wait_for_others()
        if dist.is_initialized():
            dist.destroy_process_group()


def _lost(error: RuntimeError) -> bool:
    """Whether a collective failed because another process is not there any more."""
    return any(word in str(error) for word in ("Connection closed", "reset by peer", "Broken pipe"))


def _join() -> World:
    try:
        rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        local = int(os.environ.get("LOCAL_RANK", "0"))
        host, port = os.environ.get("MASTER_ADDR", "127.0.0.1"), int(os.environ["MASTER_PORT"])
    except (KeyError, ValueError) as error:
        wrong = f"{error} is missing" if isinstance(error, KeyError) else "one of them is no number"
        names = ("WORLD_SIZE", "RANK", "LOCAL_RANK", "MASTER_PORT")
        given = ", ".join(f"{name}={os.environ[name]}" for name in names if name in os.environ)
        raise UsageError(
            f"WORLD_SIZE is set, so this is one of several processes, but {wrong} (there is {given}). "
            "Start them with torchrun, or with --set training.processes=N."
        ) from None
    if not 0 <= rank < size:
        raise UsageError(f"RANK {rank} is outside 0 … WORLD_SIZE − 1 = {size - 1}")
    if os.environ.get("LOCAL_WORLD_SIZE", str(size) if host in LOOPBACK else "") == str(size):
        name = "lo0" if sys.platform == "darwin" else "lo"
        for library in ("GLOO", "NCCL"):
            os.environ.setdefault(f"{library}_SOCKET_IFNAME", name)
    try:
        restarts = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
        attempt = f"glassformer/{restarts}/{next(JOINED)}"  # nothing of an earlier training is taken for new
        store = PrefixStore(attempt, _open_store(host, port, rank))
        of_its_own = TCPStore(host, port, is_master=False, timeout=JOINING)  # a connection that never waits
        keeper = "the launcher" if store_is_external() else "rank 0"
        watch = Watch(PrefixStore(attempt, of_its_own), rank, size, keeper)
        watch.beat()
        watch.start()
        watch.rendezvous(JOINING.total_seconds())
        backend = "gloo"
        if torch.cuda.is_available():
            torch.cuda.set_device(local % torch.cuda.device_count())
            backend = "cpu:gloo,cuda:nccl" if dist.is_nccl_available() else "gloo"
        dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=WORKING)
    except (RuntimeError, ValueError) as error:
        raise RunError(
            f"rank {rank} of {size} could not meet the others at {host}:{port}: {str(error).splitlines()[0]}"
        ) from None
    world = World(rank, size, local, store, watch)
    if rank == 0:
        world.publish("token", f"{socket.gethostname()}-{os.getpid()}")
    world.token = world.wait_for("token")
    return world


def _open_store(host: str, port: int, rank: int) -> TCPStore:
    """Where processes leave each other messages: the launcher's, or else one that rank 0 keeps."""
    if store_is_external() or rank != 0:
        return TCPStore(host, port, is_master=False, timeout=JOINING)
    return serve_store(host, port)[0]


def store_is_external() -> bool:
    """Whether a launcher keeps the store, as torchrun does."""
    return os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"


def serve_store(host: str = "127.0.0.1", port: int = 0) -> tuple[TCPStore, int]:
    """A store of our own and its port; one for this machine alone listens on nothing but loopback."""
    if host not in LOOPBACK:
        return TCPStore(host, port, is_master=True, timeout=JOINING, wait_for_workers=False), port
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", port))
    listener.listen(512)
    port = listener.getsockname()[1]
    descriptor = listener.detach()  # the store closes it
    store = TCPStore(
        "127.0.0.1",
        port,
        is_master=True,
        master_listen_fd=descriptor,
        timeout=JOINING,
        wait_for_workers=False,
    )
    return store, port


def broadcast_path(world: World, key: str, path: Path | None) -> Path | None:
    """The leader's choice of a path, for all."""
    if world.size == 1:
        return path
    if world.is_main:
        world.publish(key, str(path) if path else "")
        return path
    name = world.wait_for(key)
    return Path(name) if name else None
