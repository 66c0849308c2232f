"""Tokenizers against the real thing: Hugging Face tokenizers, tiktoken, and a BPE written the slow way."""

import json
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest
import regex
import tiktoken
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer as HFTokenizer

from glassformer.core.errors import TokenizerError
from glassformer.tokenizers.bpe import learn_merges, replace_pair
from glassformer.tokenizers.bpe_tokenizer import BPE
from glassformer.tokenizers.load import load_tokenizer, train_tokenizer
from glassformer.tokenizers.pairs import Pairs
from glassformer.tokenizers.patterns import PATTERNS
from glassformer.tokenizers.tokenizer import END_OF_TEXT, UNKNOWN, Byte, Tokenizer
from glassformer.tokenizers.vocabulary import Char, Word

TEXT = (
    "The low lower lowest of the new newer newest: it's what they'll see in 2024, don't they?\n"
    "Grüße aus Köln — naïve façade, 日本語のテキスト, emoji 👩‍👩‍👧 and \ttabs\r\n\n   blanks   \n"
) * 6
LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False}
SPLIT = {"type": "Split", "pattern": {"Regex": r"\S+|\s+"}, "behavior": "Isolated", "invert": False}
KINDS = ["byte", "bpe", "char", "word", "pairs"]
any_text = st.text(st.characters(codec=None, exclude_categories=()), max_size=60)
# Unassigned code points are left out: libraries of different Unicode versions class them differently.
plain_text = st.text(st.characters(exclude_categories=("Cs", "Cn")), max_size=60)
known_text = st.text(st.sampled_from(sorted(set(TEXT))), max_size=60)


@pytest.fixture(scope="module", params=KINDS)
def tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    return train_tokenizer(request.param, [TEXT], 420)


BPE_420 = train_tokenizer("bpe", [TEXT], 420)


@given(any_text)
def test_byte_and_bpe_are_lossless_for_any_string(text: str) -> None:
    for lossless in (Byte(), BPE_420):
        assert lossless.decode(lossless.encode(text)) == text


@given(st.binary(max_size=60))
def test_byte_and_bpe_are_lossless_for_any_bytes(data: bytes) -> None:
    for lossless in (Byte(), BPE_420):
        assert lossless.decode_bytes(lossless.encode(data)) == data


CHAR, PAIRS = Char.train([TEXT]), Pairs.train([TEXT])


@given(known_text, st.lists(st.sampled_from(TEXT.split()), max_size=9))
def test_char_and_pairs_are_lossless_for_what_they_have_seen(text: str, words: list[str]) -> None:
    assert CHAR.decode(CHAR.encode(text)) == text
    assert PAIRS.decode(PAIRS.encode(" ".join(words))) == " ".join(words)


def test_nul_and_lone_surrogates_survive() -> None:
    for text in ("a\0b", "\ud800", "x\udfffy", "\udcff"):
        assert BPE_420.decode(BPE_420.encode(text)) == text


