"""`glassformer plan`: what a training would need, before anything is bought or begun."""

from typing import Annotated

import typer

from glassformer.cli import console

plan_app = typer.Typer(rich_markup_mode=None)


@plan_app.command(
    epilog="""Examples:

  glassformer plan gpt2 --gpu h100 --gpus 8 --tokens 10e9

  glassformer plan gpt2-xl --gpu rtx-4090                  does it fit?

  glassformer plan wikitext-2 --gpu here                   a recipe, on this machine

  glassformer plan --set model.layers=24 --set model.width=1024 --set model.vocab=32768 --tokens 7e9""",
)
@console.command
def plan(
    recipe: Annotated[
        str | None,
        typer.Argument(help="A recipe, its YAML file, or a shape: gpt2, gpt2-medium, …", show_default=False),
    ] = None,
    gpu: Annotated[str, typer.Option(help="A kind of GPU, or here: this machine, measured.")] = "h200",
    gpus: Annotated[int | None, typer.Option(min=1, help="How many; 1.", show_default=False)] = None,
    tokens: Annotated[
        str | None, typer.Option(help="To train on, such as 10e9 or 10B; as the steps say if not given.")
    ] = None,
    price: Annotated[float | None, typer.Option(min=0, help="Dollars an hour for one GPU.")] = None,
    set_: Annotated[list[str] | None, typer.Option("--set", help="A setting, key=value; repeatable.")] = None,
    json_: Annotated[bool, typer.Option("--json", help="Print one JSON object on standard output.")] = False,
) -> None:
    """Parameters, operations, memory by part, time and cost of a training, and which layout fits."""
    from glassformer.config.recipes import parse_overrides
    from glassformer.core.errors import UsageError
    from glassformer.planning.recipe import plan as plan_recipe
    from glassformer.planning.show import show

    budget = _number(tokens) if tokens is not None else None
    if budget is not None and not 0 < budget < 1e20:
        raise UsageError(f"--tokens {tokens}: expected a number above 0, such as 10e9 or 10B")
    settings = parse_overrides(set_ or [])
    result = plan_recipe(recipe, settings=settings, gpu=gpu, gpus=gpus, tokens=budget, price=price)
    console.put_json(result.as_dict()) if json_ else console.put(show(result))
    if result.assumed_vocab:
        vocab = result.config.model.vocab
        console.note(f"(A vocabulary of {vocab}, as tokenizer.vocab says; a text may have fewer entries.)")


def _number(text: str) -> float:
    """10e9, 10B, 300M; nothing that can be read so gives 0."""
    sizes = {"k": 1e3, "m": 1e6, "b": 1e9, "g": 1e9, "t": 1e12}
    text = text.strip().lower().replace("_", "").replace(",", "")
    try:
        return float(text[:-1]) * sizes[text[-1]] if text[-1:] in sizes else float(text)
    except ValueError:
        return 0.0
