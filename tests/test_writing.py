"""Every place of the package that writes goes through core/files.py: held here, by reading the source."""

import ast
from collections.abc import Iterator
from pathlib import Path

import glassformer

PACKAGE = Path(glassformer.__file__).parent
THE_WAY = {"core/files.py"}
METHODS = {"write_text", "write_bytes", "touch", "mkdir", "unlink", "rename", "symlink_to", "hardlink_to"}
METHODS |= {"rmdir", "chmod", "savefig", "to_csv", "tofile", "rmtree", "save_file", "makedirs", "truncate"}
METHODS |= {"copyfile", "copy2", "copytree", "NamedTemporaryFile", "mkstemp", "mkdtemp", "memmap"}
FUNCTIONS = {
    "os.remove",
    "np.save",
    "json.dump",
    "os.open",
    "os.replace",
    "shutil.move",
    "open_memmap",
    "os.link",
}
NOT_FILES = {  # what looks like writing and is none of ours
    ("core/drawing.py", "self.figure.savefig"): "into memory",
    ("tools/bench/tokenizer_worker.py", "Path('/proc/self/clear_refs').write_text"): "a switch of the kernel",
    ("core/terminal.py", "os.open"): "of nowhere",
    ("core/terminal.py", "open"): "of nowhere",
    ("core/lock.py", "file.truncate"): "of what open_log gave",
    ("data/shard_writer.py", "file.truncate"): "of what open_log gave",
    ("data/shard_writer.py", "np.memmap"): "to read",
    ("data/text_files.py", "os.link"): "a second name for our own file, which never replaces another",
}


def writes(path: Path) -> Iterator[tuple[str, ast.Call]]:
    """Each call of a file that may write, remove or rename, by its name, outside of `with replacing(…)`."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    covered = {id(node) for block in ast.walk(tree) for node in _inside_replacing(block)}
    for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call) and id(node) not in covered):
        name = ast.unparse(call.func)
        method = name.rpartition(".")[2]
        opened = method == "open" and _mode(call, method) & set("wax+")
        renamed = method == "replace" and len(call.args) == 1 and not call.keywords  # a text's takes two
        if method in METHODS or name in FUNCTIONS or opened or renamed:
            yield name, call


def _inside_replacing(block: ast.AST) -> Iterator[ast.AST]:
    """Calls on, or with, the temporary file that `replacing` gave."""
    if not isinstance(block, ast.With):
        return
    names = {
        ast.unparse(item.optional_vars)
        for item in block.items
        if isinstance(item.context_expr, ast.Call)
        and ast.unparse(item.context_expr.func) == "replacing"
        and item.optional_vars
    }
    if not names:
        return
    streams = {
        ast.unparse(item.optional_vars)
        for node in ast.walk(block)
        if isinstance(node, ast.With)
        for item in node.items
        if isinstance(item.context_expr, ast.Call)
        and isinstance(item.context_expr.func, ast.Attribute)
        and ast.unparse(item.context_expr.func.value) in names
        and item.optional_vars
    }
    for call in (node for node in ast.walk(block) if isinstance(node, ast.Call)):
        on = ast.unparse(call.func.value) if isinstance(call.func, ast.Attribute) else ""
        if on in names or any(ast.unparse(a) in names | streams for a in call.args):
            yield call


def _mode(call: ast.Call, method: str) -> set[str]:
    """The mode of a call of open; one that is not written out may be any."""
    if method != "open":
        return set()
    place = 1 if isinstance(call.func, ast.Name) else 0
    named = [k.value for k in call.keywords if k.arg == "mode"]
    given = named or call.args[place : place + 1]
    if given and isinstance(given[0], ast.Constant) and isinstance(given[0].value, str):
        return set(given[0].value)
    return {"w"} if named else set()


def test_all_writing_goes_one_way() -> None:
    found = {
        (str(path.relative_to(PACKAGE)), name)
        for path in PACKAGE.rglob("*.py")
        if str(path.relative_to(PACKAGE)) not in THE_WAY
        for name, _ in writes(path)
    }
    assert found - set(NOT_FILES) == set()
    assert set(NOT_FILES) - found == set()  # no exception outlives its reason


def test_the_search_finds_what_it_should(tmp_path: Path) -> None:
    """Else the test above could not fail."""
    code = tmp_path / "code.py"
    for line in (
        "open(p, 'w')",
        "p.open('ab')",
        "p.open(mode=m)",
        "p.write_text('x')",
        "figure.savefig(p)",
        "np.save(p, a)",
        "p.replace(q)",
        "shutil.rmtree(p)",
        "with replacing(p) as t:\n    p.write_text('x')",
    ):
        code.write_text(line)
        assert len(list(writes(code))) == 1, line
    for line in ("p.open('rb')", "s.replace('a', 'b')", "with replacing(p) as t:\n    t.write_bytes(b'')"):
        code.write_text(line)
        assert list(writes(code)) == [], line
