"""A GPT-2 folder of Hugging Face becomes a run that gives the same logits and text."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner

from glassformer.cli.main import app
from glassformer.core.errors import RunError
from glassformer.inspection.heads import repeated_sequences
from glassformer.models.model import parameter_count
from glassformer.runs.import_model import import_hf
from glassformer.tokenizers.bpe_tokenizer import BPE

transformers = pytest.importorskip("transformers")


@pytest.fixture(scope="module")
def gpt2(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small GPT-2 with random weights, as its own library saves it."""
    folder = tmp_path_factory.mktemp("hf") / "gpt2"
    tokenizer = BPE.train(["the low lower lowest of the new newer newest"] * 5, 290, pattern="gpt2")
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        vocab_size=len(tokenizer),
        n_positions=32,
        n_embd=16,
        n_layer=2,
        n_head=2,
        bos_token_id=0,
        eos_token_id=0,
    )
    model = transformers.GPT2LMHeadModel(config).eval()
    with torch.no_grad():
        for p in model.parameters():
            p.add_(0.2 * torch.randn_like(p))
    model.save_pretrained(folder)
    tokenizer.save(folder / "tokenizer.json")
    return folder


def test_logits_are_those_of_transformers(gpt2: Path, tmp_path: Path) -> None:
    run = import_hf(gpt2, tmp_path / "run")
    theirs = transformers.GPT2LMHeadModel.from_pretrained(gpt2).eval()
    ids = torch.randint(len(run.tokenizer), (2, 20), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        torch.testing.assert_close(run.model(ids), theirs(ids).logits, rtol=1e-5, atol=1e-5)
    assert parameter_count(run.model) == theirs.num_parameters()


def test_an_imported_model_can_be_looked_into_and_talks(gpt2: Path, tmp_path: Path) -> None:
    run = import_hf(gpt2, tmp_path / "run")
    look = run.look("the lowest")
    assert look.components().error < 1e-6
    assert len(run.generate("the low", 5, seed=0)) == 1
    result = CliRunner().invoke(app, ["eval", str(run.path)])
    assert result.exit_code == 2 and "imported" in result.output


def test_the_heads_of_an_imported_model_are_scored(gpt2: Path, tmp_path: Path) -> None:
    """Kinds, copying and relations, as of a run of ours; its weights are random, so none has a name."""
    run = import_hf(gpt2, tmp_path / "run")
    (tmp_path / "mine.yaml").write_text("older:\n  - 'the [new] of {the} low'\n")
    report = run.look("the lowest").report(relations=tmp_path / "mine.yaml")
    assert [(h["layer"], h["head"]) for h in report["heads"]] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert "next" not in report["ranking"] and len(report["ranking"]["induction"]) == 4
    assert report["copying"]["first"] > 0 and len(report["relations"][0]["without"]) == 4
    special = run.tokenizer.eot_id
    assert special is not None
    sequences = repeated_sequences(len(run.tokenizer), 32, avoid=[special])
    assert bool((sequences[:, 0] == special).all()) and not (sequences[:, 1:] == special).any()


def test_weights_may_be_untied(gpt2: Path, tmp_path: Path) -> None:
    folder = copy_of(gpt2, tmp_path)
    tensors = load_file(folder / "model.safetensors")
    tensors["lm_head.weight"] = torch.randn_like(tensors["transformer.wte.weight"])
    save_file(tensors, folder / "model.safetensors")
    run = import_hf(folder, tmp_path / "run")
    assert not run.config.model.tied
    torch.testing.assert_close(run.model.unembedding.weight.detach(), tensors["lm_head.weight"])  # pyright: ignore


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"model_type": "llama"}, "model_type"),
        ({"activation_function": "swish"}, "activation_function"),
        ({"layer_norm_epsilon": 1e-3}, "layer_norm_epsilon"),
        ({"n_layer": 3}, "does not fit"),
        ({"n_layer": 10**9}, "n_layer"),
        ({"n_layer": 9999}, "more layers"),
        ({"n_head": "two"}, "n_head"),
        ({"n_head": 3}, "heads"),
        ({"vocab_size": 7}, "vocabulary"),
    ],
    ids=str,
)
def test_what_cannot_be_imported_is_said(gpt2: Path, tmp_path: Path, change: dict, says: str) -> None:
    folder = copy_of(gpt2, tmp_path)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | change))
    with pytest.raises(Exception, match=says) as caught:
        import_hf(folder, tmp_path / "run")
    assert type(caught.value).__module__ == "glassformer.core.errors"
    assert not (tmp_path / "run").exists()


def test_pickled_weights_are_not_opened(gpt2: Path, tmp_path: Path) -> None:
    folder = copy_of(gpt2, tmp_path)
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(RunError, match="pickled"):
        import_hf(folder, tmp_path / "run")
    with pytest.raises(RunError, match="no folder"):
        import_hf(tmp_path / "nowhere", tmp_path / "run")
    (folder / "model.safetensors").write_bytes(b"\xff" * 100)
    with pytest.raises(RunError, match="damaged"):
        import_hf(folder, tmp_path / "run")


def copy_of(folder: Path, where: Path) -> Path:
    other = where / "copy"
    other.mkdir()
    for path in folder.iterdir():
        (other / path.name).write_bytes(path.read_bytes())
    return other
