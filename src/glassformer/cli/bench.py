"""`glassformer bench …`: speed, beside the peers that are installed."""

from typing import Annotated

import typer

from glassformer.cli import console

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

    from glassformer.tokenizers.unicode import unicode_version
    from glassformer.tools.bench.tokenizer import as_json, corpus, measure, report

    with tempfile.TemporaryDirectory() as folder:
        text = corpus(data, int(megabytes * 1e6), Path(folder))
        size = text.stat().st_size
        figures = measure(text, vocab, quick, repeats, console.note)
    if json_:
        console.put_json({"bytes": size, "unicode": unicode_version(), "measured": as_json(figures)})
    else:
        console.put(report(figures))


@bench_app.command(
    "cost", epilog="Example:  glassformer bench cost --longest 4096 --plots pictures      (about a minute)"
)
@console.command
def cost(
    longest: Annotated[
        int | None, typer.Option(min=512, help="Positions to go up to, by doubling. [4096; on a GPU 32768]")
    ] = None,
    widest: Annotated[
        int | None, typer.Option(min=256, help="Width to go up to, by doubling. [1024; on a GPU 4096]")
    ] = None,
    plots: Annotated[
        str | None, typer.Option(metavar="FOLDER", help="Write the curves, as SVG and PNG with a caption.")
    ] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda or auto.")] = "auto",
    json_: Annotated[bool, typer.Option("--json", help="Print one JSON object on standard output.")] = False,
) -> None:
    """What attention, feed-forward nets and recurrences cost over length and width, and the exponents."""
    from dataclasses import asdict
    from pathlib import Path

    from glassformer.core.device import choose_device
    from glassformer.core.files import make_folder
    from glassformer.core.process import tune_process
    from glassformer.inspection.cost import doubling, fit, sweep
    from glassformer.inspection.plots import cost as draw

    tune_process()
    chosen = choose_device(device)
    points = sweep(*doubling(chosen, longest, widest), chosen, console.note)
    fits = fit(points)
    if plots is not None:
        make_folder(Path(plots))
        for path in draw(points, fits).save(Path(plots) / "cost"):
            console.note(f"Written: {path}")
    if json_:
        console.put_json({"points": [asdict(p) for p in points], "fits": [asdict(f) for f in fits]})
        return
    console.put(f"{'':24}{'over':>6}{'time':>8}{'expected':>10}{'memory':>9}{'expected':>10}")
    for f in fits:
        memory = "" if f.expected_memory is None else str(f.expected_memory)
        row = f"{f.part:24}{f.over:>6}{f.time:8.2f}{f.expected_time:10}{f.memory:9.2f}{memory:>10}"
        console.put(row)
    console.put("Exponents: doubling the size multiplies time or memory by 2 to that power.")


@bench_app.command(
    "precision", epilog="Example:  glassformer bench precision --compile      (about a minute and a half)"
)
@console.command
def precision(
    compile_: Annotated[
        bool, typer.Option("--compile", help="Each of them once more after torch.compile.")
    ] = False,
    seconds: Annotated[float, typer.Option(min=0, help="For each row, after its first step.")] = 4.0,
    quick: Annotated[bool, typer.Option("--quick", help="The small model alone.")] = False,
    json_: Annotated[bool, typer.Option("--json", help="Print one JSON object on standard output.")] = False,
) -> None:
    """The same training on CPU and GPU, in float32, bf16 and fp16: milliseconds a step, and the loss."""
    from dataclasses import asdict

    from glassformer.core.process import tune_process
    from glassformer.tools.bench.precision import SIZES, measure, report

    tune_process()
    figures = measure(SIZES[:1] if quick else SIZES, compile_, seconds, console.note)
    console.put_json({"figures": [asdict(f) for f in figures]}) if json_ else console.put(report(figures))


