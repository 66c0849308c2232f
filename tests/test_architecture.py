"""The promises of the layout: data goes one way, nothing is executed from a file, nothing is ready-made."""

import ast
from pathlib import Path

import pytest

import glassformer

PACKAGE = Path(glassformer.__file__).parent
# One total order: a folder imports itself and those before it. There is no exception.
ORDER = (
    *("core", "config", "tokenizers", "data", "models", "objectives", "training", "evaluation", "generation"),
    *("inspection", "interop", "planning", "tasks", "runs", "tools", "serving", "cli"),
)
ROOT_MODULES = {"__init__.py", "__main__.py"}
NOT_CODE = {"recipes"}
MODULES = sorted(PACKAGE.rglob("*.py"))


def imports(path: Path) -> list[str]:
    """The modules of ours that a file names, wherever in it, also for type checking alone."""
    names: list[str] = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are written out"
            names += [
                f"{node.module}.{a.name}" if node.module == "glassformer" else str(node.module)
                for a in node.names
            ]
        elif isinstance(node, ast.Import):
            names += [a.name for a in node.names]
    return sorted({n for n in names if n.startswith("glassformer.")})


def test_the_root_holds_folders_and_every_folder_has_its_place() -> None:
    assert {p.name for p in PACKAGE.glob("*.py")} == ROOT_MODULES
    folders = {p.name for p in PACKAGE.iterdir() if p.is_dir() and p.name != "__pycache__"}
    assert folders - NOT_CODE <= set(ORDER)
    assert not list((PACKAGE / "recipes").glob("*.py"))


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_each_folder_imports_only_what_stands_before_it(path: Path) -> None:
    folder = path.relative_to(PACKAGE).parts[0]
    place = len(ORDER) if folder in ROOT_MODULES else ORDER.index(folder)  # the root knows them all
    for name in imports(path):
        target = name.split(".")[1]
        assert target in ORDER, f"{path.relative_to(PACKAGE)} imports {name}"
        assert ORDER.index(target) <= place, f"{path.relative_to(PACKAGE)} imports {name}"


@pytest.mark.parametrize(
    "banned",
    [
        "import pickle",
        "torch.save(",
        "torch.load(",
        "allow_pickle=True",
        "yaml.load(",
        "eval(compile",
        "nn.Transformer",
        "nn.MultiheadAttention",
        "__import__(",
    ],
)
def test_nothing_is_executed_from_files_and_nothing_is_ready_made(banned: str) -> None:
    assert [str(p) for p in MODULES if banned in p.read_text(encoding="utf-8")] == []


def test_public_names_are_few_sorted_and_there() -> None:
    assert glassformer.__all__ == sorted(glassformer.__all__)
    for name in glassformer.__all__:
        assert getattr(glassformer, name) is not None
    with pytest.raises(AttributeError):
        _ = glassformer.nothing  # type: ignore[attr-defined]
