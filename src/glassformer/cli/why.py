"""`glassformer why`: a claim about transformers, computed."""

from typing import Annotated

import typer

from glassformer.cli import console
from glassformer.cli.opening import checked_run, open_run

why_app = typer.Typer(rich_markup_mode=None)


@why_app.command(
    epilog="""Examples:

  glassformer why                              the lessons there are

  glassformer why scale                        why scores are divided by √D

  glassformer why residuals runs/demo          on a run of yours

  glassformer why cache --plots pictures       the curves, as SVG and PNG""",
)
@console.command
def why(
    lesson: Annotated[
        str | None, typer.Argument(metavar="LESSON", help="Which one; none: a list.", show_default=False)
    ] = None,
    run: Annotated[
        str | None,
        typer.Argument(
            metavar="RUN",
            help="A run to compute it on; none: made here.",
            show_default=False,
            callback=checked_run,
        ),
    ] = None,
    plots: Annotated[
        str | None, typer.Option(metavar="FOLDER", help="Write the curves, as SVG and PNG with a caption.")
    ] = None,
    json_: Annotated[bool, typer.Option("--json", help="Print one JSON object on standard output.")] = False,
) -> None:
    """Why is it built so? Each lesson computes an answer, in seconds."""
    from pathlib import Path

    from glassformer.core.files import make_folder
    from glassformer.lessons.names import OF_NO_MODEL, SUBJECTS, check_lesson

    if lesson is None:
        if json_:
            console.put_json({"lessons": SUBJECTS})
            return
        for name in SUBJECTS:
            on_run = "" if name in OF_NO_MODEL else " [RUN]"
            console.put(f"glassformer why {name + on_run:20} {SUBJECTS[name]}")
        return
    check_lesson(lesson, run is not None)
    from glassformer.lessons.registry import teach

    taught = teach(lesson, open_run(run) if run is not None else None)
    if plots is not None:
        folder = Path(plots)
        make_folder(folder)
        for path in taught.draw().save(folder / lesson):
            console.note(f"Written: {path}")
    console.put_json({"lesson": lesson, **taught.as_dict()}) if json_ else console.put(taught.show())
