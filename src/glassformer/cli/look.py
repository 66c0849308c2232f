"""`glassformer look` and `import`: a text or an image seen through a run; models from elsewhere."""

from typing import Annotated

import typer

from glassformer.cli import console
from glassformer.cli.opening import RunPath, open_run, warn_unseen

look_app = typer.Typer(rich_markup_mode=None)


@look_app.command(
    epilog="""Examples:

  glassformer look runs/demo "The if statement"

  glassformer look runs/demo "The if statement" --html look.html      a page that needs no internet

  glassformer look runs/demo "The if statement" --plots pictures --tokens 20

  glassformer look runs/induction "XqzXq" --head 1.0                  where that head looks

  glassformer look runs/induction "XqzXq" --ablate 1.0                without that head

  glassformer look runs/pronouns "then she" --relations pronouns      every head off in turn, on marked text

  glassformer look runs/dates "the third of May, 1987"                source and translation

  glassformer look runs/photos cat.jpg --html look.html               a run on images""",
)
@console.command
def look(
    run: RunPath,
    text: Annotated[
        str, typer.Argument(metavar="TEXT", help="The text, or the path of an image; - reads standard input.")
    ],
    html: Annotated[str | None, typer.Option(metavar="FILE", help="Write a page that stands alone.")] = None,
    plots: Annotated[
        str | None, typer.Option(metavar="FOLDER", help="Write every plot, as SVG and PNG with a caption.")
    ] = None,
    tokens: Annotated[int, typer.Option(min=0, help="Let a language model write so many first.")] = 0,
    target: Annotated[
        str | None, typer.Option(help="The translation to look at; without it, the model's own.")
    ] = None,
    ablate: Annotated[
        list[str] | None, typer.Option(metavar="LAYER.HEAD", help="Switch a head off; repeatable.")
    ] = None,
    position: Annotated[
        int | None,
        typer.Option(
            help="Position whose likeliest answer is taken apart; the last, or the first blank; negative: "
            "from the end.",
            show_default=False,
        ),
    ] = None,
    relations: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Follow your own marked sentences (YAML, or a data set's name), and switch off every head.",
            show_default=False,
        ),
    ] = None,
    head: Annotated[
        str | None,
        typer.Option(
            metavar="LAYER.HEAD",
            help="Whose attention map is drawn here; without it, the one that adds most to the logit.",
            show_default=False,
        ),
    ] = None,
    maps: Annotated[bool, typer.Option("--maps", help="All attention maps, also of a long text.")] = False,
    json_: Annotated[bool, typer.Option("--json", help="Print one JSON object on standard output.")] = False,
) -> None:
    """Look inside: every head, residual and gradient of a run on a text or an image."""
    from pathlib import Path

    from glassformer.core.files import make_folder, write_atomically
    from glassformer.core.terminal import without_last_newline
    from glassformer.inspection.marked import find_list

    heads = [_head(name) for name in ablate or []]
    if relations is not None:
        find_list(relations)
    from glassformer.inspection.edits import zero
    from glassformer.inspection.html import as_html
    from glassformer.inspection.plots import draw_all
    from glassformer.inspection.report_text import as_text

    opened = open_run(run)
    text = without_last_newline(console.read_input()) if text == "-" else text
    warn_unseen(opened, text)
    console.phase("Looking inside")
    look_ = opened.look(
        text, target=target, tokens=tokens, edits=[zero(f"{layer}.z", heads=head) for layer, head in heads]
    )
    report = look_.report(maps, position, relations)
    text = as_text(report, head)
    if html is not None:
        make_folder(Path(html).parent)
        write_atomically(Path(html), as_html(report))
        console.note(f"Written: {html}")
    if plots is not None:
        console.phase("Drawing")
        for path in draw_all(report, Path(plots)):
            console.note(f"Written: {path}")
    console.put_json(report) if json_ else console.put(text)


def _head(name: str) -> tuple[str, int]:
    """A layer and its head, as in 1.0."""
    from glassformer.core.errors import UsageError

    layer, _, head = name.rpartition(".")
    if not layer or not head.isdecimal():
        raise UsageError(f"--ablate {name}: expected LAYER.HEAD, as in 1.0 (of a translator decoder.1.0)")
    return layer, int(head)


@look_app.command(
    "import",
    epilog="Example:  glassformer import ~/models/gpt2 runs/gpt2      then: glassformer look runs/gpt2 TEXT",
)
@console.command
def import_(
    folder: Annotated[
        str,
        typer.Argument(
            metavar="DIR",
            help="config.json, *.safetensors and tokenizer.json of a GPT-2.",
            show_default=False,
        ),
    ],
    run: Annotated[str, typer.Argument(metavar="RUN", help="The run directory to make.", show_default=False)],
    json_: Annotated[bool, typer.Option("--json", help="Print one JSON object on standard output.")] = False,
) -> None:
    """Make a run of a Hugging Face GPT-2 folder on this machine; nothing in it is executed."""
    from pathlib import Path
    from shlex import quote

    from glassformer.interop.folder import refuse_no_model
    from glassformer.runs.folder import refuse_begun

    refuse_no_model(Path(folder))
    refuse_begun(Path(run))
    from glassformer.models.model import parameter_count
    from glassformer.runs.import_model import import_hf

    opened = import_hf(folder, run)
    parameters = parameter_count(opened.model)
    if json_:
        console.put_json({"run": str(opened.path), "parameters": parameters})
        return
    model = opened.config.model
    console.put(
        f"{opened.path}: {parameters:,} parameters, {model.layers} layers of {model.heads} heads, "
        f"vocabulary {model.vocab:,}. Look inside: glassformer look {quote(str(opened.path))} TEXT"
    )
