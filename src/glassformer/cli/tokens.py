"""Tokens for people to read: where they stand in a text, and how merging made them."""

from typing import TYPE_CHECKING, Any

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
        token = shown(tokenizer.token_bytes(span.id))
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
            console.put("|".join(shown(tokenizer.token_bytes(i)) for i in ids))
        console.put("")


def put_merges(tokenizer: "Tokenizer", first: int | None, json_: bool) -> None:
    """Which two tokens became one, in the order learned."""
    from glassformer.core.errors import UsageError
    from glassformer.tokenizers.bpe_tokenizer import BPE

    if not isinstance(tokenizer, BPE):
        raise UsageError(f"merges are of byte-pair encoding; this is a {tokenizer.kind} tokenizer")
    id_of = {entry: i for i, entry in enumerate(tokenizer.entries)}
    rows: list[dict[str, Any]] = []
    for number, pair in enumerate(tokenizer.merges[:first], start=1):
        left, right = map(tokenizer.token_bytes, pair)
        parts = {"left": _text(left), "right": _text(right), "token": _text(left + right)}
        rows.append({"number": number, **parts, "ids": list(pair), "id": id_of[left + right]})
    if json_:
        console.put_json({"merges": rows, "total": len(tokenizer.merges)})
        return
    console.put(f"{'merge':>7}{'id':>7}  token")
    for row in rows:
        left, right, token = (visible(row[name]) for name in ("left", "right", "token"))
        console.put(f"{row['number']:>7}{row['id']:>7}  {left} + {right} → {token}")
    if len(rows) < len(tokenizer.merges):
        console.note(f"{len(tokenizer.merges) - len(rows):,} more; --first says how many to show.")


def shown(token: bytes) -> str:
    """A token to read."""
    return visible(_text(token))


def _text(token: bytes) -> str:
    """A token as text; bytes that are a part of a character as numbers."""
    try:
        return token.decode()
    except UnicodeDecodeError:
        return "".join(f"<{byte:02x}>" for byte in token)


def visible(text: str) -> str:
    return text.replace(" ", "·").replace("\n", "⏎")
