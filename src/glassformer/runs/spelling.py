"""How the words of a run's vocabulary are spelled, told to a model that wants to know."""

import torch
from torch import nn

from glassformer.models.spelling import MOST, Spelled
from glassformer.tokenizers.spelling import number_runs
from glassformer.tokenizers.tokenizer import Tokenizer
from glassformer.tokenizers.vocabulary import Word


def place_spelling(model: nn.Module, tokenizer: Tokenizer | None) -> None:
    """Into its embedding, with which it is saved: whoever reads the run needs nothing of this."""
    for module in model.modules():
        if isinstance(module, Spelled):
            assert isinstance(tokenizer, Word)
            numbers = number_runs(tokenizer.pieces, module.runs.num_embeddings, MOST)
            module.spell(torch.from_numpy(numbers))
