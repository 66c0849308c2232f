"""Byte-pair encoding: the compiled loops against the plain ones, and both against the peers."""

import json
import os
import re
import subprocess
import sys
import threading
import time
from collections import Counter
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import tiktoken
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer as HFTokenizer

import glassformer
from glassformer.errors import TokenizerError
from glassformer.text import fast
from glassformer.text.bpe import BYTES, learn_merges, merges_of
from glassformer.text.bpe_tokenizer import BPE
from glassformer.text.counting import UNIT, count_pieces
from glassformer.text.fast import feed, learner
from glassformer.text.load import load_tokenizer
from glassformer.text.pairs import Pairs
from glassformer.text.patterns import PATTERNS, Splitter
from glassformer.text.tokenizer import Byte, Tokenizer
from glassformer.text.vocabulary import Char, Word

EXAMPLES = int(os.environ.get("GLASSFORMER_EXAMPLES", "150"))  # `make test-tokenizer` asks for many more
many = settings(max_examples=min(EXAMPLES, 5000), deadline=None)
TEXT = (
    "The low lower lowest of the new newer newest: it's what they'll see in 2024, don't they?\n"
    "Grüße aus Köln — naïve façade, 日本語のテキスト, emoji 👩‍👩‍👧 and \ttabs\r\n\n   blanks   \n"
) * 6
BASE = BPE.train([TEXT], 420, engine="plain")
CODE = "\n".join(
    p.read_text(encoding="utf-8") for p in sorted(Path(glassformer.__file__).parent.rglob("*.py"))
)
any_text = st.text(st.characters(codec=None, exclude_categories=()), max_size=50)
words = st.text(st.sampled_from("lowernst ' 12\n!日é"), max_size=60)


def engine(base: BPE, name: str) -> BPE:
    made = BPE(base.entries, base.merges, base.pattern, list(base.specials), base.normalization)
    made.engine = name  # type: ignore[assignment]
    return made


PLAIN, COMPILED = engine(BASE, "plain"), engine(BASE, "compiled")


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


def test_a_pattern_that_reads_on_in_vain_is_stopped() -> None:
    hungry = engine(BPE(BASE.entries, BASE.merges, "a+b|a"), "compiled")
    for text in ("a" * 2_000_000, "x" * 10 + "a" * 2_000_000):
        with pytest.raises(TokenizerError, match="reads far ahead"):
            hungry.encode(text)
    with pytest.raises(TokenizerError, match="reads far ahead"):
        BPE.train(["a" * 2_000_000], 300, pattern="a+b|a", engine="compiled")
    with pytest.raises(TokenizerError, match="reads far ahead"):
        BPE.train(["a" * 2_000_000], 300, pattern="a+b", engine="compiled")
    blanks = " " * 3_000_000
    assert COMPILED.decode(COMPILED.encode(f"\n{blanks}x{blanks}")) == f"\n{blanks}x{blanks}"


def test_a_full_memory_is_forgotten_and_nothing_else() -> None:
    small = engine(BASE, "compiled")
    from glassformer.text.fast.kernels import apply

    small._fast._idle[:] = [(apply.new_memory(len(small.merges), pieces=32), np.empty(64, np.int32))]
    text = " ".join(f"word{i} lower{i % 7}" for i in range(500))
    assert small.array(text, threads=1).tolist() == PLAIN.encode(text)


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
    assert isinstance(plain, dict) and isinstance(compiled, learner.Counted)
    ends = np.cumsum(compiled.lengths)
    found = {
        bytes(compiled.pieces[e - n : e]): int(c)
        for e, n, c in zip(ends, compiled.lengths, compiled.counts, strict=True)
    }
    assert found == plain


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


