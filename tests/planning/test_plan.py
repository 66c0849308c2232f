"""Plans: the formulas against the model itself, and against what was measured on a GPU."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from glassformer.cli.main import app
from glassformer.config.schema import Config, build
from glassformer.core.device import Precision
from glassformer.core.errors import UsageError
from glassformer.data.shards import Tokens
from glassformer.models.gpu import loss as gpu_loss
from glassformer.models.gpu.narrow import MOST_SHARED
from glassformer.models.gpu.twin import narrow_pairs
from glassformer.models.model import LanguageModel, parameter_count
from glassformer.models.operations import operations_per_token
from glassformer.objectives.language import LanguageModelling
from glassformer.objectives.loss import cross_entropy
from glassformer.planning import fused
from glassformer.planning.count import count, operations
from glassformer.planning.devices import DEVICES, find
from glassformer.planning.memory import activation_bytes, memory, optimizer_bytes
from glassformer.planning.plan import make_plan
from glassformer.planning.show import show
from glassformer.planning.time import SHORT_STEP, step_time, takes_graph
from glassformer.tasks.registry import make_model
from glassformer.tools.bench.train import OURS, SIZES
from glassformer.training import compile as compile_module
from glassformer.training.device.fitting import fits, fits_graph
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
        "shift": st.sampled_from(["none", "embedding", "layers"]),
    }
)


def on_paper(model: dict[str, Any]) -> tuple[Config, torch.nn.Module]:
    config = build({"model": model})
    with torch.device("meta"):
        return config, make_model("language", config.model)


@settings(max_examples=60, deadline=None)
@given(shapes)
def test_parameters_and_operations_are_those_of_the_model(model: dict[str, Any]) -> None:
    config, net = on_paper(model)
    assert count(config.model).parameters == parameter_count(net)
    expected = 3 * operations_per_token(net, config.model.context)
    assert operations(config.model) == pytest.approx(expected, rel=1e-12)


def saved_bytes(model: torch.nn.Module, ids: torch.Tensor) -> int:
    """Bytes that autograd keeps for the backward pass, weights left out, each storage once."""
    own = {p.untyped_storage().data_ptr() for p in [*model.parameters(), *model.buffers()]}
    sizes: dict[int, int] = {}

    alive: list[torch.Tensor] = []  # so that no address is used twice

    def keep(x: torch.Tensor) -> torch.Tensor:
        alive.append(x)
        storage = x.untyped_storage()
        if storage.data_ptr() not in own and x.numel() > 1:
            sizes[storage.data_ptr()] = storage.nbytes()
        return x

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x):
        cross_entropy(model(ids), ids)
    return sum(sizes.values())


@settings(max_examples=30, deadline=None)
@given(shapes.filter(lambda m: m["placement"] in ("pre", "none")))
def test_activations_are_what_autograd_keeps(model: dict[str, Any]) -> None:
    """In float32, where no kernel has a say; the difference of two depths leaves one block."""
    # The CPU's fused attention has no values of another width, nor shared heads: it would keep all weights;
    # and its RMSNorm is made of parts that keep more than the GPU's kernel.
    model = {**model, "value_width": 0, "kv_heads": 0, "norm": "layer"}
    B, sizes = 4, []
    for layers in (1, 2):
        config = build({"model": {**model, "layers": layers, "context": 24}})
        ids = torch.randint(0, config.model.vocab, (B, 24))
        sizes.append(saved_bytes(make_model("language", config.model), ids))
    planned = activation_bytes(config.model, half=False, compiled=False) * B * 24
    # Statistics of norms and softmax are small and not planned for; narrow test models have many.
    assert planned == pytest.approx(sizes[1] - sizes[0], rel=0.15)


@pytest.mark.parametrize("optimizer", ["adamw", "adam", "sgd", "muon"])
def test_the_optimizer_holds_what_is_planned(optimizer: str) -> None:
    model = {"layers": 3, "heads": 2, "width": 32, "context": 16, "vocab": 50}
    config = build({"model": model, "training": {"optimizer": optimizer}})
    net = make_model("language", config.model)
    net(torch.zeros(1, 4, dtype=torch.long)).sum().backward()
    size = 0
    for one in make_optimizers(net, config.training):
        one.step()
        size += sum(t.nbytes for state in one.state.values() for t in state.values() if t.ndim)
    assert optimizer_bytes(config) == size


@pytest.mark.parametrize("name", MEASURED["cases"])
def test_plans_agree_with_what_was_measured(name: str) -> None:
    """benchmarks/plan.json, on an H200: memory within 15 %, time within 20 %."""
    case = MEASURED["cases"][name]
    rest = {"steps": 1000, "precision": "bf16", "compile": "off", "optimizer": "adamw"}
    config = build({"model": case["model"], "training": {**rest, **case["training"]}})
    t, measurement = config.training, case["measured"]
    assert count(config.model).parameters == measurement["parameters"]
    tokens = t.batch // t.accumulate * config.model.context
    assert memory(config, tokens, "one", 1, t.accumulate).peak == pytest.approx(
        measurement["memory"], rel=0.15
    )
    seconds = step_time(config, DEVICES["h200"], t.batch, t.accumulate)
    assert seconds == pytest.approx(measurement["seconds"], rel=0.20)


BY_FUSED_STEP = json.loads((Path(__file__).parents[2] / "benchmarks" / "train_gpu.json").read_text())


@pytest.mark.parametrize("name", BY_FUSED_STEP["cases"])
def test_plans_of_the_fused_step_agree_with_what_was_measured(name: str) -> None:
    """benchmarks/train_gpu.json: memory within 9 %, time within 7 %, as README says."""
    case = BY_FUSED_STEP["cases"][name]
    block, optimizer, kernels = OURS[case["row"]]
    batch, precision = case["batch"], "fp8" if kernels == "fp8" else "bf16"
    training = {"batch": batch, "precision": precision, "kernels": "fused", "optimizer": optimizer}
    config = build({"model": {**SIZES[case["size"]], **block}, "training": training})
    assert fused.applies(config, 1)
    peak = fused.memory(config, batch * config.model.context).peak
    assert peak == pytest.approx(case["memory"], rel=0.09)
    assert fused.step_time(config, DEVICES["h200"], batch) == pytest.approx(case["seconds"], rel=0.07)


@pytest.mark.parametrize(
    "more", [{}, {"activation": "swiglu", "kv_heads": 1}, {"output_dropout": 0.1}, {"shift": "layers"}]
)
def test_products_in_8_bits_are_those_of_the_pass(more: dict[str, Any]) -> None:
    shape = {"layers": 2, "heads": 2, "width": 32, "head_width": 16, "context": 16, "vocab": 64, **more}
    config = build({"model": shape}).model
    model = make_model("language", config)
    assert isinstance(model, LanguageModel)
    pairs = [(1 + pair.both_ways) * pair.weight.numel() for pair in narrow_pairs(model)]
    assert fused.narrow_operations(config) == 2 * sum(pairs)
    assert fused.MOST_SHARED == MOST_SHARED


def test_the_fused_step_is_planned_where_it_would_be_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("glassformer.training.device.fitting.missing", lambda _: None)
    gpu = Precision("bf16", torch.device("cuda"))
    model = {"layers": 2, "heads": 2, "width": 32, "context": 16, "vocab": 50}
    changes: list[dict[str, dict[str, Any]]] = [
        {"model": m}
        for m in (
            {}, {"norm": "rms"}, {"norm": "batch"}, {"placement": "post"}, {"residual": False}, {"window": 3},
            {"position": "alibi"}, {"position": "learned"}, {"word_dropout": 0.1}, {"head_width": 24},
            {"value_width": 32}, {"scaled": False}, {"attention": "projected"}, {"shift": "layers"},
            {"kv_heads": 1}, {"dropout": 0.2, "bias": True},
        )
    ]  # fmt: skip
    changes += [{"training": t} for t in ({"optimizer": "sgd"}, {"optimizer": "adamw"}, {"compile": "on"})]
    for change in changes:
        config = build(
            {"model": {**model, **change.get("model", {})}, "training": change.get("training", {})}
        )
        net = make_model("language", config.model)
        objective = LanguageModelling(Tokens([np.arange(500) % 50], 500), 16, 0)
        for processes in (1, 2):
            taken = fits(net, objective, config.training, gpu, processes) is None
            assert fused.applies(config, processes) == taken, (change, processes)
    plan = make_plan(build({"model": model, "training": {"batch": 8}}), find("h100"), 1, 1e6)
    assert plan.config.training.kernels == "fused" and plan.config.training.compile == "off"
    narrow: dict[str, Any] = {"batch": 8, "precision": "fp8"}
    make_plan(build({"model": model, "training": narrow}), find("h100"), 1, 1e6)
    for gpu_name, gpus, change in (("a100", 1, {}), ("h100", 2, {}), ("h100", 1, {"window": 3})):
        with pytest.raises(UsageError, match="fp8 is for one GPU that multiplies"):
            make_plan(build({"model": {**model, **change}, "training": narrow}), find(gpu_name), gpus, 1e6)
    with pytest.raises(UsageError, match="fused is for one GPU"):
        make_plan(build({"model": model, "training": {"batch": 8, "kernels": "fused"}}), find("h100"), 2, 1e6)


def test_steps_as_graphs_are_planned_where_they_would_be_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of short steps, which wait for launches; long ones are compiled, as training does."""
    monkeypatch.setattr("glassformer.training.device.fitting.missing", lambda _: None)
    gpu, shape = torch.device("cuda"), {"layers": 2, "heads": 2, "width": 32, "context": 16, "vocab": 50}
    model = make_model("language", build({"model": {**shape, "placement": "post"}}).model)
    objective = LanguageModelling(Tokens([np.arange(500) % 50], 500), 16, 0)
    for change in (
        {}, {"kernels": "off"}, {"kernels": "graph"}, {"kernels": "fused"}, {"precision": "float32"},
        {"precision": "fp16"}, {"optimizer": "adamw"}, {"optimizer": "sgd"}, {"compile": "on"},
    ):  # fmt: skip
        config = build({"model": {**shape, "placement": "post"}, "training": {"batch": 8, **change}})
        name = "bf16" if config.training.precision == "auto" else config.training.precision
        for processes in (1, 2):
            reason = fits_graph(model, objective, config.training, Precision(name, gpu), processes)
            assert takes_graph(config, processes) == (reason is None), (change, processes)
    assert SHORT_STEP == compile_module.SHORT_STEP

    def planned(gpus: int = 1, model: dict[str, Any] = shape, **training: Any) -> tuple[str, str]:
        wishes = {"model": {**model, "placement": "post"}, "training": training}
        decided = make_plan(build(wishes), find("h100"), gpus, 1e8).config.training
        return decided.kernels, decided.compile

    assert planned(batch=8) == planned(batch=8, kernels="graph") == ("graph", "off")
    large = {"layers": 12, "heads": 12, "width": 768, "context": 1024, "vocab": 50304}
    assert planned(batch=64, model=large) == ("auto", "on")
    assert planned(batch=64, model=large, compile="off") == ("graph", "off")
    assert planned(batch=8, gpus=2) == ("auto", "on")
    assert planned(batch=8, kernels="off") == ("off", "on")
    plain = {"model": shape, "training": {"batch": 8, "kernels": "graph"}}
    assert make_plan(build(plain), find("h100"), 1, 1e8).config.training.kernels == "graph"
    for gpus, change in ((2, {}), (1, {"optimizer": "sgd"})):
        with pytest.raises(UsageError, match="graph is for one GPU"):
            planned(gpus, batch=8, kernels="graph", **change)
    assert "a graph for a step" in show(make_plan(build(plain), find("h100"), 1, 1e8))


