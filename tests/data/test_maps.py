"""The docstring of a folder is its map: it names every file, and none that is not there."""

import re
from pathlib import Path

import pytest

import glassformer

PACKAGE = Path(glassformer.__file__).parent
FOLDERS = ["data", "data/generated", "tokenizers", "tokenizers/fast", "tokenizers/fast/kernels"]


@pytest.mark.parametrize("folder", FOLDERS)
def test_the_map_of_a_folder_names_every_file(folder: str) -> None:
    text = (PACKAGE / folder / "__init__.py").read_text(encoding="utf-8").split('"""')[1]
    lines = [line for line in text.splitlines() if line.startswith("    ")]
    names = {name for line in lines for name in re.findall(r"(?:^ +|;  )(\w+(?:\.py|/))", line)}
    files = {path.name for path in (PACKAGE / folder).glob("*.py")} - {"__init__.py"}
    folders = {f"{path.parent.name}/" for path in (PACKAGE / folder).glob("*/__init__.py")}
    assert names == files | folders