def test_memory_is_bounded_and_what_is_dropped_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same merges with any number of threads, although rare pieces are dropped on the way."""
    monkeypatch.setattr(learner, "ROUND", 3)
    monkeypatch.setattr(feed, "BATCH", 2000)
    said = Counter()

    def progress(what: str, n: int) -> None:
        said[what] += n

    texts = [CODE[i : i + 1500] for i in range(0, 90_000, 1500)]
    made = [
        BPE.train(texts, 500, engine="compiled", most_pieces=400, threads=n, progress=progress)
        for n in (1, 3)
    ]
    whole = BPE.train(texts, 500, engine="compiled")
    assert made[0].merges == made[1].merges
    assert said["dropped"] > 0 and said["bytes"] == 2 * sum(len(t.encode()) for t in texts)
    assert len({*made[0].entries} & {*whole.entries}) > 0.8 * len(whole.entries)


def test_weights_count_like_repetition() -> None:
    twice = BPE.train(["low lower", "new newest", "new newest"], 280, min_frequency=1)
    for name in ("plain", "compiled"):
        weighted = BPE.train(["low lower", ("new newest", 2.0)], 280, min_frequency=1, engine=name)  # type: ignore[arg-type]
        assert weighted.merges == twice.merges
    with pytest.raises(TokenizerError, match="weight"):
        BPE.train([("a", 0.0)], 280)


def test_an_alphabet_comes_first() -> None:
    for name in ("plain", "compiled"):
        made = BPE.train(["日本 abc"], 300, alphabet="日é", min_frequency=1, engine=name)  # type: ignore[arg-type]
        assert made.show("日é") == ["日", "é"]
        assert [made.entries[256 + k] for k in range(3)] == ["日".encode()[:2], "日".encode(), "é".encode()]


def test_normal_forms(tmp_path: Path) -> None:
    made = BPE.train(["e\u0301 ﬁ"], 270, normalization="nfkc", min_frequency=1)
    assert made.decode(made.encode("e\u0301ﬁ")) == "éfi"
    assert made.decode_bytes(made.encode("e\u0301".encode())) == "é".encode()
    made.save(tmp_path / "t.json")
    again = load_tokenizer(tmp_path / "t.json")
    assert isinstance(again, BPE) and again.normalization == "nfkc"
    peer = HFTokenizer.from_file(str(tmp_path / "t.json"))
    assert peer.encode("e\u0301ﬁ x").ids == made.encode("e\u0301ﬁ x")


@pytest.mark.parametrize("name", list(PATTERNS))
def test_tiktoken_and_hugging_face_give_the_same_ids(name: str) -> None:
    base = BPE.train([CODE[:60_000], TEXT], 700, pattern=name)
    ours = engine(base, "compiled")
    ranks = {entry: i for i, entry in enumerate(ours.entries)}
    tik = tiktoken.Encoding("t", pat_str=ours.pattern, mergeable_ranks=ranks, special_tokens={})
    face = HFTokenizer.from_str(json.dumps(ours.to_json()))
    every = "".join(chr(c) for c in range(1, 0x110000) if not 0xD800 <= c < 0xE000)
    samples = [TEXT, CODE[60_000:120_000], every, " ".join(every[::501])]
    for text in samples if name != "none" else samples[:2]:
        ids = ours.encode(text)
        assert ids == tik.encode_ordinary(text)
        assert ids == face.encode(text).ids


RANKS = {entry: i for i, entry in enumerate(BASE.entries)}
PEERS = {
    name: (
        tiktoken.Encoding("t", pat_str=PATTERNS[name], mergeable_ranks=RANKS, special_tokens={}),
        engine(BPE(BASE.entries, BASE.merges, PATTERNS[name]), "compiled"),
    )
    for name in ("gpt2", "gpt4", "cl100k", "o200k")
}
_HUGGING_FACE = HFTokenizer.from_str(json.dumps(BPE(BASE.entries, BASE.merges, specials=()).to_json()))


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.text(st.characters(exclude_categories=("Cs",)) | st.sampled_from("ab 'SsLl\n\t19"), max_size=50))
def test_tiktoken_gives_the_same_ids_on_any_text(text: str) -> None:
    for name, (peer, ours) in PEERS.items():
        assert ours.encode(text) == peer.encode_ordinary(text), name
    assert _HUGGING_FACE.encode(text).ids == COMPILED.encode(text)


def test_rustbpe_learns_the_same_merges(shared_data: Path) -> None:
    import rustbpe

    corpora = {
        "code": CODE,
        "Shakespeare": (shared_data / "tinyshakespeare/input.txt").read_text(encoding="utf-8"),
        "German": (shared_data / "multi30k-en-de/train.de").read_text(encoding="utf-8"),
        "Wikipedia": (shared_data / "wikitext-2/train.txt").read_text(encoding="utf-8")[:4_000_000],
    }
    for name, text in corpora.items():
        texts = [text[i : i + 100_000] for i in range(0, len(text), 100_000)]
        peer = rustbpe.Tokenizer()
        peer.train_from_iterator(iter(texts), 2000)
        entries = [bytes(entry) for entry, _ in peer.get_mergeable_ranks()]
        assert BPE.train(texts, 2000, specials=(), engine="compiled", min_frequency=1).entries == entries, (
            name
        )


def test_hugging_face_learns_the_same_merges_when_ties_are_broken_its_way() -> None:
    from tokenizers import Regex, models, pre_tokenizers, trainers

    peer = HFTokenizer(models.BPE())
    split = pre_tokenizers.Split(Regex(PATTERNS["gpt4"]), "isolated")
    level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    peer.pre_tokenizer = pre_tokenizers.Sequence([split, level])  # type: ignore[assignment]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=2000, initial_alphabet=alphabet, show_progress=False)
    peer.train_from_iterator([CODE, TEXT], trainer)
    for name in ("plain", "compiled"):
        settings = {"ties": "signs", "min_frequency": 1, "engine": name}
        ours = BPE.train([CODE, TEXT], 2000, specials=(), **settings)  # type: ignore[arg-type]
        assert ours.to_json()["model"]["vocab"] == peer.get_vocab()


def test_history_tells_how_a_word_is_put_together() -> None:
    made = BPE.train(["low low low lower"], 260, specials=())
    steps = [[made.token_bytes(i) for i in ids] for ids in made.history("lower")]
    assert steps == [[b"l", b"o", b"w", b"e", b"r"], [b"lo", b"w", b"e", b"r"], [b"low", b"e", b"r"]]
    assert made.history("")[-1] == []


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


WORST = {
    "one letter": b"a" * 500_000,
    "one family of emoji": "👨‍👩‍👧‍👦".encode() * 20_000,
    "pairs that alternate": b"ab" * 250_000,
    "no blanks": bytes(np.random.default_rng(0).integers(97, 123, 500_000, dtype=np.uint8)),
    "blanks alone": b" " * 499_999 + b"a",
    "lines alone": b"\n " * 250_000,
}


@pytest.mark.parametrize("name", list(WORST))
def test_the_worst_texts_are_no_trap(name: str) -> None:
    tokenizer: Tokenizer = _LARGE
    data = WORST[name]
    began = time.perf_counter()
    ids = tokenizer.array(data)
    assert time.perf_counter() - began < 3  # well below one, on a machine that does nothing else
    assert tokenizer.decode_bytes(ids.tolist()) == data


_LARGE = BPE.train([CODE, TEXT, "ab" * 999, " " * 999, "👨‍👩‍👧‍👦" * 99], 4000, engine="compiled")


def test_long_pieces_never_go_the_plain_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """A short text with one huge piece goes to the compiled loops, although it is below every threshold."""
    monkeypatch.setattr(fast, "worthwhile", lambda size: False)
    monkeypatch.setattr(fast, "worthwhile_to_load", lambda size: False)
    base = BPE(_LARGE.entries, _LARGE.merges)
    began = time.perf_counter()
    assert base.decode(base.encode("ab" * 100_000)) == "ab" * 100_000
    made = BPE.train(["ab" * 50_000], 300, pattern="none")
    assert len(made.merges) > 10
    assert time.perf_counter() - began < 20  # hours, the plain way
    assert "_fast" not in vars(PLAIN)


def test_the_tokenizer_is_imported_without_torch_and_without_numba() -> None:
    code = (
        "import sys, glassformer as gf; b = gf.BPE.train(['low lower'], 270); b.encode('lower');"
        "assert not {'torch', 'numba'} & set(sys.modules), 'too much'"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_an_error_or_ctrl_c_while_counting_ends_all_threads() -> None:
    drawn_by = set()

    def broken(error: BaseException) -> object:
        for _ in range(30):
            drawn_by.add(threading.current_thread())
            yield CODE
        raise error

    for error in (KeyboardInterrupt(), TokenizerError("the source broke")):
        with pytest.raises(type(error)):
            BPE.train(broken(error), 500, engine="compiled", threads=3)  # type: ignore[arg-type]
        assert threading.active_count() == 1 or not any("ThreadPool" in t.name for t in threading.enumerate())
    assert drawn_by == {threading.current_thread()}  # a source need not know of threads


def test_many_merges_from_few_pairs_find_room() -> None:
    random = np.random.default_rng(0)
    counts = {random.integers(97, 123, 6, dtype=np.uint8).tobytes(): 1 for _ in range(40_000)}
    merges = learner.learn(learner.counted(counts), BYTES, 10**6, 1, merges_of("éßΩ日", BYTES))
    made = BPE([*BYTES, *_entries(merges)], merges, "[a-z]+")
    made.engine = "compiled"
    assert len(merges) > 60_000
    assert all(len(made.encode(word)) == 1 for word in list(counts)[::100])


def _entries(merges: list[tuple[int, int]]) -> list[bytes]:
    entries = list(BYTES)
    for a, b in merges:
        entries.append(entries[a] + entries[b])
    return entries[256:]


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


def test_the_patterns_are_those_that_tiktoken_ships() -> None:
    from tiktoken_ext import openai_public

    source = Path(openai_public.__file__).read_text(encoding="utf-8")
    theirs = {
        "gpt2": openai_public.r50k_pat_str,
        "cl100k": re.search(r'"pat_str": r"""(\'\(\?i:.*?)"""', source)[1],  # type: ignore[index]
    }
    random = np.random.default_rng(0)
    signs = list("abAB'sSlLvVeE 12345\n\r\t.!/é日Ωß\u0301\u3000")
    for name, pattern in theirs.items():
        peer = tiktoken.Encoding("t", pat_str=pattern, mergeable_ranks=RANKS, special_tokens={})
        for _ in range(3000):
            text = "".join(random.choice(signs, random.integers(0, 25)))
            assert peer.encode_ordinary(text) == PEERS[name][1].encode(text), repr(text)


