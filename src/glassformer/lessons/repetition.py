"""The loop of greedy decoding: how much of a text repeats itself, by how its tokens are chosen.

The likeliest continuation of a text that has just repeated itself is to repeat itself again, and greedy
decoding always takes the likeliest. The share of repeated n-grams is that of the places whose last n tokens
stood somewhere before in the same text.
"""

from collections.abc import Sequence

from glassformer.core.errors import UsageError
from glassformer.generation.request import Request
from glassformer.generation.sampling import Sampler
from glassformer.lessons.lesson import Curve, Lesson, Plot
from glassformer.lessons.subjects import ids_of
from glassformer.runs.run import Run

N, TOKENS, PROMPT, PROMPTS = 4, 200, 16, 4
WAYS = {
    "greedy": Sampler(temperature=0),
    "greedy, repetition penalty 1.3": Sampler(temperature=0, repetition_penalty=1.3),
    "temperature 0.8": Sampler(temperature=0.8, seed=0),
    "temperature 0.8, top-p 0.95": Sampler(temperature=0.8, top_p=0.95, seed=0),
    "temperature 1": Sampler(seed=0),
}


def repeated_share(ids: Sequence[int], n: int = N) -> float:
    """The share of n-grams that came before."""
    grams = [tuple(ids[i : i + n]) for i in range(len(ids) - n + 1)]
    return 1 - len(set(grams)) / len(grams) if grams else 0.0


def lesson(run: Run | None = None) -> Lesson:
    if run is None:
        raise UsageError("the lesson repetition is about a trained model: glassformer why repetition RUN")
    text = ids_of_text(run)
    starts = [len(text) // PROMPTS * i for i in range(PROMPTS)]
    written = text[: TOKENS * PROMPTS]
    rows: list[tuple[str, float, float]] = []
    curves: list[Curve] = []
    for name, sampler in WAYS.items():
        texts = [_write(run, text[start : start + PROMPT], sampler) for start in starts]
        share = sum(repeated_share(ids) for ids in texts) / len(texts)
        rows.append((name, share, sum(len(set(ids)) for ids in texts) / sum(len(ids) for ids in texts)))
        lengths = range(20, TOKENS + 1, 20)
        means = [sum(repeated_share(ids[:k]) for ids in texts) / len(texts) for k in lengths]
        curves.append(Curve(name, lengths, means))
    parts = [written[i : i + TOKENS] for i in range(0, len(written), TOKENS)]
    real = sum(map(repeated_share, parts)) / len(parts)
    rows.append(("the validation text itself", real, sum(len(set(p)) for p in parts) / len(written)))
    shares = {name: share for name, share, _ in rows}
    penalised = shares["greedy, repetition penalty 1.3"]
    return Lesson(
        "Why does greedy decoding repeat itself?",
        ("how tokens are chosen", f"{N}-grams that came before", "distinct tokens"),
        rows,
        [
            f"Written greedily, {shares['greedy']:.0%} of the {N}-grams of {TOKENS} tokens came before in "
            "the same "
            f"text; in the validation text {real:.0%}.",
            f"Drawing them (temperature 0.8) leaves {shares['temperature 0.8']:.0%}, a penalty of 1.3 on "
            "what was "
            f"said before {penalised:.0%}.",
        ],
        Plot(
            "How much of a text came before in it",
            "tokens written",
            f"share of {N}-grams that came before",
            curves,
        ),
        f"{run.path}, {PROMPTS} texts of {TOKENS} tokens after {PROMPT} of its validation text",
        shares,
    )


def ids_of_text(run: Run) -> list[int]:
    """As much validation text as there is, up to a few thousand tokens."""
    return ids_of(run, TOKENS * PROMPTS * 4, limited=False)[0].tolist()


def _write(run: Run, prompt: Sequence[int], sampler: Sampler) -> list[int]:
    ids: list[int] = []
    request = Request(prompt, TOKENS, sampler, on_token=lambda token: ids.append(token.id))
    run.engine_for(1, tokens=TOKENS).write(request)
    return ids
