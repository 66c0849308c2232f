"""glassformer: from a text file to a transformer that you can train, measure, talk to and see through.

Names load their modules when first used, so that importing the package costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from glassformer.config import Config, ModelConfig, TrainingConfig
    from glassformer.errors import GlassformerError
    from glassformer.generation.sampling import Sampler
    from glassformer.inspection.edit import Edit, put, steer, zero
    from glassformer.inspection.record import see
    from glassformer.models.make import make_model
    from glassformer.models.tap import Record
    from glassformer.models.transformer import Decoder
    from glassformer.pipeline import train
    from glassformer.run import Run, load
    from glassformer.text.bpe_tokenizer import BPE
    from glassformer.text.load import load_tokenizer, train_tokenizer
    from glassformer.text.pairs import Pairs
    from glassformer.text.tokenizer import Byte, Tokenizer
    from glassformer.text.vocabulary import Char, Word

_HOME = {
    "BPE": "text.bpe_tokenizer",
    "Byte": "text.tokenizer",
    "Char": "text.vocabulary",
    "Config": "config",
    "Decoder": "models.transformer",
    "Edit": "inspection.edit",
    "GlassformerError": "errors",
    "ModelConfig": "config",
    "Pairs": "text.pairs",
    "Record": "models.tap",
    "Run": "run",
    "Sampler": "generation.sampling",
    "Tokenizer": "text.tokenizer",
    "TrainingConfig": "config",
    "Word": "text.vocabulary",
    "load": "run",
    "load_tokenizer": "text.load",
    "make_model": "models.make",
    "put": "inspection.edit",
    "see": "inspection.record",
    "steer": "inspection.edit",
    "train": "pipeline",
    "train_tokenizer": "text.load",
    "zero": "inspection.edit",
}

__all__ = [
    "BPE",
    "Byte",
    "Char",
    "Config",
    "Decoder",
    "Edit",
    "GlassformerError",
    "ModelConfig",
    "Pairs",
    "Record",
    "Run",
    "Sampler",
    "Tokenizer",
    "TrainingConfig",
    "Word",
    "load",
    "load_tokenizer",
    "make_model",
    "put",
    "see",
    "steer",
    "train",
    "train_tokenizer",
    "zero",
]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'glassformer' has no attribute {name!r}")
    return getattr(import_module(f"glassformer.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return __all__
