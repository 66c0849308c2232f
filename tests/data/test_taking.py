"""What a folder gives: which kinds are taken, and every file that is left out, with what to do."""

import gzip
import shlex
import subprocess
from pathlib import Path

import pytest

from glassformer.core.errors import DataError
from glassformer.data.datasets import open_corpus


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("a.txt", "b.md", "c.txt"):
        (tmp_path / name).write_text(f"{name} has text of its own.\n" * 20)
    (tmp_path / "latin 1.txt").write_bytes("Käse\n".encode("latin-1"))
    (tmp_path / "wide.txt").write_bytes("wide".encode("utf-16"))
    (tmp_path / "picture.png").write_bytes(b"\x89PNG\0\0")
    return tmp_path


def test_files_left_out_are_named_with_what_to_do(folder: Path) -> None:
    corpus = open_corpus(str(folder))
    assert corpus.notes == ["3 files are taken for text: 2 .txt, 1 .md"]
    (warning,) = corpus.warnings
    for named in ("3 files", "latin 1.txt (not UTF-8)", "wide.txt (UTF-16)", "picture.png (binary)"):
        assert named in warning
    assert f"iconv -f ISO-8859-1 -t UTF-8 {shlex.quote(str(folder / 'latin 1.txt'))}" in warning
    (folder / "d.jsonl").write_text('{"text": "one"}\n' * 3)  # among records it is the same
    records = open_corpus(str(folder))
    assert records.warnings == corpus.warnings and "1 .jsonl" in records.notes[0]
    assert records.skipped == ["latin 1.txt: not UTF-8", "picture.png: binary", "wide.txt: UTF-16"]


def test_of_many_the_first_are_named_and_the_kinds_counted(folder: Path) -> None:
    for i in range(200):
        (folder / f"{i:03}.dat").write_bytes(b"\0")
    corpus = open_corpus(str(folder))
    (warning,) = corpus.warnings
    assert warning.startswith("203 files are not UTF-8 text and left out: latin 1.txt (not UTF-8), wide.txt")
    assert warning.count(".dat (binary)") == 8
    assert "in all 200 .dat, 2 .txt, 1 .png; the data.json of a run lists them all" in warning
    assert len(corpus.skipped) == 203


def test_a_folder_without_text_says_what_is_in_it(tmp_path: Path) -> None:
    for i in range(2):
        (tmp_path / f"{i}.txt").write_bytes("Käse".encode("latin-1"))
    with pytest.raises(DataError, match=r"holds no text.*2 files are not UTF-8.*0\.txt.*1\.txt.*iconv"):
        open_corpus(str(tmp_path))
    with pytest.raises(DataError, match=r"is not UTF-8 text: byte 0xe4.*iconv"):
        open_corpus(str(tmp_path / "0.txt"))


def test_a_text_that_was_cut_within_a_character_is_told_so(tmp_path: Path) -> None:
    """It is no Latin-1, and to take it for that would spoil every other character; what is said mends it."""
    text = "Zeile – mit Strich.\r\n" * 50
    for extra in (b"\xe2", b"\xe2\x80", "ä".encode()[:1]):
        path = tmp_path / "cut off.txt"
        path.write_bytes(text.encode() + extra)
        with pytest.raises(DataError, match="ends in the middle of a character") as caught:
            open_corpus(str(path))
        command = str(caught.value).partition("Cut that off: ")[2].partition(" > ")[0]
        assert subprocess.run(shlex.split(command), capture_output=True).stdout == text.encode()
    packed = tmp_path / "cut.txt.gz"
    packed.write_bytes(gzip.compress(text.encode() + b"\xe2"))
    with pytest.raises(DataError, match=r"in the middle of a character.*Unpack it"):
        open_corpus(str(packed))
