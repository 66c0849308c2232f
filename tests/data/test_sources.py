"""Where text comes from: splits that are stated, checksums that are checked, and messages that help."""

import hashlib
import io
import threading
import zipfile
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from glassformer.core.errors import DataError
from glassformer.data import sources
from glassformer.data.catalog import DATASETS, File, Published
from glassformer.data.datasets import open_corpus
from glassformer.data.sources import Span
from glassformer.data.splits import divide


def joined(corpus: sources.Corpus, split: str) -> str:
    return "".join(corpus.texts(split))


def test_pydocs_is_there_without_a_download() -> None:
    corpus = open_corpus("pydocs")
    assert 1_500_000 < sum(corpus.bytes(s) for s in corpus.splits) < 5_000_000
    assert 'The "if" statement is used for conditional execution' in joined(corpus, "train") + joined(
        corpus, "valid"
    ) + joined(corpus, "test")
    assert corpus.fingerprint == open_corpus("pydocs").fingerprint
    names = [{span.name for span in corpus.splits[s]} for s in ("train", "valid", "test")]
    assert not names[0] & names[1] and not names[0] & names[2] and not names[1] & names[2]


def test_pydocs_never_imports_what_it_reads() -> None:
    import subprocess
    import sys

    code = (
        "import sys; from glassformer.data.generated.pydocs import documents; documents();"
        "print('antigravity' in sys.modules, 'pydoc_data.topics' in sys.modules)"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.split() == ["False", "False"]


def test_one_file_is_split_at_its_end_and_nothing_is_lost(text_file: Path) -> None:
    corpus = open_corpus(str(text_file), 0.1, 0.05, split="name")
    whole = text_file.read_text()
    assert joined(corpus, "train") + joined(corpus, "valid") + joined(corpus, "test") == whole
    assert corpus.bytes("valid") == pytest.approx(0.1 * len(whole), rel=0.1)
    assert joined(corpus, "valid").startswith("item")  # cut where a line starts
    assert "".join(corpus.whole().texts("all")) == whole


@given(st.text(min_size=40, max_size=400))
def test_splits_never_cut_a_character(text: str) -> None:
    data = text.encode(errors="ignore")
    splits, _ = divide([Span("x", data, 0, len(data))], 0.2, 0.2, "name")
    assert (
        "".join(piece for part in splits.values() for span in part for piece in span.read()) == data.decode()
    )


def test_a_folder_of_many_documents_holds_whole_ones_out(tmp_path: Path) -> None:
    for i in range(60):
        (tmp_path / f"{i:02}.txt").write_text(f"document {i}\n" * 5)
    (tmp_path / "picture.png").write_bytes(b"\x89PNG\0\0\0")
    (tmp_path / ".hidden").write_text("not this")
    corpus = open_corpus(str(tmp_path), 0.2, 0.1)
    names = {s: {span.name for span in spans} for s, spans in corpus.splits.items()}
    assert len(set.union(*names.values())) == 60 == sum(map(len, names.values()))
    assert names["valid"] and names["test"]
    assert "picture.png" in corpus.warnings[0] and "left out" in corpus.warnings[0]


def test_large_text_is_read_in_pieces_that_join_to_the_whole(tmp_path: Path) -> None:
    path = tmp_path / "big.txt"
    line = "Zeile mit Umlauten äöü und 日本語 darin\n  indented\n\nEnde.\n"
    path.write_text(line * 60_000, encoding="utf-8")
    pieces = list(Span("big", path, 0, path.stat().st_size).read())
    assert len(pieces) > 2
    assert "".join(pieces) == line * 60_000
    assert all(piece.startswith("Zeile") for piece in pieces)


def test_a_byte_order_mark_is_no_text(tmp_path: Path) -> None:
    path = tmp_path / "marked.txt"
    path.write_bytes(b"\xef\xbb\xbf" + b"hello there\n" * 50)
    assert joined(open_corpus(str(path), 0.1, 0.1), "train").startswith("hello")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("empty.txt", b"", "is empty"),
        ("mark.txt", b"\xef\xbb\xbf", "is empty"),
        ("binary.bin", b"\x7fELF\0\0\0", "is a binary file"),
        ("latin1.txt", "Grüße".encode("latin-1"), "not UTF-8 text: byte 0xfc near offset 2"),
    ],
)
def test_files_that_are_not_text_are_refused(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=message):
        open_corpus(str(tmp_path / name))


