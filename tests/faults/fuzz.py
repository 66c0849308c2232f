"""Files of a run, of the cache and of a source, damaged one at a time: each is named, or makes no difference.

python -m tests.faults.fuzz FOLDER CASES [SEED]     prints a JSON object; `make test-faults` has 2,000

A case takes a copy of a small run with its text and its cache, damages one file (bits flipped, bytes swapped,
cut off, grown, emptied, replaced by another file, by a link, a pipe or a folder, renamed, removed), and then
asks commands for their answers. Every command must end as without the damage, to the last byte, or with one
line that says what is wrong. All is done in forks of one process that has torch loaded.
"""

import json
import os
import random
import shutil
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import glassformer as gf
from tests.forked import run_forked

SETTINGS = {
    "tokenizer.kind": "bpe",
    "tokenizer.vocab": 300,
    "model.layers": 1,
    "model.heads": 2,
    "model.width": 16,
    "model.context": 16,
    "training.steps": 4,
    "training.batch": 2,
    "training.checkpoint_every": 2,
    "training.eval_every": 2,
    "training.compile": "off",
    "training.device": "cpu",
}
COMMANDS = {  # what is asked of a run
    "eval": ("eval", "run", "--json"),
    "generate": ("generate", "run", "item", "--tokens", "4", "--seed", "1", "--json"),
    "look": ("look", "run", "item 3", "--json"),
    "compare": ("compare", "run", "--json"),
    "resume": ("train", "text.txt", "--out", "run", "--resume", "--json"),
}
TIMES = ("seconds", "tokens_per_second")  # what differs each time a step is done again
CACHE = os.environ.get("GLASSFORMER_FUZZ_CACHE", "on") == "on"  # whether token shards are damaged too
NOTED = ("is damaged", "made anew", "made again")  # said, not refused
Damage = Callable[[Path, random.Random], None]


def flip(path: Path, chance: random.Random) -> None:
    data = bytearray(path.read_bytes())
    for _ in range(chance.choice((1, 1, 1, 8))):
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    path.write_bytes(data)


def swap(path: Path, chance: random.Random) -> None:
    data = bytearray(path.read_bytes())
    a, b = chance.randrange(len(data)), chance.randrange(len(data))
    data[a], data[b] = data[b], data[a]
    path.write_bytes(data)


def digit(path: Path, chance: random.Random) -> None:
    """Another digit for one: what a text file reads without complaint."""
    data = bytearray(path.read_bytes())
    places = [i for i, byte in enumerate(data) if 48 <= byte < 58]
    data[chance.choice(places) if places else 0] = 48 + chance.randrange(10)
    path.write_bytes(data)


def cut(path: Path, chance: random.Random) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: chance.randrange(len(data))])


def grow(path: Path, chance: random.Random) -> None:
    with path.open("ab") as file:
        file.write(chance.randbytes(chance.choice((1, 64))))


def zero(path: Path, chance: random.Random) -> None:
    data = bytearray(path.read_bytes())
    start = chance.randrange(len(data))
    data[start : start + 64] = bytes(len(data[start : start + 64]))
    path.write_bytes(data)


def exchange(path: Path, chance: random.Random) -> None:
    """Put another file of the same folder in its place."""
    other = chance.choice(sorted(p for p in path.parent.iterdir() if p.is_file() and p != path) or [path])
    path.write_bytes(other.read_bytes())


def link(path: Path, chance: random.Random) -> None:
    target = chance.choice((path.name, "/dev/zero", "/nowhere", "/etc/passwd", str(path.parent)))
    path.unlink()
    path.symlink_to(target)


def pipe(path: Path, chance: random.Random) -> None:
    path.unlink()
    os.mkfifo(path)


def folder(path: Path, chance: random.Random) -> None:
    path.unlink()
    path.mkdir()


def rename(path: Path, chance: random.Random) -> None:
    path.rename(path.with_name(chance.choice((f"{path.name}.bak", path.name.upper(), f"x{path.name}"))))


def remove(path: Path, chance: random.Random) -> None:
    path.unlink()


DAMAGES: list[Damage] = [flip, flip, flip, swap, swap, digit, digit, cut, cut, grow, zero, exchange]
DAMAGES += [link, pipe, folder, rename, remove]


