"""Tokens for people to read: where they stand in a text, and how merging made them."""

from typing import TYPE_CHECKING

from glassformer.cli import console

if TYPE_CHECKING:
    from glassformer.tokenizers.tokenizer import Tokenizer


def put_spans(tokenizer: "Tokenizer", text: str, json_: bool) -> None:
    spans = tokenizer.spans(text)
    if json_:
        console.put_json({"spans": [span._asdict() for span in spans]})
        return
    console.put(f"{'id':>7}{'bytes':>14}{'characters':>14}  token")
    for span in spans:
        places = (f"{a}-{b}" for a, b in (span.bytes, span.characters))
        token = _shown(tokenizer.token_bytes(span.id))
        console.put(f"{span.id:>7}{next(places):>14}{next(places):>14}  {token}")


def put_steps(tokenizer: "Tokenizer", text: str, json_: bool) -> None:
    from glassformer.core.errors import UsageError
    from glassformer.tokenizers.bpe_tokenizer import BPE

    if not isinstance(tokenizer, BPE):
        raise UsageError(f"--steps shows how byte-pair encoding merges; this is a {tokenizer.kind} tokenizer")
    histories = tokenizer.histories(text)
    if json_:
        console.put_json({"steps": histories})
        return
    for history in histories:
        for ids in history:
            console.put("|".join(_shown(tokenizer.token_bytes(i)) for i in ids))
        console.put("")


def _shown(token: bytes) -> str:
    """A token to read; bytes that are a part of a character as numbers."""
    try:
        return visible(token.decode())
    except UnicodeDecodeError:
        return "".join(f"<{byte:02x}>" for byte in token)


def visible(text: str) -> str:
    return text.replace(" ", "·").replace("\n", "⏎")
