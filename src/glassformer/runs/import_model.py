"""A model from elsewhere as a run directory, so that everything that opens runs opens it."""

from pathlib import Path

from glassformer.config.schema import build
from glassformer.core.errors import RunError
from glassformer.core.files import make_folder
from glassformer.core.lock import locked
from glassformer.interop.huggingface import read_gpt2
from glassformer.models.build import make_language_model
from glassformer.runs.begin import refuse_existing, write_beginning
from glassformer.runs.run import Run
from glassformer.training.checkpoint.weights import copy_weights, unique_state_dict


def import_hf(folder: str | Path, out: str | Path) -> Run:
    """Read a folder of Hugging Face's GPT-2 layout and write it as a run."""
    out = Path(out)
    refuse_existing(out)
    imported = read_gpt2(folder)
    numbers = sum(t.numel() for t in imported.weights.values())
    if imported.settings["layers"] * imported.settings["width"] > numbers:
        raise RunError(f"{folder}: config.json speaks of more layers than there are weights for")
    config = build(
        {
            "task": "language",
            "data": {"source": "imported", "newlines": "keep"},
            "tokenizer": {"kind": imported.tokenizer.kind, "vocab": len(imported.tokenizer)},
            "model": imported.settings,
        }
    )
    model = make_language_model(config.model)
    copy_weights(model, imported.weights, str(folder))
    record = {"imported": str(Path(folder).resolve())}
    with locked(make_folder(out)):
        write_beginning(out, config, record, imported.tokenizer, unique_state_dict(model))
    return Run(out)
