"""A run in use, what `gf.train` and `gf.load` return: measured, written with, looked into.

What it consists of and how that is read, opened.py says.
"""

import math
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor

from glassformer.core.errors import RunError, UsageError
from glassformer.data.images import is_image_file
from glassformer.data.newlines import unified
from glassformer.evaluation.error_analysis import Mistakes
from glassformer.evaluation.result import Result
from glassformer.generation.engine import ROWS, Engine
from glassformer.generation.limits import BEAMS, LENGTH_PENALTY, refuse_with_beams
from glassformer.generation.make import (
    PRECISIONS,
    Weights,
    choose_weights,
    make_engine,
    make_step,
    weights_state,
)
from glassformer.generation.request import Choice, Constraint, Request, Written
from glassformer.generation.sampling import Sampler
from glassformer.generation.stream import Text, prompt_ids, search_text, stream_text
from glassformer.inspection.edits import Edit, edited
from glassformer.inspection.look import Look
from glassformer.inspection.trace import check_edits
from glassformer.models.model import EncoderDecoderModel
from glassformer.runs.opened import OpenedRun, Warn
from glassformer.tasks.classifier import ClassifyTask
from glassformer.tasks.labels import Labelled, LabelTask
from glassformer.tasks.masked_model import BLANK, Filled, MaskedTask
from glassformer.tasks.registry import find_task
from glassformer.tasks.tagger import TagTask
from glassformer.tasks.task import EvalOptions
from glassformer.tasks.translator import TranslateTask
from glassformer.tokenizers.counting import normalize
from glassformer.tokenizers.vocabulary import Vocabulary

_making = threading.Lock()  # of engines, by any thread


