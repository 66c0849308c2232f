"""From what was asked to a configuration: pure, validated, with its reasons; measured at most once."""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from glassformer.config.data import DataConfig
from glassformer.config.schema import Config
from glassformer.config.training import TrainingConfig
from glassformer.core import device
from glassformer.core.errors import UsageError
from glassformer.data.datasets import open_corpus
from glassformer.runs.asked import gather_asked
from glassformer.runs.machine import Machine
from glassformer.runs.resolve import resolve
from glassformer.tasks.language_model import LanguageTask
from glassformer.tasks.task import TextAmount
from glassformer.tokenizers.load import train_tokenizer
from glassformer.training.schedule import learning_rate_factor

CPU = torch.device("cpu")
PAPER = TrainingConfig(optimizer="adam", steps=100_000)


def machine(
    seconds: float = 0.05, device: torch.device = CPU, processes: int = 1
) -> tuple[Machine, list[Config]]:
    """One that is as fast as one says, and a list of what it was asked to time."""
    timed: list[Config] = []

    def measure(config: Config) -> float:
        timed.append(config)
        return seconds

    return Machine(device, processes, measure, lambda: 1e11), timed


@pytest.fixture
def task(text_file: Path) -> LanguageTask:
    corpus = open_corpus(str(text_file))
    return LanguageTask(corpus, train_tokenizer("char", corpus.texts(), 100), DataConfig())


def asked(source: Path, recipe: str | None = None, **settings: Any) -> dict[str, Any]:
    return gather_asked(source, None, None, recipe, settings)


def test_it_changes_nothing_and_says_the_same_twice(task: LanguageTask, text_file: Path) -> None:
    wishes = asked(text_file, **{"model.layers": 3, "training.seed": 5})
    before = copy.deepcopy(wishes)
    results = [resolve(wishes, None, task, machine()[0]) for _ in range(2)]
    assert wishes == before and results[0] == results[1]
    config = results[0].config
    assert config.model.layers == 3 and config.training.seed == 5
    assert config.model.vocab == len(task.tokenizer)
    assert config.training.compile == "off" and config.training.precision != "auto"
    assert [r.partition(":")[0] for r in results[0].reasons] == ["Model", "Training"]


@pytest.mark.parametrize(
    ("settings", "native", "expected"),
    [
        ({"model.width": 64}, True, "bf16"),
        ({"model.width": 64}, False, "float32"),
        ({"model.width": 32}, True, "float32"),
        ({"model.width": 64, "model.family": "lstm"}, True, "float32"),
        ({"model.width": 64, "training.precision": "float32"}, True, "float32"),
    ],
)
def test_a_cpu_that_multiplies_bf16_is_asked_to_where_it_gains(
    task: LanguageTask,
    text_file: Path,
    monkeypatch: pytest.MonkeyPatch,
    settings: dict[str, Any],
    native: bool,
    expected: str,
) -> None:
    monkeypatch.setattr(device, "multiplies_bf16", lambda _: native)
    config = resolve(asked(text_file, **settings), None, task, machine()[0]).config
    assert config.training.precision == expected


def test_a_faster_machine_gets_more_steps(task: LanguageTask, text_file: Path) -> None:
    slow, fast = (resolve(asked(text_file), None, task, machine(s)[0]).config for s in (2.0, 0.5))
    assert slow.training.steps == int(4 * 60 * 0.85 / 2.0)
    assert fast.training.steps > slow.training.steps


def test_a_step_is_timed_with_the_dropout_that_it_will_have(task: LanguageTask, text_file: Path) -> None:
    """With dropout a step takes longer, so fewer fit into the time."""
    slower = Machine(CPU, 1, lambda config: 1.0 if not config.model.dropout else 2.0, lambda: 1e11)
    config = resolve(asked(text_file), None, task, slower).config
    assert config.model.dropout > 0 and config.training.steps == int(4 * 60 * 0.85 / 2.0)
    without = resolve(asked(text_file, **{"model.dropout": 0.0}), None, task, slower).config
    assert without.model.dropout == 0.0 and without.training.steps == int(4 * 60 * 0.85 / 1.0)


