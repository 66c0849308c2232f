"""Tokenizers that the tests of byte-pair encoding share."""

import os
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st

import glassformer
from glassformer.tokenizers.bpe_tokenizer import BPE
from glassformer.tokenizers.counting import Engine
from glassformer.tokenizers.tokenizer import END_OF_TEXT

ENGINES: tuple[Engine, ...] = ("plain", "compiled")
EXAMPLES = int(os.environ.get("GLASSFORMER_EXAMPLES", "150"))  # `make test-tokenizer` asks for many more
many = settings(max_examples=min(EXAMPLES, 5000), deadline=None)
TEXT = (
    "The low lower lowest of the new newer newest: it's what they'll see in 2024, don't they?\n"
    "Grüße aus Köln — naïve façade, 日本語のテキスト, emoji 👩‍👩‍👧 and \ttabs\r\n\n   blanks   \n"
) * 6
BASE = BPE.train([TEXT], 420, engine="plain")
CODE = "\n".join(
    p.read_text(encoding="utf-8").replace(END_OF_TEXT, "")  # which peers take for the mark itself
    for p in sorted(Path(glassformer.__file__).parent.rglob("*.py"))
)
any_text = st.text(st.characters(codec=None, exclude_categories=()), max_size=50)
words = st.text(st.sampled_from("lowernst ' 12\n!日é"), max_size=60)


def engine(base: BPE, name: Engine) -> BPE:
    made = BPE(base.entries, base.merges, base.pattern, list(base.specials), base.normalization)
    made.engine = name
    return made


PLAIN, COMPILED = engine(BASE, "plain"), engine(BASE, "compiled")
LARGE = BPE.train([CODE, TEXT, "ab" * 999, " " * 999, "👨‍👩‍👧‍👦" * 99], 4000, engine="compiled")
