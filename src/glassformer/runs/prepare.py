"""Before training: the data that is named, its tokenizer, and the task that binds the two."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from glassformer.config.data import DataConfig
from glassformer.config.model import RECURRENT
from glassformer.config.recipes import merge
from glassformer.config.schema import build
from glassformer.config.section import Settings
from glassformer.core.errors import RunError, UsageError
from glassformer.core.files import whole_path
from glassformer.data.examples import Examples
from glassformer.data.mixtures import Mix
from glassformer.data.shards import tokenizer_fingerprint
from glassformer.data.sources import Corpus
from glassformer.data.vectors import WordVectors
from glassformer.runs.choose_tokenizer import choose_for_examples, choose_tokenizer
from glassformer.runs.run import Run
from glassformer.runs.vectors import find_vectors, refuse_other_kinds, with_vectors
from glassformer.tasks.examples import ExamplesTask
from glassformer.tasks.registry import find_task
from glassformer.tasks.task import Task
from glassformer.tasks.translator import TranslateTask
from glassformer.tokenizers.load import load_tokenizer, train_tokenizer
from glassformer.tokenizers.tokenizer import Tokenizer
from glassformer.training.display import Display

TOKENIZER_SAMPLE = 256_000_000  # bytes of text that are enough to learn a vocabulary from
OF_IMAGES = {"image_size", "patch_size", "channels"}
OF_THE_DATA = {"vocab", "source_vocab", "labels", "patch"}  # model settings that follow from the data


@dataclass(frozen=True)
class Prepared:
    """Data, ready to be learned from, and what was asked with what is known by now."""

    task: Task
    source: Corpus | Examples
    asked: Settings
    tokenizer: Tokenizer | None
    source_tokenizer: Tokenizer | None  # of a translator with a vocabulary for each side
    vectors: WordVectors | None  # that the embedding begins as


@dataclass(frozen=True)
class Found:
    """The tokenizer of a run, or both of a translator; with the settings and the reason."""

    tokenizer: Tokenizer | None
    settings: Settings
    why: str
    source_tokenizer: Tokenizer | None = None


def prepare(asked: Settings, base: Run | None, device: torch.device, display: Display) -> Prepared:
    """Open the data, find or learn the tokenizer, turn text into ids."""
    kind = find_task(asked["task"])
    if base is not None:  # a run that starts from another one has its shape
        shape: Settings = {"model": base.config.model.model_dump(exclude=OF_THE_DATA)}
        if base.config.model.patch:
            shape["data"] = base.config.data.model_dump(include=OF_IMAGES)
        if base.config.task == "language" and base.config.model.family in RECURRENT:
            shape["model"]["directions"] = 1  # as it has read, whatever its setting says
        asked = merge(shape, asked)
    family = {k: v for k, v in asked.get("model", {}).items() if k == "family"}
    if asked["data"].get("vectors"):
        refuse_other_kinds(asked.get("tokenizer", {}).get("kind"))
        if base is not None:
            raise UsageError("a run that starts from another one has its embedding: leave data.vectors out")
    wish = {k: v for k, v in asked.get("tokenizer", {}).items() if k in ("sides", "file")}
    data = build({"task": asked["task"], "data": asked["data"], "model": family, "tokenizer": wish}).data
    display.phase("Reading the data")
    source = kind.open(data)
    for note in source.notes:
        display.note(f"Note: {note}.")
    for warning in source.warnings:
        display.note(f"Warning: {warning}")
    asked = merge(asked, {"data": _places(source, data)})
    display.phase("Learning the vocabulary")
    found = find_tokenizer(kind, source, asked, base, device, display)
    asked = merge(asked, {"tokenizer": found.settings})
    with display.reading(text_size(source)) as advance:
        task = kind(
            source,
            found.tokenizer,
            data,
            advance,
            lambda text: display.note(f"Warning: {text}."),
            found.source_tokenizer,
        )
    display.phase("Comparing the splits")
    task.settings()  # what the data cannot serve is said before anything else about it
    display.note(f"Data: {task.describe()}{'; ' if found.why else ''}{found.why}.")
    for line in task.report():
        display.note(line)
    vectors = None
    if data.vectors is not None:
        vectors = find_vectors(data.vectors, found.source_tokenizer or found.tokenizer)
        asked = with_vectors(asked, vectors)
        held = "fixed" if asked["model"]["embedding"] == "fixed" else "learned on from there"
        display.note(f"Vectors: {vectors.describe()}; random ones for the rest; {held}.")
    return Prepared(task, source, asked, found.tokenizer, found.source_tokenizer, vectors)


def _places(source: Corpus | Examples, data: DataConfig) -> Settings:
    """Where the data is and how it was divided, so that it is found again from any folder, and the same."""
    places: Settings = {}
    if isinstance(source, Corpus):
        places["split"] = source.split
    if source.path is not None:
        places["source"] = str(source.path)
    if isinstance(source, Mix):
        places["mix"] = source.settings()
    for name in ("target", "vectors"):
        if (file := getattr(data, name)) is not None:
            places[name] = str(whole_path(file))
    return places


def find_tokenizer(
    kind: type[Task], source: Any, asked: Settings, base: Run | None, device: torch.device, display: Display
) -> Found:
    """The tokenizer of a run: another's, a file's, or a new one."""
    wish: Settings = asked.get("tokenizer", {})
    sample = list(kind.texts(source, limit=1_000_000))
    if not sample:  # images need none
        return Found(None, wish, "")
    if base is not None:
        if wish:
            raise UsageError("a run that starts from another one has its tokenizer: leave tokenizer.… out")
        own = base.source_tokenizer if base.has_own_source else None
        if own is not None and not issubclass(kind, TranslateTask):
            raise UsageError(
                f"{base.path} has a vocabulary for each side (tokenizer.sides separate), and {kind.name} has "
                "one: start from another run"
            )
        settings = base.config.tokenizer.model_dump()
        return Found(base.tokenizer, settings, f"the tokenizer of {base.path}", own)
    if wish.get("file"):
        tokenizer = load_tokenizer(wish["file"])
        settings = {**wish, "kind": tokenizer.kind, "vocab": len(tokenizer)}
        return Found(tokenizer, settings, f"the tokenizer of {wish['file']}")
    size = text_size(source) or sum(len(t) for t in sample)
    if size > 10_000_000:
        display.note(f"Learning the vocabulary from {min(TOKENIZER_SAMPLE, size):,} bytes …")
    of_bpe = {"pattern", "normalization"} & wish.keys()
    of_words = asked["data"].get("vectors") or asked.get("model", {}).get("spelling")
    form = wish.get("kind") or ("bpe" if of_bpe else "word" if of_words else None)
    if form not in (None, "bpe") and of_bpe:
        raise UsageError(
            f"tokenizer.pattern and tokenizer.normalization are for tokenizer.kind bpe, not {form}"
        )
    if issubclass(kind, ExamplesTask):
        automatic, why = choose_for_examples(kind, source, size, form)
    else:
        minutes = asked.get("training", {}).get("minutes", 0.0)
        automatic, why = choose_tokenizer(size, len(set().union(*sample)), device, minutes=minutes, kind=form)
    settings = build({"task": kind.name, "tokenizer": {**automatic, **wish}}).tokenizer

    def learn(texts: Iterable[str]) -> Tokenizer:
        return train_tokenizer(
            settings.kind,
            texts,
            settings.vocab,
            settings.pattern,
            kind.specials,
            normalization=settings.normalization,
        )

    if settings.sides == "separate":
        assert issubclass(kind, TranslateTask)
        own, tokenizer = (learn(kind.side_texts(source, side)) for side in (0, 1))
        why = f"{settings.kind} with {len(own)} entries for the source and {len(tokenizer)} for the target"
        return Found(tokenizer, settings.model_dump(), why, own)
    tokenizer = learn(kind.texts(source, limit=TOKENIZER_SAMPLE))
    why = "" if wish else why
    return Found(tokenizer, settings.model_dump(), why or f"{settings.kind} with {len(tokenizer)} entries")


def refuse_other_tokenizer(file: Path, tokenizer: Tokenizer | None, begun_with: str | None) -> None:
    """Ids of another tokenizer mean other text to the same weights."""
    fingerprint = tokenizer_fingerprint(tokenizer) if tokenizer else None
    if begun_with and fingerprint and fingerprint != begun_with:
        raise RunError(
            f"{file} is not the tokenizer the run was begun with: its fingerprint is "
            f"{fingerprint[:12]}…, then it was {begun_with[:12]}…. Restore the file, or start a new run."
        )


def text_size(source: Any) -> int:
    """Bytes of text, where that is what the data is."""
    return sum(source.bytes(split) for split in source.splits) if hasattr(source, "bytes") else 0
