"""A model from elsewhere as a run directory, so that everything that opens runs opens it."""

from pathlib import Path

from glassformer.config.saved import save_config
from glassformer.config.schema import build
from glassformer.core.errors import RunError
from glassformer.core.files import write_atomically, writing
from glassformer.core.strict_json import dump_json
from glassformer.interop.huggingface import read_gpt2
from glassformer.models.build import make_language_model
from glassformer.runs.run import Run
from glassformer.training.checkpoint.weights import copy_weights, save_weights


def import_hf(folder: str | Path, out: str | Path) -> Run:
    """Read a folder of Hugging Face's GPT-2 layout and write it as a run."""
    out = Path(out)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise RunError(f"{out} exists already: name another folder for the run, or remove it")
    imported = read_gpt2(folder)
    numbers = sum(t.numel() for t in imported.weights.values())
    if imported.settings["layers"] * imported.settings["width"] > numbers:
        raise RunError(f"{folder}: config.json speaks of more layers than there are weights for")
    config = build(
        {
            "task": "language",
            "data": {"source": "imported"},
            "tokenizer": {"kind": imported.tokenizer.kind, "vocab": len(imported.tokenizer)},
            "model": imported.settings,
        }
    )
    model = make_language_model(config.model)
    copy_weights(model, imported.weights, str(folder))
    with writing(out):
        out.mkdir(parents=True, exist_ok=True)
    imported.tokenizer.save(out / "tokenizer.json")
    save_weights(model, out / "model.safetensors")
    write_atomically(out / "data.json", dump_json({"imported": str(Path(folder).resolve())}, indent=1))
    save_config(config, out / "config.yaml")
    return Run(out)
