"""A model of one's own loop as a run directory, so that everything that opens runs opens it."""

from collections.abc import Sequence
from pathlib import Path

from torch import nn

from glassformer.config.schema import build
from glassformer.core.errors import UsageError
from glassformer.core.files import make_folder
from glassformer.core.lock import locked
from glassformer.models.model import EncoderDecoderModel, EncoderModel, LanguageModel
from glassformer.runs.begin import refuse_existing, write_beginning
from glassformer.runs.run import Run
from glassformer.tokenizers.tokenizer import Tokenizer
from glassformer.training.checkpoint.weights import unique_state_dict

OF_HEAD = {"label": "classify", "labels": "tag", "tokens": "masked"}


def save_run(
    model: nn.Module,
    tokenizer: Tokenizer,
    out: str | Path,
    *,
    labels: Sequence[str] = (),
    source_tokenizer: Tokenizer | None = None,
) -> Run:
    """Write a model that you trained yourself, with its tokenizer, as the run `out`; then it can be evaluated
    (`run.evaluate(data=…)`), looked into and used like any other, also on the command line.

    It is one of this package's models (`Decoder`, `Encoder`, `EncoderDecoder`, `make_model`). `labels` are
    the names of a classifier's or tagger's outputs, in their order; `source_tokenizer` is what a translator
    with two vocabularies reads with.
    """
    if not isinstance(model, LanguageModel | EncoderModel | EncoderDecoderModel):
        raise UsageError(
            f"{type(model).__name__} cannot be saved as a run: expected one of glassformer's models, made by "
            "gf.Decoder, gf.Encoder, gf.EncoderDecoder or gf.make_model"
        )
    config, task = model.config, _task_of(model)
    for vocab, held in ((config.vocab, tokenizer), (config.source_vocab, source_tokenizer)):
        if held is not None and vocab != len(held):
            raise UsageError(
                f"the model's vocabulary is {vocab}, the tokenizer's {len(held)}: they do not match"
            )
    if bool(config.source_vocab) != (source_tokenizer is not None):
        raise UsageError("source_tokenizer: of a translator with a vocabulary for each side, and of no other")
    if task in ("classify", "tag") and len(labels) != config.labels:
        raise UsageError(f"labels: the model tells {config.labels} apart, {len(labels)} are named; name each")
    settings = build(
        {
            "task": task,
            "data": {"source": "own model", "labels": list(labels)},
            "tokenizer": {
                "kind": tokenizer.kind,
                "vocab": len(tokenizer),
                **({"sides": "separate"} if source_tokenizer is not None else {}),
            },
            "model": config.model_dump(),
        }
    )
    folder = Path(out)
    refuse_existing(folder)
    weights = {  # as a run holds them, wherever and in whatever precision they were trained
        name: (x.float() if x.is_floating_point() else x).cpu()
        for name, x in ((name, x.detach()) for name, x in unique_state_dict(model).items())
    }
    record = {"imported": "a model of your own"}
    with locked(make_folder(folder)):
        write_beginning(folder, settings, record, tokenizer, weights, source_tokenizer=source_tokenizer)
    return Run(folder)


def _task_of(model: LanguageModel | EncoderModel | EncoderDecoderModel) -> str:
    if isinstance(model, EncoderDecoderModel):
        return "translate"
    return OF_HEAD[model.head.kind] if isinstance(model, EncoderModel) else "language"
