"""Plans: the formulas against the model itself, and against what was measured on a GPU."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from glassformer.cli.main import app
from glassformer.config.schema import Config, build
from glassformer.core.errors import UsageError
from glassformer.models.model import parameter_count
from glassformer.models.operations import operations_per_token
from glassformer.objectives.objective import cross_entropy
from glassformer.planning.count import count, operations
from glassformer.planning.devices import DEVICES, find
from glassformer.planning.memory import memory, optimizer_bytes, saved_per_token
from glassformer.planning.plan import make_plan
from glassformer.planning.time import step_time
from glassformer.tasks.registry import make_model
from glassformer.training.optim import make_optimizers

MEASURED = json.loads((Path(__file__).parents[2] / "benchmarks" / "plan.json").read_text())
shapes = st.fixed_dictionaries(
    {
        "layers": st.integers(1, 4),
        "heads": st.sampled_from([2, 4]),
        "width": st.sampled_from([16, 32, 48]),
        "context": st.sampled_from([8, 24]),
        "vocab": st.sampled_from([11, 100]),
        "kv_heads": st.sampled_from([0, 1, 2]),
        "value_width": st.sampled_from([0, 6]),
        "norm": st.sampled_from(["layer", "rms"]),
        "placement": st.sampled_from(["pre", "post", "renorm", "none"]),
        "activation": st.sampled_from(["relu", "gelu", "relu2", "swiglu"]),
        "position": st.sampled_from(["learned", "sinusoidal", "rope", "none"]),
        "qk_norm": st.booleans(),
        "tied": st.booleans(),
        "bias": st.booleans(),
    }
)


def on_paper(model: dict[str, Any]) -> tuple[Config, torch.nn.Module]:
    config = build({"model": model})
    with torch.device("meta"):
        return config, make_model("language", config.model)


@settings(max_examples=60, deadline=None)
@given(shapes)
def test_parameters_and_operations_are_those_of_the_model(model: dict[str, Any]) -> None:
    config, made = on_paper(model)
    assert count(config.model).parameters == parameter_count(made)
    expected = 3 * operations_per_token(made, config.model.context)
    assert operations(config.model) == pytest.approx(expected, rel=1e-12)


def saved(model: torch.nn.Module, ids: torch.Tensor) -> int:
    """Bytes that autograd keeps for the backward pass, weights left out, each storage once."""
    own = {p.untyped_storage().data_ptr() for p in [*model.parameters(), *model.buffers()]}
    found: dict[int, int] = {}

    def keep(x: torch.Tensor) -> torch.Tensor:
        storage = x.untyped_storage()
        if storage.data_ptr() not in own and x.numel() > 1:
            found[storage.data_ptr()] = storage.nbytes()
        return x

    kept: list[torch.Tensor] = []  # alive, so that no address is used twice
    with torch.autograd.graph.saved_tensors_hooks(lambda x: (kept.append(keep(x)), x)[1], lambda x: x):
        cross_entropy(model(ids), ids)
    return sum(found.values())


@settings(max_examples=30, deadline=None)
@given(shapes.filter(lambda m: m["placement"] in ("pre", "none")))
def test_activations_are_what_autograd_keeps(model: dict[str, Any]) -> None:
    """In float32, where no kernel has a say; the difference of two depths leaves one block."""
    # The CPU's fused attention has no values of another width, nor shared heads: it would keep all weights;
    # and its RMSNorm is made of parts that keep more than the GPU's kernel.
    model = {**model, "value_width": 0, "kv_heads": 0, "norm": "layer"}
    B, kept = 4, []
    for layers in (1, 2):
        config = build({"model": {**model, "layers": layers, "context": 24}})
        ids = torch.randint(0, config.model.vocab, (B, 24))
        kept.append(saved(make_model("language", config.model), ids))
    planned = saved_per_token(config.model, half=False, compiled=False) * B * 24
    # Statistics of norms and softmax are small and not planned for; narrow test models have many.
    assert planned == pytest.approx(kept[1] - kept[0], rel=0.15)


@pytest.mark.parametrize("optimizer", ["adamw", "adam", "sgd", "muon"])
def test_the_optimizer_holds_what_is_planned(optimizer: str) -> None:
    model = {"layers": 3, "heads": 2, "width": 32, "context": 16, "vocab": 50}
    config = build({"model": model, "training": {"optimizer": optimizer}})
    made = make_model("language", config.model)
    made(torch.zeros(1, 4, dtype=torch.long)).sum().backward()
    held = 0
    for one in make_optimizers(made, config.training):
        one.step()
        tensors = [t for state in one.state.values() for t in state.values() if t.ndim]
        held += sum(t.nbytes for t in tensors)
    assert optimizer_bytes(config) == held


@pytest.mark.parametrize("name", MEASURED["cases"])
def test_plans_agree_with_what_was_measured(name: str) -> None:
    """benchmarks/plan.json, on an H200: memory within 15 %, time within 20 %."""
    case = MEASURED["cases"][name]
    rest = {"steps": 1000, "precision": "bf16", "compile": "off", "optimizer": "adamw"}
    config = build({"model": case["model"], "training": {**rest, **case["training"]}})
    t, found = config.training, case["measured"]
    assert count(config.model).parameters == found["parameters"]
    tokens = t.batch // t.accumulate * config.model.context
    assert memory(config, tokens, "one", 1, t.accumulate).peak == pytest.approx(found["memory"], rel=0.15)
    seconds = step_time(config, DEVICES["h200"], t.batch, t.accumulate)
    assert seconds == pytest.approx(found["seconds"], rel=0.20)


def test_the_measured_cases_span_what_they_should() -> None:
    sizes = sorted(case["measured"]["parameters"] for case in MEASURED["cases"].values())
    assert len(sizes) >= 5 and sizes[0] < 12e6 and sizes[-1] > 1.5e9


def configured(**training: Any) -> Config:
    model = {"layers": 24, "heads": 16, "width": 1024, "context": 1024, "vocab": 50304}
    return build({"model": model, "training": {"batch": 64, "optimizer": "adamw", **training}})


def test_more_devices_and_parts_take_less_memory() -> None:
    config = configured(precision="bf16")
    peaks = [memory(config, 8192, "fsdp", n).peak for n in (2, 4, 8)]
    assert peaks == sorted(peaks, reverse=True)
    one, ddp = (memory(config, 8192, layout, 8).peak for layout in ("one", "ddp"))
    assert memory(config, 8192, "fsdp", 8).peak < one <= ddp
    assert memory(config, 4096, "one", 1, 2).peak < one


def test_the_layout_that_fits_is_taken() -> None:
    made = make_plan(configured(), find("rtx-4090"), 1, 1e9)
    assert made.chosen is not None and made.chosen.accumulate > 1
    assert not made.options[0].fits and made.chosen.fits
    huge = build(
        {"model": {"layers": 80, "heads": 64, "width": 8192, "vocab": 128000}, "training": {"batch": 64}}
    )
    assert make_plan(huge, find("a100"), 8, 1e9).chosen is None
    assert make_plan(huge, find("b200"), 64, 1e9).chosen is not None


def test_numbers_of_the_balance() -> None:
    made = make_plan(configured(), find("h100"), 8, 8.1e9).as_dict()
    assert made["optimal"]["tokens_per_parameter"] == pytest.approx(20, rel=0.01)
    assert made["optimal"]["parameters"] == pytest.approx(made["parameters"], rel=0.15)
    assert made["hours"] > 0 and made["cost"] == pytest.approx(made["hours"] * 8 * 2.5)


def test_the_command() -> None:
    runner = CliRunner()
    done = runner.invoke(app, ["plan", "gpt2", "--gpu", "h100", "--gpus", "8", "--tokens", "10e9", "--json"])
    assert done.exit_code == 0, done.output
    said = json.loads(done.stdout)
    assert said["parameters"] == 124_439_808  # as published
    assert {o["layout"] for o in said["options"]} == {"ddp", "fsdp"}
    assert "Take ddp" in runner.invoke(app, ["plan", "gpt2", "--gpus", "8"]).stdout
    for arguments, message in (
        (["gpt2", "--gpu", "h10"], "Did you mean 'h100'"),
        (["gpt2", "--gpus", "7"], "--set training.batch=511"),
        (["gpt9"], "there is no recipe 'gpt9'"),
        (["gpt2", "--tokens=-1"], "expected a number above 0"),
        (["multi30k"], "not for the task translate"),
        (["wikitext-2-lstm"], "not model.family lstm"),
        ([], "such as gpt2"),
        (["gpt2", "--tokens", "many"], "such as 10e9 or 10B"),
        (["shakespeare-equal-parameters"], "several models side by side"),
        (["--set", "model.vocab=99", "--set", "training.steps=0"], "goes by minutes"),
        (["gpt2", "--set", "model.width=1000000000", "--set", "model.heads=1"], "beyond any plan"),
    ):
        done = runner.invoke(app, ["plan", *arguments])
        assert done.exit_code == 2 and message in done.stderr, (arguments, done.stderr)


def test_unknown_devices_are_refused() -> None:
    with pytest.raises(UsageError, match="There are: h200"):
        find("abacus")
