"""Before training: the tokenizer of a run, and what the data and the user must agree on."""

from pathlib import Path
from typing import Any

import torch

from glassformer.config.recipes import merge
from glassformer.config.schema import Settings, build
from glassformer.core.errors import RunError, UsageError
from glassformer.data.shards import tokenizer_fingerprint
from glassformer.runs.autosize import choose_tokenizer
from glassformer.runs.run import Run
from glassformer.tasks.task import Task
from glassformer.tokenizers.load import load_tokenizer, train_tokenizer
from glassformer.tokenizers.tokenizer import Tokenizer
from glassformer.training.display import Display

TOKENIZER_SAMPLE = 256_000_000  # bytes of text that are enough to learn a vocabulary from


def find_tokenizer(
    kind: type[Task], opened: Any, given: Settings, base: Run | None, device: torch.device, display: Display
) -> tuple[Tokenizer | None, dict[str, Any], str]:
    """The tokenizer of a run: another's, a file's, or a new one; with its settings and the reason."""
    asked: dict[str, Any] = given.get("tokenizer", {})
    sample = list(kind.texts(opened, limit=1_000_000))
    if not sample:  # images need none
        return None, asked, ""
    if base is not None:
        if asked:
            raise UsageError("a run that starts from another one has its tokenizer: leave tokenizer.… out")
        return base.tokenizer, base.config.tokenizer.model_dump(), f"the tokenizer of {base.path}"
    if asked.get("file"):
        tokenizer = load_tokenizer(asked["file"])
        chosen = {**asked, "kind": tokenizer.kind, "vocab": len(tokenizer)}
        return tokenizer, chosen, f"the tokenizer of {asked['file']}"
    size = text_size(opened) or sum(len(t) for t in sample)
    if size > 10_000_000:
        display.note(f"Learning the vocabulary from {min(TOKENIZER_SAMPLE, size):,} bytes …")
    wanted = asked.get("kind") or ("bpe" if {"pattern", "normalization"} & asked.keys() else None)
    if wanted not in (None, "bpe") and {"pattern", "normalization"} & asked.keys():
        raise UsageError(
            f"tokenizer.pattern and tokenizer.normalization are for tokenizer.kind bpe, not {wanted}"
        )
    automatic, why = choose_tokenizer(
        size,
        len(set().union(*sample)),
        device,
        minutes=given.get("training", {}).get("minutes", 0.0),
        kind=wanted,
        sequence=sorted(len(t) for t in sample)[len(sample) // 2] if kind.name == "translate" else None,
    )
    settings = build({"tokenizer": {**automatic, **asked}}).tokenizer
    texts = kind.texts(opened, limit=TOKENIZER_SAMPLE)
    form = {"normalization": settings.normalization}
    tokenizer = train_tokenizer(settings.kind, texts, settings.vocab, settings.pattern, kind.specials, **form)
    why = "" if asked else why
    return tokenizer, settings.model_dump(), why or f"{settings.kind} with {len(tokenizer)} entries"


def refuse_other_tokenizer(folder: Path, tokenizer: Tokenizer | None, begun_with: str | None) -> None:
    """Ids of another tokenizer mean other text to the same weights."""
    found = tokenizer_fingerprint(tokenizer) if tokenizer else None
    if begun_with and found and found != begun_with:
        raise RunError(
            f"{folder / 'tokenizer.json'} is not the tokenizer the run was begun with: its fingerprint is "
            f"{found[:12]}…, then it was {begun_with[:12]}…. Restore the file, or start a new run."
        )


def text_size(opened: Any) -> int:
    """Bytes of text, where that is what the data is."""
    return sum(opened.bytes(split) for split in opened.splits) if hasattr(opened, "bytes") else 0


def agreed(given: Settings, found: Settings) -> Settings:
    """What the data says, unless the user said something else about the same."""
    for name, value in found.get("model", {}).items():
        asked = given.get("model", {}).get(name) or value
        if asked != value:
            raise UsageError(
                f"model.{name} {asked}: the data has {value}. Leave model.{name} out"
                + (", and set tokenizer.vocab." if name == "vocab" else ".")
            )
    return merge(given, found)
