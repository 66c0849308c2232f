"""glassformer: from a text file to a transformer that you can train, measure, talk to and see through.

Names load their modules when first used, so that importing the package costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from glassformer.config.model import ModelConfig
    from glassformer.config.schema import Config
    from glassformer.config.training import TrainingConfig
    from glassformer.core.errors import GlassformerError
    from glassformer.generation.sampling import Sampler
    from glassformer.inspection.edits import Edit, put, steer, zero
    from glassformer.inspection.trace import see
    from glassformer.models.build import Decoder
    from glassformer.models.tap import Record
    from glassformer.runs.run import Run, load
    from glassformer.runs.train import train
    from glassformer.tasks.registry import make_model
    from glassformer.tokenizers.bpe_tokenizer import BPE
    from glassformer.tokenizers.load import load_tokenizer, train_tokenizer
    from glassformer.tokenizers.pairs import Pairs
    from glassformer.tokenizers.tokenizer import Byte, Tokenizer
    from glassformer.tokenizers.vocabulary import Char, Word

_HOME = {
    "BPE": "tokenizers.bpe_tokenizer",
    "Byte": "tokenizers.tokenizer",
    "Char": "tokenizers.vocabulary",
    "Config": "config.schema",
    "Decoder": "models.build",
    "Edit": "inspection.edits",
    "GlassformerError": "core.errors",
    "ModelConfig": "config.schema",
    "Pairs": "tokenizers.pairs",
    "Record": "models.tap",
    "Run": "runs.run",
    "Sampler": "generation.sampling",
    "Tokenizer": "tokenizers.tokenizer",
    "TrainingConfig": "config.schema",
    "Word": "tokenizers.vocabulary",
    "load": "runs.run",
    "load_tokenizer": "tokenizers.load",
    "make_model": "models.build",
    "put": "inspection.edits",
    "see": "inspection.trace",
    "steer": "inspection.edits",
    "train": "runs.train",
    "train_tokenizer": "tokenizers.load",
    "zero": "inspection.edits",
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
