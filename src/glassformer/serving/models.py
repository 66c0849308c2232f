"""Runs in memory: loaded when they are first asked for, within a budget, and reloaded when they have changed.

    asked for     the run is loaded; whoever asks meanwhile waits for the same load
    no room       the run that was used longest ago and has nothing to do goes; one with requests never does
    new weights   are loaded beside the old ones; new requests go to them, those under way end on the old ones

The fast step of a CPU has to be compiled once on a machine. Until that is done, in the background, runs take
the open pass, and are then reloaded as if they had new weights.

`use` counts a request as a user of what it was given, until it is over.
"""

import asyncio
import gc
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from pathlib import Path

import torch

from glassformer.config.saved import load_config
from glassformer.config.schema import Config
from glassformer.core.errors import RunError
from glassformer.generation.engine import Engine
from glassformer.generation.make import Weights, choose_weights, compiled_loops, device_of, make_engine
from glassformer.runs.run import Run
from glassformer.serving.catalog import Entry, names_of
from glassformer.serving.counts import Counts
from glassformer.serving.errors import ApiError, as_api_error, fault
from glassformer.serving.jobs import Jobs
from glassformer.serving.limits import Limits
from glassformer.serving.memory import available, text_bytes, texts_that_fit, weight_bytes
from glassformer.serving.writer import Writer
from glassformer.training.checkpoint.run_seal import WEIGHTS, find_seal

LATER = 30.0  # seconds until a run that had no room beside itself is tried again
LOOK_AGAIN = 1.0  # seconds after which a run's weights are asked for their date again
Stamp = tuple[int, int, int]  # of a file: what it is, how large, since when

ROUTES = {
    "language": "/v1/completions",
    "translate": "/v1/translate",
    "classify": "/v1/classify",
    "tag": "/v1/classify",
    "masked": "/v1/fill",
}


@dataclass(eq=False)
class Loaded:
    """A run in memory, and the threads that work with it."""

    name: str
    run: Run
    writer: Writer | None  # of a language model
    jobs: Jobs
    bytes: int
    stamp: Stamp
    weights: str  # the beginning of their hash: what a text depends on besides its seed
    interim: bool = False  # it takes the open pass until the fast one is compiled
    users: int = 0
    used: float = field(default_factory=time.monotonic)
    retired: bool = False

    def release(self) -> None:
        self.users -= 1
        self.used = time.monotonic()

    def close(self, reason: str = "the run was unloaded") -> None:
        if self.writer is not None:
            self.writer.stop(reason)
        self.jobs.stop()


