"""How text is cut into pieces before bytes are merged, so that no token reaches across words.

    gpt2         words with their blank, numbers, signs                      it|'s| 12345| ok|!
    gpt4         a sign may begin a word, numbers go by three digits         it|'s| |123|45| ok|!
    llama3       the same
    cl100k       the same, but blank lines at the end of a text stay whole, as tiktoken has it today
    o200k        upper and lower case apart, an ending belongs to its word   it's| |123|45| ok|!
    whitespace   words with their blank, whatever they hold                  it's| 12345| ok!
    none         a text is one piece; tokens may hold several words

The properties of characters (`\\p{L}`: letters) are those of one version of Unicode (unicode.py). A pattern
of the user's own may be any regular expression of the `regex` package; what it does not match becomes a
piece too, so no text is lost.
"""

import re
import time
from collections.abc import Iterator
from functools import cached_property

import regex

from glassformer.core.errors import TokenizerError, closest
from glassformer.tokenizers.automaton import Automaton, compile_pattern
from glassformer.tokenizers.pattern_tree import Unsupported
from glassformer.tokenizers.unicode import expand, same_in_regex

_GPT4 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_ENDING = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
# Written so that Python's `regex` and the engine of Hugging Face tokenizers agree on them.
PATTERNS = {
    "gpt2": r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    "gpt4": _GPT4,
    "llama3": _GPT4,
    "cl100k": _GPT4.replace(r"|\s*[\r\n]+", r"|\s+(?![\s\S])|\s*[\r\n]+"),
    "o200k": rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+{_ENDING}"
    rf"|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*{_ENDING}"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    "whitespace": r" ?\S+|\s+(?!\S)|\s+",
    "none": r"[\s\S]+",
}
_HAS_CUTS = {pattern for name, pattern in PATTERNS.items() if name != "none"}
# Here every named pattern but `none` begins a new piece: before a single blank between two characters, and
# between a line that does not end in a blank and one that does not begin with a blank or a slash. `cuts`
# finds these places in UTF-8, but for characters of the blocks where Unicode has blanks; `last_cut` in text.
_CHARACTER = (
    rb"(?:[!-.0-~]|[\xC3-\xDF][\x80-\xBF]|\xE3[\x81-\xBF][\x80-\xBF]|[\xE0\xE4-\xED][\x80-\xBF]{2}"
    rb"|[\xF0-\xF4][\x80-\xBF]{3})"
)
_BEFORE, _AFTER, _BLANKS = re.compile(_CHARACTER + rb"\Z"), re.compile(_CHARACTER), re.compile(rb"[ \n]+")
SECONDS = 10.0  # that a pattern may take for a text, and as much again
SECONDS_PER_BYTE = 1e-6


def last_cut(text: str, within: int) -> int | None:
    """The last such place among the last `within` characters; where a line starts, if there is one."""
    for sign in "\n ":
        at = len(text) - 1
        for _ in range(1000):
            at = text.rfind(sign, max(1, len(text) - within), at)
            if at < 0:
                break
            before, after = text[at - 1], text[at + 1]
            if not (before.isspace() or after.isspace() or (sign == "\n" and after == "/")):
                return at + 1 if sign == "\n" else at
    return None


def pattern_named(name: str) -> str:
    """The pattern of a name; a regular expression stands for itself."""
    if name in PATTERNS:
        return PATTERNS[name]
    if regex.fullmatch(r"[\w-]+", name):
        raise TokenizerError(
            f"no split pattern '{name}': there are {', '.join(PATTERNS)}, or give a regular expression."
            + closest(name, list(PATTERNS))
        )
    return name


class Splitter:
    """A pattern, ready to cut text: plainly here, or as a table for the compiled loops."""

    def __init__(self, pattern: str):
        self.pattern = pattern
        try:
            self._pattern = regex.compile(pattern)
        except (regex.error, RecursionError, OverflowError, TypeError) as error:
            raise TokenizerError(f"the split pattern is no regular expression: {error}") from None
        if self._pattern.match(""):
            raise TokenizerError(
                "the split pattern matches where nothing is: write + instead of *, for example"
            )
        if self._pattern.flags & regex.REVERSE:
            raise TokenizerError("the split pattern reads backwards, (?r): text is cut from its beginning")

    def pieces(self, text: str | bytes) -> list[str]:
        """All of the text, piece by piece.

        Bytes that are no UTF-8, and lone surrogates, go through the pattern as escaped code points
        (`surrogateescape`), so that every piece can become bytes again.
        """
        if isinstance(text, bytes):
            text = text.decode(errors="surrogateescape")
        pattern = self._pattern if same_in_regex(text) else self._exact
        if self.pattern in PATTERNS.values():
            return pattern.findall(text)  # these match every character
        return list(self._with_gaps(pattern, text))

    @cached_property
    def _exact(self) -> "regex.Pattern[str]":
        return regex.compile(expand(self.pattern))

    def _with_gaps(self, pattern: "regex.Pattern[str]", text: str) -> Iterator[str]:
        limit = SECONDS + SECONDS_PER_BYTE * len(text)
        start_time, position = time.monotonic(), 0
        try:
            for match in pattern.finditer(text, timeout=limit):
                start, end = match.span()
                if start == end:
                    continue
                if start > position:
                    yield text[position:start]
                yield text[start:end]
                position = end
                if time.monotonic() - start_time > limit:
                    raise TimeoutError
        except TimeoutError:
            raise TokenizerError(
                f"the split pattern took more than {limit:.0f} s for {len(text):,} characters: it goes back "
                f"over its own steps too often. Give a simpler one: {self.pattern!r}"
            ) from None
        if position < len(text):
            yield text[position:]

    @cached_property
    def automaton(self) -> Automaton | None:
        """The pattern as a table, if it can be one."""
        try:
            return compile_pattern(self.pattern)
        except Unsupported:
            return None

    def reads_too_far(self) -> TokenizerError:
        """What to say when a compiled loop has given the pattern up."""
        return TokenizerError(
            "the split pattern reads far ahead again and again for what does not come. Give one that knows "
            f"sooner where a piece ends: {self.pattern!r}"
        )

    def cuts(self, data: bytes, size: int) -> list[int]:
        """Where `data` may be cut into parts of about `size` bytes such that the pieces stay the same."""
        bounds = [0]
        at, next_at = size, {b" ": -1, b"\n": -1}  # the next one of each, looked for when it has been passed
        while self.pattern in _HAS_CUTS:
            for sign in next_at:
                if next_at[sign] < at:
                    next_at[sign] = data.find(sign, at) % (len(data) + 1)
            start = min(next_at.values())
            if not (run := _BLANKS.match(data, start)):
                break
            at = run.end()
            if at == start + 1 and _BEFORE.search(data[max(0, start - 4) : start]) and _AFTER.match(data, at):
                bounds.append(start if run[0] == b" " else at)
                at = bounds[-1] + size
        return [*bounds, len(data)]
