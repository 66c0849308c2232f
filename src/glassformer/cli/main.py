"""The command line: one function per command. Heavy imports stand inside them, so that --help is instant."""

import time
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

import typer

from glassformer.cli import console
from glassformer.cli.bench import bench_app
from glassformer.cli.chat import chat_app
from glassformer.cli.checks import (
    check_more,
    check_named,
    check_names,
    check_pairs,
    check_source,
    check_target,
    refuse_with_sweep,
    run_folder,
)
from glassformer.cli.doctor import doctor_app
from glassformer.cli.generate import generate_app
from glassformer.cli.look import look_app
from glassformer.cli.opening import RunPath, check_task_of, open_run
from glassformer.cli.plan import plan_app
from glassformer.cli.serve import serve_app
from glassformer.cli.tokenizer import tokenizer_app
from glassformer.cli.use import use_app
from glassformer.cli.why import why_app
from glassformer.core.terminal import speaks
from glassformer.data.catalog import dataset_names
from glassformer.runs.folder import refuse_begun, refuse_no_run, runs_under

if TYPE_CHECKING:  # loaded when a command runs, so that --help is instant
    from glassformer.runs.run import Run

BEGAN = time.monotonic()
KINDS = {"language": "text", "classify": "labels", "tag": "tags", "translate": "pairs"}
NAMED = "; ".join(f"{', '.join(dataset_names(task))} ({kind})" for task, kind in KINDS.items())

app = typer.Typer(
    name="glassformer",
    help="From a text file to a transformer that you can train, measure, talk to and see through.",
    epilog="Start with: glassformer train      (the embedded default, no download)",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    rich_markup_mode=None,
)


def _show_version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        console.put(f"glassformer {version('glassformer')}")
        raise typer.Exit


app.add_typer(generate_app)  # without a name: its command stands beside the others
app.add_typer(use_app)  # translate, classify and fill
app.add_typer(chat_app)
app.add_typer(look_app)
app.add_typer(why_app)
app.add_typer(doctor_app)
app.add_typer(plan_app)
app.add_typer(serve_app)
app.add_typer(tokenizer_app, name="tokenizer")
app.add_typer(bench_app, name="bench")


@app.callback()
def _main(
    version: Annotated[
        bool,
        typer.Option("--version", help="Show the version and exit.", callback=_show_version, is_eager=True),
    ] = False,
) -> None:
    pass


Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on standard output.")]


