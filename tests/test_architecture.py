"""The promises of the layout: data goes one way, nothing is executed from a file, nothing is ready-made."""

from pathlib import Path

import pytest

import glassformer
from tests.scripts import ROOT, load_script

PACKAGE = Path(glassformer.__file__).parent
ROOT_MODULES = {"__init__.py", "__main__.py"}
NOT_CODE = {"recipes"}
MODULES = sorted(PACKAGE.rglob("*.py"))


LAYOUT = load_script("docs/make_layout.py")


def test_the_root_holds_folders_and_every_folder_has_its_place() -> None:
    assert {p.name for p in PACKAGE.glob("*.py")} == ROOT_MODULES
    folders = {p.name for p in PACKAGE.iterdir() if p.is_dir() and p.name != "__pycache__"}
    assert folders - NOT_CODE <= set(LAYOUT.ORDER)
    assert not list((PACKAGE / "recipes").glob("*.py"))


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_each_folder_imports_only_what_stands_before_it(path: Path) -> None:
    folder = path.relative_to(PACKAGE).parts[0]
    place = len(LAYOUT.ORDER) if folder in ROOT_MODULES else LAYOUT.ORDER.index(folder)  # the root knows all
    for name in LAYOUT.imports(path):
        target = name.split(".")[1]
        assert target in LAYOUT.ORDER and LAYOUT.ORDER.index(target) <= place, (
            f"{path.relative_to(PACKAGE)} imports {name}\n\n{LAYOUT.figure()}"
        )


def test_the_picture_in_the_readme_is_current() -> None:
    assert (ROOT / "README.md").read_text(encoding="utf-8") == LAYOUT.readme(), "run `make docs`"


def test_the_picture_shows_what_stands_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LAYOUT, "arrows", lambda: {"core": {"cli"}, "cli": {"core"}})
    assert "imports cli, which stands behind it!" in LAYOUT.figure().splitlines()[0]
    assert LAYOUT.figure().splitlines()[1].split() == ["cli", "●", "└", "cli"]


def test_no_type_is_imported_for_checking_alone_but_to_start_fast() -> None:
    """What hides a real dependency from the running program is none of it."""
    hidden = [p for p in MODULES if "if TYPE_CHECKING" in p.read_text(encoding="utf-8")]
    allowed = {"__init__.py", "cli", "tokenizers"}  # names, commands and compiled loops load when first used
    assert {p.relative_to(PACKAGE).parts[0] for p in hidden} <= allowed


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
