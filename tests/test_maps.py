"""The docstring of a folder is its map: it names every file, and none that is not there."""

import ast
import re
from pathlib import Path

import pytest

import glassformer

PACKAGE = Path(glassformer.__file__).parent
FOLDERS = sorted(path.parent for path in PACKAGE.rglob("*/__init__.py"))


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_the_map_of_a_folder_names_every_file(folder: Path) -> None:
    docstring = ast.get_docstring(ast.parse((folder / "__init__.py").read_text(encoding="utf-8"))) or ""
    lines = [line for line in docstring.splitlines() if line.startswith("    ")]
    names = [name for line in lines for name in re.findall(r"(?:^ +|;  )(\w+(?:\.py|/))", line)]
    files = [path.name for path in folder.glob("*.py") if path.name != "__init__.py"]
    folders = [f"{path.parent.name}/" for path in folder.glob("*/__init__.py")]
    assert sorted(names) == sorted([*files, *folders])
