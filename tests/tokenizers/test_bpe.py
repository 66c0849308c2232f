"""Byte-pair encoding: the compiled loops against the plain ones, and what the tokenizer promises."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer as HFTokenizer

from glassformer.core.errors import TokenizerError
from glassformer.tokenizers.bpe import BYTES, learn_merges, merges_of
from glassformer.tokenizers.bpe_tokenizer import BPE
from glassformer.tokenizers.counting import UNIT, count_pieces
from glassformer.tokenizers.fast import learner
from glassformer.tokenizers.load import load_tokenizer
from glassformer.tokenizers.pairs import Pairs
from glassformer.tokenizers.patterns import PATTERNS, Splitter
from glassformer.tokenizers.tokenizer import Byte
from glassformer.tokenizers.vocabulary import Char, Word
from tests.tokenizers.bpe_made import (
    BASE,
    CODE,
    COMPILED,
    ENGINES,
    PLAIN,
    TEXT,
    any_text,
    engine,
    many,
    words,
)


@many
@given(any_text | words)
def test_compiled_ids_are_the_plain_ones(text: str) -> None:
    ids = PLAIN.encode(text)
    assert COMPILED.encode(text) == ids
    assert COMPILED.array(text, threads=2).tolist() == ids
    assert COMPILED.decode(ids) == text


@many
@given(
    st.binary(max_size=60) | st.sampled_from([b"\xed\xa0\x80abc", b"\xf4\x90\x80\x80", b"\xe2\x82", b"a\xc3"])
)
def test_compiled_ids_of_bytes_are_the_plain_ones(data: bytes) -> None:
    ids = PLAIN.encode(data)
    assert COMPILED.encode(data) == ids
    assert COMPILED.decode_bytes(ids) == data


@many
@given(st.lists(words, max_size=8))
def test_many_texts_at_once_are_each_by_itself(texts: list[str]) -> None:
    assert COMPILED.encode_batch(texts, threads=2) == [PLAIN.encode(t) for t in texts]


@pytest.mark.parametrize("pattern", ["gpt4", "none"])
def test_long_pieces_are_merged_like_short_ones(pattern: str) -> None:
    random = np.random.default_rng(0)
    base = BPE.train(["abbabaab" * 50, "aaaa bbbb", "x" * 99], 300, pattern=pattern, engine="plain")
    for letters in (b"ab", b"a", b"abx", b"aabb"):
        data = bytes(random.choice(list(letters), 700))
        assert engine(base, "compiled").encode(data) == engine(base, "plain").encode(data)


@many
@given(words)
def test_what_an_own_pattern_leaves_out_is_kept(text: str) -> None:
    for pattern in (r"[a-z]+", r" \p{L}+|\d", "o|we|wer"):
        base = BPE(BASE.entries, BASE.merges, pattern)
        ids = engine(base, "plain").encode(text)
        assert engine(base, "compiled").encode(text) == ids
        assert base.decode(ids) == text


def test_threads_do_not_change_ids() -> None:
    text = CODE[:300_000]
    ids = PLAIN.encode(text)
    for threads in (1, 2, 5):
        assert COMPILED.array(text, threads).tolist() == ids
    texts = text.splitlines(keepends=True)
    assert COMPILED.encode_batch(texts, threads=3) == [PLAIN.encode(t) for t in texts]


@many
@given(st.lists(st.tuples(st.binary(max_size=40) | words, st.sampled_from([1, 2.5, 0.25])), max_size=6))
def test_compiled_counts_are_the_plain_ones(texts: list) -> None:
    splitter = Splitter(PATTERNS["gpt4"])
    plain = count_pieces(texts, splitter, engine="plain")
    compiled = count_pieces(texts, splitter, engine="compiled", threads=2)
    assert isinstance(plain, dict) and isinstance(compiled, learner.PieceCounts)
    ends = np.cumsum(compiled.lengths)
    counts = {
        bytes(compiled.pieces[e - n : e]): int(c)
        for e, n, c in zip(ends, compiled.lengths, compiled.counts, strict=True)
    }
    assert counts == plain


@many
@given(
    st.dictionaries(st.text("abcé", min_size=1, max_size=12), st.integers(1, 5), max_size=12),
    st.sampled_from(["", "é", "aé日"]),
)
def test_compiled_merges_are_the_plain_ones(counts: dict[str, int], alphabet: str) -> None:
    pieces = {piece.encode(): n for piece, n in counts.items()}
    backwards = BYTES[::-1]
    for entries in (BYTES, backwards):
        first = merges_of(alphabet, entries)
        for least in (1, 2):
            plain = learn_merges(pieces, 40, least, first, entries)
            assert learner.learn(learner.counted(pieces), entries, 40, least, first) == plain


def test_weights_count_like_repetition() -> None:
    twice = BPE.train(["low lower", "new newest", "new newest"], 280, min_frequency=1)
    for name in ENGINES:
        weighted = BPE.train(["low lower", ("new newest", 2.0)], 280, min_frequency=1, engine=name)
        assert weighted.merges == twice.merges
    with pytest.raises(TokenizerError, match="weight"):
        BPE.train([("a", 0.0)], 280)


def test_an_alphabet_comes_first() -> None:
    for name in ENGINES:
        tokenizer = BPE.train(["日本 abc"], 300, alphabet="日é", min_frequency=1, engine=name)
        assert tokenizer.show("日é") == ["日", "é"]
        assert [tokenizer.entries[256 + k] for k in range(3)] == [
            "日".encode()[:2],
            "日".encode(),
            "é".encode(),
        ]


def test_normal_forms(tmp_path: Path) -> None:
    tokenizer = BPE.train(["e\u0301 ﬁ"], 270, normalization="nfkc", min_frequency=1)
    assert tokenizer.decode(tokenizer.encode("e\u0301ﬁ")) == "éfi"
    assert tokenizer.decode_bytes(tokenizer.encode("e\u0301".encode())) == "é".encode()
    tokenizer.save(tmp_path / "t.json")
    again = load_tokenizer(tmp_path / "t.json")
    assert isinstance(again, BPE) and again.normalization == "nfkc"
    peer = HFTokenizer.from_file(str(tmp_path / "t.json"))
    assert peer.encode("e\u0301ﬁ x").ids == tokenizer.encode("e\u0301ﬁ x")


def test_history_tells_how_a_word_is_put_together() -> None:
    tokenizer = BPE.train(["low low low lower"], 260, specials=())
    steps = [[tokenizer.token_bytes(i) for i in ids] for ids in tokenizer.history("lower")]
    assert steps == [[b"l", b"o", b"w", b"e", b"r"], [b"lo", b"w", b"e", b"r"], [b"low", b"e", b"r"]]
    assert tokenizer.history("")[-1] == []


@many
@given(any_text, st.sampled_from([0.0, 0.1, 0.5, 0.9, 1.0]), st.integers(0, 99))
def test_random_cuts_say_the_same_text(text: str, dropout: float, seed: int) -> None:
    ids = PLAIN.sample(text, dropout, seed)
    assert PLAIN.decode(ids) == text
    assert ids == PLAIN.sample(text, dropout, seed)
    assert PLAIN.sample(text, 0.0) == PLAIN.encode(text)
    assert PLAIN.sample(text, 1.0) == Byte().encode(text)


TOKENIZERS = [BASE, Byte(), Char.train([TEXT]), Word.train([TEXT]), Pairs.train([TEXT], 300)]


@many
@given(words | any_text)
def test_spans_say_where_each_token_stands(text: str) -> None:
    data = text.encode(errors="surrogatepass")
    for tokenizer in TOKENIZERS:
        spans = tokenizer.spans(text)
        assert [s.id for s in spans] == tokenizer.encode(text)
        for token, (a, b), (c, d) in spans:
            characters = text[c:d].encode(errors="surrogatepass")
            assert data[a:b] in characters and c < d
            if token not in (getattr(tokenizer, "unknown", None),):
                assert tokenizer.token_bytes(token) == data[a:b]
        assert all(x.bytes[1] <= y.bytes[0] for x, y in pairwise(spans))


@many
@given(words | st.text(max_size=20))
def test_streamed_text_is_whole_characters_and_the_same_text(text: str) -> None:
    ids = BASE.encode(text)
    parts = list(BASE.decode_stream(ids))
    assert "".join(parts) == BASE.decode(ids)
    assert "\ufffd" in text or all("\ufffd" not in part for part in parts)
    assert list(Byte().decode_stream(b"a\xe6\x97")) == ["a", "\ufffd"]


def test_merges_that_are_not_in_order_are_refused() -> None:
    entries = [*BYTES, b"ab", b"abc"]
    with pytest.raises(TokenizerError, match="only a later merge makes"):
        BPE(entries, [(256, 99), (97, 98)])


def test_wrong_options_are_named() -> None:
    wrong: dict[str, object] = {
        "pattern": 5,
        "ties": "x",
        "engine": "fast",
        "threads": 0,
        "most_pieces": 0,
        "min_frequency": 0,
        "normalization": "NFC",
        "specials": "<|x|>",
        "alphabet": ["ab"],
    }
    for name, value in wrong.items():
        with pytest.raises(TokenizerError, match=f"{name}: expected"):
            BPE.train(["text"], 300, **{name: value})  # type: ignore[arg-type]
    for texts in ("one string", [1, 2], [("a", "b", 1)], [(2.0, "abc")]):
        with pytest.raises(TokenizerError, match="expected"):
            BPE.train(texts, 300)  # type: ignore[arg-type]
    for specials in ([""], ["x", "x"]):
        with pytest.raises(TokenizerError, match="special tokens need names"):
            BPE.train(["text"], 300, specials=specials)
    with pytest.raises(TokenizerError, match="ordinary entry"):
        BPE.train(["low low low"], 300, specials=["low"])
    with pytest.raises(TokenizerError, match="dropout"):
        PLAIN.sample("text", 1.5)


def test_counts_are_in_thousandths() -> None:
    assert count_pieces(["a b"], Splitter(PATTERNS["gpt4"]), engine="plain") == {b"a": UNIT, b" b": UNIT}
