"""What was probably meant: a word for each argument that people get wrong, with the command that works."""

import sys
from pathlib import Path
from shlex import join, quote
from typing import Any

from glassformer.core.files import user_path
from glassformer.runs.folder import is_run

STEPS = "A training is measured in steps or minutes: --set training.steps=N, --set training.minutes=M."
OPTIONS: dict[str, dict[str, str]] = {  # by command: what is said elsewhere, and what it is called here
    "generate": {
        **dict.fromkeys(("length", "max-tokens", "max-new-tokens", "max-length", "num-tokens"), "--tokens"),
        **dict.fromkeys(("samples", "num-samples", "count", "number"), "--n"),
        **dict.fromkeys(("temp", "t"), "--temperature"),
        **dict.fromkeys(("k", "topk"), "--top-k"),
        **dict.fromkeys(("p", "topp"), "--top-p"),
        **dict.fromkeys(("beam", "num-beams", "beam-size"), "--beams"),
        "prompt": "the second word: glassformer generate RUN PROMPT",
    },
    "train": {
        **dict.fromkeys(("output", "output-dir", "o", "dir", "run", "name", "save"), "--out"),
        **dict.fromkeys(("checkpoint", "load", "from", "pretrained"), "--init"),
        **dict.fromkeys(("config", "preset"), "--recipe"),
        "continue": "--resume",
        "resume-from": "--out RUN --resume",
    },
    "translate": dict.fromkeys(("beam", "num-beams", "beam-size"), "--beams"),
    "eval": {"test": "--split test", "valid": "--split valid", "beam": "--beams"},
    "look": {"length": "--tokens", "output": "--html", "out": "--html"},
    "compare": dict.fromkeys(("output", "out", "plot", "plots"), "--html compare.html"),
}
TEXTS = {"generate": "the prompt", "translate": "the text", "fill": "the text", "look": "the text"}


def hint(error: Any) -> str | None:
    """A sentence after a wrong usage that the parser of the command line found."""
    context = error.ctx
    if context is None:
        return None
    command = context.info_name
    if option := getattr(error, "option_name", None):
        return _of_option(command, option)
    if "unexpected extra argument" in str(getattr(error, "message", "")):
        return _of_words(command, context.params, _extra_words(error.message))
    return None


def _of_option(command: str, option: str) -> str | None:
    name, value = option.lstrip("-"), _value_of(option)
    if command in ("train", "plan") and name in ("epochs", "epoch", "num-epochs"):
        return STEPS
    if name in OPTIONS.get(command, {}):
        flag = OPTIONS[command][name]
        return f"It is called {flag} here{f': {flag} {quote(value)}' if value and ' ' not in flag else ''}."
    if command in ("train", "plan"):
        from glassformer.config.schema import meant_setting

        if key := meant_setting(name):
            return f"It is a setting: --set {key}={quote(value) if value else '…'}"
    return None


def _value_of(option: str) -> str:
    """What was given to an option, as far as one can tell."""
    for i, word in enumerate(sys.argv):
        if word == option:
            following = sys.argv[i + 1] if i + 1 < len(sys.argv) else ""
            return "" if following.startswith("-") else following
        if word.startswith(f"{option}="):
            return word.partition("=")[2]
    return ""


def _extra_words(message: str) -> list[str]:
    """The words behind 'Got unexpected extra arguments (a b)', which may have blanks in them."""
    said = message.replace("argument(s)", "arguments").partition("(")[2].removesuffix(".").removesuffix(")")
    words = [word for word in sys.argv[1:] if word in said]
    return next((words[i:] for i in range(len(words)) if " ".join(words[i:]) == said), said.split())


def _of_words(command: str, params: dict[str, Any], extra: list[str]) -> str | None:
    if command == "train":
        return _of_sources([params["source"], *extra] if params.get("source") else extra)
    run = params.get("run")
    if command == "eval" and run:
        if all(is_run(Path(word)) for word in extra):
            return f"Several runs are compared: glassformer compare {join([run, *extra])}"
        return f"Other data is named so: glassformer eval {quote(run)} --data {quote(extra[0])}"
    if command in TEXTS and run:
        text = " ".join([str(params.get("prompt") or params.get("text") or ""), *extra])
        return f"Put {TEXTS[command]} in quotes: glassformer {command} {quote(run)} {quote(text)}"
    return None


def _of_sources(words: list[str]) -> str:
    whole = " ".join(words)
    if user_path(whole).exists():
        return f"Put the name in quotes: glassformer train {quote(whole)}"
    if runs := [word for word in words if is_run(Path(word))]:
        run = quote(runs[0])
        return (
            f"{runs[0]} is a run: to go on with it --out {run} --resume, to begin with its weights "
            f"--init {run}."
        )
    folders, endings = {str(Path(w).parent) for w in words}, {Path(w).suffix for w in words}
    pattern = "texts/*.txt"
    if len(folders) == len(endings) == 1 and all(user_path(w).is_file() for w in words):
        pattern = str(Path(folders.pop()) / f"*{endings.pop()}")
    return (
        "Several files are one source as a pattern in quotes, or as their folder: "
        f"glassformer train {quote(pattern)}. The other language of pairs is named by --target."
    )


def swapped(path: str) -> str:
    """What to say of a word that is no run where a later word of the command is one; else nothing."""
    words = sys.argv[1:]
    if any(word.startswith("-") for word in words[1:]):
        return ""  # a word behind a flag is the flag's
    other = next((w for w in words if w != path and is_run(Path(w))), None)
    if other is None or path not in words:
        return ""
    i, j = words.index(path), words.index(other)
    if j < i:
        return ""
    words[i], words[j] = other, path
    if words[0] == "eval":
        words.insert(j, "--data")
    return f"{path} is no run directory, and {other} is: the run comes first. glassformer {join(words)}"
