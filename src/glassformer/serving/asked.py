"""From what a request asks to what the engine is told. Sizes first: nothing is cut or compiled before."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from glassformer.core.errors import UsageError
from glassformer.core.strict_json import dump_json
from glassformer.generation.constraint import json_constraint, regex_constraint
from glassformer.generation.request import Constraint
from glassformer.generation.sampling import Sampler
from glassformer.generation.stream import prompt_ids
from glassformer.runs.run import Run
from glassformer.serving.bodies import CompletionBody, Drawing
from glassformer.serving.errors import ApiError
from glassformer.serving.limits import Limits

TOKENS = 16  # that are written unless told
Given = str | Sequence[str] | Sequence[int] | Sequence[Sequence[int]]


@dataclass(frozen=True)
class Prompt:
    text: str
    ids: list[int]
    marked: bool = False  # whether the first is the mark that begins a text, and none of its own


@dataclass(frozen=True)
class Wanted:
    """The texts of one request, checked."""

    prompts: list[Prompt]
    tokens: int
    n: int
    sampler: Sampler
    stop: list[str]
    likeliest: int | None  # log-probabilities, and of so many of the likeliest tokens
    echo: bool
    constraint: Callable[[], Constraint] | None

    @property
    def scores_prompt(self) -> bool:
        return self.echo and (self.likeliest is not None or self.tokens == 0)


def refuse(param: str, message: str, code: str | None = None) -> ApiError:
    return ApiError(400, f"{param}: {message}", param=param, code=code)


def check_most(param: str, value: int | None, most: int, what: str = "") -> None:
    if value is not None and value > most:
        raise refuse(param, f"{value:,}{what} asked for, and {most:,} are the most here")


# What is given


def listed(given: Given) -> list[str] | list[list[int]]:
    """Texts, or lists of ids, whether one was given or several."""
    if isinstance(given, str):
        return [given]
    if given and all(isinstance(each, int) for each in given):
        return [list(given)]  # type: ignore[arg-type]
    return list(given)  # type: ignore[arg-type]


def check_given(param: str, given: Given, limits: Limits) -> list[str] | list[list[int]]:
    """Several at most, and each of a size; ids are counted as characters are."""
    several = listed(given)
    if not several:
        raise refuse(param, "an empty list: expected a text, or several")
    check_most(param, len(several), limits.prompts, " texts")
    for each in several:
        check_most(param, len(each), limits.characters, " characters or tokens in one text")
    return several


def read_given(param: str, given: str | list[int], run: Run) -> Prompt:
    """A text with the mark that begins one, as the model was trained; ids as they are."""
    tokenizer = run.tokenizer
    if isinstance(given, str):
        text = run.as_read(given)
        return Prompt(text, prompt_ids(tokenizer, text), tokenizer.eot_id is not None)
    if not given:
        raise refuse(param, "there are no ids: expected at least one")
    vocab = len(tokenizer)
    unknown = next((i for i in given if i >= vocab), None)
    if unknown is not None:
        raise refuse(param, f"id {unknown} is outside the vocabulary of {vocab} entries")
    return Prompt(tokenizer.decode(given), given)


def check_context(param: str, prompt: Prompt, limit: int | None) -> None:
    if limit is not None and len(prompt.ids) > limit:
        raise refuse(
            param,
            f"{len(prompt.ids)} tokens are more than the context of {limit}: shorten it",
            "context_length_exceeded",
        )


# How it is written


def check_drawing_body(body: Drawing, tokens: int, limits: Limits) -> None:
    """Everything about a request whose size or sense can be told without the run."""
    check_most("max_tokens", tokens, limits.tokens, " tokens")
    check_most("n", body.n, limits.n, " texts")
    stops = stop_texts(body)
    check_most("stop", len(stops), limits.stop, " texts")
    for text in stops:
        check_most("stop", len(text), limits.stop_characters, " characters")
        if not text:
            raise refuse("stop", "an empty text: expected one to end before, or none at all")
    check_most("logit_bias", len(body.logit_bias or {}), limits.bias, " entries")
    if body.stream_options is not None and not body.stream:
        raise refuse("stream_options", "they belong to a stream: say stream as well, or leave them out")
    check_form(body, limits)


def stop_texts(body: Drawing) -> list[str]:
    return [body.stop] if isinstance(body.stop, str) else list(body.stop or [])


def sampler_of(body: Drawing) -> Sampler:
    """With a seed: where none was asked for, one is drawn."""
    return Sampler(
        temperature=1.0 if body.temperature is None else body.temperature,
        top_k=body.top_k,
        top_p=body.top_p,
        min_p=body.min_p,
        seed=body.seed,
        repetition_penalty=1.0 if body.repetition_penalty is None else body.repetition_penalty,
        presence_penalty=body.presence_penalty or 0.0,
        frequency_penalty=body.frequency_penalty or 0.0,
        bias=_bias(body),
    ).with_seed()


def _bias(body: Drawing) -> dict[int, float]:
    bias: dict[int, float] = {}
    for name, value in (body.logit_bias or {}).items():
        if not (name.isascii() and name.isdecimal()) or len(name) > 9:
            raise refuse("logit_bias", "its keys are ids of tokens, in digits")
        bias[int(name)] = value
    return bias


# The form of it


def check_form(body: Drawing, limits: Limits) -> None:
    form = body.response_format
    if form is not None and form.type != "json_schema" and form.json_schema is not None:
        raise refuse(
            "response_format", f"json_schema belongs to type json_schema, and the type is {form.type}"
        )
    if (
        form is not None
        and form.type == "json_schema"
        and (form.json_schema is None or form.json_schema.schema_ is None)
    ):
        raise refuse("response_format", "expected json_schema: {name, schema}")
    if body.regex is not None:
        check_most("regex", len(body.regex), limits.form_characters, " characters")
        if form is not None and form.type != "text":
            raise refuse("regex", "a text is held to a regular expression or to JSON, not to both")


def constraint_of(body: Drawing, run: Run, limits: Limits) -> Callable[[], Constraint] | None:
    """What makes the constraint of each text; it is made once here, so that what cannot be is refused."""
    form, tokenizer = body.response_format, run.tokenizer
    if body.regex is not None:
        param, make = "regex", partial(regex_constraint, tokenizer, body.regex)
    elif form is not None and form.type != "text":
        schema = {"type": "object"} if form.json_schema is None else form.json_schema.schema_
        check_most("response_format", len(dump_json(schema)), limits.form_characters, " characters")
        param, make = "response_format", partial(json_constraint, tokenizer, schema or {})
    else:
        return None
    try:
        make()
    except UsageError as error:
        raise refuse(param, str(error)) from None
    return make


def check_completion(body: CompletionBody, limits: Limits) -> int:
    """The number of tokens to write, of a request whose parts fit together."""
    tokens = min(TOKENS, limits.tokens) if body.max_tokens is None else body.max_tokens
    check_drawing_body(body, tokens, limits)
    check_most("logprobs", body.logprobs, limits.logprobs)
    if tokens == 0 and not body.echo:
        raise refuse("max_tokens", "0 writes nothing, which makes sense with echo alone")
    if body.best_of is not None and body.best_of != (body.n or 1):
        raise refuse("best_of", "only as many texts as n are written: leave it out, or say the same number")
    several = check_given("prompt", body.prompt, limits)
    check_most("n", len(several) * (body.n or 1), limits.texts, " texts in all")
    return tokens
