"""A model and what it works with as integers: sizes, choices and addresses.

The plan is one row of them, and the layers are a table with a row for each. Every entry has a name here; the
walk reads it by that, ../weights.py and ../step.py write it. An address of 0 says that there is no such
thing. Numbers at an address are float32, or as said.

Letters: L layers, C model width, H heads, K key-value heads, D head width, E value width, M hidden width,
V vocabulary, R rows of a walk.
"""

from enum import IntEnum, auto


class Field(IntEnum):
    """An entry, counted from 0."""

    @staticmethod
    def _generate_next_value_(name: str, start: int, count: int, last_values: list[int]) -> int:
        return count


class Plan(Field):
    # Sizes and choices of the model
    LAYERS = auto()
    WIDTH = auto()  # C
    HEADS = auto()
    KV_HEADS = auto()
    HEAD_WIDTH = auto()
    VALUE_WIDTH = auto()
    HIDDEN = auto()
    VOCAB = auto()
    KIND = auto()  # of weights, see products.py
    NORM = auto()  # see norm.py
    ACTIVATION = auto()  # see functions.py
    RENEWS = auto()  # 1: a layer's update is joined to its normalised input, 0: to the stream
    JOINS = auto()  # 1: updates are added, 0: they replace the stream
    WINDOW = auto()  # positions a query sees back to; 0: all
    EMBEDDING_REACH = auto()  # positions that a shift looks back
    LAYER_REACH = auto()
    # The model's numbers
    EMBEDDING = auto()  # (V, C)
    EMBEDDING_SHIFT = auto()
    POSITION = auto()  # (context, C), to be added to embeddings
    COS = auto()  # (context, D/2), by which queries and keys are turned
    SIN = auto()
    SLOPES = auto()  # (H), by which distance lowers scores
    FINAL_GAMMA = auto()
    FINAL_BETA = auto()
    UNEMBEDDING = auto()  # (V, C), of this kind
    UNEMBEDDING_SCALE = auto()
    UNEMBEDDING_BIAS = auto()
    SIEVE = auto()  # (V, C), int8: a rough copy of the unembedding, see sieve.py; 0 until there is one
    SIEVE_SCALE = auto()  # (V)
    SIEVE_ERROR = auto()  # (V): how far a score of a vector of length 1 may be from its estimate
    # What is remembered, in pages
    PAGE = auto()  # positions of a page
    PAGES = auto()
    KEYS = auto()  # (L, pages, K, page, D): what one head reads lies together
    VALUES = auto()  # (L, pages, K, page, E)
    PAST_EMBEDDINGS = auto()  # (pages, page, C), for shifts
    PAST_ATTENTION = auto()  # (L, pages, page, C)
    PAST_MLP = auto()
    # Where the walk works
    STREAM = auto()  # (R, C), before attention and after the MLP
    MIDDLE = auto()  # (R, C), between them
    QKV = auto()  # (R, (H + K) D + K E)
    Z = auto()  # (R, H E)
    UNITS = auto()  # (R, M)
    LINEAR = auto()  # (R, M), of a gated MLP
    SCORES = auto()  # (scored, V)
    ESTIMATES = auto()  # (sifted, V), rough scores
    LENGTHS = auto()  # (sifted), of the vectors that they are made from
    FOUND = auto()  # (sifted, V / FEW), int64: the tokens that a row can choose
    FOUND_COUNTS = auto()  # (sifted), int64: how many, or ALL
    STRANGE = auto()  # (sifted), int64: whether a score was outside its bounds
    PRIVATE = auto()  # of each thread: two of (R, C), and (context + a few) for scores of keys
    PRIVATE_SIZE = auto()  # how many numbers that is
    TEAM = auto()  # threads
    BOARD = auto()  # see share.py
    # What is asked, int64
    READS = auto()  # 0: the scores are there, a choice is all that is wanted
    ROWS = auto()  # R
    TOKENS = auto()  # (R)
    POSITIONS = auto()  # (R)
    BEHIND = auto()  # (R): how many rows before this one belong to the same piece
    PAGE_TABLES = auto()  # (R, table size)
    PAGE_TABLE_SIZE = auto()
    SCORED = auto()  # how many rows are to be scored
    SCORED_ROWS = auto()  # (scored)
    DRAWS = auto()  # 1: a token is to be chosen for each
    SIFTS = auto()  # 1: only what can be chosen need be scored
    SETTINGS = auto()  # (scored, fields), as `Draw` has it, float64
    SEEDS = auto()  # (scored, 2): the seed and the position in the text
    CHOSEN = auto()  # (scored)
    SCRATCH = auto()  # of each thread, see draw.py
    SCRATCH_SIZE = auto()  # in bytes


class Draw(Field):
    """How the next token of a row is chosen; a filter that is not wanted has a value that lets all pass."""

    TEMPERATURE = auto()  # 0: greedy
    TOP_K = auto()
    TOP_P = auto()
    MIN_P = auto()


class Layer(Field):
    """What a layer has: matrices of the plan's kind (outputs, inputs), scales of their rows, and vectors."""

    ATTENTION_GAMMA = auto()  # of the norm that attention reads through; 0: none
    ATTENTION_BETA = auto()
    ATTENTION_SHIFT = auto()  # (reach, C)
    QKV = auto()
    QKV_SCALE = auto()
    QKV_BIAS = auto()
    QK_GAMMA = auto()  # (D)
    QK_BETA = auto()
    OUT = auto()
    OUT_SCALE = auto()
    OUT_BIAS = auto()
    MLP_GAMMA = auto()
    MLP_BETA = auto()
    MLP_SHIFT = auto()
    UP = auto()
    UP_SCALE = auto()
    UP_BIAS = auto()
    DOWN = auto()
    DOWN_SCALE = auto()
    DOWN_BIAS = auto()


class Real(Field):
    """What a layer has that is no integer. A row behind those of the layers is for what belongs to none."""

    ATTENTION_EPS = auto()
    MLP_EPS = auto()
    QK_EPS = auto()
    SCALE = auto()  # of scores; behind the layers, of embeddings
    FINAL_EPS = ATTENTION_EPS
    EMBEDDING_SCALE = SCALE