def test_saved_and_loaded_is_the_same(tokenizer: Tokenizer, tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    tokenizer.save(path)
    again = load_tokenizer(path)
    assert type(again) is type(tokenizer)
    assert again.to_json() == tokenizer.to_json()
    assert again.encode(TEXT) == tokenizer.encode(TEXT)
    assert len(again) == len(tokenizer)


@pytest.fixture(scope="module")
def hugging_face(tokenizer: Tokenizer) -> HFTokenizer:
    return HFTokenizer.from_str(json.dumps(tokenizer.to_json()))


def test_hugging_face_gives_the_same_ids_on_text(tokenizer: Tokenizer, hugging_face: HFTokenizer) -> None:
    unseen = "Unseen words, übermäßig 漢字 and zebra-crossings in the lowest newer situation 12345!"
    for text in (TEXT, unseen, "", " ", "\n\n", "low"):
        assert hugging_face.encode(text).ids == tokenizer.encode(text)


@settings(max_examples=150)
@given(text=plain_text)
def test_hugging_face_gives_the_same_ids_on_any_text(text: str) -> None:
    for tokenizer, peer in _peers():
        if "\x85" in text or UNKNOWN in text:
            continue
        assert peer.encode(text).ids == tokenizer.encode(text), tokenizer.kind


_PEERS: list[tuple[Tokenizer, HFTokenizer]] = []


def _peers() -> list[tuple[Tokenizer, HFTokenizer]]:
    if not _PEERS:
        for kind in KINDS:
            ours = train_tokenizer(kind, [TEXT], 420)
            _PEERS.append((ours, HFTokenizer.from_str(json.dumps(ours.to_json()))))
    return _PEERS


@pytest.mark.parametrize("pattern", list(PATTERNS))
def test_tiktoken_gives_the_same_ids_for_the_same_merges(pattern: str) -> None:
    ours = BPE.train([TEXT], 400, pattern=pattern)
    ranks = {entry: i for i, entry in enumerate(ours.entries)}
    peer = tiktoken.Encoding("t", pat_str=PATTERNS[pattern], mergeable_ranks=ranks, special_tokens={})
    for text in (TEXT, "unseen zebra crossings, 1234567 übermäßig  \n\n 日本"):
        assert ours.encode(text) == peer.encode_ordinary(text)


def slow_merges(counts: Counter[str], max_merges: int, min_frequency: int) -> list[tuple[int, int]]:
    """BPE as the paper tells it: count everything anew for every merge."""
    words = [(list(piece.encode()), n) for piece, n in counts.items()]
    merges: list[tuple[int, int]] = []
    while len(merges) < max_merges:
        pairs: Counter[tuple[int, int]] = Counter()
        for ids, n in words:
            for pair in pairwise(ids):
                pairs[pair] += n
        if not pairs:
            break
        best = min(pairs, key=lambda pair: (-pairs[pair], pair))
        if pairs[best] < min_frequency:
            break
        words = [(replace_pair(ids, best, 256 + len(merges)), n) for ids, n in words]
        merges.append(best)
    return merges


@given(st.dictionaries(st.text("abc", min_size=1, max_size=12), st.integers(1, 5), max_size=12))
def test_learned_merges_are_those_of_the_slow_way(counts: dict[str, int]) -> None:
    for min_frequency in (1, 2):
        fast = learn_merges({k.encode(): n for k, n in counts.items()}, 40, min_frequency)
        assert fast == slow_merges(Counter(counts), 40, min_frequency)


def test_the_textbook_example() -> None:
    merges = learn_merges({b"low": 5, b"lower": 2, b"newest": 6, b"widest": 3}, 3)
    assert [(bytes([a]) if a < 256 else a, bytes([b]) if b < 256 else b) for a, b in merges] == [
        (b"e", b"s"),
        (256, b"t"),
        (b"l", b"o"),
    ]


def test_special_tokens_are_made_from_text_only_when_asked(tokenizer: Tokenizer) -> None:
    text = f"a{END_OF_TEXT}b"
    mark = tokenizer.eot_id
    assert mark is not None
    assert mark not in tokenizer.encode(text)
    assert tokenizer.encode(text, specials=[END_OF_TEXT]).count(mark) == 1
    assert tokenizer.decode([mark]) == END_OF_TEXT
    assert tokenizer.decode([mark], specials=False) == ""
    with pytest.raises(TokenizerError, match="no special token"):
        tokenizer.encode(text, specials=["<pad>"])


def test_what_is_unknown_has_a_defined_outcome() -> None:
    char, word, pairs = Char.train(["abc"]), Word.train(["a b a"]), Pairs.train(["abcd abcd"], 200)
    assert char.decode(char.encode("aΩb")) == "a�b"
    assert word.decode(word.encode("a zebra b")) == f"a {UNKNOWN} b"
    assert pairs.decode(pairs.encode("abΩΩ")) == "ab�"
    for lossy in (char, word, pairs):
        assert all(0 <= i < len(lossy) for i in lossy.encode("\ud800 zzz \0"))
    assert [lossy.decode(lossy.encode(b"\xffa a")) for lossy in (char, word, pairs)] == [
        "�a�a",
        "<unk> a",
        "�� �",
    ]


def test_pairs_keep_the_shortlist_whole_and_cut_the_rest() -> None:
    text = "situation " * 9 + "asinine "
    pairs = Pairs.train([text], vocab=2 + len(set(regex.findall(r"\w{1,2}| ", text))) + 1)
    assert pairs.show("asinine situation") == ["as", "in", "in", "e", " ", "situation"]


def test_a_vocabulary_is_no_larger_than_asked(tokenizer: Tokenizer) -> None:
    assert len(tokenizer) <= 420
    with pytest.raises(TokenizerError, match="at least 257"):
        BPE.train(["abc"], 100)
    assert len(Word.train([TEXT], 10)) == 10
    assert len(Char.train([TEXT], 10)) == 10


def test_wrong_ids_and_wrong_files_are_refused(tokenizer: Tokenizer, tmp_path: Path) -> None:
    with pytest.raises(TokenizerError, match="outside the vocabulary"):
        tokenizer.decode([len(tokenizer)])
    with pytest.raises(TokenizerError, match="outside the vocabulary"):
        tokenizer.decode([-1])
    with pytest.raises(TokenizerError, match="no tokenizer file"):
        load_tokenizer(tmp_path / "missing.json")
    for content in ("", "[]", "{}", "nonsense", '{"model": {"type": "Unigram"}}'):
        path = tmp_path / "bad.json"
        path.write_text(content)
        with pytest.raises(TokenizerError, match=r"bad\.json is not a tokenizer\.json that can be read"):
            load_tokenizer(path)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"normalizer": {"type": "Lowercase"}}, "a normalizer"),
        ({"added_tokens": [{"id": 0, "content": "x", "special": False}]}, "not special"),
        ({"pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": True}}, "add_prefix_space"),
        ({"pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "Digits"}, LEVEL]}}, "cuts text"),
        ({"pre_tokenizer": {"type": "Sequence", "pretokenizers": [SPLIT, SPLIT, LEVEL]}}, "cuts text"),
        (
            {
                "pre_tokenizer": {
                    "type": "Sequence",
                    "pretokenizers": [{**SPLIT, "behavior": "Removed"}, LEVEL],
                }
            },
            "cuts text",
        ),
    ],
)
def test_what_would_change_the_ids_is_refused(tmp_path: Path, change: dict, words: str) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps({**BPE_420.to_json(), **change}))
    with pytest.raises(TokenizerError, match=words):
        load_tokenizer(path)


def test_a_gpt2_style_file_of_hugging_face_is_read(tmp_path: Path) -> None:
    from tokenizers import models, pre_tokenizers, trainers

    peer = HFTokenizer(models.BPE())
    peer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)  # type: ignore[assignment]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=350, initial_alphabet=alphabet, show_progress=False)
    peer.train_from_iterator([TEXT], trainer)
    peer.add_special_tokens([END_OF_TEXT])
    peer.save(str(tmp_path / "tokenizer.json"))
    ours = load_tokenizer(tmp_path / "tokenizer.json")
    assert ours.encode(TEXT) == peer.encode(TEXT).ids
    assert ours.specials == {END_OF_TEXT: peer.token_to_id(END_OF_TEXT)}
