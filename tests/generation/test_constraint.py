"""Texts that are held to a form: judged by Python's own regular expressions and by jsonschema."""

import json
import re

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from glassformer.core.errors import UsageError
from glassformer.generation.constraint import json_constraint, regex_constraint
from glassformer.generation.engine import Engine
from glassformer.generation.open_step import open_step
from glassformer.generation.request import Ending
from glassformer.generation.sampling import Sampler
from glassformer.tokenizers.bpe_tokenizer import BPE
from glassformer.tokenizers.tokenizer import Byte
from glassformer.tokenizers.vocabulary import Char, Word
from tests.conftest import tiny_model
from tests.generation.writing import Told, run

BPE_OF_FORMS = BPE.train(['{"name": "abc", "age": 12}, true false null 2024-01-31 ' * 20], vocab=300)
TOKENIZERS = {"byte": Byte(), "bpe": BPE_OF_FORMS, "char": Char.train(["abcx-0123456789"])}
SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 5},
        "age": {"type": "integer", "minimum": 0, "maximum": 120},
        "tags": {"type": "array", "items": {"enum": ["a", "b"]}, "maxItems": 2},
    },
    "required": ["name", "age"],
    "additionalProperties": False,
}


@pytest.mark.parametrize("kind", TOKENIZERS)
@pytest.mark.parametrize("pattern", ["[abc]{3}-[0-9]{1,4}x", "(ab|ba){2}", "x?"])
@pytest.mark.parametrize("seed", range(3))
def test_a_text_matches_its_regular_expression(kind: str, pattern: str, seed: int) -> None:
    tokenizer = TOKENIZERS[kind]
    model = tiny_model(vocab=len(tokenizer), context=64)
    engine = Engine(open_step(model))
    told = Told(
        engine,
        [0],
        60,
        Sampler(seed=seed),
        end=tokenizer.eot_id,
        constraint=regex_constraint(tokenizer, pattern),
    )
    run(engine)
    assert told.handle.error is None and told.handle.ending in (Ending.TOLD, Ending.MARK)
    assert re.fullmatch(pattern, tokenizer.decode(told.ids, specials=False))


@pytest.mark.parametrize("kind", ["byte", "bpe"])
def test_a_text_fits_its_schema(kind: str) -> None:
    tokenizer = TOKENIZERS[kind]
    engine = Engine(open_step(tiny_model(vocab=len(tokenizer), context=200), 4))
    told = [
        Told(
            engine,
            [0],
            190,
            Sampler(seed=s),
            end=tokenizer.eot_id,
            constraint=json_constraint(tokenizer, SCHEMA),
        )
        for s in range(6)
    ]
    run(engine)
    for one in told:
        assert one.handle.ending in (Ending.TOLD, Ending.MARK)
        value = json.loads(tokenizer.decode(one.ids, specials=False))
        jsonschema.validate(value, SCHEMA)


@settings(max_examples=20)
@given(st.lists(st.text("abc", min_size=1, max_size=3), min_size=1, max_size=4), st.integers(0, 3))
def test_a_choice_among_words(words: list[str], seed: int) -> None:
    engine = Engine(open_step(tiny_model(vocab=257, context=32)))
    pattern = "|".join(words)
    told = Told(engine, [0], 20, Sampler(seed=seed), end=256, constraint=regex_constraint(Byte(), pattern))
    run(engine)
    assert Byte().decode(told.ids, specials=False) in words


def test_what_cannot_be_held_is_refused() -> None:
    with pytest.raises(UsageError, match="regular expression cannot be used"):
        regex_constraint(Byte(), "[a")
    with pytest.raises(UsageError, match="schema cannot be used"):
        json_constraint(Byte(), {"type": "nothing"})
    with pytest.raises(UsageError, match="word tokenizer"):
        regex_constraint(Word.train(["one two"]), "a")
    engine = Engine(open_step(tiny_model(vocab=len(TOKENIZERS["char"]))))
    other = Told(engine, [0], 5, Sampler(seed=1))
    patterns = ("zzz", "az")  # there is no z in this vocabulary
    forms = [regex_constraint(TOKENIZERS["char"], pattern) for pattern in patterns]
    told = [Told(engine, [0], 5, Sampler(seed=1), constraint=form) for form in forms]
    run(engine)
    for one in told:
        assert one.handle.ending is Ending.FAILED and isinstance(one.handle.error, UsageError)
        assert "no entry of the vocabulary" in str(one.handle.error)
    assert other.handle.ending is Ending.LENGTH
