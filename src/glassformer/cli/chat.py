"""`glassformer chat`: a run at a prompt of its own. It is loaded once, and answers line by line."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any

import typer

from glassformer.cli import console
from glassformer.cli.answers import OTHERS, put_filled, put_written
from glassformer.cli.opening import RunPath, open_run, warn_unseen
from glassformer.core.errors import GlassformerError, UsageError, closest

if TYPE_CHECKING:
    from glassformer.generation.sampling import Sampler
    from glassformer.runs.run import Run

chat_app = typer.Typer(rich_markup_mode=None)

KEPT_LINES = 1000
HELP = """A line is answered by the model; an empty one lets a language model go on with its own text.
/probs             show probabilities with each answer, or no longer
/temperature 0.8   below 1 safer, above 1 wilder, 0: always the likeliest token
/tokens 50         how long an answer may be; /top-k 5 and /top-p 0.9 choose among the likeliest
/seed 7            the same answers again; /seed alone says the last answer's, /seed none draws new ones
/help, /quit       (Ctrl-C stops an answer, Ctrl-D ends)"""


@dataclass
class Wishes:
    """What was asked about the answers to come."""

    temperature: float = 0.8
    tokens: int = 100
    top_k: int | None = None
    top_p: float | None = None
    seed: int | None = None
    probs: bool = False
    draws: bool = False  # whether anything was said about drawing: a translator searches else
    drawn: int | None = None  # the seed of the last answer

    def sampler(self) -> "Sampler":
        """What draws the next answer, with a seed that can be asked for."""
        from glassformer.generation.sampling import Sampler

        sampler = Sampler(self.temperature, self.top_k, self.top_p, seed=self.seed).with_seed()
        self.drawn = sampler.seed
        return sampler

    def set(self, name: str, value: str) -> None:
        """Take a value as it was typed; the old one stays when it cannot be."""
        from glassformer.generation.limits import check_drawing

        kind = {"tokens": int, "top_k": int, "seed": int}.get(name, float)
        try:
            number = (
                None if value in ("none", "off") and name not in ("temperature", "tokens") else kind(value)
            )
        except ValueError:
            whole = "a whole number" if kind is int else "a number"
            raise UsageError(f"/{name.replace('_', '-')} {value}: expected {whole}") from None
        if name == "tokens":
            if number is None or number < 1:
                raise UsageError(f"/tokens {value}: expected at least 1")
        else:
            drawing = {
                "temperature": self.temperature,
                "top_k": self.top_k,
                "top_p": self.top_p,
                "seed": self.seed,
            }
            check_drawing(**{**drawing, name: number})
            self.draws = self.draws or number is not None
        setattr(self, name, number)


@chat_app.command(
    epilog="""Examples:

  glassformer chat runs/mine

  glassformer chat runs/mine --temperature 0.5 --tokens 40

  glassformer chat runs/sst2                          a classifier answers with its labels""",
)
@console.command
def chat(
    run: RunPath,
    temperature: Annotated[
        float | None,
        typer.Option(help="Below 1 safer, above 1 wilder; 0 the likeliest; 0.8.", show_default=False),
    ] = None,
    tokens: Annotated[int, typer.Option(min=1, help="Tokens of an answer at most.")] = 100,
    seed: Annotated[int | None, typer.Option(help="For the same answers again.")] = None,
) -> None:
    """Talk to a run, line by line: it goes on from what you type, or labels, translates, fills it in."""
    from glassformer.generation.limits import check_drawing

    chosen = Wishes.temperature if temperature is None else temperature
    check_drawing(chosen, seed=seed)
    opened = open_run(run)
    answer = _ANSWERS[opened.config.task](opened)
    wishes = Wishes(chosen, tokens, seed=seed, draws=temperature is not None or seed is not None)
    person = sys.stdin is not None and sys.stdin.isatty()
    if person:
        console.note(f"{opened.path}, task {opened.config.task}. /help says what can be said; Ctrl-D ends.")
    with _history(person):
        for line in _typed(person):
            try:
                if not line.startswith("/"):
                    warn_unseen(opened, line)
                    answer(line, wishes)
                elif _obey(line, wishes) is False:
                    return
            except GlassformerError as error:
                console.note(f"Error: {error}")
            except KeyboardInterrupt:
                console.put("")


def _typed(person: bool) -> Iterator[str]:
    """Lines until the end of input; a person is asked for each, and Ctrl-C lets one go."""
    console.clear_phase()
    while True:
        try:
            yield input("> " if person else "")
        except EOFError:
            if person:
                console.put("")
            return
        except KeyboardInterrupt:
            if not person:
                raise
            console.put("")


@contextmanager
def _history(person: bool) -> Iterator[None]:
    """Lines of earlier talks under the arrow keys, where there is a terminal."""
    readline: Any = None
    with suppress(ImportError):  # not on every system
        readline = import_module("readline")
    if not person or readline is None:
        yield
        return
    from glassformer.core.files import cache_dir

    file = cache_dir() / "chat-history"
    with suppress(OSError):
        readline.read_history_file(file)
    readline.set_history_length(KEPT_LINES)
    try:
        yield
    finally:
        with suppress(OSError):
            readline.write_history_file(file)


def _obey(line: str, wishes: Wishes) -> bool:
    """Do what a line that begins with / says; False: it was the last."""
    word, _, value = line[1:].strip().partition(" ")
    name, value = word.replace("-", "_"), value.strip()
    if name in ("quit", "exit", "q"):
        return False
    if name == "help":
        console.note(HELP)
    elif name == "probs":
        wishes.probs = not wishes.probs if value not in ("on", "off") else value == "on"
        console.note(f"Probabilities are {'shown' if wishes.probs else 'not shown'}.")
    elif name in ("temperature", "tokens", "top_k", "top_p", "seed"):
        if value:
            wishes.set(name, value)
        shown = getattr(wishes, name)
        drawn = wishes.drawn if name == "seed" else None
        last = "" if drawn is None else f"; the last answer's was {drawn}"
        console.note(f"{word} is {'not set' if shown is None else shown}{last}.")
    else:
        known = ["probs", "temperature", "tokens", "top-k", "top-p", "seed", "help", "quit"]
        raise UsageError(f"there is no /{word}.{closest(word, known)} /help says what there is.")
    return True


Answer = Callable[[str, Wishes], None]


def _goes_on(run: "Run") -> Answer:
    from glassformer.generation.stream import Text

    written = ""

    def answer(line: str, wishes: Wishes) -> None:
        nonlocal written
        prompt = line or written
        sampler, texts = wishes.sampler(), list[Text]()
        written = prompt
        console.put(line, end="")
        try:
            likeliest = OTHERS if wishes.probs else None
            parts = run.stream(
                prompt, wishes.tokens, sampler=sampler, likeliest=likeliest, on_text=texts.extend
            )
            for (part,) in parts:
                written += part
                console.put(part, end="")
        finally:
            console.put("")
        if wishes.probs:
            put_written(run.tokenizer, texts[0].tokens)

    return answer


def _translates(run: "Run") -> Answer:
    from glassformer.models.model import EncoderDecoderModel
    from glassformer.tasks.translator import TranslateTask

    task, model = run.bare_task, run.model
    assert isinstance(task, TranslateTask) and isinstance(model, EncoderDecoderModel)

    def answer(line: str, wishes: Wishes) -> None:
        if not line.strip():
            return
        samplers = [wishes.sampler()] if wishes.draws else None
        (found,) = task.translate(model, run.config, [run.as_read(line)], samplers=samplers)
        for text, hypothesis in found if wishes.probs else found[:1]:
            console.put(f"{hypothesis.score:8.3f}  {text}" if wishes.probs else text)

    return answer


def _labels(run: "Run") -> Answer:
    def answer(line: str, wishes: Wishes) -> None:
        if line.strip():
            console.put(run.label([line])[0].show())

    return answer


def _fills(run: "Run") -> Answer:
    def answer(line: str, wishes: Wishes) -> None:
        if line.strip():
            put_filled(run.fill(line), probabilities=wishes.probs)

    return answer


_ANSWERS: dict[str, Callable[["Run"], Answer]] = {
    "language": _goes_on,
    "masked": _fills,
    "classify": _labels,
    "tag": _labels,
    "translate": _translates,
}
