"""In whose words a message tells the user what to do: those of the command line, or those of Python.

Messages are written once, in the words of the command line (`--set model.layers=4`, `--out`, `--resume`).
Where a program of the user's speaks to us, they are shown in its words: `settings={"model.layers": 4}`,
`out=`, `resume=True`. Only flags and commands are changed, nothing else of a message.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager

_speaker = ["python"]  # who is spoken to; the command line puts itself on top

SWITCHES = ("--resume", "--maps", "--errors", "--greedy", "--json")
NAMES = {"--sweep": "grid", "--set": "settings", "--top": "k"}
SETTINGS = {"--text-column": "data.text_column", "--label-column": "data.label_column"}  # only settings there
METHODS = {"generate", "translate", "classify", "fill", "look"}  # of a run
WORDS = {
    "--task": "language|masked|classify|tag|translate",
    "--gpu": r"[\w-]+",
}  # values that look like prose
# A value, where one follows: a path, a number, an assignment, a placeholder; prose goes on after a flag too.
VALUE = (
    r"'[^']*'|[^\s,;:()]*[/\d=…][^\s,;:()]*?(?=[.,;:)]*(?:\s|$))|\w[\w-]*\.[a-z]{1,5}\b|[A-Z]+(?:\.[A-Z]+)?\b"
)
_SETTINGS = re.compile(r"--set ([\w.]+)=(\S+?)(?=[.,;:)]*(?:\s|$))")
_SEVERAL = re.compile(r"(settings=\{[^{}]*)\} settings=\{")
_FLAG = re.compile(r"(?<![\w-])(--[a-z][a-z-]+)\b")
# What may stand in a command: a text in quotes, a flag with its value, a path, a placeholder; prose ends it.
_ARGUMENT = "|".join(
    (
        r"\"[^\"]*\"|'[^']*'",
        r"--[a-z-]+ (?:\"[^\"]*\"|'[^']*'|(?!-)[^\s;]+)|--[a-z-]+",
        r"[A-Z]{2,}\b|…|-(?=\s|$)",
        r"[^\s;,]*[/\d=][^\s;,]*|\w[\w-]*\.[a-z]{1,5}\b",
    )
)
_COMMAND = re.compile(rf"(?<![\w/`.-])glassformer (tokenizer train|[a-z]+)((?: (?:{_ARGUMENT}))*)")


@contextmanager
def command_line_speaks() -> Iterator[None]:
    """Messages that are shown meanwhile keep the words of the command line."""
    _speaker.append("command line")
    try:
        yield
    finally:
        _speaker.pop()


def worded(message: str) -> str:
    """A message in the words of whoever is spoken to."""
    return in_python(message) if _speaker[-1] == "python" else message


def in_python(message: str) -> str:
    """`--set model.layers=4` as `settings={"model.layers": 4}`, and so on."""
    message = _COMMAND.sub(_call, message)
    message = _SETTINGS.sub(lambda m: f'settings={{"{m[1]}": {_literal(m[2])}}}', message)
    while _SEVERAL.search(message):
        message = _SEVERAL.sub(r"\1, ", message)
    pieces, end = [], 0
    for match in _FLAG.finditer(message):
        if match.start() < end:
            continue
        pieces.append(message[end : match.start()])
        text, used = _keyword(match[1], message[match.end() :])
        pieces.append(text)
        end = match.end() + used
    return "".join([*pieces, message[end:]])


def _keyword(flag: str, rest: str) -> tuple[str, int]:
    """A flag as an argument, and how much of what follows is its value."""
    if flag in SWITCHES:
        return f"{_name(flag)}=True", 0
    value = re.match(f" ({WORDS.get(flag, VALUE)})", rest)
    if flag in SETTINGS:
        given = _literal(value[1]) if value else "…"
        return f'settings={{"{SETTINGS[flag]}": {given}}}', value.end() if value else 0
    if value is None:
        return f"{_name(flag)}=", 0
    if flag == "--sweep":
        key, equals, values = value[1].partition("=")
        listed = ", ".join(_literal(v) for v in values.split(","))
        return (f'grid={{"{key}": [{listed}]}}' if equals else f"grid {value[1]}"), value.end()
    return f"{_name(flag)}={_literal(value[1])}", value.end()


def _name(flag: str) -> str:
    return NAMES.get(flag, flag.removeprefix("--").replace("-", "_"))


def _literal(value: str) -> str:
    """As Python writes it: numbers and what stands for something bare, all else in quotes."""
    value = value.strip("'")
    if re.fullmatch(r"-?[\d.]+(?:e-?\d+)?|…|[A-Z]", value):
        return value
    if value.lower() in ("true", "false"):
        return value.capitalize()
    return f'"{value}"'


def _call(match: re.Match[str]) -> str:
    """`glassformer train TEXT --out runs/mine` as `gf.train("TEXT", out="runs/mine")`."""
    command, words = match[1], re.findall(r"\"[^\"]*\"|'[^']*'|\S+", match[2])
    stop = "." if words and words[-1].endswith(".") and len(words[-1]) > 1 else ""
    if stop:
        words[-1] = words[-1].removesuffix(".")
    arguments: list[str] = []
    settings: list[str] = []
    while words:
        word = words.pop(0).strip("\"'")
        if not word.startswith("--"):
            arguments.append(f'"{word}"')
        elif word in SWITCHES or not words or words[0].startswith("--"):
            arguments.append(f"{_name(word)}=True")
        else:
            value = words.pop(0).strip("\"'")
            if word == "--set":
                key, _, setting = value.partition("=")
                settings.append(f'"{key}": {_literal(setting)}')
            else:
                arguments.append(f"{_name(word)}={_literal(value)}")
    if settings:
        arguments.append(f"settings={{{', '.join(settings)}}}")
    if command == "tokenizer train":
        path = next((a.partition("=")[2] for a in arguments if a.startswith("out=")), '"tokenizer.json"')
        return f"gf.BPE.train(texts, vocab=1024).save({path}){stop}"
    if command in METHODS:
        run, *rest = arguments or ['"RUN"']
        return f"gf.load({run}).{command}({', '.join(rest) or '…'}){stop}"
    if command in ("train", "compare", "plan"):
        return f"gf.{command}({', '.join(arguments)}){stop}"
    return match[0]
