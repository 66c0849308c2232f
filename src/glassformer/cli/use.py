"""Commands that use a trained model: translate, classify, fill."""

from pathlib import Path
from shlex import quote
from typing import Annotated, Any

import typer

from glassformer.cli import console
from glassformer.cli.answers import put_filled
from glassformer.cli.drawing import MinP, TopK, TopP
from glassformer.cli.opening import RunPath, check_task_of, open_run, warn_unseen
from glassformer.generation.limits import BEAMS, LENGTH_PENALTY, check_drawing, refuse_with_beams

LONGEST_NAME = 255  # of a file
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on standard output.")]
Text = Annotated[
    str, typer.Argument(metavar="TEXT", help="The text; - (or nothing) reads lines from standard input.")
]

use_app = typer.Typer(rich_markup_mode=None)


@use_app.command(
    epilog="""Examples:

  glassformer translate runs/dates "the third of March, nineteen eighty-seven"

  glassformer translate runs/multi30k < english.txt > german.txt

  glassformer translate runs/multi30k "A dog." --temperature 0.8 --seed 1      drawn, not searched""",
)
@console.command
def translate(
    run: RunPath,
    text: Text = "-",
    beams: Annotated[
        int | None,
        typer.Option(
            min=1,
            help=f"Beam search: how many beginnings are followed; 1 takes the best token; {BEAMS}.",
            show_default=False,
        ),
    ] = None,
    length_penalty: Annotated[
        float | None,
        typer.Option(
            help=f"Keeps translations from being too short: 0 not at all, 1 much; {LENGTH_PENALTY}.",
            show_default=False,
        ),
    ] = None,
    temperature: Annotated[
        float | None, typer.Option(help="Draw instead of searching: below 1 safer, above 1 wilder.")
    ] = None,
    top_k: TopK = None,
    top_p: TopP = None,
    min_p: MinP = None,
    seed: Annotated[
        int | None, typer.Option(help="Draw, the same again; --json says the seed that was drawn.")
    ] = None,
    penalty: Annotated[float | None, typer.Option(hidden=True)] = None,
    json_: Json = False,
) -> None:
    """Translate a text, or each line of standard input."""
    drawing = {"temperature": temperature, "top_k": top_k, "top_p": top_p, "min_p": min_p, "seed": seed}
    settings: dict[str, Any] = {name: value for name, value in drawing.items() if value is not None}
    check_drawing(**settings)
    if beams is not None or length_penalty is not None or penalty is not None:
        refuse_with_beams(**{f"--{name.replace('_', '-')}": value for name, value in settings.items()})
    check_task_of(run, ("translate",), "translate")
    if penalty is not None:
        console.note(
            "Note: --penalty is called --length-penalty now; the old name goes with the next version."
        )
    favour = next((value for value in (length_penalty, penalty) if value is not None), None)
    lines, opened = _lines(text), open_run(run)
    unseen = warn_unseen(opened, *lines)
    if settings:
        from glassformer.generation.sampling import Sampler

        settings["seed"] = Sampler(**settings).with_seed().seed
    with console.working("translating", len(lines)) as advance:
        translations = opened.translate(lines, beams, favour, advance, **settings)
    if json_:
        pairs = [{"source": s, "target": t} for s, t in zip(lines, translations, strict=True)]
        found = {"translations": pairs, "unseen": unseen}
        console.put_json({**found, "seed": settings["seed"]} if settings else found)
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