def test_unknown_names_come_with_a_suggestion() -> None:
    with pytest.raises(DataError, match="Did you mean 'shakespeare'"):
        open_corpus("shakespear")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """A web server of our own, so that downloading is tested without a network."""
    root = tmp_path / "www"
    root.mkdir()

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None: ...

    httpd = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(root)))
    threading.Thread(target=httpd.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{httpd.server_address[1]}", root
    httpd.shutdown()
    httpd.server_close()


def _archive(files: dict[str, str]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return buffer.getvalue()


def test_a_named_set_is_downloaded_checked_and_cached(
    server: tuple[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, root = server
    monkeypatch.setenv("GLASSFORMER_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("GLASSFORMER_DATA", raising=False)
    data = _archive({"set/a.tokens": "train text\n", "set/b.tokens": "valid text\n"})
    (root / "set.zip").write_bytes(data)
    dataset = Published(
        about="a test",
        folder="tiny",
        urls=(f"{url}/nowhere.zip", f"{url}/set.zip"),
        files={"train": File("a.txt", None, "set/a.tokens"), "valid": File("b.txt", None, "set/b.tokens")},
        checksum="md5:" + hashlib.md5(data).hexdigest(),
        rule="as published",
    )
    monkeypatch.setitem(DATASETS, "tiny", dataset)
    assert joined(open_corpus("tiny"), "train") == "train text\n"
    (root / "set.zip").unlink()
    assert joined(open_corpus("tiny"), "valid") == "valid text\n"  # from the cache

    monkeypatch.setenv("GLASSFORMER_CACHE", str(tmp_path / "other"))
    (root / "set.zip").write_bytes(data + b"tampered")
    with pytest.raises(DataError, match=r"not the published file.*Nothing was kept"):
        open_corpus("tiny")
    assert list((tmp_path / "other" / "data" / "tiny").iterdir()) == []
    (root / "set.zip").unlink()
    with pytest.raises(DataError, match=r"could not be downloaded.*put a\.txt, b\.txt into"):
        open_corpus("tiny")


def test_a_local_file_that_differs_is_used_with_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tinyshakespeare").mkdir()
    (tmp_path / "tinyshakespeare" / "input.txt").write_text("To be, or not to be\n" * 50)
    monkeypatch.setenv("GLASSFORMER_DATA", str(tmp_path))
    corpus = open_corpus("shakespeare")
    assert "differs from the published one" in corpus.warnings[0]
    assert corpus.bytes("train") == 900 and corpus.bytes("valid") == 100
    assert "test" not in corpus.splits


def test_the_real_shakespeare_has_the_published_checksum(
    shared_data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GLASSFORMER_DATA", str(shared_data))
    corpus = open_corpus("shakespeare")
    assert corpus.warnings == []
    assert (corpus.bytes("train"), corpus.bytes("valid")) == (1_003_854, 111_540)


def test_wikitext_has_its_published_words(shared_data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from glassformer.tokenizers.vocabulary import Word

    monkeypatch.setenv("GLASSFORMER_DATA", str(shared_data))
    corpus = open_corpus("wikitext-2")
    word = Word.train(corpus.texts("train"))
    assert len(word.pieces) + 1 == 33_278  # the data's own <unk> is our unknown word
    ids = [i for text in corpus.texts("valid") for i in word.encode(text)]
    assert len(ids) == 213_886 + 3_760  # words and line ends
    assert corpus.rule == "as published: train, valid and test files"
