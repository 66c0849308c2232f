"""Commands that use a trained model: generate, translate, classify, fill."""

from pathlib import Path
from shlex import quote
from typing import Annotated

import typer

from glassformer.cli import console
from glassformer.cli.answers import put_filled
from glassformer.cli.opening import RunPath, check_task_of, open_run, warn_unseen
from glassformer.generation.limits import BEAMS, LENGTH_PENALTY

LONGEST_NAME = 255  # of a file
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on standard output.")]
Text = Annotated[
    str, typer.Argument(metavar="TEXT", help="The text; - (or nothing) reads lines from standard input.")
]

use_app = typer.Typer(rich_markup_mode=None)


@use_app.command(
    epilog="""Examples:

  glassformer generate runs/mine "Once upon a time"

  glassformer generate runs/mine "ROMEO:" --temperature 0.8 --top-p 0.95 --n 3

  glassformer generate runs/mine "The " --beams 5 --tokens 20

  glassformer generate runs/mine "def " --greedy --stop "\\n\\n" """,
)
@console.command
def generate(
    run: RunPath,
    prompt: Annotated[str, typer.Argument(help="What to go on from; - reads standard input.")] = "",
    tokens: Annotated[int, typer.Option(min=1, help="Tokens to write at most.")] = 200,
    temperature: Annotated[
        float | None,
        typer.Option(help="Below 1 safer, above 1 wilder; 0.8 if not given.", show_default=False),
    ] = None,
    top_k: Annotated[int | None, typer.Option(help="Draw among the K likeliest tokens.")] = None,
    top_p: Annotated[
        float | None, typer.Option(help="Draw among the likeliest tokens that together have probability P.")
    ] = None,
    min_p: Annotated[
        float | None, typer.Option(help="Draw among tokens at least P times as likely as the likeliest.")
    ] = None,
    repetition_penalty: Annotated[
        float | None,
        typer.Option(help="Above 1: what was said before becomes less likely.", show_default=False),
    ] = None,
    greedy: Annotated[bool, typer.Option("--greedy", help="Always take the likeliest token.")] = False,
    stop: Annotated[
        list[str] | None, typer.Option(help="End before this text; repeatable; \\n is a new line.")
    ] = None,
    beams: Annotated[
        int | None,
        typer.Option(
            min=1, help="Beam search for the likeliest text instead, this many beginnings at a time."
        ),
    ] = None,
    n: Annotated[int, typer.Option("--n", min=1, help="How many texts.")] = 1,
    seed: Annotated[
        int | None, typer.Option(help="For the same text again; --json says the one that was drawn.")
    ] = None,
    json_: Json = False,
) -> None:
    """Let a run write: one token at a time, each fed back in."""
    from glassformer.core.errors import UsageError
    from glassformer.generation.limits import check_drawing, refuse_with_beams

    drawing = {"temperature": temperature, "top-k": top_k, "top-p": top_p, "min-p": min_p, "seed": seed}
    if beams is not None:
        named = {f"--{name}": value for name, value in drawing.items()}
        named["--repetition-penalty"] = repetition_penalty
        refuse_with_beams(**named, **{"--greedy": greedy or None, "--stop": stop})
        if n > beams:
            raise UsageError(f"--n {n}: {beams} beams end in {beams} texts; ask for at most as many")
    if greedy and any(value is not None for value in drawing.values()):
        raise UsageError("--greedy always takes the best token: leave out what is said about drawing")
    default = 0.0 if greedy else 0.8
    chosen = default if temperature is None else temperature
    check_drawing(chosen, top_k, top_p, min_p, seed, repetition_penalty or 1.0)
    check_task_of(run, ("language",), "language")
    if "" in (stop or []):
        raise UsageError('--stop: expected a text to end before, such as "\\n\\n" for the end of a paragraph')
    stops = [s.replace("\\r\\n", "\n").replace("\\n", "\n").replace("\\t", "\t") for s in stop or []]
    if prompt == "-":
        prompt = console.read_input()
    opened = open_run(run)
    unseen = warn_unseen(opened, prompt)
    if beams is not None:
        console.phase("Searching")
        _generate_by_beams(opened.search(prompt, tokens, beams)[:n], prompt, unseen, json_)
        return
    from glassformer.generation.sampling import Sampler
    from glassformer.generation.stream import Text

    sampler = Sampler(chosen, top_k, top_p, min_p, seed, repetition_penalty or 1.0).with_seed()
    written: list[Text] = []
    parts = opened.stream(prompt, tokens, sampler=sampler, n=n, stop=stops, on_text=written.extend)
    if n == 1 and not json_:  # on the terminal as it is written
        console.put(prompt, end="")
        for pieces in parts:
            console.put(pieces[0], end="")
        console.put("")
    else:
        console.phase("Writing")
        for _ in parts:
            pass
    cut = bool(stops) and not all(text.ended for text in written)
    if cut:
        console.note(
            f"Note: ended by --tokens {tokens} before the text of --stop came; more tokens write on."
        )
    texts = [text.text for text in written]
    if json_:
        found = {"prompt": prompt, "texts": texts, "seed": sampler.seed, "unseen": unseen, "cut": cut}
        console.put_json(found)
        return
    for number, text in enumerate(texts if n > 1 else (), start=1):
        console.put(f"--- {number} ---\n{prompt}{text}")


