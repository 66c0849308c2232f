"""What can be said about drawing, checked: also by commands, before anything heavy is loaded."""

from glassformer.core.errors import UsageError

MOST_SEEDS = 2**63
BEAMS, LENGTH_PENALTY = 4, 0.6  # of a translation, unless told
STRONGEST = 100.0  # a penalty or a bias beyond this decides everything by itself


def check_drawing(
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    min_p: float | None = None,
    seed: int | None = None,
    repetition_penalty: float = 1.0,
    presence_penalty: float = 0.0,
    frequency_penalty: float = 0.0,
) -> None:
    if not 0 <= temperature < float("inf"):
        raise UsageError(f"temperature {temperature}: expected 0 (greedy) or more")
    if top_k is not None and top_k < 1:
        raise UsageError(f"top-k {top_k}: expected at least 1")
    if seed is not None and not 0 <= seed < MOST_SEEDS:
        raise UsageError(f"seed {seed}: expected 0 or more, and less than 2^63")
    if not 0 < repetition_penalty < float("inf"):
        raise UsageError(f"repetition penalty {repetition_penalty}: expected more than 0; 1 is none")
    for name, penalty in (("presence", presence_penalty), ("frequency", frequency_penalty)):
        if not -STRONGEST <= penalty <= STRONGEST:
            raise UsageError(f"{name} penalty {penalty}: expected −{STRONGEST:g} to {STRONGEST:g}; 0 is none")
    for name, p in (("top-p", top_p), ("min-p", min_p)):
        if p is not None and not 0 < p <= 1:
            raise UsageError(f"{name} {p}: expected more than 0 and at most 1")


def refuse_with_beams(**options: object) -> None:
    """Beam search draws nothing: what is said about drawing would be ignored, so it is refused."""
    given = [name for name, value in options.items() if value is not None]
    if given:
        raise UsageError(
            f"{', '.join(given)}: beam search looks for the likeliest text and draws nothing; leave out "
            "either this or what is said about beams"
        )
