"""What lessons are computed on: small models made here, or the model and the validation text of a run."""

import torch
from torch import Tensor, nn

from glassformer.config.model import ModelConfig
from glassformer.core.errors import UsageError
from glassformer.models.build import Decoder
from glassformer.models.model import LanguageModel
from glassformer.runs.run import Run
from glassformer.tasks.text import TextTask

VOCAB = 64
PLAIN = {"heads": 4, "width": 64, "context": 64, "vocab": VOCAB, "qk_norm": False, "position": "learned"}


def made(seed: int = 0, **settings: object) -> Decoder:
    """A decoder of the plain block of the papers, its weights drawn anew. Its scores do not start at zero,
    where no gradient would come down at all."""
    torch.manual_seed(seed)
    model = Decoder(ModelConfig.model_validate({"layers": 24, **PLAIN, **settings}))
    nn.init.normal_(model.unembedding.weight, std=0.02)
    return model.eval()


def random_ids(rows: int = 4, T: int = 32, seed: int = 0) -> Tensor:
    return torch.randint(VOCAB, (rows, T), generator=torch.Generator().manual_seed(seed))


def transformer_of(run: Run) -> LanguageModel:
    """A run's model, if it is a transformer that models language."""
    if run.config.model.family != "transformer":
        raise UsageError(f"{run.path} is a {run.config.model.family}; this lesson is about transformers")
    return run.language_model


def ids_of(run: Run, T: int, limited: bool = True) -> Tensor:
    """The beginning of the run's validation text, (1, T) or as long as there is, `limited` by its context."""
    task = run.task()
    assert isinstance(task, TextTask)
    T = min(T, len(task.tokens("valid")), *([run.config.model.context] if limited else []))
    return torch.from_numpy(task.tokens("valid").read(0, T).astype("int64"))[None].to(run.device)
