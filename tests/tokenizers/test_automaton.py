"""Split patterns as tables, against the regular expressions they come from; the table of Unicode."""

import time
from itertools import pairwise

import numpy as np
import pytest
import regex
import tiktoken
from hypothesis import HealthCheck, given, reject, settings
from hypothesis import strategies as st
from tokenizers import Regex, pre_tokenizers

from glassformer.core.errors import TokenizerError
from glassformer.tokenizers import patterns
from glassformer.tokenizers.automaton import Automaton, compile_pattern
from glassformer.tokenizers.pattern_tree import Unsupported
from glassformer.tokenizers.patterns import PATTERNS, Splitter, last_cut, pattern_named
from glassformer.tokenizers.unicode import contains, expand, in_set, members, table

SIGNS = "abcXYZéßΩ日本١²\u0301's'LLve \t\n\r\x85\u3000!?/_-12345👩\u200d\ufe0f"
some_text = st.text(st.one_of(st.sampled_from(SIGNS), st.characters(exclude_categories=("Cs",))), max_size=40)


def match_end(automaton: Automaton, text: str, start: int) -> int:
    """What the compiled scanner does, one character at a time; `start` if nothing matches there."""
    state, end, i = automaton.start, start, start
    while state:
        kind = automaton.end_class if i == len(text) else int(automaton.classes[ord(text[i])])
        state, is_match = divmod(int(automaton.table[state + kind]), 2)
        end = i if is_match else end
        i += 1
    return end


def walk(automaton: Automaton, text: str) -> list[str]:
    pieces, start = [], 0
    while start < len(text):
        end = match_end(automaton, text, start)
        assert end > start
        pieces.append(text[start:end])
        start = end
    return pieces


@pytest.mark.parametrize("name", list(PATTERNS))
@settings(max_examples=400, deadline=None)
@given(text=some_text)
def test_the_table_of_a_named_pattern_cuts_like_the_pattern(name: str, text: str) -> None:
    assert walk(compile_pattern(PATTERNS[name]), text) == Splitter(PATTERNS[name]).pieces(text)


def test_the_exact_patterns_agree_where_unicode_versions_do_not() -> None:
    """Letters of Unicode 17 and later are no letters here, whatever the `regex` package knows."""
    newer = "a\U000323b0b \u088f\u088f 1\u0558"
    for pattern in PATTERNS.values():
        assert Splitter(pattern).pieces(newer) == walk(compile_pattern(pattern), newer)
        assert Splitter(pattern).pieces(newer) == regex.findall(expand(pattern), newer)
    assert Splitter(PATTERNS["gpt4"]).pieces("a\U000323b0b") == ["a", "\U000323b0b"]


atoms = st.sampled_from(
    [
        "a",
        "b",
        "'",
        " ",
        r"\s",
        r"\S",
        r"\d",
        "[ab]",
        "[^a]",
        r"[^\s\p{L}]",
        r"[\p{L}^1]",
        r"[a\p{N}-b]",
        r"[\p{N}-']",
        r"\p{L}",
        r"\p{N}",
        r"\n",
    ]
)
repeats = st.sampled_from(["", "?", "*", "+", "??", "*?", "+?", "{2}", "{1,2}", "{2,}", "{1,3}?"])


@st.composite
def own_patterns(draw: st.DrawFn, depth: int = 2) -> str:
    def item(depth: int) -> str:
        kind = draw(st.integers(0, 9))
        if kind < 6 or depth == 0:
            return draw(atoms) + draw(repeats)
        if kind == 6:
            return draw(st.sampled_from([r"(?!\S)", "(?=a)", "(?![ab])", r"(?![\s\S])"]))
        opening = draw(st.sampled_from(["(?:", "(", "(?i:"]))
        return f"{opening}{choices(depth - 1)}){draw(repeats)}"

    def choices(depth: int) -> str:
        return "|".join(
            "".join(item(depth) for _ in range(draw(st.integers(1, 3))))
            for _ in range(draw(st.integers(1, 3)))
        )

    return choices(depth)


@settings(max_examples=100, suppress_health_check=[HealthCheck.filter_too_much])
@given(own_patterns(), st.text("abAB' 1\n", max_size=14))
def test_the_table_of_any_pattern_cuts_like_the_pattern(pattern: str, text: str) -> None:
    try:
        automaton = compile_pattern(pattern)
    except Unsupported:
        reject()
    plain = regex.compile(pattern)
    for start in range(len(text)):
        match = plain.match(text, start)
        assert match_end(automaton, text, start) == (match.end() if match else start), (pattern, text, start)


def test_a_pattern_too_large_for_a_table_is_given_up_soon() -> None:
    start = time.process_time()
    for pattern in ("(?:[ab]{1,100}){1,100}c", "(?:a{1,99}b{1,99}){1,9}[ab]{99}c"):
        with pytest.raises(Unsupported):
            compile_pattern(pattern)
    assert time.process_time() - start < 5