def test_pairs_that_are_read_twice_cost_twice() -> None:
    shape = {"layers": 2, "heads": 2, "width": 64, "context": 32, "vocab": 500, "dropout": 0.1}
    once, twice = (
        make_plan(
            build({"task": "translate", "model": shape, "training": {"batch": 64, "consistency": weight}}),
            find("h100"), 1, 1e9,
        ).options[0]
        for weight in (0.0, 5.0)
    )  # fmt: skip
    assert twice.memory.activations == pytest.approx(2 * once.memory.activations, rel=0.2)
    assert twice.step_seconds > 1.1 * once.step_seconds  # of which a part is the host's, and not doubled


def test_scores_are_made_in_parts_of_one_size() -> None:
    for n, entries, rows in ((65_536, 50_304, 16_384), (16_384, 65, 16_384), (8_192, 50_304, 8_192)):
        assert fused.rows_at_once(n, entries) == gpu_loss.rows_at_once(n, entries) == rows
    for n, entries in ((1, 50_304), (300, 1 << 22), (100_000, 33_000), (20_001, 50_304)):
        rows = fused.rows_at_once(n, entries)
        assert rows == gpu_loss.rows_at_once(n, entries) and rows % gpu_loss.ROWS == 0
        parts = -(-n // rows)
        assert n - (parts - 1) * rows > rows - parts * gpu_loss.ROWS  # the last lacks little of the others
        assert rows <= max(gpu_loss.ROWS, gpu_loss.SCORES_AT_ONCE // entries + gpu_loss.ROWS)


def test_the_measured_cases_span_what_they_should() -> None:
    sizes = sorted(case["measured"]["parameters"] for case in MEASURED["cases"].values())
    assert len(sizes) >= 5 and sizes[0] < 12e6 and sizes[-1] > 1.5e9


def config_of(**training: Any) -> Config:
    model = {"layers": 24, "heads": 16, "width": 1024, "context": 1024, "vocab": 50304}
    return build({"model": model, "training": {"batch": 64, "optimizer": "adamw", **training}})


def test_more_devices_and_parts_take_less_memory() -> None:
    config = config_of(precision="bf16")
    peaks = [memory(config, 8192, "fsdp", n).peak for n in (2, 4, 8)]
    assert peaks == sorted(peaks, reverse=True)
    one, ddp = (memory(config, 8192, layout, 8).peak for layout in ("one", "ddp"))
    assert memory(config, 8192, "fsdp", 8).peak < one <= ddp
    assert memory(config, 4096, "one", 1, 2).peak < one


def test_the_layout_that_fits_is_taken() -> None:
    plan = make_plan(config_of(), find("rtx-4090"), 1, 1e9)
    assert plan.choice is not None and plan.choice.accumulate > 1
    assert not plan.options[0].fits and plan.choice.fits
    huge = build(
        {"model": {"layers": 80, "heads": 64, "width": 8192, "vocab": 128000}, "training": {"batch": 64}}
    )
    assert make_plan(huge, find("a100"), 8, 1e9).choice is None
    assert make_plan(huge, find("b200"), 64, 1e9).choice is not None


def test_numbers_of_the_balance() -> None:
    plan = make_plan(config_of(), find("h100"), 8, 8.1e9).as_dict()
    assert plan["optimal"]["tokens_per_parameter"] == pytest.approx(20, rel=0.01)
    assert plan["optimal"]["parameters"] == pytest.approx(plan["parameters"], rel=0.15)
    assert plan["hours"] > 0 and plan["cost"] == pytest.approx(plan["hours"] * 8 * 2.5)


def test_the_keys_of_a_plan_stay() -> None:
    """`plan --json` prints these; scripts read them."""
    plan = make_plan(config_of(), find("h100"), 8, 1e9).as_dict()
    assert plan.keys() == {
        *("parameters", "parameters_by_part", "operations_per_token", "operations", "tokens", "steps"),
        *("device", "devices", "options", "optimal", "chosen", "hours", "cost", "share_of_matmul_rate"),
    }
    assert plan["options"][0].keys() == {
        *("layout", "accumulate", "fits", "memory", "memory_by_part", "step_seconds", "tokens_per_second")
    }
    parts = {"weights", "gradients", "optimizer", "activations", "logits", "gathered"}
    assert plan["options"][0]["memory_by_part"].keys() == parts
    assert plan["chosen"].keys() == {"layout", "accumulate"}


def test_a_plan_leaves_its_settings_as_they_were_and_needs_no_pytorch() -> None:
    config = config_of()
    before = config.model_dump()
    assert make_plan(config, find("h100"), 8, 1e9).config.training.compile == "on"
    assert config.model_dump() == before
    code = "import sys, glassformer.planning.show; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_command() -> None:
    runner = CliRunner()
    result = runner.invoke(
        app, ["plan", "gpt2", "--gpu", "h100", "--gpus", "8", "--tokens", "10e9", "--json"]
    )
    assert result.exit_code == 0, result.output
    plan = json.loads(result.stdout)
    assert plan["parameters"] == 124_439_808  # as published
    assert {o["layout"] for o in plan["options"]} == {"ddp", "fsdp"}
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
        result = runner.invoke(app, ["plan", *arguments])
        assert result.exit_code == 2 and message in result.stderr, (arguments, result.stderr)


def test_unknown_devices_are_refused() -> None:
    with pytest.raises(UsageError, match="There are: h200"):
        find("abacus")
