"""Is what `glassformer train my.txt` chooses right? Texts of 0.05 to 10 MB, beside a search by hand.

    python benchmarks/own_text.py texts FOLDER [--data DATA]   make the texts
    python benchmarks/own_text.py run FOLDER                   train each with nothing said, five minutes each
    python benchmarks/own_text.py plan FOLDER                  how many steps there is time for, in each way
    python benchmarks/own_text.py search FOLDER                those steps: the default, and other settings
    python benchmarks/own_text.py show                         the table of what is kept in own_text.json

`--only TEXT…` takes some of the texts, `--settings NAME…` some of the settings.

The texts are the sources of Python's standard library, and, where DATA holds the files of the data sets
(docs/data.md), Shakespeare, captions in German and WikiText-2. `run` and `plan` need the machine to
themselves. `plan` lets the command itself say how many steps of each setting fit into the default's time;
`search` then takes exactly these, so that a busy machine makes it slower and nothing else. A result names the
steps that it took; a default that says `from` was not run by itself, it is that setting's figure.
"""

import argparse
import json
import re
import subprocess
import sys
import sysconfig
import tempfile
import time
from pathlib import Path
from typing import Any

KEPT = Path(__file__).with_suffix(".json")
SIZES = {"0.05": 50_000, "0.1": 100_000, "0.5": 500_000, "2": 2_000_000, "10": 10_000_000}
DATA = {  # a file of a data set, and how many characters of it
    "shakespeare-0.1": ("tinyshakespeare/input.txt", 100_000),
    "shakespeare-0.5": ("tinyshakespeare/input.txt", 500_000),
    "captions-0.1": ("multi30k-en-de/train.de", 100_000),
    "captions-0.5": ("multi30k-en-de/train.de", 500_000),
    "captions-2": ("multi30k-en-de/train.de", 2_000_000),
    "wikitext-10": ("wikitext-2/train.txt", 10_000_000),
}
DEFAULT = "default"
BEFORE = "default before"  # three layers of width 96 for 0.1 MB
PLANS, FOUND = "steps", "search"  # beside the default's entry of a text