class Run(OpenedRun):
    """A trained model with its tokenizer and its settings."""

    def __init__(self, path: str | Path, device: str = "auto"):
        super().__init__(path, device)
        self._engines: dict[Weights, Engine] = {}
        self._engines_of: object = None  # the weights that they have seen

    def evaluate(
        self,
        split: str = "valid",
        data: str | None = None,
        target: str | None = None,
        *,
        stride: int | None = None,
        beams: int | None = None,
        length_penalty: float | None = None,
        progress: Callable[[int], None] | None = None,
        warn: Warn = lambda _: None,
    ) -> Result:
        """Measure the model on a whole split: `Likelihood`, `Classification` or `Translation`, by its task.

        `data` is any SOURCE; a file or folder named here is scored whole, whatever the split. `stride` is for
        language models, `beams`, `length_penalty` and `progress` are for translators.
        """
        task = self.task(data, target, warn)
        if "all" in task.source.splits:
            if split != "valid":
                raise UsageError(f"{data} is scored whole, it has no {split} split: leave --split out")
            split = "all"
        options = self._eval_options(EvalOptions(stride, beams, length_penalty, progress))
        for warning in [*task.unknown_warning(split), *task.warnings(self.config, split)]:
            warn(warning)
        result = task.evaluate(self.model, self.config, split, options)
        if not math.isfinite(result.loss):
            raise RunError(f"{self.path}: the loss is no number, so its weights are damaged or it diverged.")
        return result

    def baselines(self, split: str = "valid") -> dict[str, Result]:
        """What models that know next to nothing reach on the same split of the run's own data."""
        return self.task().baselines(split)

    def mistakes(
        self,
        split: str = "valid",
        data: str | None = None,
        target: str | None = None,
        *,
        stride: int | None = None,
        beams: int | None = None,
        length_penalty: float | None = None,
    ) -> Mistakes:
        """Where the model goes wrong: its worst predictions, and tables of its losses."""
        task = self.task(data, target)
        split = "all" if "all" in task.source.splits else split
        options = self._eval_options(EvalOptions(stride, beams, length_penalty))
        return task.mistakes(self.model, self.config, split, options)

    def _eval_options(self, options: EvalOptions) -> EvalOptions:
        """What the run's task understands of them is all there is, or it is refused."""
        task = find_task(self.config.task)
        for name in options.given():
            if name not in task.understands:
                raise UsageError(f"{name} means nothing to the task {task.name} ({self.path}): leave it out")
        return options

    # In use

    @property
    def engine(self) -> Engine:
        """What writes its texts (generation/engine.py)."""
        return self.engine_for(1)

    def engine_for(
        self,
        texts: int,
        *,
        tokens: int | None = None,
        weights: Weights = "auto",
        draft: "Run | None" = None,
    ) -> Engine:
        """The same, with room for so many texts at once and for so many tokens in all (None: very many).

        `weights` is the precision of its weights (generation/make.py); a `draft` guesses ahead.
        """
        if draft is not None:
            if draft.tokenizer.dumps() != self.tokenizer.dumps():
                raise UsageError(
                    f"{draft.path} cannot guess for {self.path}: their tokenizers differ. Train a draft with "
                    f"the same one: --set tokenizer.file={self.path / 'tokenizer.json'}"
                )
            model, other = self.language_model, draft.language_model
            return make_engine(model, texts, draft=other, weights=weights, tokens=tokens)
        with _making:
            if (state := weights_state(self.language_model)) != self._engines_of:
                self._engines, self._engines_of = {}, state  # what they remember is of other weights
            chosen = choose_weights(self.language_model, weights, tokens)
            if weights == "auto" and "f32" in self._engines:  # what much text takes is there by now
                chosen = choose_weights(self.language_model)
            engine = self._engines.get(chosen)
            if engine is None or engine.rows < min(texts, ROWS):
                rows = 1 << (texts - 1).bit_length()  # so that it is not made anew for each text more
                engine = self._engines[chosen] = make_engine(self.language_model, rows, weights=chosen)
            return engine

    def rounded(self, weights: Weights) -> "Run":
        """The same run with its matrices as bf16 or int8 hold them, to be measured."""
        from glassformer.generation.fast.rounding import rounded_model

        if weights not in ("bf16", "int8") or choose_weights(self.language_model, weights) != weights:
            raise UsageError(f"{weights} is no precision to round to: expected bf16 or int8")
        other = Run(self.path, str(self.device))
        other.model = rounded_model(self.language_model, PRECISIONS[weights])
        return other

    def score(self, text: str, likeliest: int = 0) -> list[Written]:
        """How likely each token of a text is after those before it, and so many of the likeliest there.

        The first, which nothing stands before, has no probability.
        """
        told: list[Written] = []
        ids = prompt_ids(self.tokenizer, self.as_read(text))
        request = Request(
            ids, 0, Sampler(0.0), likeliest=likeliest, scores_prompt=True, on_prompt=told.extend
        )
        self.engine_for(1, tokens=1).write(request)
        return told

    def stream(
        self,
        prompt: str = "",
        tokens: int = 200,
        *,
        sampler: Sampler | None = None,
        n: int = 1,
        stop: Sequence[str] = (),
        cached: bool = True,
        edits: Sequence[Edit] = (),
        regex: str | None = None,
        json_schema: dict[str, Any] | bool | None = None,
        draft: "Run | None" = None,
        weights: Weights = "auto",
        likeliest: int | None = None,
        on_choice: Callable[[Choice], None] | None = None,
        forced: str = "",
        slides: bool = True,
        on_text: Callable[[list[Text]], None] = lambda texts: None,
    ) -> Iterator[list[str]]:
        """Like `generate`, but yields the new text of each sequence whenever there is some.

        `on_text` is given the texts on their way (generation/stream.py), with their tokens; `likeliest` asks
        for the probability of each, and of so many of the best ones there; `on_choice` is given what each
        token of the first text is chosen from. A text begins with what is `forced`, whatever the model thinks
        of it; where the context is full it `slides`, or ends.
        """
        model, prompt = self.language_model, self.as_read(prompt)
        stop = [self.as_read(text) for text in stop]
        if edits:
            check_edits(model, edits)
        if draft is not None and not cached:
            raise UsageError("a draft guesses what a cache then keeps or forgets: leave one of the two out")
        special = (regex, json_schema, likeliest, on_choice)
        weighs = sampler is not None and sampler.weighs
        if draft is not None and (edits or forced or weighs or any(wish is not None for wish in special)):
            raise UsageError(
                "a draft guesses tokens that are drawn and nothing else: leave it out where each token is "
                "weighed, held to a form, edited or shown"
            )
        if not cached and weights != "auto":
            raise UsageError(
                f"without a cache there is no step with {weights} weights: leave one of the two out"
            )
        if edits and weights not in ("auto", "open"):
            raise UsageError(
                f"edits are made in the open pass, which has no {weights} weights: leave one out"
            )
        if cached:
            open_pass: Weights = "open" if edits else weights
            engine = self.engine_for(n, tokens=n * tokens, weights=open_pass, draft=draft)
        else:
            engine = make_engine(model, n, cached=False)
        return stream_text(
            engine,
            self.tokenizer,
            prompt,
            tokens,
            sampler or Sampler(),
            n=n,
            stop=stop,
            on_text=on_text,
            new_tap=edited(edits),
            new_constraint=self._form(regex, json_schema),
            likeliest=likeliest,
            on_choice=on_choice,
            forced=self.tokenizer.encode(self.as_read(forced)) if forced else (),
            slides=slides,
        )

    def _form(
        self, regex: str | None, json_schema: dict[str, Any] | bool | None
    ) -> Callable[[], Constraint] | None:
        """What makes the constraint of a text, refused here and now if it cannot be made."""
        if regex is not None and json_schema is not None:
            raise UsageError("a text is held to one form: a regular expression or a schema, not both")
        if regex is None and json_schema is None:
            return None
        from glassformer.generation.constraint import json_constraint, regex_constraint

        tokenizer = self.tokenizer
        if regex is not None:
            form = partial(regex_constraint, tokenizer, regex)
        else:
            assert json_schema is not None
            form = partial(json_constraint, tokenizer, json_schema)
        form()
        return form

    def generate(
        self,
        prompt: str = "",
        tokens: int = 200,
        *,
        n: int = 1,
        temperature: float | None = None,
        top_k: int | None = None,
        top_p: float | None = None,
        min_p: float | None = None,
        seed: int | None = None,
        repetition_penalty: float | None = None,
        presence_penalty: float | None = None,
        frequency_penalty: float | None = None,
        bias: Mapping[int, float] | None = None,
        stop: Sequence[str] = (),
        cached: bool = True,
        edits: Sequence[Edit] = (),
        regex: str | None = None,
        json_schema: dict[str, Any] | bool | None = None,
        draft: "Run | None" = None,
        weights: Weights = "auto",
        beams: int | None = None,
        length_penalty: float | None = None,
    ) -> list[str]:
        """`n` continuations of a prompt, without it; `edits` are made on the way (inspection/edits.py).

        How tokens are drawn, `Sampler` explains. `regex` or `json_schema` hold each text to a form. A
        `draft`, a smaller run with the same tokenizer, guesses ahead: the text is the same, the time is not.
        `weights` are those of a fast step: f32, or bf16 and int8 (on a CPU), smaller and less exact.
        With `beams`, the `n` best of beam search, which takes no option of sampling but a `length_penalty`.
        """
        if beams is not None:
            refuse_with_beams(
                temperature=temperature,
                top_k=top_k,
                top_p=top_p,
                min_p=min_p,
                seed=seed,
                repetition_penalty=repetition_penalty,
                presence_penalty=presence_penalty,
                frequency_penalty=frequency_penalty,
                bias=bias,
                stop=stop or None,
                cached=None if cached else False,
                edits=edits or None,
                regex=regex,
                json_schema=json_schema,
                draft=draft,
                weights=None if weights == "auto" else weights,
            )
            if n > beams:
                raise UsageError(f"n {n}: {beams} beams end in {beams} texts; expected at most as many")
            return [text for text, _ in self.search(prompt, tokens, beams, length_penalty or 0.0)[:n]]
        if length_penalty is not None:
            raise UsageError("length_penalty belongs to beam search: say beams as well, or leave it out")
        sampler = Sampler(
            1.0 if temperature is None else temperature,
            top_k,
            top_p,
            min_p,
            seed,
            1.0 if repetition_penalty is None else repetition_penalty,
            presence_penalty or 0.0,
            frequency_penalty or 0.0,
            bias or {},
        )
        written: list[Text] = []
        for _ in self.stream(
            prompt,
            tokens,
            n=n,
            sampler=sampler,
            stop=stop,
            cached=cached,
            edits=edits,
            regex=regex,
            json_schema=json_schema,
            draft=draft,
            weights=weights,
            on_text=written.extend,
        ):
            pass
        return [text.text for text in written]

    def search(
        self, prompt: str = "", tokens: int = 200, beams: int = 4, length_penalty: float = 0.0
    ) -> list[tuple[str, float]]:
        """The continuations that beam search finds, best first, each with its score."""
        step = make_step(self.language_model, beams + 1, tokens=beams * tokens)
        return search_text(step, self.tokenizer, self.as_read(prompt), tokens, beams, length_penalty)

    def translate(
        self,
        texts: list[str],
        beams: int | None = None,
        length_penalty: float | None = None,
        progress: Callable[[int], None] = lambda _: None,
        *,
        temperature: float | None = None,
        top_k: int | None = None,
        top_p: float | None = None,
        min_p: float | None = None,
        seed: int | None = None,
    ) -> list[str]:
        """The best translation of each text that beam search finds, with four `beams` and a length penalty of
        0.6 unless told; or, where anything is said about drawing (`Sampler` explains it), one that is drawn.

        `progress` is called with each number of texts done.
        """
        task, model = self._used_as(TranslateTask, "translate"), self.model
        assert isinstance(model, EncoderDecoderModel)
        said = {"temperature": temperature, "top_k": top_k, "top_p": top_p, "min_p": min_p, "seed": seed}
        drawing: dict[str, Any] = {name: value for name, value in said.items() if value is not None}
        if drawing and (beams is not None or length_penalty is not None):
            refuse_with_beams(**drawing)
        filled = [i for i, text in enumerate(texts) if text.strip()]  # an empty line stays one
        sampler = Sampler(**drawing).with_seed() if drawing else None
        best = task.translate(
            model,
            self.config,
            [self.as_read(texts[i]) for i in filled],
            beams=BEAMS if beams is None else beams,
            length_penalty=LENGTH_PENALTY if length_penalty is None else length_penalty,
            samplers=None if sampler is None else [sampler.for_row(i) for i in filled],
            progress=progress,
        )
        found = dict(zip(filled, (text for ((text, _), *_) in best), strict=True))
        return [found.get(i, "") for i in range(len(texts))]

    def label(self, texts: Sequence[str | Path]) -> list[Labelled]:
        """What a classifier says about each text or image (its path), or a tagger about the words of each.

        A text that is nothing but blanks has no label.
        """
        task = self._used_as(LabelTask, "classify or tag")
        return [
            task.label(self.model, self.config, self._given(text))
            if str(text).strip()
            else task.unanswered(str(text))
            for text in texts
        ]

    def classify(self, texts: Sequence[str | Path]) -> list[dict[str, float]]:
        """For each text or image (its path) the probability of every label, the likeliest first."""
        task = self._used_as(ClassifyTask, "classify")
        return [task.probabilities(self.model, self.config, self._given(text)) for text in texts]

    def _given(self, text: str | Path) -> str:
        """A text, or the path of an image, if that is what the model reads."""
        given = str(text)
        if not self.config.model.patch and "\n" not in given and is_image_file(given):
            raise UsageError(f"{given} is an image, and {self.path} reads text: give it a text")
        return given if self.config.model.patch else self.as_read(given)

    def unseen(self, text: str) -> list[str]:
        """The characters of a text that were nowhere in the training text, as far as that is known.

        A run made before this was written down knows it if its tokenizer is one of characters.
        """
        if self.config.model.patch:
            return []
        text = (
            BLANK.sub("", self.as_read(text)) if self.config.task == MaskedTask.name else self.as_read(text)
        )
        tokenizer = self.source_tokenizer
        for special in tokenizer.specials:
            text = text.replace(special, "")
        form = self.config.tokenizer.normalization
        different = sorted(set(str(normalize(text, form))))
        if isinstance(known := self.data.get("characters"), str):
            seen = set(str(normalize(known, form)))
            return [c for c in different if c not in seen]
        if isinstance(tokenizer, Vocabulary) and tokenizer.kind == "char":
            return [c for c in different if tokenizer.unknown in tokenizer.encode(c)]
        return []

    def as_read(self, text: str) -> str:
        """A text of the user's with the line ends that the run has seen (data.newlines)."""
        return unified(text, self.config.data.newlines)

    def tag(self, words: list[str]) -> list[str]:
        """The tag of each word."""
        return self._used_as(TagTask, "tag").tags(self.model, self.config, words)

    def fill(self, text: str, k: int = 5) -> Filled:
        """The blanks of a text (___ or <|mask|>, one token each), filled in by a masked model.

        A text that is nothing but spaces has none.
        """
        task = self._used_as(MaskedTask, "masked")
        if not text.strip():
            return Filled(text, [])
        return task.fill(self.model, self.config, self.as_read(text), k)

    def look(
        self,
        text: str | Path,
        *,
        target: str | None = None,
        tokens: int = 0,
        sites: Sequence[str] = (),
        edits: Sequence[Edit] = (),
        compiled: Callable[..., Tensor] | None = None,
    ) -> Look:
        """See a text, or an image by its path, through the model (inspection/look.py).

        Of a translator, `target` is the translation to look at (its own, if none is given); a language model
        writes so many `tokens` first and is looked at with them. `sites` limits what is recorded; `compiled`
        is the same model after torch.compile.
        """
        return self.bare_task.look(
            self.model,
            self.config,
            self._given(text),
            target=None if target is None else self.as_read(target),
            tokens=tokens,
            sites=sites,
            edits=edits,
            compiled=compiled,
            run=str(self.path),
        )


def load(path: str | Path, device: str = "auto") -> Run:
    """Open a run directory."""
    return Run(path, device)
