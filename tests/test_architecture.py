"""The promises of the layout: data goes one way, nothing is executed from a file, nothing is ready-made."""

import ast
from pathlib import Path

import pytest

import glassformer

PACKAGE = Path(glassformer.__file__).parent
FLOW = ["text", "models", "tasks", "training", "evaluation", "generation", "inspection", "serving", "interop"]
FOUNDATION = {"errors", "files", "lock"}  # what every folder may use
CONFIGURATION = {"config", "settings"}  # above the foundation, below the façade; folders only name its types
MODULES = sorted(PACKAGE.rglob("*.py"))


def imports(path: Path) -> list[tuple[str, bool]]:
    """(module of ours, whether only for type checking) for each import in a file."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    typing_only: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            typing_only |= {id(child) for child in ast.walk(node)}
    found: list[tuple[str, bool]] = []
    for node in ast.walk(tree):
        names: list[str] = []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module, *(f"{node.module}.{a.name}" for a in node.names)]
        elif isinstance(node, ast.Import):
            names = [a.name for a in node.names]
        found += [(n, id(node) in typing_only) for n in names if n.startswith("glassformer.")]
    return found


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_each_folder_imports_only_what_stands_left_of_it(path: Path) -> None:
    folder = path.relative_to(PACKAGE).parts[0]
    if folder not in FLOW:
        return  # the façade may know everything
    allowed = set(FLOW[: FLOW.index(folder) + 1]) | FOUNDATION
    for name, typing_only in imports(path):
        target = name.split(".")[1]
        if typing_only:
            target_allowed = target in allowed | CONFIGURATION
        else:
            target_allowed = target in allowed
        assert target_allowed, f"{path.relative_to(PACKAGE)} imports {name}"


def test_every_folder_is_in_the_flow() -> None:
    folders = {p.parent.name for p in PACKAGE.glob("*/__init__.py")}
    assert folders <= set(FLOW) | {"bench", "jobs", "planning"}  # part of the façade: they join the folders


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


def test_files_stay_small_enough_to_read_in_one_sitting() -> None:
    lengths = {str(p.relative_to(PACKAGE)): len(p.read_text().splitlines()) for p in MODULES}
    assert {name: n for name, n in lengths.items() if n > 280} == {}


def test_public_names_are_few_sorted_and_there() -> None:
    assert glassformer.__all__ == sorted(glassformer.__all__)
    for name in glassformer.__all__:
        assert getattr(glassformer, name) is not None
    with pytest.raises(AttributeError):
        _ = glassformer.nothing  # type: ignore[attr-defined]
