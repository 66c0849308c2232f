"""The catalog of named data sets: one table that everything else takes the names from."""

import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

from glassformer.data import generated
from glassformer.data.catalog import DATASETS, Generated, Published, dataset_names

DOCS = Path(__file__).parents[2] / "docs" / "data.md"


def test_names_are_listed_by_task() -> None:
    assert dataset_names("language") == ["pydocs", "repeats", "pronouns", "shakespeare", "wikitext-2"]
    assert dataset_names("tag") == ["pycode"]
    assert sorted(dataset_names()) == sorted(DATASETS)
    assert dataset_names("masked") == []  # a set is listed under the task it was made for


def test_the_names_cost_no_heavy_import() -> None:
    code = (
        "import sys; from glassformer.data.catalog import dataset_names; assert dataset_names();"
        "heavy = {'numpy', 'torch', 'regex', 'urllib.request', 'glassformer.data.datasets'};"
        "print(sorted(heavy & {*sys.modules}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_what_is_made_here_has_a_module_of_its_name_and_the_other_way_round() -> None:
    modules = {path.stem for path in Path(generated.__file__).parent.glob("*.py")} - {"__init__"}
    assert modules == {name for name, dataset in DATASETS.items() if isinstance(dataset, Generated)}
    for name in modules:
        module = importlib.import_module(f"{generated.__name__}.{name}")
        assert callable(module.documents if DATASETS[name].task == "language" else module.examples)


@pytest.mark.parametrize("name", [n for n, d in DATASETS.items() if isinstance(d, Published)])
def test_what_is_published_says_where_and_how_it_is_checked(name: str) -> None:
    dataset = DATASETS[name]
    assert isinstance(dataset, Published) and dataset.rule
    for file in dataset.files.values():
        assert dataset.urls or file.urls
        assert dataset.checksum or file.sha256


def test_the_docs_have_a_row_for_each() -> None:
    rows = re.findall(r"^\| `([\w-]+)` \| (\w+)", DOCS.read_text(encoding="utf-8"), re.MULTILINE)
    assert dict(rows) == {name: d.task for name, d in DATASETS.items()}
    assert len(rows) == len(DATASETS)
