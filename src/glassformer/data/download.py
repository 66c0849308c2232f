"""Data sets on this machine: found where the user keeps them, else downloaded and checked.

A set is looked for under `GLASSFORMER_DATA`, then in the cache, then downloaded; of a download nothing is
kept whose checksum is not the published one.
"""

import gzip
import hashlib
import io
import os
import urllib.error
import urllib.request
import zipfile
from pathlib import Path

from glassformer.core.errors import DataError
from glassformer.core.files import cache_dir, write_atomically
from glassformer.data.catalog import File, Published


def local_file(name: str, dataset: Published, file: File) -> Path:
    """The file on this machine, downloaded if need be."""
    root = os.environ.get("GLASSFORMER_DATA")
    names = [file.name, *([Path(file.member).name] if file.member else [])]
    for folder in [Path(root, dataset.folder)] if root else []:
        for candidate in (folder / n for n in names):
            if candidate.is_file():
                return candidate
    cached = cache_dir("data", dataset.folder) / file.name
    if not cached.is_file():
        download_file(name, dataset, file) if file.urls else download(name, dataset)
    return cached


def download(name: str, dataset: Published) -> None:
    """Fetch a data set that is one download into the cache; nothing is kept whose checksum is wrong."""
    folder = cache_dir("data", dataset.folder)
    data = _fetch(name, dataset, dataset.urls)
    _check(name, dataset, data, dataset.checksum)
    if zipfile.is_zipfile(io.BytesIO(data)):
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            for file in dataset.files.values():
                write_atomically(folder / file.name, archive.read(file.member or file.name))
    else:
        (file,) = dataset.files.values()
        write_atomically(folder / file.name, data)


def download_file(name: str, dataset: Published, file: File) -> None:
    """Fetch one file of a data set into the cache."""
    data = _fetch(name, dataset, file.urls)
    if data[:2] == b"\x1f\x8b":
        data = gzip.decompress(data)
    if file.sha256:
        _check(name, dataset, data, f"sha256:{file.sha256}")
    write_atomically(cache_dir("data", dataset.folder) / file.name, data)


def _fetch(name: str, dataset: Published, urls: tuple[str, ...]) -> bytes:
    reasons: list[str] = []
    for url in urls:
        try:
            request = urllib.request.Request(url, headers={"User-Agent": "glassformer"})
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.read()
        except (urllib.error.URLError, OSError) as error:
            reasons.append(str(getattr(error, "reason", error)))
    raise DataError(
        f"the data set '{name}' could not be downloaded ({'; '.join(reasons)}). {_by_hand(dataset)}"
    )


def _check(name: str, dataset: Published, data: bytes, checksum: str) -> None:
    algorithm, _, expected = checksum.partition(":")
    digest = hashlib.new(algorithm, data).hexdigest()
    if digest != expected:
        raise DataError(
            f"the download of '{name}' is not the published file: {algorithm} {digest}, expected {expected}. "
            f"Nothing was kept. {_by_hand(dataset)}"
        )


def _by_hand(dataset: Published) -> str:
    files = list(dataset.files.values())
    urls = dataset.urls[:1] or tuple(f.urls[0] for f in files)
    return (
        f"Fetch {', '.join(urls)} where there is a network and put "
        f"{', '.join(f.name for f in files)} into {cache_dir('data', dataset.folder)} "
        f"(or into a folder {dataset.folder}/ under the one that GLASSFORMER_DATA names)."
    )