@pytest.mark.parametrize(
    ("tokens", "rate", "shape", "dropout"),
    [
        (2_000, 1e11, (4, 128), 0.2),
        (90_000, 1e11, (4, 128), 0.2),
        (200_000, 1e12, (4, 192), 0.2),
        (4_000_000, 1e11, (3, 96), 0.0),
        (90_000, 2e10, (3, 96), 0.2),
    ],
)
def test_a_model_grows_with_its_text_to_what_the_time_can_train(
    task: LanguageTask,
    text_file: Path,
    monkeypatch: pytest.MonkeyPatch,
    tokens: int,
    rate: float,
    shape: tuple[int, int],
    dropout: float,
) -> None:
    """The smallest text gets four layers: three need up to 15 % more bits. Less only where time is short."""
    monkeypatch.setattr(task, "amount", lambda: TextAmount(tokens, tokens // 20))
    resolved = resolve(asked(text_file), None, task, Machine(CPU, 1, lambda _: 0.05, lambda: rate))
    model, training = resolved.config.model, resolved.config.training
    assert ((model.layers, model.width), model.dropout) == (shape, dropout)
    passes = training.steps * training.batch * model.context / tokens
    assert passes <= 41 and training.steps * 0.05 <= 4 * 60
    by_time = tokens == 4_000_000 or rate == 2e10
    why = "what 4 minutes here can train well" if by_time else "enough for the text"
    assert why in resolved.reasons[0]


def test_a_warmup_fits_the_run_or_is_said(task: LanguageTask, text_file: Path) -> None:
    """The 2017 paper's: a fifth of a short run, to the highest rate that its 4,000 steps lead to."""
    wishes = asked(text_file, **{"training.optimizer": "adam"})
    resolved = resolve(wishes, None, task, machine(0.5)[0])
    config = resolved.config
    assert config.training.warmup == config.training.steps // 5 < 4000
    highest = [learning_rate_factor(c, c.warmup - 1, 64) * c.lr for c in (config.training, PAPER)]
    assert highest[0] == pytest.approx(highest[1], rel=1e-3)
    assert not [r for r in resolved.reasons if "warm-up" in r]
    own = {"training.optimizer": "adam", "training.warmup": 4000, "training.lr": 1}
    reasons = resolve(asked(text_file, **own), None, task, machine(0.5)[0]).reasons
    fitting = f"--set training.warmup={config.training.warmup} would fit"
    assert "a warm-up of 4,000 steps" in reasons[-1] and fitting in reasons[-1]


@pytest.mark.parametrize("compiled", ["auto", "on", "off"])
def test_at_most_one_model_is_timed(
    task: LanguageTask, text_file: Path, compiled: str, monkeypatch: Any
) -> None:
    monkeypatch.setattr("glassformer.training.compile.shutil.which", lambda _: "/usr/bin/c++")
    here, timed = machine(30.0)
    config = resolve(asked(text_file, **{"training.compile": compiled}), None, task, here).config
    assert len(timed) == 1
    assert config.training.compile == ("on" if compiled != "off" else "off")  # 50 steps of half a minute


def test_a_recipe_is_timed_only_where_it_must_be(task: LanguageTask, text_file: Path, tmp_path: Path) -> None:
    recipe = tmp_path / "own.yaml"
    settings = {"model": {"layers": 1, "width": 16, "heads": 2}, "training": {"steps": 7, "compile": "off"}}
    recipe.write_text(yaml.safe_dump(settings))
    here, timed = machine()
    resolved = resolve(asked(text_file, str(recipe)), str(recipe), task, here)
    assert not timed and resolved.config.training.steps == 7
    assert resolved.reasons[0].startswith(f"Recipe {recipe}: transformer, 1 layer, width 16; 7 steps")
    recipe.write_text(yaml.safe_dump({**settings, "training": {"steps": 0, "compile": "off"}}))
    here, timed = machine(0.5)
    config = resolve(asked(text_file, str(recipe)), str(recipe), task, here).config
    assert len(timed) == 1 and config.training.steps == 120


def fails(match: str, call: Callable[[], object]) -> None:
    with pytest.raises(UsageError, match=match):
        call()


def test_what_cannot_be_is_refused_before_anything_is_made(task: LanguageTask, text_file: Path) -> None:
    fails(
        "model.vocab 5: the data has",
        lambda: resolve(asked(text_file, **{"model.vocab": 5}), None, task, machine()[0]),
    )
    three = machine(processes=3)[0]
    fails(
        "does not divide among 3",
        lambda: resolve(asked(text_file, **{"training.batch": 8}), None, task, three),
    )
    lstm = asked(text_file, **{"model.family": "lstm", "training.parallel": "fsdp"})
    fails("fsdp is for model.family transformer", lambda: resolve(lstm, None, task, machine(processes=2)[0]))
    batch = asked(text_file, **{"model.norm": "batch"})
    fails("norm batch needs the whole batch", lambda: resolve(batch, None, task, machine(processes=2)[0]))


def test_no_weights_are_made_and_no_random_numbers_are_taken(task: LanguageTask, text_file: Path) -> None:
    torch.manual_seed(0)
    state = torch.random.get_rng_state()
    resolve(asked(text_file, **{"model.width": 4096, "model.layers": 64}), None, task, machine()[0])
    assert torch.equal(torch.random.get_rng_state(), state)


def test_on_a_gpu_the_fused_step_is_taken_where_it_can_be(
    task: LanguageTask, text_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("glassformer.training.device.fitting.missing", lambda _: None)
    gpu = torch.device("cuda")
    sizes = {"model.width": 32, "model.heads": 2, "training.precision": "bf16"}

    def chosen(processes: int = 1, **settings: Any) -> tuple[str, str]:
        here, _ = machine(device=gpu, processes=processes)
        resolved = resolve(asked(text_file, **{**sizes, **settings}), None, task, here)
        assert resolved.config.training.kernels == settings.get("training.kernels", "auto")
        return resolved.config.training.compile, " ".join(resolved.reasons)

    compiled, reasons = chosen()
    assert compiled == "off" and "PyTorch's kernels" not in reasons
    graph, calls = "a graph for a step; the fused step", "call by call (it "
    for settings, how, why in (
        ({"model.family": "lstm"}, graph, "windows of a text"),
        ({"model.window": 4}, graph, "window"),
        ({"training.precision": "float32"}, graph, "float32"),
        ({"training.freeze": ["stack"]}, graph, "nothing below the head is trained"),
        ({"training.optimizer": "sgd"}, calls, "sgd"),
        ({"training.compile": "on"}, calls, "compile"),
    ):
        compiled, reasons = chosen(**settings)
        assert "PyTorch's kernels" in reasons and how in reasons and why in reasons
        assert compiled == settings.get("training.compile", "off")
    assert "call by call (it is for one process)" in chosen(processes=2)[1]
    assert "PyTorch's kernels" not in chosen(**{"training.kernels": "off"})[1]
    fails("it is for one process", lambda: chosen(processes=2, **{"training.kernels": "fused"}))
