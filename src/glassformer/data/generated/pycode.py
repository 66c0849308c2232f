"""`pycode`: the words of a line of the standard library → keyword, call, attribute, …"""

import ast
import io
import sysconfig
import tokenize
from collections.abc import Iterator
from pathlib import Path

from glassformer.data.examples import Example, Examples, divide_examples

HELD_OUT = 0.1  # share of validation, and of test
CODE_LINES = 15_000


def examples() -> Examples:
    """Lines from all over the library, each word with what it is there."""
    library = Path(sysconfig.get_paths()["stdlib"])
    lines: list[Example] = []
    for path in sorted(library.glob("*.py")):
        try:
            text = path.read_text(encoding="utf-8")
            lines += _tagged_lines(text)
        except (SyntaxError, ValueError, OSError, tokenize.TokenError):
            continue  # a file that this Python cannot parse has no tags
    step = max(1, len(lines) // CODE_LINES)
    splits, rule = divide_examples(lines[::step], HELD_OUT, HELD_OUT)
    return Examples("pycode", splits, rule)


def _tagged_lines(text: str) -> Iterator[Example]:
    roles = dict(_roles(ast.parse(text)))
    words: list[str] = []
    tags: list[str] = []
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.NEWLINE:
            if 4 <= len(words) <= 40:
                yield words, tags
            words, tags = [], []
        elif token.type in (tokenize.NAME, tokenize.NUMBER, tokenize.STRING, tokenize.OP):
            kind = {tokenize.NUMBER: "number", tokenize.STRING: "string", tokenize.OP: "operator"}
            words.append(token.string if token.type != tokenize.STRING else token.string[:12])
            tags.append(kind.get(token.type) or roles.get((token.start, token.string), "keyword"))


def _roles(tree: ast.AST) -> Iterator[tuple[tuple[tuple[int, int], str], str]]:
    """((line, column), name) → what the name is there."""
    called = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    for node in ast.walk(tree):
        match node:
            case ast.Name():
                yield ((node.lineno, node.col_offset), node.id), "call" if id(node) in called else "variable"
            case ast.Attribute():
                column = (node.end_col_offset or 0) - len(node.attr)
                role = "method" if id(node) in called else "attribute"
                yield ((node.end_lineno or 0, column), node.attr), role
            case ast.arg():
                yield ((node.lineno, node.col_offset), node.arg), "parameter"
            case ast.keyword() if node.arg:
                yield ((node.lineno, node.col_offset), node.arg), "parameter"
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                word = 6 if isinstance(node, ast.ClassDef) else 4
                role = "class" if word == 6 else "function"
                yield ((node.lineno, node.col_offset + word), node.name), role
            case ast.alias():
                yield ((node.lineno, node.col_offset), node.name.split(".")[0]), "module"
            case _:
                pass
