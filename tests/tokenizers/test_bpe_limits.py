"""Byte-pair encoding at its limits: worst texts, little memory, errors on the way, very much text."""

import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from glassformer.core.errors import TokenizerError
from glassformer.tokenizers import fast
from glassformer.tokenizers.bpe import BYTES, merges_of
from glassformer.tokenizers.bpe_tokenizer import BPE
from glassformer.tokenizers.counting import count_pieces
from glassformer.tokenizers.fast import feed, learner
from glassformer.tokenizers.fast.kernels import merge
from glassformer.tokenizers.patterns import PATTERNS, Splitter
from glassformer.tokenizers.tokenizer import Tokenizer
from tests.tokenizers.bpe_made import (
    BASE,
    CODE,
    COMPILED,
    EXAMPLES,
    LARGE,
    PLAIN,
    engine,
    many,
)


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


def in_tiles(made: BPE, data: bytes, tile: int, most: int = 1) -> list[int]:
    """The ids of one piece, with a pause after every tile. Too much work fails here, so endless work does."""
    ranks = len(made.merges)
    queue = merge.Queue(np.full(ranks, -1, np.int32), np.zeros(ranks // 64 + 1, np.uint8))
    text, out, long = np.frombuffer(data, np.uint8), np.empty(len(data), np.int32), merge.new_long()
    merge.begin_long(long, 0, len(data), 0, tile)
    work = passes = 0
    while (end := merge.merge_long(text, made._fast._merges, queue, out, long, most)) < 0:
        work += int(long[0]["tile"])
        passes += 1
        assert most > 1 or work <= 20 * (len(data) + tile), f"{passes} tiles for {len(data)} bytes"
    assert (queue.first == -1).all()
    return out[:end].tolist()


@given(
    st.text("ab", min_size=1, max_size=300),
    st.sampled_from([4, 8, 16, 64]),
    st.randoms(use_true_random=False),
)
@many
def test_a_long_piece_is_the_same_in_tiles_of_any_size(text: str, tile: int, random: Random) -> None:
    """Two letters and random merges: ids depend on what is far away, and tiny tiles on their neighbours."""
    made = BPE.train(["".join(random.choices("ab", k=400)) for _ in range(3)], 300, pattern="none")
    assert in_tiles(made, text.encode(), tile) == engine(made, "plain").encode(text)


@given(
    st.text("abc \né", min_size=1, max_size=20),
    st.integers(1, 1000),
    st.integers(0, 1000),
    st.sampled_from(list(PATTERNS)),
    st.sampled_from([1, 2, 4, 5, 8, 16, 64]),
)
@many
def test_repetition_that_was_learned_is_the_same_in_tiles_of_any_size(
    period: str, size: int, known: int, pattern: str, tile: int
) -> None:
    """Merges of a repetition make ids as long as itself, so longer than tiles."""
    text = (period * size)[:size]
    made = BPE.train([(period * known)[:known]] * 2, 300, pattern=pattern, engine="plain")
    pieces = [piece.encode() for piece in made.splitter.pieces(text)]
    ids = [i for piece in pieces for i in in_tiles(made, piece, tile)]
    assert ids == engine(made, "plain").encode(text)


@pytest.mark.parametrize("period", [1, 2, 7, 8, 14, 15, 21, 25, 28, 29, 30, 31, 50, 61, 100, 200])
def test_repetition_of_any_period_comes_to_an_end(period: int) -> None:
    """Most of these once went from tile to tile for ever: an id too many was given up, and made again."""
    text = (bytes(97 + k % 26 for k in range(period)) * 100_000)[:100_000]
    made = BPE.train([text, text], 512, pattern="whitespace", engine="compiled")
    ids = in_tiles(made, text, merge.TILE)
    assert max(len(made.entries[i]) for i in ids) > merge.TILE
    assert ids == engine(made, "plain").encode(text)
    assert ids == engine(made, "compiled").encode(text)


def test_pauses_change_nothing() -> None:
    """Megabytes, in which the loops return to Python many times: within a piece, and between pieces."""
    random = np.random.default_rng(0)
    long = random.choice(np.frombuffer(b"lowernst", np.uint8), 2_500_000).tobytes()
    words = b" " + CODE.encode()[:1_500_000].lstrip() + b"\n"
    ids = in_tiles(COMPILED, long, merge.TILE, most=10**9)
    expected = [*ids, *PLAIN.encode(words), *ids]
    for threads in (1, 2):
        assert COMPILED.array(long + words + long, threads).tolist() == expected
    own = Splitter(r"[a-z]+|[^a-z]+")  # without places to cut, so all is one batch
    plain = count_pieces([words + long + words], own, engine="plain")
    compiled = count_pieces([words + long + words], own, engine="compiled")
    assert isinstance(plain, dict) and isinstance(compiled, learner.PieceCounts)
    counts = zip(np.cumsum(compiled.lengths), compiled.lengths, compiled.counts, strict=True)
    assert plain == {compiled.pieces[e - n : e].tobytes(): int(c) for e, n, c in counts}


@pytest.mark.parametrize("threads", [1, 2])
def test_ctrl_c_is_heard_within_a_long_piece(threads: int) -> None:
    code = (
        "import signal, sys; from glassformer import BPE;"
        "signal.signal(signal.SIGINT, signal.default_int_handler);"  # whatever this process was begun with
        "made = BPE.train([b'abcdefg' * 15_000] * 2, 300, engine='compiled'); made.engine = 'compiled';"
        "made.array(b'abcdefg'); print('ready', flush=True);"
        f"made.array(b'abcdefg' * 12_000_000, threads={threads}); print('done')"  # half a minute
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    time.sleep(1)
    process.send_signal(signal.SIGINT)
    began = time.perf_counter()
    said, errors = process.communicate(timeout=120)
    assert time.perf_counter() - began < 4  # a fraction of a second, on a machine that does nothing else
    assert said == "" and errors.rstrip().endswith("KeyboardInterrupt")
    assert process.returncode in (-signal.SIGINT, 130)


def test_a_full_memory_is_forgotten_and_nothing_else() -> None:
    small = engine(BASE, "compiled")
    from glassformer.tokenizers.fast.kernels import apply

    small._fast._idle[:] = [(apply.new_memory(len(small.merges), pieces=32), np.empty(64, np.int32))]
    text = " ".join(f"word{i} lower{i % 7}" for i in range(500))
    assert small.array(text, threads=1).tolist() == PLAIN.encode(text)


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
    tokenizer: Tokenizer = LARGE
    data = WORST[name]
    tokenizer.array("compiled before it is timed")
    began = time.perf_counter()
    ids = tokenizer.array(data)
    assert time.perf_counter() - began < 3  # well below one, on a machine that does nothing else
    assert tokenizer.decode_bytes(ids.tolist()) == data


def test_long_pieces_never_go_the_plain_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """A short text with one huge piece goes to the compiled loops, although it is below every threshold."""
    monkeypatch.setattr(fast, "worthwhile", lambda size: False)
    monkeypatch.setattr(fast, "worthwhile_to_load", lambda size: False)
    base = BPE(LARGE.entries, LARGE.merges)
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


@pytest.mark.skipif(EXAMPLES < 10_000, reason="for make test-tokenizer")
@pytest.mark.parametrize("name", list(WORST))
def test_the_worst_megabytes_take_a_part_of_a_second(name: str) -> None:
    seconds = []
    for times in (2, 4):  # one and two megabytes
        runs = []
        for _ in range(5):
            began = time.perf_counter()
            LARGE.array(WORST[name] * times, threads=1)
            runs.append(time.perf_counter() - began)
        seconds.append(min(runs))
    assert seconds[0] < 1, seconds
    assert seconds[1] < 3 * seconds[0] + 0.01, seconds  # two, and what it costs to outgrow the caches


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
        for batch, back in ((texts, LARGE.decode), (data, LARGE.decode_bytes)):
            for one, ids in zip(batch, LARGE.encode_batch(batch), strict=True):
                assert back(ids) == one