@bench_app.command(
    "generate",
    epilog="Example:  glassformer bench generate --size 124M --streams 1 --top-k 50      (some minutes)",
)
@console.command
def generate(
    size: Annotated[
        list[str] | None, typer.Option(help="124M or small (4 layers of width 128); repeatable. [both]")
    ] = None,
    streams: Annotated[
        list[int] | None, typer.Option(min=1, help="Texts at once; repeatable. [1 and 8]")
    ] = None,
    top_k: Annotated[int, typer.Option(min=0, help="Draw among the K likeliest; 0 is greedy.")] = 0,
    repeats: Annotated[int, typer.Option(min=1, help="Texts for each figure; the best counts.")] = 3,
    rounds: Annotated[int, typer.Option(min=1, help="Turns through all tools; the best of each.")] = 2,
    llama: Annotated[
        str | None,
        typer.Option(metavar="PYTHON", help="An interpreter that has llama-cpp-python and gguf."),
    ] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda or auto.")] = "auto",
    json_: Annotated[bool, typer.Option("--json", help="Print one JSON object on standard output.")] = False,
) -> None:
    """Tokens a second, and seconds to the first, beside transformers and llama.cpp where they are there."""
    from glassformer.core.device import choose_device
    from glassformer.core.errors import UsageError
    from glassformer.tools.bench.generate import (
        SIZES,
        as_json,
        first_token,
        llama_python,
        measure,
        report,
    )

    names = {"124M": "124M", "small": "4 × 128"}
    if unknown := [name for name in size or [] if name not in names]:
        raise UsageError(f"--size {unknown[0]}: expected 124M or small")
    chosen = choose_device(device).type
    sizes = [names[name] for name in size or names]
    assert set(sizes) <= set(SIZES)
    found = measure(
        chosen, sizes, streams or [1, 8], repeats, rounds, top_k, llama_python(llama), console.note
    )
    seconds = first_token()
    if json_:
        console.put_json({"device": chosen, "measured": as_json(found), "first_token_seconds": seconds})
    else:
        console.put(report(found))
        console.put(f"From the command to the first token: {seconds:.2f} s.")


@bench_app.command(
    "train",
    epilog="""Examples:

  glassformer bench train                                      a small model on this machine

  glassformer bench train --size 124M --compile --nanogpt nanoGPT --profile trace

  glassformer bench train --size char --only fused --only nanoGPT --nanogpt nanoGPT""",
)
@console.command
def train(
    size: Annotated[str, typer.Option(help="char-small, char, 124M, 350M or 1.5B.")] = "char-small",
    batch: Annotated[int | None, typer.Option(min=1, help="Sequences in a step. [by size]")] = None,
    precision: Annotated[str, typer.Option(help="float32 or bf16. [bf16 on a GPU]")] = "auto",
    compile_: Annotated[bool, typer.Option("--compile", help="All of them after torch.compile.")] = False,
    seconds: Annotated[float, typer.Option(min=0, help="For each measurement, after its first steps.")] = 5.0,
    rounds: Annotated[int, typer.Option(min=1, help="Turns through all tools; the best of each.")] = 2,
    nanogpt: Annotated[
        str | None, typer.Option(metavar="FOLDER", help="The source of nanoGPT, to measure beside it.")
    ] = None,
    profile: Annotated[
        str | None,
        typer.Option(metavar="FOLDER", help="Write a trace for Perfetto and a list of what took longest."),
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(metavar="TEXT", help="Only rows with this in their name; may be repeated."),
    ] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda or auto.")] = "auto",
    json_: Annotated[bool, typer.Option("--json", help="Print one JSON object on standard output.")] = False,
) -> None:
    """A step of training: time, memory and start, beside the tools that are installed."""
    from glassformer.core.device import choose_device
    from glassformer.core.errors import UsageError
    from glassformer.tools.bench.train import SIZES, as_json, check_nanogpt, measure, report

    if size not in SIZES:
        raise UsageError(f"--size {size}: expected {', '.join(SIZES)}")
    if precision not in ("auto", "float32", "bf16"):
        raise UsageError(f"--precision {precision}: expected float32, bf16 or auto")
    check_nanogpt(nanogpt)
    chosen = choose_device(device).type
    if precision == "auto":
        precision = "float32" if chosen == "cpu" else "bf16"
    found = measure(
        size,
        device=chosen,
        batch=batch,
        precision=precision,
        compiled=compile_,
        seconds=seconds,
        rounds=rounds,
        nanogpt=nanogpt,
        profile=profile,
        say=console.note,
        only=only or [],
    )
    if json_:
        console.put_json({"device": chosen, "measured": as_json(found)})
    else:
        console.put(report(found))
        if profile:
            console.note(
                f"Traces and lists: {profile}/gpt2, {profile}/default (open trace.json in Perfetto)."
            )