def _generate_by_beams(
    hypotheses: list[tuple[str, float]], prompt: str, unseen: list[str], json_: bool
) -> None:
    if json_:
        texts, scores = zip(*hypotheses, strict=True)
        console.put_json({"prompt": prompt, "texts": texts, "scores": scores, "unseen": unseen})
    elif len(hypotheses) == 1:
        console.put(prompt + hypotheses[0][0])
    else:
        for number, (text, score) in enumerate(hypotheses, start=1):
            console.put(f"--- {number}: log-probability {score:.3f} ---\n{prompt}{text}")


@use_app.command(
    epilog="""Examples:

  glassformer translate runs/dates "the third of March, nineteen eighty-seven"

  glassformer translate runs/multi30k < english.txt > german.txt""",
)
@console.command
def translate(
    run: RunPath,
    text: Text = "-",
    beams: Annotated[
        int,
        typer.Option(min=1, help="Beam search: how many beginnings are followed; 1 takes the best token."),
    ] = BEAMS,
    length_penalty: Annotated[
        float | None,
        typer.Option(
            help=f"Keeps translations from being too short: 0 not at all, 1 much; {LENGTH_PENALTY}.",
            show_default=False,
        ),
    ] = None,
    penalty: Annotated[float | None, typer.Option(hidden=True)] = None,
    json_: Json = False,
) -> None:
    """Translate a text, or each line of standard input."""
    check_task_of(run, ("translate",), "translate")
    if penalty is not None:
        console.note(
            "Note: --penalty is called --length-penalty now; the old name goes with the next version."
        )
    favour = next((value for value in (length_penalty, penalty) if value is not None), LENGTH_PENALTY)
    lines, opened = _lines(text), open_run(run)
    unseen = warn_unseen(opened, *lines)
    with console.working("translating", len(lines)) as advance:
        translations = opened.translate(lines, beams=beams, length_penalty=favour, progress=advance)
    if json_:
        pairs = [{"source": s, "target": t} for s, t in zip(lines, translations, strict=True)]
        console.put_json({"translations": pairs, "unseen": unseen})
        return
    for translation in translations:
        console.put(translation)


@use_app.command(
    epilog="""Examples:

  glassformer classify runs/sst2 "a gripping film"

  glassformer classify runs/sst2 --json < reviews.txt

  glassformer classify runs/photos new/*.jpg                          a run on images""",
)
@console.command
def classify(
    run: RunPath,
    text: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="TEXT",
            help="Texts, or paths of images; - (or nothing) reads lines from standard input.",
            show_default=False,
        ),
    ] = None,
    json_: Json = False,
) -> None:
    """Label texts or images, or each line of standard input; a tagger labels the words of each.

    Line n of the output answers line n of the input; a blank line has no label.
    """
    check_task_of(run, ("classify", "tag"), "classify or tag")
    opened, texts = open_run(run), text or ["-"]
    lines = [line for given in texts for line in _lines(given)]
    unseen = warn_unseen(opened, *lines)
    console.phase("Labelling")
    answers = opened.label(lines)
    if json_:
        console.put_json({"texts": [answer.as_json() for answer in answers], "unseen": unseen})
        return
    for answer in answers:
        console.put(answer.show())


@use_app.command(
    epilog="""Examples:

  glassformer fill runs/masked "a ___ film"

  glassformer fill runs/masked "the <|mask|> of the <|mask|>" --top 3 --json""",
)
@console.command
def fill(
    run: RunPath,
    text: Text = "-",
    top: Annotated[int, typer.Option(min=1, help="How many tokens to show for each blank.")] = 5,
    json_: Json = False,
) -> None:
    """Fill in the blanks of a text, or of each line: ___ is one hidden token."""
    check_task_of(run, ("masked",), "masked")
    opened, lines = open_run(run), _lines(text)
    unseen = warn_unseen(opened, *lines)
    console.phase("Filling in")
    filled = [opened.fill(line, top) for line in lines]
    if json_:
        answers = [{"text": f.text, "blanks": f.blanks} for f in filled]
        console.put_json({"texts": answers, "unseen": unseen})
        return
    for answer in filled:
        put_filled(answer)


def _lines(text: str) -> list[str]:
    import re

    from glassformer.core.errors import UsageError
    from glassformer.core.terminal import without_last_newline

    lines = re.split("\r?\n", without_last_newline(console.read_input())) if text == "-" else [text]
    if text != "-" and len(text) < LONGEST_NAME and Path(text).is_file():
        hint = f"for its lines: < {quote(text)}"
        console.note(f"Note: {text} is a file here, and its name is what was read; {hint}")
    if not any(line.strip() for line in lines):
        raise UsageError("there is nothing to read: give a text, or lines on standard input")
    return lines