def test_ids_on_real_text_are_those_of_tiktoken_and_hugging_face(shared_data: Path) -> None:
    ranks = {entry: i for i, entry in enumerate(_LARGE.entries)}
    peer = tiktoken.Encoding("t", pat_str=_LARGE.pattern, mergeable_ranks=ranks, special_tokens={})
    face = HFTokenizer.from_str(json.dumps(_LARGE.to_json()))
    for name in ("wikitext-2/valid.txt", "tinyshakespeare/input.txt", "multi30k-en-de/train.de"):
        text = (shared_data / name).read_text(encoding="utf-8")
        ids = _LARGE.encode(text)
        assert ids == peer.encode_ordinary(text), name
        assert ids[:200_000] == face.encode(text).ids[:200_000], name


@pytest.mark.skipif(EXAMPLES < 10_000, reason="for make test-tokenizer")
@pytest.mark.parametrize("name", list(WORST))
def test_the_worst_megabytes_take_a_part_of_a_second(name: str) -> None:
    seconds = []
    for times in (2, 4):  # one and two megabytes
        runs = []
        for _ in range(5):
            began = time.perf_counter()
            _LARGE.array(WORST[name] * times, threads=1)
            runs.append(time.perf_counter() - began)
        seconds.append(min(runs))
    assert seconds[0] < 1, seconds
    assert seconds[1] < 3 * seconds[0] + 0.01, seconds  # two, and what it costs to outgrow the caches


def test_counts_are_in_thousandths() -> None:
    assert count_pieces(["a b"], Splitter(PATTERNS["gpt4"]), engine="plain") == {b"a": UNIT, b" b": UNIT}


@pytest.mark.skipif(EXAMPLES < 10_000, reason="for make test-tokenizer")
def test_a_million_random_texts_come_back() -> None:
    random = np.random.default_rng(0)
    for _ in range(100):
        lengths = random.integers(0, 24, 10_000)
        points = random.integers(0, 0x110000, lengths.sum())
        points[random.random(len(points)) < 0.7] %= 0x250
        text = "".join(map(chr, points.tolist()))
        texts = [text[e - n : e] for e, n in zip(np.cumsum(lengths), lengths, strict=True)]
        data = [random.bytes(int(n)) for n in lengths]
        for batch, back in ((texts, _LARGE.decode), (data, _LARGE.decode_bytes)):
            for one, ids in zip(batch, _LARGE.encode_batch(batch), strict=True):
                assert back(ids) == one
