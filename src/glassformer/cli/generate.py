"""`glassformer generate`: let a run write."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from glassformer.cli import console
from glassformer.cli.answers import OTHERS, put_written
from glassformer.cli.drawing import MinP, TopK, TopP
from glassformer.cli.opening import RunPath, check_task_of, checked_run, open_run, warn_unseen
from glassformer.core.errors import UsageError

if TYPE_CHECKING:
    from glassformer.generation.make import Weights
    from glassformer.generation.request import Choice
    from glassformer.generation.sampling import Sampler
    from glassformer.generation.stream import Text
    from glassformer.tokenizers.tokenizer import Tokenizer

generate_app = typer.Typer(rich_markup_mode=None)


@generate_app.command(
    epilog="""Examples:

  glassformer generate runs/mine "Once upon a time"

  glassformer generate runs/mine "ROMEO:" --temperature 0.8 --top-p 0.95 --n 3

  glassformer generate runs/mine "The " --beams 5 --tokens 20

  glassformer generate runs/mine "def " --greedy --stop "\\n\\n"

  glassformer generate runs/mine "It was on " --regex "[0-9]{1,2} (May|June) 19[0-9]{2}"

  glassformer generate runs/large "Once" --draft runs/small --seed 1      (the same text)""",
)
@console.command
def generate(
    run: RunPath,
    prompt: Annotated[str, typer.Argument(help="What to go on from; - reads standard input.")] = "",
    tokens: Annotated[int, typer.Option(min=1, help="Tokens to write at most.")] = 200,
    temperature: Annotated[
        float | None,
        typer.Option(help="Below 1 safer, above 1 wilder; 0.8 if not given.", show_default=False),
    ] = None,
    top_k: TopK = None,
    top_p: TopP = None,
    min_p: MinP = None,
    repetition_penalty: Annotated[
        float | None,
        typer.Option(help="Above 1: what was said before becomes less likely.", show_default=False),
    ] = None,
    presence_penalty: Annotated[
        float | None,
        typer.Option(help="Taken off the score of each token that was written before.", show_default=False),
    ] = None,
    frequency_penalty: Annotated[
        float | None,
        typer.Option(help="The same, as often as it was written before.", show_default=False),
    ] = None,
    bias: Annotated[
        list[str] | None,
        typer.Option(metavar="ID=VALUE", help="Added to the score of one token; repeatable."),
    ] = None,
    greedy: Annotated[bool, typer.Option("--greedy", help="Always take the likeliest token.")] = False,
    stop: Annotated[
        list[str] | None, typer.Option(help="End before this text; repeatable; \\n is a new line.")
    ] = None,
    regex: Annotated[
        str | None, typer.Option(metavar="PATTERN", help="Hold the text to a regular expression.")
    ] = None,
    json_schema: Annotated[
        str | None, typer.Option(metavar="FILE", help="Hold the text to JSON that fits the schema in a file.")
    ] = None,
    draft: Annotated[
        str | None,
        typer.Option(
            metavar="RUN",
            help="A smaller run with the same tokenizer guesses ahead: the same text in fewer steps.",
            callback=checked_run,
        ),
    ] = None,
    weights: Annotated[
        str,
        typer.Option(
            help="On a CPU: f32, bf16 or int8 (smaller, faster, less exact: `eval RUN --weights int8` says "
            "how much), open (the open pass); auto chooses f32 or open by the work. On a GPU: f32 or bf16 "
            "take kernels of our own, open the open pass; auto is f32 for much text, where the model fits.",
        ),
    ] = "auto",
    beams: Annotated[
        int | None,
        typer.Option(
            min=1, help="Beam search for the likeliest text instead, this many beginnings at a time."
        ),
    ] = None,
    n: Annotated[int, typer.Option("--n", min=1, help="How many texts.")] = 1,
    seed: Annotated[
        int | None, typer.Option(help="For the same text again; --json says the one that was drawn.")
    ] = None,
    probs: Annotated[
        bool, typer.Option("--probs", help="How likely each token was, and the likeliest there.")
    ] = False,
    draws: Annotated[
        bool, typer.Option("--draws", help="How each token was chosen: raw, tempered, cut, drawn.")
    ] = False,
    json_: Annotated[bool, typer.Option("--json", help="Print one JSON object on standard output.")] = False,
) -> None:
    """Let a run write: one token at a time, each fed back in."""
    from glassformer.generation.limits import check_drawing, refuse_with_beams

    drawing = {"temperature": temperature, "top-k": top_k, "top-p": top_p, "min-p": min_p, "seed": seed}
    penalties = {
        "repetition-penalty": repetition_penalty,
        "presence-penalty": presence_penalty,
        "frequency-penalty": frequency_penalty,
        "bias": bias,
    }
    if beams is not None:
        named = {f"--{name}": value for name, value in {**drawing, **penalties}.items()}
        named |= {"--greedy": greedy or None, "--stop": stop, "--regex": regex, "--json-schema": json_schema}
        named |= {"--draft": draft, "--probs": probs or None, "--draws": draws or None}
        named |= {"--weights": None if weights == "auto" else weights}
        refuse_with_beams(**named)
        if n > beams:
            raise UsageError(f"--n {n}: {beams} beams end in {beams} texts; ask for at most as many")
    if greedy and any(value is not None for value in drawing.values()):
        raise UsageError("--greedy always takes the best token: leave out what is said about drawing")
    if probs and draws:
        raise UsageError("--probs and --draws are two tables of the same text: choose one")
    if draws and n > 1:
        raise UsageError("--draws shows how one text was drawn: leave --n out")
    chosen = (0.0 if greedy else 0.8) if temperature is None else temperature
    settings: dict[str, Any] = {
        "temperature": chosen,
        "top_k": top_k,
        "top_p": top_p,
        "min_p": min_p,
        "seed": seed,
        "repetition_penalty": 1.0 if repetition_penalty is None else repetition_penalty,
        "presence_penalty": presence_penalty or 0.0,
        "frequency_penalty": frequency_penalty or 0.0,
    }
    check_drawing(**settings)
    precision = parse_weights(weights)
    settings["bias"] = _parse_bias(bias or [])
    check_task_of(run, ("language",), "language")
    if draft is not None:
        check_task_of(draft, ("language",), "language")
    if "" in (stop or []):
        raise UsageError('--stop: expected a text to end before, such as "\\n\\n" for the end of a paragraph')
    stops = [s.replace("\\r\\n", "\n").replace("\\n", "\n").replace("\\t", "\t") for s in stop or []]
    schema = None if json_schema is None else _read_schema(json_schema)
    if prompt == "-":
        prompt = console.read_input()
    opened = open_run(run)
    unseen = warn_unseen(opened, prompt)
    if beams is not None:
        console.phase("Searching")
        _put_beams(opened.search(prompt, tokens, beams)[:n], prompt, unseen, json_)
        return
    from glassformer.generation.sampling import Sampler

    sampler = Sampler(**settings).with_seed()
    written: list[Text] = []
    watched = _Watched(sampler, opened.tokenizer) if draws else None
    parts = opened.stream(
        prompt,
        tokens,
        sampler=sampler,
        n=n,
        stop=stops,
        regex=regex,
        json_schema=schema,
        draft=None if draft is None else open_run(draft),
        weights=precision,
        likeliest=OTHERS if probs else None,
        on_choice=None if watched is None else watched.take,
        on_text=written.extend,
    )
    if n == 1 and not json_:  # on the terminal as it is written
        console.put(prompt, end="")
        for pieces in parts:
            console.put(pieces[0], end="")
        console.put("")
    else:
        console.phase("Writing")
        for _ in parts:
            pass
    held = bool(stops) or regex is not None or schema is not None
    cut = held and not all(text.ended for text in written)
    if cut:
        awaited = "the text of --stop came" if stops else "the form was complete"
        console.note(f"Note: ended by --tokens {tokens} before {awaited}; more tokens write on.")
    texts = [text.text for text in written]
    if json_:
        found = {"prompt": prompt, "texts": texts, "seed": sampler.seed, "unseen": unseen, "cut": cut}
        if probs:
            found["tokens"] = [
                [_as_json(opened.tokenizer, token) for token in text.tokens] for text in written
            ]
        if watched is not None:
            found["draws"] = watched.rows
        console.put_json(found)
        return
    for number, text in enumerate(texts if n > 1 else (), start=1):
        console.put(f"--- {number} ---\n{prompt}{text}")
        if probs:
            put_written(opened.tokenizer, written[number - 1].tokens)
    if probs and n == 1:
        put_written(opened.tokenizer, written[0].tokens)
    if watched is not None:
        watched.put()


def parse_weights(given: str) -> "Weights":
    for known in ("auto", "open", "f32", "bf16", "int8"):
        if given == known:
            return known
    raise UsageError(f"--weights {given}: expected f32, bf16, int8, open or auto")


def _parse_bias(given: list[str]) -> dict[int, float]:
    bias: dict[int, float] = {}
    for text in given:
        token, _, value = text.partition("=")
        try:
            bias[int(token)] = float(value)
        except ValueError:
            raise UsageError(
                f"--bias {text}: expected ID=VALUE, such as 50=-5; ids are what `glassformer tokenizer "
                "encode RUN/tokenizer.json TEXT` prints"
            ) from None
    return bias


def _read_schema(path: str) -> Any:
    import json
    from pathlib import Path

    try:
        schema = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"--json-schema {path}: cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise UsageError(f"--json-schema {path}: expected a file with a JSON schema: {error}") from None
    if not isinstance(schema, dict | bool):
        raise UsageError(f"--json-schema {path}: expected a JSON object, found {type(schema).__name__}")
    return schema


def _put_beams(hypotheses: list[tuple[str, float]], prompt: str, unseen: list[str], json_: bool) -> None:
    if json_:
        texts, scores = zip(*hypotheses, strict=True)
        console.put_json({"prompt": prompt, "texts": texts, "scores": scores, "unseen": unseen})
    elif len(hypotheses) == 1:
        console.put(prompt + hypotheses[0][0])
    else:
        for number, (text, score) in enumerate(hypotheses, start=1):
            console.put(f"--- {number}: log-probability {score:.3f} ---\n{prompt}{text}")


def _as_json(tokenizer: "Tokenizer", token: Any) -> dict[str, Any]:
    best = [{"id": i, "text": tokenizer.decode([i]), "log_prob": p} for i, p in token.likeliest]
    return {
        "id": token.id,
        "text": tokenizer.decode([token.id]),
        "log_prob": token.log_prob,
        "likeliest": best,
    }


class _Watched:
    """How the tokens of a text were chosen, stage by stage."""

    def __init__(self, sampler: "Sampler", tokenizer: "Tokenizer"):
        self.sampler, self.tokenizer = sampler, tokenizer
        self.rows: list[dict[str, Any]] = []

    def take(self, choice: "Choice") -> None:
        """Probabilities of the token at each stage, and what came second."""
        from glassformer.generation.sampling import stages

        shown = stages(choice.raw, choice.weighed, self.sampler, choice.position)
        stage = {"raw": shown.raw, "tempered": shown.tempered, "cut": shown.cut}
        left = int(shown.cut.isfinite().sum())
        second = shown.noisy.topk(2).indices.tolist()[1] if left > 1 else None
        self.rows.append(
            {
                "id": choice.token,
                "text": self.tokenizer.decode([choice.token]),
                **{name: float(scores.softmax(-1)[choice.token]) for name, scores in stage.items()},
                "left": left,
                "second": None if second is None else self.tokenizer.decode([second]),
            }
        )

    def put(self) -> None:
        from glassformer.cli.tokens import shown as readable

        console.put(f"  {'token':18}{'raw':>8}{'tempered':>10}{'cut':>8}{'left':>7}   nearly drawn")
        for row in self.rows:
            name = readable(self.tokenizer.token_bytes(row["id"]))
            shares = f"{row['raw']:8.1%}{row['tempered']:10.1%}{row['cut']:8.1%}{row['left']:7}"
            second = "" if row["second"] is None else repr(row["second"])
            console.put(f"  {name:18}{shares}   {second}")
