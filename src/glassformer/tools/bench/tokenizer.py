"""`glassformer bench tokenizer`: learning and encoding beside tokenizers, rustbpe and tiktoken.

Each measurement is a process of its own. All learn from the same text with the same pattern (gpt4), and all
encode with the same merges. Encoding is timed from a string in memory to ids, the first time a process sees
the text.
"""

import hashlib
import importlib.util
import json
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from glassformer.core.cores import cores
from glassformer.core.errors import GlassformerError
from glassformer.core.files import write_atomically
from glassformer.core.strict_json import dump_json
from glassformer.data.datasets import open_corpus

LEARNERS = ("glassformer", "rustbpe", "tokenizers")
ENCODERS = ("glassformer", "glassformer, list", "tiktoken", "tokenizers")
Say = Callable[[str], None]


@dataclass
class Measured:
    job: str  # train or encode
    tool: str
    threads: int
    bytes: int
    vocab: int
    seconds: float
    peak_bytes: int  # of the process, with its libraries and the text
    added_bytes: int  # of that, by the job

    @property
    def rate(self) -> float:
        """Megabytes a second."""
        return self.bytes / self.seconds / 1e6


def corpus(source: str | None, size: int, folder: Path) -> Path:
    """A file of text to measure with: the user's, or the Python code and prose found on this machine."""
    texts = open_corpus(source).texts("train") if source else _found_here()
    parts: list[str] = []
    have = 0
    for text in texts:
        parts.append(text)
        have += len(text.encode())
        if have >= size:
            break
    data = "".join(parts).encode()[:size].decode(errors="ignore").encode()
    path = folder / "text.txt"
    write_atomically(path, data)
    return path


def _found_here() -> Iterator[str]:
    """Files of the standard library and of installed packages, in an order that mixes them."""
    roots = {sysconfig.get_paths()[name] for name in ("stdlib", "purelib")}
    paths = (p for root in roots for end in ("*.py", "*.rst", "*.md", "*.txt") for p in Path(root).rglob(end))
    seen: set[bytes] = set()
    for path in sorted(set(paths), key=lambda p: hashlib.sha256("/".join(p.parts[-3:]).encode()).digest()):
        try:
            data = path.read_bytes()
            digest = hashlib.sha256(data).digest()
            if digest not in seen:
                seen.add(digest)
                yield data.decode()
        except (OSError, UnicodeDecodeError):
            continue


def measure(text: Path, vocab: int, quick: bool, repeats: int, say: Say) -> list[Measured]:
    """Everything the report shows, best of `repeats` each."""
    found: list[Measured] = []
    whole = text.stat().st_size
    threads = cores()

    def one(job: str, tool: str, workers: int, size: int, entries: int, **more: str) -> None:
        if importlib.util.find_spec(tool.split(",")[0]) is None:
            return
        say(f"{job} {tool}: {size / 1e6:.0f} MB, {entries} entries, threads {workers} …")
        task = {
            "job": job,
            "tool": tool,
            "threads": workers,
            "text": str(text),
            "size": size,
            "vocab": entries,
        }
        runs = [_run({**task, **more}) for _ in range(repeats)]
        best = min(runs, key=lambda r: r["seconds"])
        memory = (int(best[name]) for name in ("peak_bytes", "added_bytes"))
        found.append(Measured(job, tool, workers, min(size, whole), entries, best["seconds"], *memory))

    with tempfile.TemporaryDirectory() as folder:
        saved = str(Path(folder) / "tokenizer.json")
        one("train", "glassformer", threads, whole, vocab, save=saved)
        for tool in LEARNERS[1:]:
            one("train", tool, threads, whole, vocab)
        if not quick:
            for size in (whole // 100, whole // 10):
                for tool in LEARNERS[:2]:
                    one("train", tool, threads, size, vocab)
            for entries in (512, 4096):
                for tool in LEARNERS[:2]:
                    one("train", tool, threads, whole, entries)
        for size in (whole // 10, whole):
            for workers in dict.fromkeys((1, threads)):
                for tool in ENCODERS[: 3 if size == whole else 4]:
                    one("encode", tool, workers, size, vocab, tokenizer=saved)
    return found


def _run(task: dict) -> dict[str, float]:
    command = [sys.executable, "-m", "glassformer.tools.bench.tokenizer_worker", dump_json(task)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise GlassformerError(f"{task['tool']} failed: {(done.stderr.strip().splitlines() or ['?'])[-1]}")
    return json.loads(done.stdout.splitlines()[-1])


def report(found: list[Measured]) -> str:
    """A table; the last column says how much faster glassformer was at the same job."""
    widths = {
        "MB": 6,
        "entries": 9,
        "threads": 9,
        "seconds": 10,
        "MB/s": 8,
        "peak MB": 9,
        "added": 7,
        "ours is": 9,
    }
    lines = [" " * 28 + "".join(f"{name:>{width}}" for name, width in widths.items())]
    for m in found:
        ours = next((o for o in found if o.tool == "glassformer" and _same(o, m)), m)
        ratio = "" if m.tool == "glassformer" else f"{m.seconds / ours.seconds:.1f} ×"
        lines.append(
            f"{m.job:8}{m.tool:20}{m.bytes / 1e6:>6.1f}{m.vocab:>9,}{m.threads:>9}{m.seconds:>10.2f}"
            f"{m.rate:>8.1f}{m.peak_bytes / 1e6:>9.0f}{m.added_bytes / 1e6:>7.0f}{ratio:>9}"
        )
    return "\n".join(lines)


def _same(a: Measured, b: Measured) -> bool:
    return (a.job, a.bytes, a.vocab, a.threads) == (b.job, b.bytes, b.vocab, b.threads)


def as_json(found: list[Measured]) -> list[dict]:
    return [{**asdict(m), "mb_per_second": m.rate} for m in found]