class Models:
    def __init__(
        self,
        entries: Mapping[str, Entry],
        limits: Limits,
        counts: Counts,
        budget: int | None = None,
        log: Callable[[str], None] = lambda _: None,
        weights: Weights = "auto",
    ):
        """`weights` is the precision that language models on a CPU compute in (generation/make.py)."""
        self.entries, self.limits, self.counts, self.log = dict(entries), limits, counts, log
        self.weights: Weights = weights
        self._compiling: threading.Thread | None = None
        self.budget = available() if budget is None else budget
        self.loaded: dict[str, Loaded] = {}
        self._retired: list[Loaded] = []  # still used by requests that began on them
        self._loading: dict[str, asyncio.Task[Loaded]] = {}
        self._coming: dict[str, int] = {}  # the bytes of what is being loaded
        self._looked: dict[str, float] = {}
        self._refused: dict[str, Stamp] = {}  # new weights that could not be loaded
        self.created = {name: _since(entry.path) for name, entry in self.entries.items()}
        self.tasks = {name: _task_of(entry.path) for name, entry in self.entries.items()}

    def entry(self, name: str) -> Entry:
        entry = self.entries.get(name)
        if entry is None:
            raise ApiError(
                404,
                f"there is no model of this name here; there are {names_of(self.entries)}",
                param="model",
                code="model_not_found",
            )
        return entry

    async def use(self, name: str, held: ExitStack, *tasks: str) -> Loaded:
        """A run, in memory until `held` is let go of; refused if it learned another task than these."""
        self.entry(name)
        task = self.tasks[name]
        if tasks and task is not None and task not in tasks:
            raise ApiError(
                400,
                f"model '{name}' learned the task {task}, and this is for {' or '.join(tasks)}: ask it at "
                f"{ROUTES[task]} or /v1/look",
                param="model",
                code="wrong_task",
            )
        loaded = self.loaded.get(name)
        if loaded is not None and self._has_changed(loaded) and name not in self._loading:
            self._load(name).add_done_callback(partial(self._tell_failure, name))
        while loaded is None or loaded.retired:  # another may have needed its room before we could use it
            loaded = await asyncio.shield(self._load(name))
        loaded.users += 1
        loaded.used = time.monotonic()
        held.callback(self._release, loaded)
        return loaded

    async def reload(self, name: str) -> Loaded:
        """The run as it is on disk now, for all requests from now on."""
        self.entry(name)
        return await asyncio.shield(self._load(name))

    def stop(self, reason: str) -> None:
        """End what is being written."""
        for loaded in [*self.loaded.values(), *self._retired]:
            loaded.close(reason)

    def join(self, seconds: float = 2.0) -> None:
        for loaded in [*self.loaded.values(), *self._retired]:
            for thread in (loaded.writer, loaded.jobs):
                if thread is not None:
                    thread.join(seconds)

    # Loading

    def _load(self, name: str) -> asyncio.Task[Loaded]:
        """The load of a run that is under way, or a new one."""
        task = self._loading.get(name)
        if task is None:
            task = self._loading[name] = asyncio.create_task(self._load_now(name))
            task.add_done_callback(lambda _: self._loading.pop(name, None))
        return task

    async def _load_now(self, name: str) -> Loaded:
        entry = self.entries[name]
        try:
            config = load_config(entry.path / "config.yaml")
            texts = texts_that_fit(config, entry.path, self.limits.streams, self.budget)
            needed = weight_bytes(entry.path) + texts * text_bytes(config)
            self._make_room(name, needed)
            self._coming[name] = needed
            stamp = _stamp(entry.path)
            opened = await asyncio.to_thread(_open, entry.path, texts, self.weights)
        except ApiError:
            raise
        except Exception as error:
            told = as_api_error(error, name, entry.path)
            if told.status == 500:
                self.log(fault(error))
            raise told from None
        finally:
            self._coming.pop(name, None)
        loaded = Loaded(
            name,
            opened.run,
            None,
            Jobs(name, self.limits.jobs),
            needed,
            stamp,
            opened.weights,
            opened.interim,
        )
        if opened.engine is not None:
            again = partial(make_engine, opened.run.language_model, texts, weights="open")
            loaded.writer = Writer(name, opened.engine, again, self.limits.queue, self.counts, self.log)
        if loaded.interim:
            self._compile()
        self.tasks[name] = opened.run.config.task
        self.counts.loads.labels(name).inc()
        before = self.loaded.pop(name, None)
        if before is not None:
            self._retire(before)
        self.loaded[name] = loaded
        self.counts.loaded.labels(name).set(needed)
        return loaded

    def _make_room(self, name: str, needed: int) -> None:
        """Unload what is idle, the longest first, until a run fits; refuse it if it cannot."""
        if needed > self.budget:
            raise ApiError(
                503,
                f"model '{name}' needs {_gigabytes(needed)} of memory, and the server may use "
                f"{_gigabytes(self.budget)}: start it with a larger --memory",
                code="model_too_large",
            )
        while self._used() + needed > self.budget:
            idle = [loaded for loaded in self.loaded.values() if loaded.users == 0]
            if not idle:
                raise ApiError(
                    503,
                    f"model '{name}' has to wait for memory: all of the budget is taken by models that are "
                    "answering just now",
                    code="no_memory",
                    retry=5,
                )
            oldest = min(idle, key=lambda loaded: loaded.used)
            del self.loaded[oldest.name]
            self._retire(oldest)

    def _used(self) -> int:
        """By what is loaded, by what waits for its last request, and by what is being loaded."""
        there = [*self.loaded.values(), *self._retired]
        return sum(loaded.bytes for loaded in there) + sum(self._coming.values())

    def _retire(self, loaded: Loaded) -> None:
        """It takes no new requests, and goes when its last one is over."""
        loaded.retired = True
        if loaded.users == 0:
            self._unload(loaded)
        else:
            self._retired.append(loaded)

    def _release(self, loaded: Loaded) -> None:
        loaded.release()
        if loaded.retired and loaded.users == 0:
            self._retired.remove(loaded)
            self._unload(loaded)

    def _unload(self, loaded: Loaded) -> None:
        loaded.close()
        if loaded.name not in self.loaded:
            self.counts.loaded.labels(loaded.name).set(0)
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()

    # Reloading

    def _has_changed(self, loaded: Loaded) -> bool:
        now = time.monotonic()
        if now - self._looked.get(loaded.name, 0.0) < LOOK_AGAIN:
            return False
        self._looked[loaded.name] = now
        stamp = _stamp(self.entries[loaded.name].path)
        return stamp not in (loaded.stamp, self._refused.get(loaded.name), NOTHING)

    def _compile(self) -> None:
        """Compile the fast step, and reload who waits for it."""
        if self._compiling is not None:
            return
        loop = asyncio.get_running_loop()
        self.log(
            "The fast step is compiled, once for this machine; until then texts are written more slowly."
        )

        def compile() -> None:
            try:
                import_module("glassformer.generation.fast.step")
                compiled_loops.was_compiled()
                loop.call_soon_threadsafe(self._take_fast_step)
            except RuntimeError:  # the loop has ended before this
                return

        self._compiling = threading.Thread(target=compile, name="compiling", daemon=True)
        self._compiling.start()

    def _take_fast_step(self) -> None:
        """Reload who waits for it; who has no room for that just now, later."""

        def again(task: asyncio.Task[Loaded]) -> None:
            if not task.cancelled() and task.exception() is not None:
                task.get_loop().call_later(LATER, self._take_fast_step)

        for name in [name for name, loaded in self.loaded.items() if loaded.interim]:
            self._load(name).add_done_callback(again)

    def _tell_failure(self, name: str, task: asyncio.Task[Loaded]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None and getattr(error, "code", None) != "no_memory":
            self._refused[name] = _stamp(self.entries[name].path)
            self.log(f"{name} has new weights that cannot be loaded; the old ones are served on. {error}")


NOTHING = (0, 0, 0)


@dataclass(frozen=True)
class Opened:
    run: Run
    weights: str
    engine: Engine | None
    interim: bool


def _open(path: Path, texts: int, weights: Weights) -> Opened:
    """All that takes long, on a thread of its own."""
    run = Run(path)
    _ = run.model
    if not run.config.model.patch:
        _ = run.tokenizer, run.source_tokenizer
    seal = find_seal(path)
    named = seal.files.get(WEIGHTS, [""])[-1][:12] if seal is not None else ""
    if run.config.task != "language":
        return Opened(run, named, None, False)
    chosen = choose_weights(run.language_model, weights)
    by_loops = weights == "auto" and chosen != "open" and device_of(run.language_model).type == "cpu"
    interim = by_loops and not compiled_loops.is_compiled
    engine = make_engine(run.language_model, texts, weights="open" if interim else chosen)
    return Opened(run, named, engine, interim)


def _stamp(path: Path) -> Stamp:
    try:
        found = (path / WEIGHTS).stat()
    except OSError:
        return NOTHING
    return found.st_ino, found.st_size, found.st_mtime_ns


def _since(path: Path) -> int:
    """When the run was begun, in seconds of Unix."""
    try:
        return int((path / "config.yaml").stat().st_mtime)
    except OSError:
        return 0


def _task_of(path: Path) -> str | None:
    """None: its settings cannot be read, which whoever asks for it is told."""
    try:
        return load_config(path / "config.yaml").task
    except RunError:
        return None


def config_of(entry: Entry) -> Config:
    return load_config(entry.path / "config.yaml")


def _gigabytes(size: int) -> str:
    return f"{size / 1e9:.2f} GB"
