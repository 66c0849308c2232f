"""`pydocs`, the embedded default: the manual and the docstrings that every Python carries.

The sources of the standard library are parsed, never imported, so nothing of them runs. About two megabytes
of English, code examples and reStructuredText; the exact text depends on the version of Python.
"""

import ast
import json
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

from glassformer.core.errors import DataError
from glassformer.core.files import cache_dir, write_atomically
from glassformer.core.strict_json import dump_json

EXCLUDED = {"site-packages", "dist-packages", "test", "tests", "idle_test", "idlelib", "lib2to3"}
EXCLUDED |= {"turtledemo", "ensurepip", "pydoc_data", "__pycache__"}
FORMAT = 1  # of the cached text; raise it when the text is made differently


def documents() -> list[tuple[str, str]]:
    """(name, text) of every topic of the manual and every module with docstrings."""
    library = Path(sysconfig.get_paths()["stdlib"])
    version = sys.version.split()[0]
    cached = cache_dir("pydocs") / f"{sys.implementation.name}-{version}-{FORMAT}.json"
    if cached.is_file():
        return [(name, text) for name, text in json.loads(cached.read_text(encoding="utf-8"))]
    texts = [*_topics(library), *_modules(library)]
    if not texts:
        raise DataError(
            f"no sources of the standard library under {library}, so there is no `pydocs` here. "
            "Name a file or folder of your own: glassformer train my.txt"
        )
    write_atomically(cached, dump_json(texts, ensure_ascii=False))
    return texts


def _topics(library: Path) -> Iterator[tuple[str, str]]:
    """The manual's topics (what `help('if')` shows), one literal dictionary in one file."""
    path = library / "pydoc_data" / "topics.py"
    if not path.is_file():
        return
    for node in ast.parse(path.read_bytes()).body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Dict):
            for name, text in sorted(ast.literal_eval(node.value).items()):
                yield f"topic {name}", text.strip() + "\n"


def _modules(library: Path) -> Iterator[tuple[str, str]]:
    for path in sorted(library.rglob("*.py")):
        relative = path.relative_to(library)
        if EXCLUDED & set(relative.parts):
            continue
        try:
            tree = ast.parse(path.read_bytes())
        except (SyntaxError, ValueError, OSError):
            continue  # a file that this Python cannot parse holds no docstrings for us
        name = ".".join(relative.with_suffix("").parts).removesuffix(".__init__")
        entries = list(_docstrings(tree, name))
        if entries:
            yield f"module {name}", "\n\n".join(entries) + "\n"


def _docstrings(node: ast.AST, name: str) -> Iterator[str]:
    """Each docstring under the line that defines its owner, in the order of the file."""
    if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        text = ast.get_docstring(node)
        if text and text.isprintable() | ("\n" in text):
            yield f"{_heading(node, name)}\n\n{_indent(text)}"
        for child in node.body:
            yield from _docstrings(child, name)


def _heading(node: ast.AST, module: str) -> str:
    match node:
        case ast.ClassDef():
            bases = ", ".join(ast.unparse(b) for b in node.bases)
            return f"class {node.name}({bases})" if bases else f"class {node.name}"
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            return f"def {node.name}({ast.unparse(node.args)})"
        case _:
            return f"module {module}"


def _indent(text: str) -> str:
    return "\n".join(f"    {line}".rstrip() for line in text.splitlines())
