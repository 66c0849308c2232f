"""How often each piece of a text occurs: what byte-pair encoding learns from."""

import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import TYPE_CHECKING, Literal, TypeVar, get_args

from glassformer.core.errors import TokenizerError
from glassformer.tokenizers import fast
from glassformer.tokenizers.patterns import Splitter
from glassformer.tokenizers.tokenizer import to_bytes

if TYPE_CHECKING:
    from glassformer.tokenizers.fast.learner import PieceCounts

T = TypeVar("T")
Text = str | bytes
Engine = Literal["auto", "plain", "compiled"]
Advance = Callable[[int], None]
UNIT = 1000  # counts are in thousandths, so that texts can be weighted
MOST_PIECES = 4_000_000
LONG_PIECE = 4096  # bytes; beyond that the plain way, which reads a piece anew for each merge, is a trap
Form = Literal["none", "nfc", "nfd", "nfkc", "nfkd"]
_UNICODE_NAMES: dict[str, Literal["NFC", "NFD", "NFKC", "NFKD"]] = {
    "nfc": "NFC",
    "nfd": "NFD",
    "nfkc": "NFKC",
    "nfkd": "NFKD",
}
FORMS: tuple[Form, ...] = get_args(Form)


def count_pieces(
    texts: Iterable[Text | tuple[Text, float]],
    splitter: Splitter,
    normalization: Form = "none",
    most: int = MOST_PIECES,
    threads: int | None = None,
    engine: Engine = "auto",
    advance: Advance = lambda _: None,
) -> "dict[bytes, int] | PieceCounts":
    """The pieces of all texts and their counts in thousandths; arrays, where the compiled loops are used."""
    source = ((to_bytes(normalize(text, normalization)), w) for text, w in map(_with_weight, texts))
    is_large, source = peek(source, lambda item: len(item[0]), engine)
    if is_large and splitter.automaton is not None:
        from glassformer.tokenizers.fast.learner import count_pieces as count_fast

        return count_fast(source, splitter, most, threads, advance)
    counts: Counter[str] = Counter()
    dropped = 0
    for data, weight in source:
        for piece, n in Counter(splitter.pieces(data)).items():
            counts[piece] += weight * n
        advance(len(data))
        if len(counts) > 2 * most:
            most_frequent = Counter(dict(counts.most_common(most)))
            dropped += counts.total() - most_frequent.total()
            counts = most_frequent
    pieces = {piece.encode(errors="surrogateescape"): n for piece, n in counts.items()}
    if not is_large and (engine == "plain" or max(map(len, pieces), default=0) <= LONG_PIECE):
        return pieces
    from glassformer.tokenizers.fast.learner import counted

    return counted(pieces, dropped)


def peek(items: Iterable[T], size: Callable[[T], int], engine: Engine) -> tuple[bool, Iterator[T]]:
    """Whether there is enough for the compiled code, reading as far as one must; and all items."""
    items, total, head = iter(items), 0, list[T]()
    if engine == "auto":
        for item in items:
            head.append(item)
            total += size(item)
            if fast.worthwhile(total):
                break
    return engine == "compiled" or (engine == "auto" and fast.worthwhile(total)), chain(head, items)


def _with_weight(item: Text | tuple[Text, float]) -> tuple[Text, int]:
    text, weight = item if isinstance(item, tuple) and len(item) == 2 else (item, 1.0)
    if not isinstance(text, str | bytes) or not isinstance(weight, int | float):
        raise TokenizerError(f"texts: expected strings, bytes or (text, weight), not {item!r:.80}")
    if not 0 < weight < 1e6 or round(weight * UNIT) == 0:
        raise TokenizerError(f"the weight of a text: expected a number from 0.001 to 1,000,000, not {weight}")
    return text, round(weight * UNIT)


def normalize(text: Text, form: Form) -> Text:
    """One of Unicode's normal forms; bytes that are no UTF-8 stay as they are."""
    if form == "none":
        return text
    if isinstance(text, str):
        return unicodedata.normalize(_UNICODE_NAMES[form], text)
    try:
        return unicodedata.normalize(_UNICODE_NAMES[form], text.decode()).encode()
    except UnicodeDecodeError:
        return text