def shape(layers: int, width: int, **more: Any) -> dict[str, Any]:
    sizes = {"layers": layers, "width": width, "heads": width // 32, "hidden": 2 * width, **more}
    return {f"model.{name}": value for name, value in sizes.items()}


CHARACTERS = {"tokenizer.kind": "char"}
SEARCH: dict[str, dict[str, Any]] = {
    "2 × 128": shape(2, 128),
    "4 × 128": shape(4, 128),
    "6 × 128": shape(6, 128),
    "4 × 192": shape(4, 192),
    "6 × 192": shape(6, 192),
    "6 × 256": shape(6, 256),
    "4 × 128, context 128": shape(4, 128, context=128),
    "4 × 128, dropout 0": shape(4, 128, dropout=0.0),
    "4 × 128, dropout 0.1": shape(4, 128, dropout=0.1),
    "4 × 128, dropout 0.3": shape(4, 128, dropout=0.3),
    "4 × 128, shift": shape(4, 128, shift="embedding"),
    "4 × 128, characters": {**shape(4, 128), **CHARACTERS},
    **{
        f"4 × 128, bpe {vocab}": {**shape(4, 128), "tokenizer.kind": "bpe", "tokenizer.vocab": vocab}
        for vocab in (512, 1024, 2048, 4096)
    },
}


def make_texts(folder: Path, data: Path | None) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    library = Path(sysconfig.get_paths()["stdlib"])
    code = ""
    for path in sorted(library.rglob("*.py")):
        if not {"site-packages", "test", "tests", "idlelib"} & set(path.parts) and len(code) < max(
            SIZES.values()
        ):
            code += path.read_text(encoding="utf-8", errors="ignore") + "\n"
    for name, size in SIZES.items():
        (folder / f"code-{name}.txt").write_text(code[:size], encoding="utf-8")
    for name, (file, size) in DATA.items() if data else ():
        assert data is not None
        (folder / f"{name}.txt").write_text(
            (data / file).read_text(encoding="utf-8")[:size], encoding="utf-8"
        )


def command(text: Path, settings: dict[str, Any], place: str, *more: str) -> list[str]:
    """`glassformer train TEXT`, with these settings."""
    said = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    return [sys.executable, "-m", "glassformer", "train", str(text), "--out", f"{place}/run", *said, *more]


def train(text: Path, settings: dict[str, Any]) -> dict[str, Any]:
    """What the command reached, and how long that took."""
    with tempfile.TemporaryDirectory() as place:
        began = time.monotonic()
        words = command(text, settings, place, "--json")
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(done.stderr)
        result = json.loads(done.stdout)
        return {"bits_per_byte": result["valid"]["bits_per_byte"], "seconds": round(time.monotonic() - began)}


def plan(text: Path, settings: dict[str, Any]) -> int:
    """The number of steps that the command announces; it is stopped at the first."""
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    with tempfile.TemporaryDirectory() as place:
        with subprocess.Popen(command(text, settings, place), **pipes) as process:
            assert process.stdout
            said = ""
            for line in process.stdout:
                said += line
                if found := re.match(r"Training: ([\d,]+) steps", line):
                    process.kill()
                    return int(found[1].replace(",", ""))
        raise SystemExit(said)


def read_kept() -> dict[str, Any]:
    kept: dict[str, Any] = json.loads(KEPT.read_text(encoding="utf-8")) if KEPT.exists() else {}
    return kept


def keep(text: str, kind: str, name: str | None, entry: Any) -> None:
    """An entry of a text; with a name, one of several of that kind."""
    kept = read_kept()
    place = kept.setdefault(text, {})
    if name is None:
        place[kind] = entry
    else:
        place.setdefault(kind, {})[name] = entry
    KEPT.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    show(f"{text:18}{name or kind:24}{entry}")


def texts(folder: Path, only: list[str]) -> list[Path]:
    return [path for path in sorted(folder.glob("*.txt")) if not only or path.stem in only]


def show_kept() -> None:
    show("| text | default before | default | best of the search | default above it |")
    show("|---|---|---|---|---|")
    for text, entries in read_kept().items():
        found = {name: entry["bits_per_byte"] for name, entry in entries.get(FOUND, {}).items()}
        default, before = found.pop(DEFAULT, None), found.pop(BEFORE, None)
        if default is None or not found:
            continue
        best = min(found, key=lambda name: found[name])
        said = f"{found[best]:.3f} ({best}, of {len(found)})"
        above = f"{100 * (default / found[best] - 1):+.1f} %"
        show(f"| {text} | {f'{before:.3f}' if before else 'the same'} | {default:.3f} | {said} | {above} |")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["texts", "run", "plan", "search", "show"])
    parser.add_argument("folder", type=Path, nargs="?", default=Path(".own-text"))
    parser.add_argument("--data", type=Path, help="a folder with the files of the data sets")
    parser.add_argument("--only", nargs="*", default=[], help="names of texts")
    parser.add_argument("--settings", nargs="*", default=[], help="names of settings")
    asked = parser.parse_args()
    if asked.what == "show":
        show_kept()
        return
    if asked.what == "texts":
        make_texts(asked.folder, asked.data)
        return
    for text in texts(asked.folder, asked.only):
        if asked.what == "run":
            keep(text.stem, DEFAULT, None, train(text, {}))
            continue
        for name, settings in {DEFAULT: {}, **SEARCH}.items():
            if asked.settings and name not in asked.settings:
                continue
            if asked.what == "plan":
                keep(text.stem, PLANS, name, plan(text, settings))
            elif name not in read_kept().get(text.stem, {}).get(FOUND, {}):
                steps = read_kept().get(text.stem, {}).get(PLANS, {}).get(name)
                if steps is None:
                    show(f"{text.stem:18}{name:24}left out: no steps, run `plan` first")
                    continue
                result = train(text, {**settings, "training.steps": steps})
                keep(text.stem, FOUND, name, {**result, "steps": steps})


def show(line: str) -> None:
    print(line, flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
