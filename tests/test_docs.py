"""The docs are code: README's commands and examples run, its links lead somewhere, its tables are current."""

import gzip
import json
import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.forked import run_forked
from tests.pictures import write_pictures
from tests.scripts import load_script

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
# Training is cut short here; everything else in the README runs as written.
SHORT = "--set training.steps=4 --set training.batch=4 --set model.width=32 --set model.layers=1 "
SHORT += "--set model.heads=2 --set training.eval_every=4"


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(encoding="utf-8"), re.M | re.S)


EXECUTED = [
    "README.md",
    *(
        f"docs/{name}.md"
        for name in (
            "assignment",
            "data",
            "generation",
            "looking-inside",
            "models",
            "questions",
            "tokenizer",
            "training",
        )
    ),
]


@pytest.mark.parametrize("page", EXECUTED)
def test_the_commands_of_a_page_run(page: str, tmp_path: Path) -> None:
    (tmp_path / "my.txt").write_text("A line of my own text, which is not long.\n" * 400)
    reviews = [f"{w} film {i}\t{label}" for i in range(60) for w, label in (("good", "1"), ("bad", "0"))]
    (tmp_path / "reviews.tsv").write_text("\n".join(reviews))
    ratings = "".join(f"{i},{row[:-2]},{row[-1]}\n" for i, row in enumerate(reviews))
    (tmp_path / "ratings.csv").write_text(f"id,review,stars\n{ratings}")
    weather = [[("sun", "rain", "snow", "fog")[i // 4**k % 4] for k in range(4)] for i in range(200)]
    tagged = "\n".join("".join(f"{w}\t{'good' if w == 'sun' else 'bad'}\n" for w in days) for days in weather)
    for name in ("past", "future"):
        (tmp_path / f"{name}.tsv").write_text(tagged)
    for side in ("en", "de"):
        (tmp_path / f"book.{side}").write_text("\n".join(f"line {i} in {side}" for i in range(200)))
    vectors = [f"{word} {' '.join([str(i)] * 32)}" for i, word in enumerate(("good", "bad", "film"))]
    (tmp_path / "vectors.txt").write_text("\n".join(vectors))
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "one.txt").write_text("Another text of mine.\n" * 400)
    (tmp_path / "marks.yaml").write_text("".join(blocks(ROOT / "docs" / "looking-inside.md", "yaml")))
    write_pictures(tmp_path / "photos", 60)
    shutil.copy(tmp_path / "photos" / "lying" / "0.png", tmp_path / "new.png")
    for label in ("circle", "cross"):
        shutil.copytree(tmp_path / "photos" / "lying", tmp_path / "shapes" / label)
    (tmp_path / "crawl").mkdir()
    pages = [f"Page {i} says that {i % 7} is not {i % 5}.\n" * 4 for i in range(300)]
    rows = "".join(json.dumps({"text": page, "content": page}) + "\n" for page in pages)
    (tmp_path / "pages.jsonl.gz").write_bytes(gzip.compress(rows.encode()))
    (tmp_path / "crawl" / "a.jsonl").write_text(rows.replace("says", "claims"))
    lines = "\n".join(blocks(ROOT / page, "sh")).replace("\\\n", " ").splitlines()
    commands = [line.split("   #")[0].strip() for line in lines if line.startswith("glassformer ")]
    commands = [
        c for c in commands if not c.endswith("&")
    ]  # a server; tests/serving asks it what the page does
    assert len(commands) >= 5
    data = Path(os.environ.get("GLASSFORMER_DATA", ROOT.parent / "shared" / "data"))
    environment = {**os.environ, "GLASSFORMER_DATA": str(data)}
    if not data.is_dir():  # without a network, what needs a download is left out
        needing = ("shakespeare", "sst2", "multi30k")
        commands = [c for c in commands if not any(name in c for name in needing)]
    for command in commands:
        arguments = shlex.split(command.replace("training.seed=0,1,2", "training.seed=0"))[1:]
        if arguments[0] == "train":
            arguments += SHORT.split()
        typed = "A line\n" if arguments[0] == "chat" else ""
        done = run_forked(*arguments, cwd=tmp_path, env=environment, input=typed)
        assert done.returncode == 0, f"{command}\n{done.stderr}"
        assert done.stdout, command  # a translation by an untrained model may be an empty line


@pytest.mark.long
def test_the_trainings_behind_the_questions_run(tmp_path: Path, shared_data: Path) -> None:
    """At full length, as the page has them: its figures are theirs."""
    text = "\n".join(blocks(ROOT / "docs" / "questions.md", "text")).replace("\\\n", " ")
    commands = [line for line in text.splitlines() if line.startswith("glassformer ")]
    assert len(commands) >= 6
    for command in commands:
        environment = {**os.environ, "GLASSFORMER_DATA": str(shared_data)}
        done = run_forked(*shlex.split(command)[1:], cwd=tmp_path, env=environment)
        assert done.returncode == 0, f"{command}\n{done.stderr}"
    for command in ("eval runs/tuned --pairs default", "why repetition runs/base", "eval runs/dates --json"):
        done = run_forked(*command.split(), cwd=tmp_path, env=environment)
        assert done.returncode == 0 and done.stdout, f"{command}\n{done.stderr}"


@pytest.mark.parametrize("page", [str(p.relative_to(ROOT)) for p in PAGES if blocks(p, "python")])
def test_the_python_of_a_page_runs(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my.txt").write_text("A line of my own text, which is not long.\n" * 400)
    monkeypatch.chdir(tmp_path)
    examples = blocks(ROOT / page, "python")
    assert examples
    for example in examples:
        exec(compile(example, page, "exec"), {})


def test_the_readmes_make_targets_exist() -> None:
    named = set(re.findall(r"`make ([a-z-]+)`|^make ([a-z-]+)", (ROOT / "README.md").read_text(), re.M))
    targets = {a or b for a, b in named}
    assert {"demo", "test"} <= targets
    for target in targets:
        done = subprocess.run(["make", "-n", target], cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_the_table_of_settings_is_current() -> None:
    page = load_script("docs/make_settings.py").page()
    assert (ROOT / "docs" / "settings.md").read_text(encoding="utf-8") == page, "run `make docs`"


def test_recipes_are_complete_and_state_what_they_reach() -> None:
    import yaml

    from glassformer.config.recipes import RECIPES, load_recipe, load_variants, merge, recipe_names
    from glassformer.config.schema import build

    assert recipe_names()
    for name in recipe_names():
        content = yaml.safe_load((RECIPES / f"{name}.yaml").read_text(encoding="utf-8"))
        assert set(content) - {"variants"} == {"about", "reaches", "cost", "settings"}, name
        assert "to be measured" not in content["reaches"] + content["cost"]
        for variant in (load_variants(name) or {"": {}}).values():
            build(merge(load_recipe(name), variant))
