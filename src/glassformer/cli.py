"""The command line: one function per command. Heavy imports stand inside them, so that --help is instant."""

from typing import Annotated, Any

import typer

from glassformer import console
from glassformer.cli_tokenizer import tokenizer_app

app = typer.Typer(
    name="glassformer",
    help="From a text file to a transformer that you can train, measure, talk to and see through.",
    epilog="Start with: glassformer train      (the embedded default, no download)",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    rich_markup_mode=None,
)
app.add_typer(tokenizer_app, name="tokenizer")

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on standard output.")]
RunPath = Annotated[str, typer.Argument(metavar="RUN", help="A run directory.", show_default=False)]


@app.command(
    epilog="""Examples:

  glassformer train                                 the embedded default

  glassformer train my.txt --out runs/mine          your own text, sizes chosen for you

  glassformer train shakespeare --recipe shakespeare-char-small

  glassformer train my.txt --set model.layers=6 --set training.steps=2000

  glassformer train my.txt --out runs/mine --resume""",
)
@console.command
def train(
    source: Annotated[
        str | None,
        typer.Argument(
            help="File, folder, - for standard input, or a data set: pydocs, shakespeare, wikitext-2."
        ),
    ] = None,
    task: Annotated[str, typer.Option(help="What is learned: language.")] = "language",
    recipe: Annotated[str | None, typer.Option(help="Tested settings by name, or a YAML file.")] = None,
    out: Annotated[str | None, typer.Option(help="The run directory to make.")] = None,
    init: Annotated[str | None, typer.Option(help="Start from the weights of this run.")] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", help="A setting, key=value; repeatable. docs/settings.md lists them."),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the run where it stopped.")] = False,
    json_: Json = False,
) -> None:
    """Train a model on text; without SOURCE, on the manual and docstrings that come with Python."""
    import json

    from glassformer.pipeline import train as train_run
    from glassformer.settings import merge, parse_overrides
    from glassformer.training.display import Terminal

    settings = merge({"task": task}, parse_overrides(set_ or []))
    run = train_run(
        source,
        recipe=recipe,
        out=out,
        init=init,
        resume=resume,
        settings=settings,
        display=Terminal(console.error_console()),
    )
    result: dict[str, Any] = json.loads((run.path / "result.json").read_text(encoding="utf-8"))
    if json_:
        console.put_json({"run": str(run.path), **result})
        return
    valid = result["valid"]
    console.put(
        f"Validation: perplexity {valid['perplexity']:.2f}, {valid['bits_per_byte']:.4f} bits per byte, "
        f"loss {valid['loss']:.4f} nats per token (best at step {result['best_step']}).\n"
        f"Trained {result['parameters']:,} parameters on {result['tokens']:,} tokens in "
        f"{result['seconds']:.0f} s, {result['tokens_per_second']:,.0f} tokens/s.\n"
        f"Everything is in {run.path}: model.safetensors, tokenizer.json, metrics.jsonl, loss.png.\n"
        f'Talk to it: glassformer generate {run.path} "your words"'
    )


@app.command(
    "eval",
    epilog="""Examples:

  glassformer eval runs/mine

  glassformer eval runs/mine --split test --json

  glassformer eval runs/mine --data other.txt --stride 32""",
)
@console.command
def evaluate(
    run: RunPath,
    data: Annotated[
        str | None, typer.Option(help="Other text; a file or folder is scored whole.", show_default=False)
    ] = None,
    split: Annotated[str, typer.Option(help="valid or test (or train).")] = "valid",
    stride: Annotated[
        int | None, typer.Option(help="How far the window moves on; the context if not given.")
    ] = None,
    json_: Json = False,
) -> None:
    """Measure a run on a whole split: loss, perplexity and bits per byte."""
    from glassformer.errors import UsageError
    from glassformer.run import load

    if split not in ("train", "valid", "test"):
        raise UsageError(f"--split {split}: expected valid, test or train")
    result = load(run).evaluate(split, data, stride, warn=lambda text: console.note(f"Warning: {text}"))
    if json_:
        console.put_json(result.as_dict())
        return
    console.put(
        f"split          {result.split}\n"
        f"loss           {result.loss:.4f} nats per token\n"
        f"perplexity     {result.perplexity:.3f}\n"
        f"bits per byte  {result.bits_per_byte:.4f}\n"
        f"tokens, bytes  {result.tokens:,} predicted, {result.bytes:,} of text\n"
        f"window, stride {result.window}, {result.stride} tokens"
    )


@app.command(
    epilog="""Examples:

  glassformer generate runs/mine "Once upon a time"

  glassformer generate runs/mine "ROMEO:" --temperature 0.8 --top-p 0.95 --n 3

  glassformer generate runs/mine "def " --greedy --stop "\\n\\n" """,
)
@console.command
def generate(
    run: RunPath,
    prompt: Annotated[str, typer.Argument(help="What to go on from; - reads standard input.")] = "",
    tokens: Annotated[int, typer.Option(min=1, help="Tokens to write at most.")] = 200,
    temperature: Annotated[float, typer.Option(help="Below 1 safer, above 1 wilder.")] = 0.8,
    top_k: Annotated[int | None, typer.Option(help="Choose among the K best.")] = None,
    top_p: Annotated[float | None, typer.Option(help="Choose among the best that reach P together.")] = None,
    min_p: Annotated[
        float | None, typer.Option(help="Choose among those at least P times as likely as the best.")
    ] = None,
    greedy: Annotated[bool, typer.Option("--greedy", help="Always the best.")] = False,
    stop: Annotated[
        list[str] | None, typer.Option(help="End before this text; repeatable; \\n is a new line.")
    ] = None,
    n: Annotated[int, typer.Option("--n", min=1, help="How many texts.")] = 1,
    seed: Annotated[int | None, typer.Option(help="For the same text again.")] = None,
    json_: Json = False,
) -> None:
    """Let a run write: one token at a time, each fed back in."""
    import sys

    from glassformer.generation.sampling import Sampler
    from glassformer.run import load

    if prompt == "-":
        prompt = sys.stdin.read()
    sampler = Sampler(0.0 if greedy else temperature, top_k, top_p, min_p, seed)
    stops = [s.replace("\\n", "\n") for s in stop or []]
    opened = load(run)
    parts = opened.stream(prompt, tokens, sampler=sampler, n=n, stop=stops)
    if n == 1 and not json_:  # on the terminal as it is written
        console.put(prompt, end="")
        for (part,) in parts:
            console.put(part, end="")
        console.put("")
        return
    texts = ["".join(pieces) for pieces in zip(*parts, strict=True)]
    if json_:
        console.put_json({"prompt": prompt, "texts": texts, "seed": seed})
        return
    for number, text in enumerate(texts, start=1):
        console.put(f"--- {number} ---\n{prompt}{text}")


def main() -> None:
    console.run_app(app)
