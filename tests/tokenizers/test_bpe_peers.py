"""Byte-pair encoding against the real thing: tiktoken, Hugging Face tokenizers, rustbpe."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
import tiktoken
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer as HFTokenizer

from glassformer.tokenizers.bpe_tokenizer import BPE
from glassformer.tokenizers.patterns import PATTERNS
from glassformer.tokenizers.unicode import members, table
from tests.tokenizers.bpe_made import (
    BASE,
    CODE,
    COMPILED,
    ENGINES,
    EXAMPLES,
    LARGE,
    TEXT,
    engine,
)

EVERYTHING = "".join(chr(c) for c in range(1, 0x110000) if not 0xD800 <= c < 0xE000)
# The last character before each run of letters, marks, numbers …, its first, its last, and the next one.
EDGES = "".join(
    chr(point)
    for point in sorted(
        {int(p) - d for name in table() if name != "unicode" for p in members(name) for d in (0, 1)}
    )
    if not 0xD800 <= point < 0xE000
)


@pytest.mark.parametrize("name", list(PATTERNS))
def test_tiktoken_and_hugging_face_give_the_same_ids(name: str) -> None:
    base = BPE.train([CODE[:60_000], TEXT], 700, pattern=name)
    ours = engine(base, "compiled")
    ranks = {entry: i for i, entry in enumerate(ours.entries)}
    tik = tiktoken.Encoding("t", pat_str=ours.pattern, mergeable_ranks=ranks, special_tokens={})
    face = HFTokenizer.from_str(json.dumps(ours.to_json()))
    samples = [TEXT, CODE[60_000:120_000], EDGES, " ".join(EDGES[::5]), EVERYTHING]
    for text in samples if name != "none" else samples[:2]:
        ids = ours.encode(text)
        assert ids == tik.encode_ordinary(text)
        if text is not EVERYTHING:  # it takes seconds, and test_automaton.py asks it about every character
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
    for name in ENGINES:
        settings = {"ties": "signs", "min_frequency": 1, "engine": name}
        ours = BPE.train([CODE, TEXT], 2000, specials=(), **settings)  # type: ignore[arg-type]
        assert ours.to_json()["model"]["vocab"] == peer.get_vocab()


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
    ranks = {entry: i for i, entry in enumerate(LARGE.entries)}
    peer = tiktoken.Encoding("t", pat_str=LARGE.pattern, mergeable_ranks=ranks, special_tokens={})
    face = HFTokenizer.from_str(json.dumps(LARGE.to_json()))
    for name in ("wikitext-2/valid.txt", "tinyshakespeare/input.txt", "multi30k-en-de/train.de"):
        text = (shared_data / name).read_text(encoding="utf-8")
        ids = LARGE.encode(text)
        assert ids == peer.encode_ordinary(text), name
        assert ids[:200_000] == face.encode(text).ids[:200_000], name
