"""What models answer, for people to read: tokens with their probabilities, blanks filled in."""

from typing import TYPE_CHECKING

from glassformer.cli import console

if TYPE_CHECKING:
    from glassformer.generation.request import Written
    from glassformer.tasks.masked_model import Filled
    from glassformer.tokenizers.tokenizer import Tokenizer

WIDTH = 30  # of a bar
OTHERS = 3  # likely tokens that are shown beside the one that was written


def put_filled(answer: "Filled", probabilities: bool = True) -> None:
    """The text, and for each blank what could stand there."""
    from glassformer.inspection.report_text import bar, visible

    console.put(answer.text)
    for number, blank in enumerate(answer.blanks if probabilities else [], start=1):
        for i, (token, p) in enumerate(blank):
            label = f"blank {number}" if i == 0 else ""
            console.put(f"  {label:9} {visible(token):16} {p:6.1%} {bar(p, WIDTH)}")


def put_written(tokenizer: "Tokenizer", chosen: "list[Written]") -> None:
    """Each token that was written: how likely it was, and what was likelier still."""
    from math import exp

    from glassformer.cli.tokens import shown
    from glassformer.inspection.report_text import bar

    for token in chosen:
        others = "  ".join(f"{shown(tokenizer.token_bytes(i))} {exp(p):.0%}" for i, p in token.likeliest)
        name, share = shown(tokenizer.token_bytes(token.id)), exp(token.log_prob or 0.0)
        console.put(f"  {name:16} {share:6.1%} {bar(share, WIDTH):{WIDTH}}  {others}")
