"""`glassformer serve`: runs over HTTP. What can be told at once is told before anything heavy is loaded."""

from typing import Annotated

import typer

from glassformer.cli import console
from glassformer.cli.generate import parse_weights

serve_app = typer.Typer(rich_markup_mode=None)


@serve_app.command(
    epilog="""Examples:

  glassformer serve                                   every run under ./runs, at http://127.0.0.1:8000

  glassformer serve runs/mine runs/dates --port 0     these two, at any port that is free

  GLASSFORMER_TOKEN=… glassformer serve --host 0.0.0.0     for other machines: with a token""",
)
@console.command
def serve(
    runs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="RUN…", help="Run directories; without any, those under ./runs.", show_default=False
        ),
    ] = None,
    host: Annotated[str, typer.Option(help="The address to listen at; 0.0.0.0 is all.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port; 0: any that is free.")] = 8000,
    token: Annotated[
        str | None,
        typer.Option(
            envvar="GLASSFORMER_TOKEN",
            help="What clients must send. Better in the environment: options are in the process list.",
            show_default=False,
        ),
    ] = None,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="A further name that clients call this machine by; repeatable."),
    ] = None,
    memory: Annotated[
        float | None,
        typer.Option(metavar="GB", help="Memory for runs; half of what is free.", show_default=False),
    ] = None,
    weights: Annotated[
        str, typer.Option(help="Of language models: f32, bf16, int8 (on a CPU), open (uncompiled) or auto.")
    ] = "auto",
    limit: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=NUMBER", help="Another limit; repeatable. docs/serving.md lists them."),
    ] = None,
) -> None:
    """Serve runs over HTTP: OpenAI's API, and looks inside."""
    from glassformer.core.errors import UsageError
    from glassformer.serving.address import check_address
    from glassformer.serving.catalog import find_runs
    from glassformer.serving.limits import LIMITS

    token = token or None
    check_address(host, token)
    limits = LIMITS.with_changes(limit or [])
    if memory is not None and not 0 < memory < float("inf"):
        raise UsageError(f"--memory {memory}: expected gigabytes, more than 0")
    precision = parse_weights(weights)
    entries = find_runs(runs or [])
    from glassformer.serving.server import Settings
    from glassformer.serving.server import serve as serve_runs

    console.clear_phase()
    budget = None if memory is None else int(memory * 1e9)
    settings = Settings(host, port, token, tuple(allow_host or ()), budget, precision, limits)
    serve_runs(entries, settings, console.note)
