"""`glassformer bench …`: speed, beside the peers that are installed."""

from typing import Annotated

import typer

from glassformer import console

bench_app = typer.Typer(
    help="Measure speed beside the peers, in the same run.", no_args_is_help=True, rich_markup_mode=None
)


@bench_app.command(
    "tokenizer", epilog="Example:  glassformer bench tokenizer --megabytes 100      (about five minutes)"
)
@console.command
def tokenizer(
    data: Annotated[
        str | None, typer.Option(help="File, folder or data set; without it, Python code found here.")
    ] = None,
    megabytes: Annotated[float, typer.Option(min=0.1, help="How much text to measure with.")] = 100.0,
    vocab: Annotated[int, typer.Option(min=257, help="Entries to learn.")] = 32768,
    repeats: Annotated[int, typer.Option(min=1, help="Processes for each figure; the best counts.")] = 1,
    quick: Annotated[
        bool, typer.Option("--quick", help="Leave the scaling over size and entries out.")
    ] = False,
    json_: Annotated[bool, typer.Option("--json", help="Print one JSON object on standard output.")] = False,
) -> None:
    """Learn and encode with glassformer, rustbpe, tiktoken, Hugging Face tokenizers: those that are there."""

    import tempfile
    from pathlib import Path

    from glassformer.bench.tokenizer import as_json, corpus, measure, report
    from glassformer.text.unicode import unicode_version

    with tempfile.TemporaryDirectory() as folder:
        text = corpus(data, int(megabytes * 1e6), Path(folder))
        size = text.stat().st_size
        found = measure(text, vocab, quick, repeats, console.note)
    if json_:
        console.put_json({"bytes": size, "unicode": unicode_version(), "measured": as_json(found)})
    else:
        console.put(report(found))
