"""The one way to a tokenizer: learned from text by the name of its kind, or read from a file."""

import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from shlex import quote
from typing import Any, Literal

from glassformer.core.errors import TokenizerError, UsageError, closest
from glassformer.core.files import names_in, read_bytes
from glassformer.tokenizers.bpe_tokenizer import BPE
from glassformer.tokenizers.counting import FORMS, Form
from glassformer.tokenizers.formats import normal_form, to_signs
from glassformer.tokenizers.pairs import Pairs
from glassformer.tokenizers.tokenizer import END_OF_TEXT, Byte, Tokenizer
from glassformer.tokenizers.vocabulary import Char, Word


def train_tokenizer(
    kind: str,
    texts: Iterable[Any],
    vocab: int,
    pattern: str = "gpt4",
    specials: Sequence[str] = (END_OF_TEXT,),
    *,
    min_frequency: int = 2,
    alphabet: str = "",
    ties: Literal["bytes", "signs"] = "bytes",
    normalization: Form = "none",
    threads: int | None = None,
    progress: Callable[[str, int], None] = lambda what, n: None,
) -> Tokenizer:
    """Learn a tokenizer of at most `vocab` entries; bytes need no learning.

    `texts` are strings, for BPE also (text, weight). `pattern` and what comes behind `specials` are of BPE
    alone: see `BPE.train`.
    """
    makers: dict[str, Callable[[], Tokenizer]] = {
        "byte": lambda: Byte(specials),
        "char": lambda: Char.train(texts, vocab, specials),
        "word": lambda: Word.train(texts, vocab, specials),
        "pairs": lambda: Pairs.train(texts, vocab, specials),
        "bpe": lambda: BPE.train(
            texts,
            vocab,
            pattern=pattern,
            specials=specials,
            min_frequency=min_frequency,
            alphabet=alphabet,
            ties=ties,
            normalization=normalization,
            threads=threads,
            progress=progress,
        ),
    }
    if kind not in makers:
        raise UsageError(
            f"there is no tokenizer '{kind}'.{closest(kind, list(makers))} Kinds: {', '.join(makers)}."
        )
    return makers[kind]()


def load_tokenizer(path: str | Path) -> Tokenizer:
    """Read a `tokenizer.json`, ours or another's of the same kinds."""
    path = Path(path)
    if path.is_dir():  # a run, or a folder of Hugging Face's
        path /= "tokenizer.json"
    return parse_tokenizer(path, lambda: read_bytes(path))


def parse_tokenizer(path: Path, read: Callable[[], bytes]) -> Tokenizer:
    """The tokenizer that is in a file, read as the caller does; `path` is its name in messages."""
    try:
        content = json.loads(read().decode())
        _refuse_unknown_features(content)
        tokenizer = _class_of(content).from_json(content)
        file_specials = {t["content"]: t["id"] for t in content["added_tokens"] if t.get("special")}
    except FileNotFoundError:
        near = closest(path.name, [n for n in names_in(path.parent) if n.endswith(".json")], path.parent)
        raise TokenizerError(
            f"there is no tokenizer file '{path}'.{near} Make one: glassformer tokenizer train TEXT --out "
            f"{quote(str(path))}"
        ) from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        why = str(error).splitlines()[0][:120] if isinstance(error, ValueError) else repr(error)
        raise TokenizerError(f"{path} is not a tokenizer.json that can be read: {why}") from None
    if file_specials != tokenizer.specials:
        raise TokenizerError(f"{path}: its special tokens do not stand at the end of the vocabulary")
    return tokenizer


def _refuse_unknown_features(content: dict[str, Any]) -> None:
    """What would change the ids and is not done here must not be passed over."""
    model, pre = content["model"], content.get("pre_tokenizer") or {}
    steps = pre.get("pretokenizers", [pre])
    features = {
        "a normalizer": content.get("normalizer") and normal_form(content) not in FORMS,
        "add_prefix_space": any(step.get("add_prefix_space") for step in steps),
        "ignore_merges": model.get("ignore_merges"),
        "byte_fallback": model.get("byte_fallback"),
        "a prefix or suffix of subwords": model.get("continuing_subword_prefix")
        or model.get("end_of_word_suffix"),
        "added tokens that are not special": model["type"] == "BPE"
        and any(not t.get("special") for t in content["added_tokens"]),
        "ids with gaps": sorted({*model["vocab"].values(), *(t["id"] for t in content["added_tokens"])})
        != list(range(len({*model["vocab"], *(t["content"] for t in content["added_tokens"])}))),
    }
    unsupported = [name for name, present in features.items() if present]
    if unsupported:
        raise TokenizerError(f"this tokenizer uses {', '.join(unsupported)}, which is not supported here")


def _class_of(content: dict[str, Any]) -> type[Tokenizer]:
    """Which kind a document is: the model's type, and for word lists the pattern that cuts them."""
    model = content["model"]
    if model["type"] == "BPE":
        plain = {to_signs(bytes([b])): b for b in range(256)}
        return Byte if not model["merges"] and model["vocab"] == plain else BPE
    if model["type"] == "WordLevel":
        pattern = content["pre_tokenizer"]["pattern"]["Regex"]
        for kind in (Char, Word, Pairs):
            if kind.pattern == pattern:
                return kind
    raise TokenizerError(f"tokenizers of type {model['type']!r} are not supported here")
