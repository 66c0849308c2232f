"""How a text is cut when nobody says: from how much there is, and for labels by trying it.

Plain text is cut into characters where there is little of it, else by byte-pair encoding with as many entries
as it has text for. Examples are cut by byte-pair encoding too, since few of them teach little about letters;
only pairs with single words on a side, such as dates, are learned letter by letter. Texts with labels may
come cut into words already, or be full of words that come once: there a bag of the pieces says in seconds
which to take.
"""

from typing import Any

import torch

from glassformer.core.files import in_bytes
from glassformer.tasks.classifier import ClassifyTask
from glassformer.tasks.examples import ExamplesTask
from glassformer.tokenizers.load import train_tokenizer

VOCABULARIES = [  # bytes of text below which a BPE vocabulary of so many entries fits
    (400_000, 512),
    (1_500_000, 1024),
    (6_000_000, 2048),
    (40_000_000, 4096),
    (400_000_000, 16384),
]
EXAMPLE_VOCABULARIES = [(600_000, 2000), (6_000_000, 4000)]  # the same for examples
CPU_VOCABULARY = 4096
WORDS = {"kind": "word", "vocab": 20_000}
CLEARLY = 1.5  # standard errors by which words must lead
FEW = 60  # texts below which nothing can be told

Chosen = tuple[dict[str, Any], str]  # settings, and why


def choose_tokenizer(
    train_bytes: int, characters: int, device: torch.device, *, minutes: float = 0.0, kind: str | None = None
) -> Chosen:
    """For plain text: kind (unless given) and vocabulary, and why. `characters`: how many different ones."""
    if kind not in (None, "bpe"):
        return {"kind": kind}, ""
    if kind is None and train_bytes < 400_000 and characters <= 256:
        return {"kind": "char", "vocab": 512}, f"cut into characters, as fits {in_bytes(train_bytes)} of text"
    vocab = next((v for limit, v in VOCABULARIES if train_bytes < limit), 32768)
    why = f"BPE with {vocab} entries, as fits {in_bytes(train_bytes)} of text"
    if device.type == "cpu" and vocab > CPU_VOCABULARY and minutes < 60:
        vocab = (
            CPU_VOCABULARY  # a score for every entry at every position is the dearest part of a small model
        )
        why = f"BPE with {vocab} entries, as many as a CPU can afford in minutes"
    return {"kind": "bpe", "vocab": vocab}, why


def choose_for_examples(task: type[ExamplesTask], source: Any, size: int, kind: str | None = None) -> Chosen:
    """For examples with so many bytes of text: kind (unless given) and vocabulary, and why."""
    if kind not in (None, "bpe"):
        return {"kind": kind}, ""
    vocab = next((v for limit, v in EXAMPLE_VOCABULARIES if size < limit), 8000)
    pieces = (
        {"kind": "bpe", "vocab": vocab},
        f"BPE with {vocab} entries, as fits {in_bytes(size)} of examples",
    )
    if kind == "bpe":
        return pieces
    if task.of_single_words(source):
        return {"kind": "char", "vocab": 512}, "cut into characters, as fits single words"
    return _words_or(pieces, task, source) if issubclass(task, ClassifyTask) else pieces


def _words_or(pieces: Chosen, task: type[ClassifyTask], source: Any) -> Chosen:
    """Words, if a bag of them labels held-out training examples clearly better than a bag of the pieces."""
    shares: dict[str, float] = {}
    texts, error = list(task.texts(source)), 0.0
    if len(texts) < FEW:
        return pieces
    for settings in (WORDS, pieces[0]):
        tokenizer = train_tokenizer(settings["kind"], texts, settings["vocab"], specials=task.specials)
        shares[settings["kind"]], wavers = task.bag_accuracy(source, tokenizer)
        error = max(error, wavers)
    if shares["word"] - shares["bpe"] <= CLEARLY * error:
        return pieces
    figures = f"{shares['word']:.0%} of held-out examples, a bag of BPE pieces {shares['bpe']:.0%}"
    return WORDS, f"cut into words, since a bag of words gets right {figures}"
