"""The data sets that have a name, and the one way from a name or path to a corpus.

A named set is looked for under `GLASSFORMER_DATA`, then in the cache, then downloaded; a download is checked
against its published checksum. A file the user put there is trusted: when its checksum is another one it is
used with a warning, and the run records its fingerprint.
"""

import hashlib
import io
import os
import urllib.error
import urllib.request
import zipfile
from dataclasses import dataclass
from pathlib import Path

from glassformer.errors import DataError, closest
from glassformer.files import cache_dir, write_atomically
from glassformer.text import pydocs
from glassformer.text.sources import (
    Corpus,
    Span,
    character_start,
    divide,
    examine,
    make_corpus,
    own_corpus,
)


@dataclass(frozen=True)
class File:
    """One file of a data set: its name here, and its checksum where that is published."""

    name: str
    sha256: str | None = None
    member: str | None = None  # its path inside the archive, when the download is one


@dataclass(frozen=True)
class DataSet:
    about: str
    folder: str
    urls: tuple[str, ...]  # tried in turn
    files: dict[str, File]  # split → file; "all" for one that is divided here
    checksum: str = ""  # algorithm:digest of the download
    valid: float = 0.0  # share of "all" that is validation
    rule: str = ""


DATASETS = {
    "shakespeare": DataSet(
        about="Tiny Shakespeare, 1.1 MB of plays",
        folder="tinyshakespeare",
        urls=("https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt",),
        files={"all": File("input.txt", "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed")},
        checksum="sha256:86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed",
        valid=0.1,
        rule="the first 90 % train, the last 10 % valid; no test split",
    ),
    "wikitext-2": DataSet(
        about="WikiText-2, 2 million words of Wikipedia with rare words as <unk>",
        folder="wikitext-2",
        urls=(
            "https://wikitext.smerity.com/wikitext-2-v1.zip",
            "https://s3.amazonaws.com/research.metamind.io/wikitext/wikitext-2-v1.zip",
        ),
        files={
            "train": File("train.txt", None, "wikitext-2/wiki.train.tokens"),
            "valid": File(
                "valid.txt",
                "f0737ed31fc1329026e95cb8b98e19c2a182c39c240ab909dc31abf2f8af58e8",
                "wikitext-2/wiki.valid.tokens",
            ),
            "test": File(
                "test.txt",
                "d790b833ef8cf03a90db7bf1271b7520b83c45ce07ba3c1a9699df81e239eca0",
                "wikitext-2/wiki.test.tokens",
            ),
        },
        checksum="md5:542ccefacc6c27f945fb54453812b3cd",
        rule="as published: train, valid and test files",
    ),
}

NAMES = ["pydocs", *DATASETS]


def open_corpus(source: str, valid: float = 0.05, test: float = 0.05) -> Corpus:
    """The corpus that a SOURCE stands for: a path, `-`, or the name of a data set."""
    if source == "pydocs":
        return _pydocs_corpus(valid, test)
    if source in DATASETS and not Path(source).exists():
        return _named_corpus(source, DATASETS[source])
    if source != "-" and not Path(source).expanduser().exists():
        hint = closest(source, NAMES)
        raise DataError(
            f"there is no file, folder or data set '{source}'.{hint} Data sets: {', '.join(NAMES)}."
        )
    return own_corpus(source, valid, test)


def _pydocs_corpus(valid: float, test: float) -> Corpus:
    documents = pydocs.documents()
    spans = [Span(name, data := text.encode(), 0, len(data)) for name, text in documents]
    splits, rule = divide(spans, valid, test)
    digests = [hashlib.sha256(text.encode()).hexdigest() for _, text in documents]
    return make_corpus("pydocs", splits, rule, digests)


def _named_corpus(name: str, dataset: DataSet) -> Corpus:
    warnings: list[str] = []
    splits: dict[str, list[Span]] = {}
    digests: list[str] = []
    for split, file in dataset.files.items():
        path = _local_file(name, dataset, file)
        digest = examine(path, str(path))
        digests.append(digest)
        if digest != file.sha256:
            known = "differs from the published one" if file.sha256 else "is not published"
            warnings.append(f"{path}: its checksum {known}; used as it is (sha256 {digest[:16]}…)")
        size = path.stat().st_size
        if split == "all":
            cut = character_start(Span(file.name, path, 0, size), int(size * (1 - dataset.valid)))
            splits = {"train": [Span(file.name, path, 0, cut)], "valid": [Span(file.name, path, cut, size)]}
        else:
            splits[split] = [Span(file.name, path, 0, size)]
    return make_corpus(name, splits, dataset.rule, digests, warnings)


def _local_file(name: str, dataset: DataSet, file: File) -> Path:
    """The file on this machine, downloaded if need be."""
    given = os.environ.get("GLASSFORMER_DATA")
    names = [file.name, *([Path(file.member).name] if file.member else [])]
    for folder in [Path(given, dataset.folder)] if given else []:
        for candidate in (folder / n for n in names):
            if candidate.is_file():
                return candidate
    cached = cache_dir("data", dataset.folder) / file.name
    if not cached.is_file():
        download(name, dataset)
    return cached


def download(name: str, dataset: DataSet) -> None:
    """Fetch a data set into the cache; nothing is kept whose checksum is wrong."""
    folder = cache_dir("data", dataset.folder)
    by_hand = (
        f"Fetch {dataset.urls[0]} where there is a network and put "
        f"{', '.join(f.name for f in dataset.files.values())} into {folder} "
        f"(or into a folder {dataset.folder}/ under the one that GLASSFORMER_DATA names)."
    )
    data, reasons = b"", []
    for url in dataset.urls:
        try:
            request = urllib.request.Request(url, headers={"User-Agent": "glassformer"})
            with urllib.request.urlopen(request, timeout=60) as answer:
                data = answer.read()
            break
        except (urllib.error.URLError, OSError) as error:
            reasons.append(str(getattr(error, "reason", error)))
    else:
        raise DataError(f"the data set '{name}' could not be downloaded ({'; '.join(reasons)}). {by_hand}")
    algorithm, _, expected = dataset.checksum.partition(":")
    found = hashlib.new(algorithm, data).hexdigest()
    if found != expected:
        raise DataError(
            f"the download of '{name}' is not the published file: {algorithm} {found}, expected {expected}. "
            f"Nothing was kept. {by_hand}"
        )
    if zipfile.is_zipfile(io.BytesIO(data)):
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            for file in dataset.files.values():
                write_atomically(folder / file.name, archive.read(file.member or file.name))
    else:
        (file,) = dataset.files.values()
        write_atomically(folder / file.name, data)