@app.command(
    epilog="""Examples:

  glassformer train                                 the embedded default

  glassformer train my.txt --out runs/mine          your own text, sizes chosen for you

  glassformer train shakespeare --recipe shakespeare-char-small

  glassformer train reviews.tsv --task classify     text and label in two columns

  glassformer train book.en --target book.de        parallel texts, line by line

  glassformer train my.txt --sweep model.layers=2,4,6 --sweep training.seed=0,1

  glassformer train my.txt --out runs/mine --resume

  glassformer train --out runs/mine --more-minutes 10     a finished run goes on""",
)
@console.command
def train(
    source: Annotated[
        str | None,
        typer.Argument(
            help="File, folder, pattern, - for standard input, hf:NAME, or a data set: " + NAMED + "."
        ),
    ] = None,
    task: Annotated[
        str | None,
        typer.Option(help="language, masked, classify, tag or translate; as the source has it if not given."),
    ] = None,
    target: Annotated[
        str | None, typer.Option(help="The other language of a parallel text, line by line.")
    ] = None,
    text_column: Annotated[
        str | None,
        typer.Option(
            help="Of a table to classify, the column of the text: a name or a number.", show_default=False
        ),
    ] = None,
    label_column: Annotated[
        str | None, typer.Option(help="And the column of the label.", show_default=False)
    ] = None,
    recipe: Annotated[str | None, typer.Option(help="Tested settings by name, or a YAML file.")] = None,
    out: Annotated[str | None, typer.Option(help="The run directory to make.")] = None,
    init: Annotated[str | None, typer.Option(help="Start from the weights of this run.")] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", help="A setting, key=value; repeatable. docs/settings.md lists them."),
    ] = None,
    sweep: Annotated[
        list[str] | None,
        typer.Option(help="key=a,b,c: train one run for each; repeatable, then every combination."),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the run where it stopped.")] = False,
    more_steps: Annotated[
        int | None, typer.Option(min=1, help="Train the finished run of --out so many steps longer.")
    ] = None,
    more_minutes: Annotated[
        float | None, typer.Option(help="The same by time: so many minutes longer.")
    ] = None,
    json_: Json = False,
) -> None:
    """Train a model; without SOURCE, on the manual and docstrings that come with Python."""
    # What can be told at once is told before libraries load.
    longer = more_steps is not None or more_minutes is not None
    if not (resume or longer):
        check_names(source, task, target, out, init)
    from glassformer.config.grid import parse_sweep
    from glassformer.config.recipes import load_variants, merge, nested, parse_overrides

    if longer:
        check_more(more_steps, more_minutes)
        check_named(source, out)
    columns = {"text_column": text_column, "label_column": label_column}
    said = {f"data.{name}": column for name, column in columns.items() if column is not None}
    settings, grid = merge(parse_overrides(set_ or []), nested(said)), parse_sweep(sweep or [])
    folder = run_folder(source, task, target, recipe, settings, out)
    variants = load_variants(recipe) if recipe else {}
    if grid or variants:
        refuse_with_sweep(longer)
    elif longer:
        refuse_no_run(folder)
    elif not resume:
        refuse_begun(folder)
    from glassformer.runs.compare import compare_runs, show_table
    from glassformer.runs.sweep import sweep_runs
    from glassformer.runs.train import train as train_run
    from glassformer.tasks.registry import find_task
    from glassformer.training.display import Silent, Terminal

    leads = speaks()
    began = None if grid or variants else BEGAN  # of several runs, each has its own time
    display = Terminal(console.error_console(), began) if leads else Silent()
    options = {"task": task, "target": target, "recipe": recipe, "init": init, "resume": resume}
    if grid or variants:
        runs = sweep_runs(source, grid, variants, out=out, settings=settings, display=display, **options)
        if not leads:
            return
        rows = compare_runs(runs)
        page = runs[0].path.parent / "compare.html"
        rows.save(page)
        console.note(f"Table and curves are in {page}.")
        console.put_json(rows.as_json()) if json_ else console.put(show_table(rows))
        return
    more = {"more_steps": more_steps, "more_minutes": more_minutes}
    run = train_run(source, out=out, settings=settings, display=display, **options, **more)
    console.clear_phase()
    if not leads:
        return
    result = run.result
    if json_:
        console.put_json({"run": str(run.path), **result})
        return
    kind, stands = find_task(run.config.task), run.verdict
    console.put(
        f"Validation: {result['summary']} (best at step {result['best_step']}).\n"
        f"{stands}{chr(10) if stands else ''}"
        f"Trained {result['parameters'] - result['frozen']:,} parameters on {result['tokens']:,} tokens in "
        f"{result['seconds']:.0f} s, {result['tokens_per_second']:,.0f} tokens/s.\n"
        f"Everything is in {run.path}: model.safetensors, metrics.jsonl, loss.png.\n"
        f"{kind.next_command(quote(str(run.path)), run.config)}"
    )