def answer(place: Path, name: str) -> tuple[int, str, str]:
    done = run_forked(*COMMANDS[name], cwd=place, env={"GLASSFORMER_CACHE": str(place / "cache")})
    out = done.stdout
    if name == "resume" and done.returncode == 0:
        out = json.dumps({key: value for key, value in json.loads(out).items() if key not in TIMES})
    return done.returncode, out, done.stderr


def make(place: Path) -> None:
    """A run, its text and its cache in one folder, which can be copied: the text is named from there."""
    place.mkdir(parents=True)
    lines = [f"item {i % 10} follows item {(i - 1) % 10}, and then comes a new line.\n" for i in range(400)]
    (place / "text.txt").write_text("".join(lines))
    os.chdir(place)
    os.environ["GLASSFORMER_CACHE"] = str(place / "cache")
    gf.train("text.txt", out="run", settings=SETTINGS)


def victims(place: Path) -> list[str]:
    """What is damaged: small files as often as large ones."""
    ignored = {".lock", "loss.svg", "loss.png", "loss.txt", "latest.json"}  # no answer depends on them
    folders = [place / "run", *([place / "cache" / "shards"] if CACHE else [])]
    files = [path for folder in folders for path in sorted(folder.rglob("*")) if path.is_file()]
    found = [str(path.relative_to(place)) for path in files if path.name not in ignored] + ["text.txt"]
    return [name for name in found if (place / name).stat().st_size]


def readers(name: str) -> list[str]:
    """The commands that read a file: one that does not could not notice anything."""
    if "/checkpoints/" in name:
        return ["resume"]
    some = {
        "text.txt": ["eval", "resume"],
        "result.json": ["compare"],
        "metrics.jsonl": ["compare", "resume"],
    }
    return some.get(Path(name).name, list(COMMANDS) if name.startswith("run/") else ["eval", "resume"])


def verdict(before: tuple[int, str, str], after: tuple[int, str, str]) -> str:
    """identical, refused, noted (another answer, and a line that says why), or what is wrong."""
    code, out, errors = after
    if (code, out) == before[:2]:
        return "identical"
    if "Traceback" in errors or code not in (0, 1, 2):
        return f"a traceback, or exit code {code}"
    if code:
        lines = [line for line in errors.splitlines() if line.strip()]
        told = [line for line in lines if line.startswith(("Error:", "Usage:"))]
        return "refused" if len(told) == 1 and not out else "refused, but not in one line"
    return "noted" if any(words in errors for words in NOTED) else "another answer, silently"


def main() -> None:
    root, cases = Path(sys.argv[1]).resolve(), int(sys.argv[2])
    chance = random.Random(int(sys.argv[3]) if len(sys.argv) > 3 else 0)
    place, work = root / "place", root / "whole"
    make(place)
    names = victims(place)
    before = {name: answer(place, name) for name in COMMANDS}
    assert all(code == 0 for code, _, _ in before.values()), before
    place.rename(work)
    outcomes: Counter[str] = Counter()
    by_damage: Counter[str] = Counter()
    wrong: list[str] = []
    began = time.perf_counter()
    for number in range(cases):
        name, damage = chance.choice(names), chance.choice(DAMAGES)
        command = chance.choice(readers(name))
        shutil.copytree(work, place, symlinks=True)
        damage(place / name, chance)
        seen = verdict(before[command], answer(place, command))
        outcomes[seen] += 1
        by_damage[f"{damage.__name__}: {seen}"] += 1
        if seen not in ("identical", "refused", "noted"):
            wrong.append(f"case {number}: {damage.__name__} {name}, {command}: {seen}")
            sys.stderr.write(f"{wrong[-1]}\n{answer(place, command)[2][-1500:]}\n")
        shutil.rmtree(place)
    report = {
        "cases": cases,
        "outcomes": dict(outcomes),
        "by damage": dict(sorted(by_damage.items())),
        "wrong": wrong,
        "seconds": round(time.perf_counter() - began),
    }
    sys.stdout.write(json.dumps(report) + "\n")


if __name__ == "__main__":
    main()
