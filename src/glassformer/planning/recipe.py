"""A plan by name: of a recipe, of a shape that everybody knows, or of settings."""

from dataclasses import replace
from pathlib import Path
from shlex import quote

from glassformer.config.recipes import load_recipe, load_variants, merge, nested, recipe_names
from glassformer.config.schema import TEXT_TASKS, build, coerce
from glassformer.config.section import Settings
from glassformer.core.errors import UsageError
from glassformer.planning.devices import find
from glassformer.planning.plan import Plan, make_plan

GPT2 = {"norm": "layer", "position": "learned", "activation": "gelu-tanh", "bias": True, "tied": True}
SHAPES = {  # layers, heads, width
    "gpt2": (12, 12, 768),
    "gpt2-medium": (24, 16, 1024),
    "gpt2-large": (36, 20, 1280),
    "gpt2-xl": (48, 25, 1600),
}


def plan(
    recipe: str | None = None,
    *,
    settings: Settings | None = None,
    gpu: str = "h200",
    gpus: int | None = None,
    tokens: float | None = None,
    price: float | None = None,
) -> Plan:
    """What a training would need: parameters, operations, memory, time and cost.

    `recipe` is one of ours, a YAML file, or a shape (gpt2 …); `settings` change it. `gpu` is a kind of GPU,
    or `here`; `tokens` are those to train on, as the steps say if not given; `price` dollars an hour for one.
    """
    if tokens is not None and not isinstance(tokens, int | float):
        raise UsageError(f"--tokens {tokens}: expected a number, such as 10e6")
    known = merge(_named(recipe), coerce(nested(settings or {}), "settings"))
    named = known.get("model", {}).get("vocab")
    vocab = named or known.get("tokenizer", {}).get("vocab", 0)
    config = build(merge(known, {"model": {"vocab": vocab}}))
    if config.task not in TEXT_TASKS:
        raise UsageError(
            f"plan is for {' and '.join(TEXT_TASKS)} models, which learn from a text, not for the task "
            f"{config.task}"
        )
    result = make_plan(config, find(gpu), gpus or config.training.processes or 1, tokens, price)
    return replace(result, assumed_vocab=not named)


def _named(recipe: str | None) -> Settings:
    if recipe is None:
        return {}
    if recipe in SHAPES:
        layers, heads, width = SHAPES[recipe]
        shape = {"layers": layers, "heads": heads, "width": width, "context": 1024, "vocab": 50257}
        return {
            "model": {**GPT2, **shape, "qk_norm": False},
            "training": {"batch": 512, "optimizer": "adamw", "steps": 20_000},
        }
    _refuse_text(recipe)
    if variants := load_variants(recipe):
        raise UsageError(
            f"recipe {recipe} sets several models side by side ({', '.join(variants)}): plan one of "
            "them by its own settings, --set model.layers=…"
        )
    return load_recipe(recipe)


def _refuse_text(recipe: str) -> None:
    """A text is not planned for: training chooses its sizes from it. Nor is a run, which has them."""
    if (Path(recipe) / "config.yaml").is_file():
        raise UsageError(
            f"{recipe} is a run: it was trained already. plan takes a recipe's name, its YAML file, or a "
            f"shape ({', '.join(SHAPES)})."
        )
    if (
        Path(recipe).exists()
        and Path(recipe).suffix not in (".yaml", ".yml")
        and recipe not in recipe_names()
    ):
        raise UsageError(
            f"{recipe} is no recipe: plan takes a recipe's name, its YAML file, or a shape "
            f"({', '.join(SHAPES)}). To train on it, glassformer train {quote(recipe)} chooses the sizes and "
            "says them, with the time, before it begins. To plan sizes of your own: glassformer plan "
            "--set model.layers=4 --set model.width=128 --set model.vocab=4096 --tokens 10e6"
        )
