"""Small data sets of the kinds that users bring, to try the defaults on: labels, tags and pairs.

    python benchmarks/defaults_data.py FOLDER [--raw FOLDER]

They come from what is public: descriptions of Debian's packages, which volunteers translated into many
languages (downloaded, 25 MB), the sources of Python's standard library, and SST-2 and Multi30k. Each becomes
a folder with train, valid and test. Which rows are taken follows from a hash of the text, so that the same
downloads give the same sets; a later release of Debian changes some rows.
"""

import argparse
import ast
import bz2
import hashlib
import json
import lzma
import re
import sys
import sysconfig
import tokenize
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TypeVar
from urllib.request import urlopen

from glassformer.data.datasets import load_dataset

DEBIAN = "http://deb.debian.org/debian/dists/bookworm/main/"
PACKAGES, ENGLISH = "binary-amd64/Packages.xz", "i18n/Translation-en.xz"
LANGUAGES = ("de", "es", "fr", "it", "ja", "pl", "ru")
TEST = 1500  # rows at most
Row = tuple[str, str]
T = TypeVar("T")
Sentence = tuple[list[str], list[str]]


def say(text: str) -> None:
    sys.stderr.write(f"{text}\n")


def order(rows: Iterable[T]) -> list[T]:
    """Rows without repetitions in an order that is as good as random and always the same."""
    unique = {repr(row): row for row in rows}
    return [unique[key] for key in sorted(unique, key=lambda k: hashlib.sha256(k.encode()).digest())]


class Debian:
    """Package descriptions: the first line, the rest, and the section of each package."""

    def __init__(self, raw: Path):
        self.raw = raw
        self.sections: dict[str, str] = {}
        for block in self._blocks(PACKAGES):
            fields = dict(
                line.split(": ", 1) for line in block.split("\n") if re.match(r"(Package|Section): ", line)
            )
            self.sections[fields["Package"]] = fields.get("Section", "")
        self.described = {"en": self._descriptions(ENGLISH)}
        for language in LANGUAGES:
            self.described[language] = self._descriptions(f"i18n/Translation-{language}.bz2")

    def _blocks(self, name: str) -> list[str]:
        file = self.raw / Path(name).name
        if not file.exists():
            say(f"downloading {DEBIAN + name}")
            self.raw.mkdir(parents=True, exist_ok=True)
            with urlopen(DEBIAN + name, timeout=120) as response:
                file.write_bytes(response.read())
        unpack = lzma.decompress if file.suffix == ".xz" else bz2.decompress
        return unpack(file.read_bytes()).decode(errors="replace").strip().split("\n\n")

    def _descriptions(self, name: str) -> dict[str, tuple[str, str, str]]:
        """By package: a digest of the English original, the first line, the text."""
        found: dict[str, tuple[str, str, str]] = {}
        for block in self._blocks(name):
            match = re.search(
                r"Package: (\S+)\nDescription-md5: (\S+)\nDescription-\w+: (.*)((?:\n .*)*)", block
            )
            if match and "<trans>" not in block:
                text = re.sub(r"\n (\.\n|)", "\n", match[4]).replace("\n", " ")
                found[match[1]] = (match[2], match[3].strip(), re.sub(r"\s+", " ", text).strip())
        return found

    def by_section(self, language: str, long: bool) -> list[Row]:
        """Descriptions with the section of the package, of the eight largest sections that say something."""
        rows = [
            (f"{short}. {text}" if long else short, self.sections.get(package, ""))
            for package, (_, short, text) in self.described[language].items()
        ]
        said = [
            (text, section)
            for text, section in rows
            if section not in ("", "misc", "libs", "libdevel", "debug", "oldlibs", "localization", "utils")
        ]
        largest = {name for name, _ in Counter(section for _, section in said).most_common(8)}
        seen: dict[str, str] = {}
        for text, section in said:
            if section in largest:
                seen.setdefault(text.replace("\t", " "), section)
        return order(seen.items())

    def by_language(self, words: bool) -> list[Row]:
        """First lines, or single words of them, with their language; what two languages share is left out."""
        homes: dict[str, set[str]] = {}
        for language, descriptions in self.described.items():
            for _, short, _ in order(descriptions.values())[:2500]:
                for piece in re.findall(r"[^\W\d_]{4,}", short) if words else [short]:
                    homes.setdefault(piece.lower() if words else piece, set()).add(language)
        return order((piece, min(found)) for piece, found in homes.items() if len(found) == 1)

    def pairs(self, language: str) -> list[Row]:
        """First lines in English and in another language, of the same version of the text."""
        english = self.described["en"]
        rows = [
            (english[package][1], short)
            for package, (digest, short, _) in self.described[language].items()
            if package in english and english[package][0] == digest and english[package][1] != short
        ]
        return order({source: (source, target) for source, target in rows}.values())

    def sentences(self, language: str) -> list[str]:
        texts = (text for _, _, text in self.described[language].values())
        return order(
            s
            for text in texts
            for s in re.split(r"(?<=[.!?]) ", text)
            if 6 <= len(s.split()) <= 30 and s[-1] in ".!?"
        )