@pytest.mark.parametrize(
    "pattern",
    [
        r"(a)\1",
        r"(?<=a)b",
        r"a++",
        r"a?+b",
        r"\bword",
        r"^a",
        r"a$",
        r"(?>a)b",
        "a{3",
        r"(?!ab)c",
        "(?:a?)*b",
    ],
)
def test_what_a_table_cannot_say_is_left_to_the_regular_expression(pattern: str) -> None:
    with pytest.raises(Unsupported):
        compile_pattern(pattern)


def test_text_that_an_own_pattern_does_not_match_is_kept() -> None:
    assert Splitter(r"\w+(?<!b)").pieces("ab, c!") == ["a", "b, ", "c", "!"]
    assert Splitter(r"[a-z]+").pieces("12ab3") == ["12", "ab", "3"]


def test_wrong_patterns_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TokenizerError, match="no regular expression"):
        Splitter("(")
    with pytest.raises(TokenizerError, match="backwards"):
        Splitter(r"(?r)\w+")
    with pytest.raises(TokenizerError, match="where nothing is"):
        Splitter("a*")
    with pytest.raises(TokenizerError, match=r"no split pattern 'gpt5'.*Did you mean 'gpt4'"):
        pattern_named("gpt5")
    monkeypatch.setattr(patterns, "SECONDS", 0.2)
    with pytest.raises(TokenizerError, match="took more than"):
        Splitter(r"(?:a|a)+?(?<=y)c").pieces("a" * 60)


@pytest.mark.parametrize("name", [name for name in PATTERNS if name != "none"])
@settings(max_examples=300, deadline=None)
@given(
    text=st.text(
        st.sampled_from("aB1é日'.!/ \n\r\t") | st.characters(exclude_categories=("Cs",)), max_size=60
    )
)
def test_cutting_a_text_in_parts_changes_no_piece(name: str, text: str) -> None:
    splitter, data = Splitter(PATTERNS[name]), text.encode()
    bounds = splitter.cuts(data, 1)
    parts = [data[a:b].decode() for a, b in pairwise(bounds)]
    assert [p for part in parts for p in splitter.pieces(part)] == splitter.pieces(text)
    cut = last_cut(text, 100)
    if cut is not None:
        assert splitter.pieces(text[:cut]) + splitter.pieces(text[cut:]) == splitter.pieces(text)


def test_parts_are_about_as_large_as_asked() -> None:
    data = b"some words, and more of them.\n" * 1000
    for other in ("Это строка, и ещё одна.\n", "这是一行文字\n", "한국어 문장입니다 "):
        assert len(Splitter(PATTERNS["gpt4"]).cuts(other.encode() * 1000, 1000)) > 10
    sizes = [b - a for a, b in pairwise(Splitter(PATTERNS["gpt4"]).cuts(data, 1000))]
    assert sum(sizes) == len(data) and all(1000 <= s < 1040 for s in sizes[:-1])
    assert Splitter(PATTERNS["none"]).cuts(data, 1000) == [0, len(data)]


EVERYTHING = "".join(chr(c) for c in range(0x110000) if not 0xD800 <= c < 0xE000)


def characters(ends: np.ndarray) -> str:
    """All members of a set, in order."""
    points = np.flatnonzero(contains(ends, np.arange(0x110000)))
    points = points[(points < 0xD800) | (points >= 0xE000)]
    return points.astype("<u4").tobytes().decode("utf-32-le")


@pytest.mark.parametrize("name", [name for name in table() if name != "unicode"])
def test_the_table_of_unicode_is_that_of_tiktoken_and_hugging_face(name: str) -> None:
    ours = characters(members(name))
    ranks = {bytes([b]): b for b in range(256)}
    peer = tiktoken.Encoding("t", pat_str=rf"\p{{{name}}}", mergeable_ranks=ranks, special_tokens={})
    assert bytes(peer.encode_ordinary(EVERYTHING)).decode() == ours  # it drops what does not match
    split = pre_tokenizers.Split(Regex(rf"\p{{{name}}}"), "removed", invert=True)
    assert "".join(piece for piece, _ in split.pre_tokenize_str(EVERYTHING)) == ours


def test_sets_are_those_of_regular_expressions() -> None:
    for source in ("a", r"\s", r"[^\r\n]", "(?i:s)", r"[\d_]", r"\S"):
        assert characters(in_set(source)) == "".join(regex.findall(source, EVERYTHING))
    letters, others = characters(members("L")), characters(in_set(r"[^\r\p{L}]"))
    assert sorted([*letters, *others, "\r"]) == list(EVERYTHING)
