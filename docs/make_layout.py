"""The picture of the package in the README: its folders, in the order of imports, and who imports whom."""

import ast
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "glassformer"
# One total order: a folder imports itself and those before it. There is no exception.
ORDER = (
    *("core", "config", "tokenizers", "data", "models", "objectives", "training", "evaluation", "generation"),
    *("inspection", "interop", "planning", "tasks", "runs", "lessons", "tools", "serving", "cli"),
)
START, END = "<!-- made by docs/make_layout.py -->\n```text\n", "```\n<!-- until here -->"


def imports(path: Path) -> list[str]:
    """The modules of ours that a file names, wherever in it, also for type checking alone."""
    names: list[str] = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are written out"
            whole = node.module == "glassformer"
            names += [f"{node.module}.{a.name}" if whole else str(node.module) for a in node.names]
        elif isinstance(node, ast.Import):
            names += [a.name for a in node.names]
    return sorted({name for name in names if name.startswith("glassformer.")})


def arrows() -> dict[str, set[str]]:
    """For each folder, those that it imports."""
    folders = [name for name in ORDER if (PACKAGE / name).is_dir()]
    named = {f: {n.split(".")[1] for p in (PACKAGE / f).rglob("*.py") for n in imports(p)} for f in folders}
    return {folder: targets - {folder} for folder, targets in named.items()}


def figure() -> str:
    """A row for each folder, a dot in the column of each that it imports: all left of the stair."""
    targets = arrows()
    folders = list(targets)
    width = max(map(len, folders))
    lines: list[str] = []
    for i, folder in enumerate(folders):
        cells = "".join("  ●" if other in targets[folder] else "  ·" for other in folders[:i])
        wrong = "".join(
            f"  imports {other}, which stands behind it!" for other in folders[i:] if other in targets[folder]
        )
        lines.append(f"{folder:<{width}}{cells}  └ {folder}{wrong}")
    return "\n".join(lines) + "\n"


def readme() -> str:
    """README.md with the figure as it is now."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    before, _, rest = text.partition(START)
    _, _, after = rest.partition(END)
    return f"{before}{START}{figure()}{END}{after}"


if __name__ == "__main__":
    (ROOT / "README.md").write_text(readme(), encoding="utf-8")
