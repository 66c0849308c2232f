"""Tokenizers as Hugging Face `tokenizer.json` documents, and what can be read back from them."""

from typing import Any

from glassformer.core.errors import TokenizerError
from glassformer.tokenizers.patterns import PATTERNS

VERSION = "1.0"


def _byte_signs() -> dict[int, str]:
    """GPT-2's printable stand-in for each byte: visible Latin-1 stays, the rest moves above U+0100."""
    visible = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    signs = {b: chr(b) for b in visible}
    signs |= {b: chr(256 + i) for i, b in enumerate(b for b in range(256) if b not in signs)}
    return signs


BYTE_TO_SIGN = _byte_signs()
SIGN_TO_BYTE = {sign: byte for byte, sign in BYTE_TO_SIGN.items()}


def to_signs(data: bytes) -> str:
    return "".join(BYTE_TO_SIGN[b] for b in data)


def from_signs(token: str) -> bytes:
    return bytes(SIGN_TO_BYTE[sign] for sign in token)


def _document(
    model: dict[str, Any],
    pre_tokenizer: dict[str, Any],
    decoder: dict[str, Any] | None,
    specials: dict[str, int],
    normalizer: dict[str, Any] | None = None,
) -> dict[str, Any]:
    added = [
        {
            "id": number,
            "content": name,
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": True,
        }
        for name, number in specials.items()
    ]
    return {
        "version": VERSION,
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": normalizer,
        "pre_tokenizer": pre_tokenizer,
        "post_processor": None,
        "decoder": decoder,
        "model": model,
    }


def split(pattern: str, behavior: str = "Isolated", invert: bool = False) -> dict[str, Any]:
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": behavior, "invert": invert}


def byte_level(
    entries: list[bytes],
    merges: list[tuple[int, int]],
    pattern: str | None,
    specials: dict[str, int],
    normalization: str = "none",
) -> dict[str, Any]:
    """A byte-level BPE model; without merges and pattern, plain bytes."""
    signs = [to_signs(entry) for entry in entries]
    step = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
    pre = step if pattern is None else {"type": "Sequence", "pretokenizers": [split(pattern), step]}
    model = {
        "type": "BPE",
        "dropout": None,
        "unk_token": None,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": False,
        "byte_fallback": False,
        "ignore_merges": False,
        "vocab": {sign: i for i, sign in enumerate(signs)},
        "merges": [[signs[a], signs[b]] for a, b in merges],
    }
    normalizer = None if normalization == "none" else {"type": normalization.upper()}
    return _document(model, pre, {**step, "use_regex": True}, specials, normalizer)


def word_level(
    vocab: dict[str, int], unknown: str, pattern: str, joined: str | None, specials: dict[str, int]
) -> dict[str, Any]:
    """Whole pieces found by a pattern; what the pattern does not match is dropped."""
    model = {"type": "WordLevel", "vocab": vocab, "unk_token": unknown}
    decoder = None if joined is None else {"type": "Fuse"}
    return _document(model, split(pattern, "Removed", invert=True), decoder, specials)


def special_names(content: dict[str, Any]) -> list[str]:
    """The special tokens in the order of their ids."""
    added = [t for t in content.get("added_tokens", []) if t.get("special")]
    return [t["content"] for t in sorted(added, key=lambda t: t["id"])]


def normal_form(content: dict[str, Any]) -> Any:
    """The name of a document's normal form of Unicode, `none` without one."""
    return (content.get("normalizer") or {"type": "none"})["type"].lower()


def pattern_of(content: dict[str, Any]) -> str:
    """The split pattern of a document: one Split before ByteLevel, or ByteLevel alone (GPT-2's, or none)."""
    pre = content.get("pre_tokenizer") or {}
    match [_essence(step) for step in pre.get("pretokenizers", [pre])]:
        case [("Split", pattern), ("ByteLevel", False)] if pattern:
            return pattern
        case [("ByteLevel", use_regex)]:
            return PATTERNS["gpt2" if use_regex else "none"]
    raise TokenizerError("this BPE tokenizer is not byte-level, or cuts text in a way not supported here")


def _essence(step: dict[str, Any]) -> tuple[str, Any]:
    kind = step.get("type", "")
    if kind == "Split":
        plain = step.get("behavior") == "Isolated" and not step.get("invert")
        return kind, step.get("pattern", {}).get("Regex") if plain else None
    return kind, step.get("use_regex", True)