def punctuated(sentence: str) -> Sentence | None:
    """Words in small letters without signs; the tags say what was there: a capital, a sign behind."""
    words, tags = [], []
    for word in sentence.split():
        bare = word.strip(",.!?;:")
        if not bare or not re.fullmatch(r"[\w'-]+", bare):
            return None
        sign = word[len(bare) :][:1] if word.startswith(bare) else ""
        words.append(bare.lower())
        tags.append(("C" if bare[0].isupper() else "c") + (sign if sign in ",." else "" if not sign else ":"))
    return words, tags


def code_roles() -> list[Sentence]:
    """Lines of Python with the role of every token, from its own standard library."""
    folder, sentences = Path(sysconfig.get_path("stdlib")), []
    for file in sorted(folder.glob("*.py")):
        source = file.read_text(encoding="utf-8", errors="replace")
        roles: dict[tuple[int, int], str] = {}
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Name):
                roles[node.lineno, node.col_offset] = (
                    "called" if roles.get((node.lineno, node.col_offset)) == "called" else "variable"
                )
            elif isinstance(node, ast.arg):
                roles[node.lineno, node.col_offset] = "parameter"
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                roles[node.func.lineno, node.func.col_offset] = "called"
        lines: dict[int, tuple[list[str], list[str]]] = {}
        with file.open("rb") as handle:
            for token in tokenize.tokenize(handle.readline):
                if token.type in (tokenize.NAME, tokenize.OP, tokenize.NUMBER):
                    words, tags = lines.setdefault(token.start[0], ([], []))
                    kind = {tokenize.OP: "sign", tokenize.NUMBER: "number"}.get(token.type, "other")
                    words.append(token.string)
                    tags.append(roles.get(token.start, kind))
        sentences += [(w, t) for w, t in lines.values() if 4 <= len(w) <= 40]
    return order(sentences)


def write_rows(folder: Path, rows: Sequence[Row], train: int, valid: int | None = None) -> None:
    save(folder, rows, train, lambda part: "".join(f"{a}\t{b}\n" for a, b in part), ".tsv", valid)


def write_tagged(folder: Path, rows: Sequence[Sentence], train: int) -> None:
    def shown(part: Sequence[Sentence]) -> str:
        return "".join(json.dumps({"words": w, "tags": t}, ensure_ascii=False) + "\n" for w, t in part)

    save(folder, rows, train, shown, ".jsonl")


def save(
    folder: Path,
    rows: Sequence[T],
    train: int,
    shown: Callable[[Sequence[T]], str],
    suffix: str,
    valid: int | None = None,
) -> None:
    """So many rows to train on, an eighth of that for validation, and a test that is large enough to tell."""
    folder.mkdir(parents=True, exist_ok=True)
    valid = valid or max(50, train // 8)
    parts = {
        "train": rows[:train],
        "valid": rows[train : train + valid],
        "test": rows[train + valid :][:TEST],
    }
    for split, part in parts.items():
        (folder / f"{split}{suffix}").write_text(shown(part), encoding="utf-8")
    size = (folder / f"train{suffix}").stat().st_size
    counts = " ".join(f"{len(part):6,}" for part in parts.values())
    say(f"{folder.name:20} {counts} rows, {size / 1e6:.2f} MB to train on")


def make_all(folder: Path, raw: Path) -> None:
    debian = Debian(raw)
    reviews = load_dataset("sst2", "classify")
    for size in (400, 2600):
        rows = (
            order(reviews.splits["train"])[:size]
            + order(reviews.splits["valid"])[: size // 8]
            + reviews.splits["test"]
        )
        write_rows(folder / f"classify/reviews-{size}", rows, size, size // 8)
    write_rows(folder / "classify/sections-short", debian.by_section("en", long=False), 2000)
    write_rows(folder / "classify/sections-long", debian.by_section("en", long=True), 8000)
    write_rows(folder / "classify/sections-de", debian.by_section("de", long=True), 2500)
    write_rows(folder / "classify/sections-ja", debian.by_section("ja", long=True), 1200)
    write_rows(folder / "classify/language", debian.by_language(words=False), 1000)
    write_rows(folder / "classify/language-word", debian.by_language(words=True), 3000)
    for language in ("en", "de"):
        tagged = [t for s in debian.sentences(language) if (t := punctuated(s)) is not None]
        write_tagged(folder / f"tag/signs-{language}", tagged, 2500)
    write_tagged(folder / "tag/code", code_roles(), 2500)
    captions = load_dataset("multi30k", "translate").splits
    for size in (3000, 28000):
        rows = (
            order(captions["train"])[:size]
            + order(captions["valid"])[: max(50, size // 8)]
            + captions["test"]
        )
        write_rows(
            folder / f"translate/captions-{size}", rows, size, min(max(50, size // 8), len(captions["valid"]))
        )
    for language, size in (("fr", 3000), ("it", 12000), ("ru", 2000), ("ja", 4000)):
        write_rows(folder / f"translate/packages-{language}", debian.pairs(language), size)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument(
        "--raw", type=Path, default=Path.home() / ".cache/glassformer/debian", help="of the downloads"
    )
    arguments = parser.parse_args()
    make_all(arguments.folder, arguments.raw)
