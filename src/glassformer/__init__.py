"""glassformer: from a text file to a transformer that you can train, measure, talk to and see through.

Names load their modules when first used, so that importing the package costs nothing.
"""

import warnings
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from glassformer.config.model import ModelConfig
    from glassformer.config.schema import Config
    from glassformer.config.training import TrainingConfig
    from glassformer.core.errors import GlassformerError
    from glassformer.data.datasets import load_dataset
    from glassformer.generation.sampling import Sampler
    from glassformer.generation.text import Generation, generate
    from glassformer.inspection import edits as edit
    from glassformer.inspection.trace import record_trace
    from glassformer.models.build import Decoder, Encoder, EncoderDecoder
    from glassformer.models.tap import Record
    from glassformer.objectives.language import LanguageModelling
    from glassformer.planning.recipe import plan
    from glassformer.runs.compare import compare
    from glassformer.runs.import_model import import_hf
    from glassformer.runs.run import Run, load
    from glassformer.runs.save_model import save_run
    from glassformer.runs.sweep import sweep
    from glassformer.runs.train import train
    from glassformer.tasks.registry import make_model
    from glassformer.tokenizers.bpe_tokenizer import BPE
    from glassformer.tokenizers.load import load_tokenizer, train_tokenizer
    from glassformer.tokenizers.pairs import Pairs
    from glassformer.tokenizers.tokenizer import Byte, Tokenizer
    from glassformer.tokenizers.vocabulary import Char, Word
    from glassformer.training.loop import Trainer

_HOME = {
    "BPE": "tokenizers.bpe_tokenizer",
    "Byte": "tokenizers.tokenizer",
    "Char": "tokenizers.vocabulary",
    "Config": "config.schema",
    "Decoder": "models.build",
    "Encoder": "models.build",
    "EncoderDecoder": "models.build",
    "Generation": "generation.text",
    "GlassformerError": "core.errors",
    "LanguageModelling": "objectives.language",
    "ModelConfig": "config.model",
    "Pairs": "tokenizers.pairs",
    "Record": "models.tap",
    "Run": "runs.run",
    "Sampler": "generation.sampling",
    "Tokenizer": "tokenizers.tokenizer",
    "Trainer": "training.loop",
    "TrainingConfig": "config.training",
    "Word": "tokenizers.vocabulary",
    "compare": "runs.compare",
    "generate": "generation.text",
    "import_hf": "runs.import_model",
    "load": "runs.run",
    "load_dataset": "data.datasets",
    "load_tokenizer": "tokenizers.load",
    "make_model": "tasks.registry",
    "plan": "planning.recipe",
    "record_trace": "inspection.trace",
    "save_run": "runs.save_model",
    "sweep": "runs.sweep",
    "train": "runs.train",
    "train_tokenizer": "tokenizers.load",
}
_MODULES = {"edit": "inspection.edits"}
# Names of earlier versions: where each is now, and what to write instead.
_DEPRECATED = {
    "Edit": ("inspection.edits", "Edit", "gf.edit.Edit"),
    "put": ("inspection.edits", "put", "gf.edit.put"),
    "see": ("inspection.trace", "record_trace", "gf.record_trace"),
    "steer": ("inspection.edits", "steer", "gf.edit.steer"),
    "zero": ("inspection.edits", "zero", "gf.edit.zero"),
}

__all__ = [
    "BPE",
    "Byte",
    "Char",
    "Config",
    "Decoder",
    "Encoder",
    "EncoderDecoder",
    "Generation",
    "GlassformerError",
    "LanguageModelling",
    "ModelConfig",
    "Pairs",
    "Record",
    "Run",
    "Sampler",
    "Tokenizer",
    "Trainer",
    "TrainingConfig",
    "Word",
    "compare",
    "edit",
    "generate",
    "import_hf",
    "load",
    "load_dataset",
    "load_tokenizer",
    "make_model",
    "plan",
    "record_trace",
    "save_run",
    "sweep",
    "train",
    "train_tokenizer",
]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(f"glassformer.{_HOME[name]}"), name)
    if name in _MODULES:
        return import_module(f"glassformer.{_MODULES[name]}")
    if name in _DEPRECATED:
        home, there, instead = _DEPRECATED[name]
        warnings.warn(f"gf.{name} is now {instead}", DeprecationWarning, stacklevel=2)
        return getattr(import_module(f"glassformer.{home}"), there)
    raise AttributeError(f"module 'glassformer' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
