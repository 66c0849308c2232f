"""Whether a folder may hold a model of Hugging Face's, told before anything heavy is loaded."""

from pathlib import Path

from glassformer.core.errors import RunError


def refuse_no_model(folder: Path) -> None:
    if not folder.is_dir():
        raise RunError(
            f"there is no folder '{folder}': expected config.json, *.safetensors and tokenizer.json in it"
        )