@app.command(
    "eval",
    epilog="""Examples:

  glassformer eval runs/mine

  glassformer eval runs/mine --split test --json

  glassformer eval runs/mine --data other.txt --stride 32

  glassformer eval runs/mine --errors                 where it goes wrong

  glassformer eval runs/mine --pairs pairs.tsv        a bias probe: sentences that differ in one word

  glassformer eval runs/mine --weights int8           what fewer bits cost""",
)
@console.command
def evaluate(
    run: RunPath,
    data: Annotated[
        str | None, typer.Option(help="Other data; a file or folder is scored whole.", show_default=False)
    ] = None,
    target: Annotated[str | None, typer.Option(help="The other language of --data, line by line.")] = None,
    split: Annotated[str, typer.Option(help="valid or test (or train).")] = "valid",
    stride: Annotated[
        int | None,
        typer.Option(
            help="Tokens by which the window moves on; smaller scores each token with more before it, and "
            "takes longer. The context if not given."
        ),
    ] = None,
    beams: Annotated[
        int | None, typer.Option(min=1, help="Translations searched side by side (beam search); 4.")
    ] = None,
    errors: Annotated[bool, typer.Option("--errors", help="Also show where the model goes wrong.")] = False,
    pairs: Annotated[
        str | None, typer.Option(help="Score pairs of sentences (two columns, .tsv); `default`: our own.")
    ] = None,
    weights: Annotated[
        str | None,
        typer.Option(help="bf16 or int8: what a language model loses when its weights are kept so."),
    ] = None,
    json_: Json = False,
) -> None:
    """Measure a run on a whole split: perplexity and bits per byte, accuracy, or BLEU."""
    from glassformer.core.errors import UsageError

    if split not in ("train", "valid", "test"):
        raise UsageError(f"--split {split}: expected valid, test or train")
    if data is not None:
        check_source(data)
    if target is not None:
        check_target(target)
    if pairs is not None:
        check_pairs(pairs)
    if weights is not None:
        if weights not in ("bf16", "int8"):
            raise UsageError(f"--weights {weights}: expected bf16 or int8, to be measured beside f32")
        if errors or pairs is not None or beams is not None or target is not None:
            raise UsageError(
                "--weights measures a language model's loss: leave --errors, --pairs and so on out"
            )
        check_task_of(run, ("language",), "language")
    opened = open_run(run)
    from glassformer.evaluation.verdict import verdict
    from glassformer.tasks.registry import find_task

    if pairs is not None:
        from glassformer.runs.bias import probe

        console.phase("Scoring pairs")
        scores = probe(opened, pairs)
        console.put_json(scores.as_dict()) if json_ else console.put(scores.show())
        return

    def warn(text: str) -> None:
        console.note(f"Warning: {text}")

    if weights is not None:
        _put_cost_of_weights(opened, weights, split, data, stride, json_)
        return
    size = opened.data.get("examples", {}).get(split, 0) if data is None else 0
    slow = "progress" in find_task(opened.config.task).understands
    with console.working("measuring", size if slow else 0) as advance:
        result = opened.evaluate(
            split, data, target, stride=stride, beams=beams, progress=advance if slow else None, warn=warn
        )
    if data is None:
        console.phase("Measuring the baselines")
    baselines = opened.baselines(split) if data is None else {}
    floor = {name: baseline.score[1] for name, baseline in baselines.items()}
    learned = split == "train"  # what a baseline has counted itself says nothing of it
    stands = "" if learned else verdict(result.score, floor, getattr(result, "interval", None), opened.advice)
    if errors:
        console.phase("Looking for mistakes")
    mistakes = opened.mistakes(split, data, target, stride=stride, beams=beams) if errors else None
    if json_:
        extra = {"errors": mistakes.as_dict()} if mistakes else {}
        beside = {"floor": floor, "verdict": stands} if floor else {}
        console.put_json({**result.as_dict(), **beside, **extra})
        return
    for name, value in result.table():
        console.put(f"{name:<14} {value}")
    for name, value in floor.items():
        own = ", counted on this very text" if learned else ""
        console.put(f"{'baseline':<14} {value:.{result.digits}f} {result.score[0]}: {name}{own}")
    if stands:
        console.put(stands)
    if mistakes:
        console.put("\n" + mistakes.show())


def _put_cost_of_weights(
    run: "Run", weights: Any, split: str, data: str | None, stride: int | None, json_: bool
) -> None:
    """The loss with weights of fewer bits, beside that with all of them."""
    console.phase("Measuring")
    whole, less = (
        each.evaluate(split, data, stride=stride).as_dict() for each in (run, run.rounded(weights))
    )
    cost = less["perplexity"] / whole["perplexity"] - 1
    if json_:
        console.put_json({"f32": whole, weights: less, "perplexity_cost": cost})
        return
    for name, result in (("f32", whole), (weights, less)):
        console.put(f"{name:<6} loss {result['loss']:.4f}  perplexity {result['perplexity']:.3f}")
    console.put(f"{weights} weights: perplexity {cost:+.2%} on {less['split']}.")


@app.command(
    epilog="""Examples:

  glassformer compare runs/lstm runs/transformer

  glassformer compare runs/* --html compare.html""",
)
@console.command
def compare(
    runs: Annotated[list[str], typer.Argument(metavar="RUN…", help="Run directories.", show_default=False)],
    html: Annotated[
        str | None, typer.Option(help="Write table and curves to this .html (or .svg, .png) file.")
    ] = None,
    json_: Json = False,
) -> None:
    """Runs side by side: parameters, tokens, score, speed, time; the curves in one plot."""
    paths = [run for path in runs for run in runs_under(path)]
    for path in paths:
        refuse_no_run(Path(path))
    from glassformer.runs.compare import compare_runs, show_table
    from glassformer.runs.run import load

    opened = [load(path) for path in paths]
    finished = [run for run in opened if run.is_finished]
    for run in opened if finished else ():
        if not run.is_finished:
            made = "was not trained here" if run.is_imported else "is not finished"
            rest = "" if run.is_imported else f" Go on with it: {run.go_on_command}"
            console.note(f"Left out: {run.path} {made}.{rest}")
    console.phase("Comparing")
    rows = compare_runs(finished or opened)
    if html:
        rows.save(html)
        console.note(f"Wrote {html}.")
    console.put_json(rows.as_json()) if json_ else console.put(show_table(rows))


def main() -> None:
    console.run_app(app)
