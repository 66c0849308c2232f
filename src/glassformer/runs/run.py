"""A run directory: what everything after training opens.

    config.yaml         every setting, resolved
    tokenizer.json      in the Hugging Face format
    model.safetensors   the best weights by validation
    metrics.jsonl       the record of training, one JSON object per line
    data.json           which text it was trained on: fingerprints, splits, sizes
    result.json         how it ended
    checkpoints/        what resuming needs
    loss.svg, loss.png  the loss curve

All of it is data; nothing in it is ever executed.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from glassformer.config.recipes import load_config
from glassformer.config.schema import Config
from glassformer.core.device import choose_device
from glassformer.core.errors import RunError, UsageError
from glassformer.data.examples import Examples
from glassformer.evaluation.error_analysis import Mistakes
from glassformer.evaluation.result import Result
from glassformer.generation.sampling import Sampler
from glassformer.generation.stream import search_text, stream_text
from glassformer.inspection.edits import Edit, Edits
from glassformer.inspection.trace import check_edits
from glassformer.models.model import EncoderDecoderModel, LanguageModel
from glassformer.tasks.labels import ClassifyTask, TagTask
from glassformer.tasks.registry import TASKS, make_model
from glassformer.tasks.task import Task
from glassformer.tasks.translator import TranslateTask
from glassformer.tokenizers.load import load_tokenizer
from glassformer.tokenizers.tokenizer import UNKNOWN, Tokenizer
from glassformer.training.checkpoint.weights import load_weights

if TYPE_CHECKING:
    from glassformer.inspection.look import Look

Warn = Callable[[str], None]


class Run:
    """A trained model with its tokenizer and its settings."""

    def __init__(self, path: str | Path, device: str = "auto"):
        self.path = Path(path)
        if not (self.path / "config.yaml").is_file():
            if self.path.exists():
                raise RunError(f"{self.path} is no run directory: it has no config.yaml.")
            raise RunError(f"{self.path} does not exist. Train one: glassformer train TEXT --out {self.path}")
        self.config: Config = load_config(self.path / "config.yaml")
        self.device = choose_device(device)
        self._jobs: dict[str | None, Task] = {}

    def __repr__(self) -> str:
        return f"Run({str(self.path)!r})"

    @cached_property
    def tokenizer(self) -> Tokenizer:
        return load_tokenizer(self.path / "tokenizer.json")

    @cached_property
    def model(self) -> nn.Module:
        """The best model of the run, ready to use."""
        weights = self.path / "model.safetensors"
        if not weights.is_file():
            raise RunError(
                f"{self.path} has no model.safetensors yet: training was stopped before its first "
                "evaluation. Go on with --resume."
            )
        if not self.config.model.patch and self.config.model.vocab != len(self.tokenizer):
            raise RunError(
                f"{self.path}: the model's vocabulary is {self.config.model.vocab}, "
                f"the tokenizer's {len(self.tokenizer)}; they are not of one run."
            )
        model = make_model(self.config.task, self.config.model)
        load_weights(model, weights)
        return model.to(self.device).eval()

    @cached_property
    def language_model(self) -> LanguageModel:
        if not isinstance(self.model, LanguageModel):
            raise UsageError(f"{self.path} learned to {self.config.task}; this needs a language model.")
        return self.model

    @cached_property
    def data(self) -> dict[str, Any]:
        """What is known of the text it was trained on."""
        path = self.path / "data.json"
        try:
            return dict(json.loads(path.read_text(encoding="utf-8"))) if path.is_file() else {}
        except (ValueError, TypeError):
            raise RunError(f"{path} is damaged: expected a JSON object.") from None

    @cached_property
    def result(self) -> dict[str, Any]:
        """How training ended."""
        path = self.path / "result.json"
        try:
            return dict(json.loads(path.read_text(encoding="utf-8")))
        except FileNotFoundError:
            if self.data.get("imported"):
                raise RunError(f"{self.path} was imported: how it was trained is not known here") from None
            raise RunError(
                f"{self.path} is not finished: it has no result.json. Go on with --resume."
            ) from None
        except (ValueError, TypeError):
            raise RunError(f"{path} is damaged: expected a JSON object.") from None

    def job(self, data: str | None = None, target: str | None = None, warn: Warn = lambda _: None) -> Task:
        """The run's task on its own data, or on `data`: any SOURCE; a file or folder is taken whole."""
        if data not in (None, "-"):
            return self._open_job(data, target, warn)
        if data not in self._jobs:  # standard input can be read once only
            self._jobs[data] = self._open_job(data, target, warn)
        return self._jobs[data]

    def _open_job(self, data: str | None, target: str | None, warn: Warn) -> Task:
        kind, settings = TASKS[self.config.task], self.config.data
        if data is None and self.data.get("imported"):
            raise UsageError(f"{self.path} was imported and has no data of its own: name some with --data")
        other = settings.model_copy(update={"source": data, "target": target, "mix": {}, "dedup": False})
        opened = kind.open(settings if data is None else other)
        for warning in opened.warnings:
            warn(warning)
        trained_on = self.data.get("text_fingerprint")
        if data is None and trained_on not in (None, opened.fingerprint):
            warn(f"{settings.source} has changed since this run was trained on it; the splits may differ")
        if data is not None and opened.path is not None:
            opened = opened.whole()
        tokenizer = None if self.config.model.patch else self.tokenizer
        job = kind(opened, tokenizer, settings if data is None else other)
        job.own_data = data is None
        return job

    def evaluate(
        self,
        split: str = "valid",
        data: str | None = None,
        target: str | None = None,
        warn: Warn = lambda _: None,
        **options: Any,
    ) -> Result:
        """Measure the model on a whole split: likelihood, accuracy or BLEU, as the task has it.

        `data` is any SOURCE; a file or folder named here is scored whole, whatever the split. Options: stride
        (language), beams and strength of the length penalty (translate).
        """
        job = self.job(data, target, warn)
        split = "all" if "all" in job.source.splits else split
        wrong = [name for name in options if name not in job.options]
        if wrong:
            raise UsageError(f"{wrong[0]} means nothing to the task {job.name} ({self.path}): leave it out")
        if unknown := job.unknown_share(split):
            warn(
                f"{unknown:.2%} of the tokens are {UNKNOWN}, which says less than the text it stands for: "
                "bits per byte is not comparable with that of a lossless tokenizer"
            )
        for warning in job.warnings(self.config, split):
            warn(warning)
        return job.evaluate(self.model, self.config, split, **options)

    def floor(self, split: str = "valid") -> dict[str, Result]:
        """What models that know next to nothing reach on the same split of the run's own data."""
        return self.job().baselines(split)

    def mistakes(
        self, split: str = "valid", data: str | None = None, target: str | None = None, **options: Any
    ) -> Mistakes:
        """Where the model goes wrong: its worst predictions, and tables of its losses."""
        job = self.job(data, target)
        split = "all" if "all" in job.source.splits else split
        return job.mistakes(self.model, self.config, split, **options)

    def stream(
        self,
        prompt: str = "",
        tokens: int = 200,
        *,
        sampler: Sampler | None = None,
        edits: Sequence[Edit] = (),
        **options: Any,
    ) -> Iterator[list[str]]:
        """Like `generate`, but yields the new text of each sequence after every token.

        Options: n, stop, cached (see `stream_text`).
        """
        sampler = sampler or Sampler()
        if edits:
            check_edits(self.language_model, edits)
            options["new_tap"] = lambda start: Edits(edits, goes_on=True, start=start)
        return stream_text(self.language_model, self.tokenizer, prompt, tokens, sampler, **options)

    def generate(self, prompt: str = "", tokens: int = 200, *, n: int = 1, **options: Any) -> list[str]:
        """`n` continuations of a prompt, without the prompt.

        Options: temperature, top_k, top_p, min_p, seed (see `Sampler`), stop, cached, edits made on the way
        (inspection/edit.py); or beams and strength (of the length penalty): the `n` best of beam search.
        """
        if "beams" in options and options.pop("edits", ()):
            raise UsageError("edits go with sampling; beam search does not take them")
        if "beams" in options:
            return [text for text, _ in self.search(prompt, tokens, **options)[:n]]
        own = {k: options.pop(k) for k in ("stop", "cached", "edits") if k in options}
        texts = [""] * n
        for parts in self.stream(prompt, tokens, n=n, sampler=Sampler(**options), **own):
            texts = [text + part for text, part in zip(texts, parts, strict=True)]
        return texts

    def search(
        self, prompt: str = "", tokens: int = 200, beams: int = 4, length_penalty: float = 0.0
    ) -> list[tuple[str, float]]:
        """The continuations that beam search finds, best first, each with its score."""
        return search_text(self.language_model, self.tokenizer, prompt, tokens, beams, length_penalty)

    def translate(
        self, texts: list[str], beams: int = 4, length_penalty: float = 0.6, **options: Any
    ) -> list[str]:
        """The best translation of each text. Options: progress, called with each number of texts done."""
        job = self.bare_job(TranslateTask)
        assert isinstance(job, TranslateTask) and isinstance(self.model, EncoderDecoderModel)
        there = [text for text in texts if text.strip()]  # an empty line stays one
        found = iter(
            job.translate(
                self.model, self.config, there, beams=beams, length_penalty=length_penalty, **options
            )
        )
        return [next(found)[0][0] if text.strip() else "" for text in texts]

    @torch.no_grad()
    def classify(self, texts: list[str]) -> list[dict[str, float]]:
        """For each text the probability of every label, the likeliest first."""
        job = self.bare_job(ClassifyTask)
        assert isinstance(job, ClassifyTask)
        answers: list[dict[str, float]] = []
        for text in texts:
            ids = torch.from_numpy(job.encode_input(text)[: self.config.model.context])
            shares = self.model(ids[None].to(self.device))[0].float().softmax(-1).tolist()
            ranked = sorted(zip(job.labels, shares, strict=True), key=lambda item: -item[1])
            answers.append(dict(ranked))
        return answers

    @torch.no_grad()
    def tag(self, words: list[str]) -> list[str]:
        """The tag of each word."""
        job = self.bare_job(TagTask)
        assert isinstance(job, TagTask)
        ids, starts = job.encode_words(words)
        if len(ids) > self.config.model.context:
            raise UsageError(f"{len(ids)} tokens are more than the context of {self.config.model.context}")
        found = self.model(torch.from_numpy(ids)[None].to(self.device))[0].argmax(-1).tolist()
        return [job.labels[found[i]] for i in starts]

    def look(self, text: str, **options: Any) -> "Look":
        """See a text through the model (inspection/look.py). Options: target (of a translation), tokens to
        write first, sites to record, edits to make."""
        from glassformer.runs.looking import look_at

        return look_at(self, text, **options)

    def bare_job(self, kind: type[Task]) -> Task:
        """The run's job without its data, for what the user brings."""
        if self.config.task != kind.name:
            fits = {"language": "generate", "masked": "eval", "tag": "classify"}
            command = fits.get(self.config.task, self.config.task)
            raise UsageError(
                f"{self.path} learned the task {self.config.task}, not {kind.name}: "
                f"use glassformer {command} {self.path}"
            )
        if self.config.model.patch:
            raise UsageError(f"{self.path} classifies images; there is no text to give it.")
        return kind(Examples("given", {}, ""), self.tokenizer, self.config.data)


def load(path: str | Path, device: str = "auto") -> Run:
    """Open a run directory."""
    return Run(path, device)
