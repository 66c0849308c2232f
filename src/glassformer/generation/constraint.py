"""Texts that are held to a form: a regular expression, or a JSON schema.

Before each token, the parser of the llguidance library says which entries of the vocabulary can come next so
that the text can still become what was asked for; all others get −∞. It works on bytes, so tokens may end in
the middle of a word or a character. Where the text may end, the mark that ends a text is one of the choices;
where it must, the text is ended.
"""

from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from llguidance import LLMatcher, LLTokenizer, TokenizerWrapper

from glassformer.core.errors import UsageError
from glassformer.core.strict_json import dump_json
from glassformer.tokenizers.tokenizer import Tokenizer
from glassformer.tokenizers.vocabulary import Vocabulary

# One way to write a JSON text, that of Python's `json.dumps`: a model that may choose blanks writes many.
SPACING: Any = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
NO_WAY = "NoExtension"  # the library's word for it; ours:
NO_ENTRY = "no entry of the vocabulary leads on from here"

_known: "WeakKeyDictionary[Tokenizer, LLTokenizer]" = WeakKeyDictionary()


class Form:
    """A `Constraint` (request.py): where a text stands in the form it is held to."""

    def __init__(self, tokenizer: Tokenizer, grammar: str, what: str):
        self._vocab, self._what = len(tokenizer), what
        self._text = np.ones(self._vocab, bool)  # all but the marks
        self._text[marks_of(tokenizer)] = False
        self._matcher = LLMatcher(_adapted(tokenizer), grammar, log_level=0)
        self._refuse_errors()

    def allowed(self) -> np.ndarray:
        bits = np.frombuffer(self._matcher.compute_bitmask(), np.uint8)
        self._refuse_errors()
        allowed = np.unpackbits(bits, bitorder="little")[: self._vocab].astype(bool)
        if not self._matcher.is_accepting():
            allowed &= self._text  # where bytes are forced that no entry has, the library names a mark
            if not allowed.any():
                raise UsageError(f"{self._what} cannot be followed: {NO_ENTRY}")
        return allowed

    def accept(self, token: int) -> bool:
        self._matcher.consume_token(token)
        self._refuse_errors()
        return not self._matcher.is_stopped()

    def _refuse_errors(self) -> None:
        if self._matcher.is_error():
            said = (self._matcher.get_error() or "").splitlines() or [""]  # what follows is for its makers
            reason = NO_ENTRY if said[0].startswith(NO_WAY) else said[0]
            raise UsageError(f"{self._what} cannot be followed: {reason}")


def regex_constraint(tokenizer: Tokenizer, pattern: str) -> Form:
    """The whole text matches a regular expression."""
    return _form(tokenizer, lambda: LLMatcher.grammar_from_regex(pattern), "the regular expression")


def json_constraint(tokenizer: Tokenizer, schema: dict[str, Any] | bool) -> Form:
    """The whole text is JSON that fits a schema, spaced as `json.dumps` does it; `{}` is any JSON."""
    text = dump_json(schema)
    return _form(tokenizer, lambda: LLMatcher.grammar_from_json_schema(text, overrides=SPACING), "the schema")


def _form(tokenizer: Tokenizer, grammar: Callable[[], str], what: str) -> Form:
    if tokenizer.separator:
        raise UsageError(
            f"{what}: a {tokenizer.kind} tokenizer puts blanks between its tokens, so a form cannot be held; "
            "expected a run with tokenizer.kind bpe, byte or char"
        )
    try:
        text = grammar()
        if problem := LLMatcher.validate_grammar(text, _adapted(tokenizer)):
            raise ValueError(problem)
        return Form(tokenizer, text, what)
    except (ValueError, RuntimeError, TypeError) as error:
        raise UsageError(f"{what} cannot be used: {error}") from None


def marks_of(tokenizer: Tokenizer) -> list[int]:
    """Ids that stand for no text."""
    unknown = [tokenizer.unknown] if isinstance(tokenizer, Vocabulary) else []
    return [*tokenizer.specials.values(), *unknown]


class _Adapter:
    """A tokenizer as the library wants to see it."""

    bos_token_id = None

    def __init__(self, tokenizer: Tokenizer):
        self._cut = tokenizer.cut
        marks = marks_of(tokenizer)
        self.tokens = [tokenizer.token_bytes(i) for i in range(len(tokenizer))]
        self.eos_token_id = len(tokenizer) if tokenizer.eot_id is None else tokenizer.eot_id
        if tokenizer.eot_id is None:  # it must have one, which then is outside of what can be drawn
            self.tokens.append(b"<end>")
            marks.append(len(tokenizer))
        self.special_token_ids = marks
        for i in marks:
            self.tokens[i] = b"\xff" + self.tokens[i]  # how the library tells marks from text

    def __call__(self, text: bytes) -> list[int]:
        return self._cut(text)


def _adapted(tokenizer: Tokenizer) -> LLTokenizer:
    if tokenizer not in _known:
        _known[tokenizer] = LLTokenizer(TokenizerWrapper(_Adapter(tokenizer)))
    return _known[tokenizer]
