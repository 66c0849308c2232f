"""Word vectors from a file as the embedding that a model begins with.

Words that the file does not have, and special tokens, get random vectors with the spread of those it has.
They are drawn from the seed by themselves, so that all other weights are those of a run without vectors. The
weights of a run hold all of them: the file is needed only until the first checkpoint.
"""

import torch
from torch import nn

from glassformer.config.section import Settings
from glassformer.core.errors import RunError, UsageError
from glassformer.data.vectors import WordVectors, read_vectors
from glassformer.models.roles import input_embedding
from glassformer.tokenizers.tokenizer import Tokenizer
from glassformer.tokenizers.vocabulary import Word


def refuse_other_kinds(kind: str | None) -> None:
    """Vectors are of words; what else a text is cut into has none."""
    if kind not in (None, Word.kind):
        raise UsageError(
            f"data.vectors: they are of words, and tokenizer.kind is {kind}: set tokenizer.kind=word, or "
            "leave data.vectors out"
        )


def find_vectors(file: str, tokenizer: Tokenizer | None) -> WordVectors:
    """The vectors that a file has for the words of a tokenizer, by their ids."""
    if tokenizer is None:
        raise UsageError("data.vectors: they are of words; images have none")
    refuse_other_kinds(tokenizer.kind)
    assert isinstance(tokenizer, Word)
    return read_vectors(file, tokenizer.pieces)


def with_vectors(asked: Settings, vectors: WordVectors) -> Settings:
    """What the vectors say about the model: as wide as they are long, and fixed unless told."""
    model: Settings = asked.get("model", {})
    width = model.get("width", vectors.dimension)
    if width != vectors.dimension:
        raise UsageError(
            f"model.width {width}: the vectors of {vectors.path} have {vectors.dimension} numbers, and an "
            f"embedding is as wide as the model. Set model.width={vectors.dimension}"
        )
    return {**asked, "model": {"embedding": "fixed", **model, "width": width}}


def refuse_other_vectors(vectors: WordVectors, begun_with: str | None) -> None:
    if begun_with not in (None, vectors.digest):
        raise RunError(
            f"{vectors.path} is not the file of vectors that the run was begun with: its SHA-256 is "
            f"{vectors.digest[:12]}…, then it was {begun_with[:12]}…. Restore it, or start a new run."
        )


@torch.no_grad()
def place_vectors(model: nn.Module, vectors: WordVectors, seed: int) -> None:
    """Into the embedding of what is read: of a translator, its source's."""
    weight = input_embedding(model).weight
    known = torch.stack([torch.from_numpy(row) for row in vectors.rows.values()])
    rows = torch.randn(weight.shape, generator=torch.Generator().manual_seed(seed)) * known.std()
    rows[list(vectors.rows)] = known
    weight.copy_(rows)
