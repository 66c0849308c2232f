"""Adding a command or a flag is a decision: here they all are."""

import sys

from typer.main import get_command

from glassformer.cli.main import app

GLASSFORMER = [sys.executable, "-m", "glassformer"]
FAST = [
    *("--set", "model.layers=1", "--set", "model.width=16", "--set", "model.heads=2"),
    *("--set", "model.context=16", "--set", "training.batch=4"),
]


def test_commands_and_flags_are_a_decision() -> None:
    """Adding one means changing this list."""
    found: dict[str, list[str]] = {}

    def walk(command: object, path: str) -> None:
        for name, sub in getattr(command, "commands", {}).items():
            walk(sub, f"{path} {name}".strip())
        if not hasattr(command, "commands"):
            params = command.params  # type: ignore[attr-defined]
            found[path] = sorted(p.opts[0] if p.opts[0].startswith("-") else p.name.upper() for p in params)

    walk(get_command(app), "")
    assert found == {
        "train": sorted(
            [
                "SOURCE",
                "--task",
                "--target",
                "--text-column",
                "--label-column",
                "--recipe",
                "--out",
                "--init",
                "--set",
                "--sweep",
                "--resume",
                "--more-steps",
                "--more-minutes",
                "--json",
            ]
        ),
        "eval": sorted(
            [
                "RUN",
                "--data",
                "--target",
                "--split",
                "--stride",
                "--beams",
                "--errors",
                "--pairs",
                "--weights",
                "--json",
            ]
        ),
        "compare": sorted(["RUNS", "--html", "--json"]),
        "chat": sorted(["RUN", "--temperature", "--tokens", "--seed"]),
        "translate": sorted(
            [
                "RUN",
                "TEXT",
                "--beams",
                "--length-penalty",
                "--temperature",
                "--top-k",
                "--top-p",
                "--min-p",
                "--seed",
                "--penalty",
                "--json",
            ]
        ),
        "classify": sorted(["RUN", "TEXT", "--json"]),
        "fill": sorted(["RUN", "TEXT", "--top", "--json"]),
        "generate": sorted(
            [
                "RUN",
                "PROMPT",
                "--tokens",
                "--temperature",
                "--top-k",
                "--top-p",
                "--min-p",
                "--greedy",
                "--repetition-penalty",
                "--presence-penalty",
                "--frequency-penalty",
                "--bias",
                "--stop",
                "--regex",
                "--json-schema",
                "--draft",
                "--weights",
                "--probs",
                "--draws",
                "--beams",
                "--n",
                "--seed",
                "--json",
            ]
        ),
        "look": sorted(
            [
                "RUN",
                "TEXT",
                "--html",
                "--plots",
                "--tokens",
                "--target",
                "--maps",
                "--json",
                "--ablate",
                "--position",
                "--head",
                "--relations",
            ]
        ),
        "why": sorted(["LESSON", "RUN", "--plots", "--json"]),
        "plan": sorted(["RECIPE", "--gpu", "--gpus", "--tokens", "--price", "--set", "--json"]),
        "serve": sorted(
            ["RUNS", "--host", "--port", "--token", "--allow-host", "--memory", "--weights", "--limit"],
        ),
        "doctor": sorted(["--device", "--json"]),
        "import": sorted(["FOLDER", "RUN", "--json"]),
        "bench cost": sorted(["--longest", "--widest", "--plots", "--device", "--json"]),
        "bench generate": sorted(
            ["--size", "--streams", "--top-k", "--repeats", "--rounds", "--llama", "--device", "--json"]
        ),
        "bench precision": sorted(["--compile", "--seconds", "--quick", "--json"]),
        "bench train": sorted(
            [
                "--size",
                "--batch",
                "--precision",
                "--compile",
                "--seconds",
                "--rounds",
                "--nanogpt",
                "--profile",
                "--only",
                "--device",
                "--json",
            ]
        ),
        "bench tokenizer": sorted(["--data", "--megabytes", "--vocab", "--repeats", "--quick", "--json"]),
        "tokenizer train": sorted(
            [
                "SOURCES",
                "--out",
                "--vocab",
                "--kind",
                "--pattern",
                "--weight",
                "--special",
                "--min-frequency",
                "--alphabet",
                "--ties",
                "--normalization",
                "--threads",
                "--json",
            ]
        ),
        "tokenizer encode": sorted(["FILE", "TEXT", "--specials", "--spans", "--steps", "--json"]),
        "tokenizer decode": sorted(["FILE", "IDS", "--json"]),
        "tokenizer merges": sorted(["FILE", "--first", "--json"]),
        "tokenizer show": sorted(["TEXT", "--source", "--vocab", "--json"]),
    }
