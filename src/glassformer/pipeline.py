"""Training from end to end: from a source of text to a run directory."""

import json
from pathlib import Path
from typing import Any

import torch

from glassformer.config import Config, Settings, build, coerce
from glassformer.errors import RunError, UsageError
from glassformer.evaluation.likelihood import evaluate_likelihood
from glassformer.files import write_atomically, writing
from glassformer.generation.sampling import Sampler
from glassformer.generation.stream import stream_text
from glassformer.models.model import parameter_count
from glassformer.models.transformer import Decoder
from glassformer.run import Run
from glassformer.settings import continued_config, load_recipe, merge, save_config
from glassformer.sizing import choose_model, choose_tokenizer, measure_step
from glassformer.tasks.language import LanguageModelling
from glassformer.text.datasets import open_corpus
from glassformer.text.load import load_tokenizer, train_tokenizer
from glassformer.text.shards import Tokens, open_shards, require, tokenize, tokenizer_fingerprint
from glassformer.text.sources import Corpus
from glassformer.text.tokenizer import Tokenizer
from glassformer.training.checkpoint import latest_checkpoint, load_weights
from glassformer.training.device import Precision, choose_device, compile_pays
from glassformer.training.display import Display, Silent
from glassformer.training.loop import Hooks, Trainer, freeze
from glassformer.training.plot import plot_losses

TOKENIZER_SAMPLE = 32_000_000  # bytes of text that are enough to learn a vocabulary from
LEAST_TOKENS = 256  # of training text; below this there is nothing to learn


def train(
    source: str | None = None,
    *,
    recipe: str | None = None,
    out: str | Path | None = None,
    init: str | Path | None = None,
    resume: bool = False,
    settings: Settings | None = None,
    display: Display | None = None,
) -> Run:
    """Train a language model on `source` and return its run.

    `settings` are nested (`{"model": {"layers": 4}}`) or dotted (`{"model.layers": 4}`). Without a recipe,
    all that is not set is chosen from the text and the machine.
    """
    display = display or Silent()
    given = _gather(source, recipe, settings)
    folder = Path(out) if out else Path("runs") / _default_name(given)
    if resume and (folder / "config.yaml").is_file():
        return _resume(folder, given, display)
    if folder.exists() and not folder.is_dir():
        raise RunError(f"{folder} is a file; a run needs a folder. Choose another --out.")
    if folder.exists() and any(folder.iterdir()):
        raise RunError(
            f"{folder} exists already. Continue it with --resume, choose another --out, or remove it."
        )
    base = Run(init) if init else None
    if base is not None:
        inherited = base.config.model.model_dump(exclude={"vocab"})
        given = merge({"model": inherited}, given)

    data: Settings = {"source": "pydocs", **given.get("data", {})}
    data_config = build({"data": data}).data
    corpus = open_corpus(data_config.source, data_config.valid, data_config.test)
    for warning in corpus.warnings:
        display.note(f"Warning: {warning}")
    if corpus.path is not None:
        data["source"] = str(corpus.path)  # so that it is found again from any folder
    given = merge(given, {"data": data})
    device = choose_device(given.get("training", {}).get("device", "auto"))
    if corpus.bytes("train") > 10_000_000:
        display.note(f"Learning the vocabulary from {min(TOKENIZER_SAMPLE, corpus.bytes('train')):,} bytes …")
    tokenizer, chosen, why = _tokenizer(corpus, given, base, device)
    given = merge(given, {"tokenizer": chosen})
    given = merge(given, {"model": {"vocab": _agreed_vocab(given, tokenizer)}})
    with display.reading(corpus) as advance:
        shards = open_shards(tokenize(corpus, tokenizer, advance))
    sizes = {s: len(t) for s, t in shards.items()}
    display.note(
        f"Text: {corpus.name}, {corpus.bytes('train') / 1e6:.2f} MB to train on ({corpus.rule}); {why}."
    )

    context = given.get("model", {}).get("context", 0)
    train_tokens = require(shards, "train", max(LEAST_TOKENS, context + 2), corpus.name)
    valid_tokens = require(shards, "valid", 2, corpus.name)
    if recipe is None:
        sized = choose_model(
            given,
            tokens=len(train_tokens),
            valid_tokens=len(valid_tokens),
            device=device,
        )
        config = sized.config
        for reason in sized.reasons:
            display.note(reason)
    else:
        config = build(given)
        m, t = config.model, config.training
        display.note(
            f"Recipe {recipe}: {m.layers} layers, {m.heads} heads, width {m.width}; "
            f"{t.steps} steps of {t.batch} × {m.context} tokens with {t.optimizer}."
        )
    require(shards, "train", config.model.context + 2, corpus.name)
    compiled = compile_pays(config.training, device, lambda: measure_step(config, device))
    config.training.compile = "on" if compiled else "off"
    config.training.precision = Precision.choose(config.training.precision, device).name

    model = _make_model(config, device, base)

    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(folder / "tokenizer.json")
    record = {
        "source": corpus.name,
        "rule": corpus.rule,
        "text_fingerprint": corpus.fingerprint,
        "tokenizer_fingerprint": tokenizer_fingerprint(tokenizer),
        "tokens": sizes,
        "bytes": {s: corpus.bytes(s) for s in corpus.splits},
        "init": str(base.path.resolve()) if base else None,
    }
    write_atomically(folder / "data.json", json.dumps(record, indent=1))
    save_config(config, folder / "config.yaml")  # last: it is what makes the folder a run
    return _fit(folder, config, model, tokenizer, shards, display)


def _make_model(config: Config, device: torch.device, base: Run | None) -> Decoder:
    """The model at its start: drawn from the seed, or another run's; frozen where asked."""
    torch.manual_seed(config.training.seed)
    model = Decoder(config.model).to(device)
    if base is not None:
        load_weights(model, base.path / "model.safetensors")
    freeze(model, config.training.freeze)
    return model


def _fit(
    folder: Path,
    config: Config,
    model: Decoder,
    tokenizer: Tokenizer,
    shards: dict[str, Tokens],
    display: Display,
    checkpoint: Path | None = None,
) -> Run:
    """Train the model and write down how it ended."""
    device = next(model.parameters()).device
    task = LanguageModelling(shards["train"], config.model.context, config.training.seed)
    hooks = Hooks(
        evaluate=lambda: _validate(model, shards["valid"], config.model.context),
        sample=lambda: _sample(model, tokenizer, config),
        display=display,
    )
    trainer = Trainer(model, task, config.training, folder, hooks, device=device, width=config.model.width)
    if checkpoint is not None:
        trainer.resume(checkpoint)
        display.note(f"Continuing {folder} after step {trainer.progress.step}.")
    progress = trainer.run()
    run = Run(folder, device=str(device))
    result = {
        "valid": run.evaluate().as_dict(),
        "best_step": progress.best_step,
        "steps": progress.step,
        "tokens": progress.tokens,
        "seconds": round(progress.seconds, 2),
        "tokens_per_second": round(progress.tokens / max(progress.seconds, 1e-9), 1),
        "parameters": parameter_count(model),
        "frozen": sum(p.numel() for p in model.parameters() if not p.requires_grad),
        "environment": trainer.environment,
    }
    write_atomically(folder / "result.json", json.dumps(result, indent=1))
    with writing(folder):
        plot_losses(folder / "metrics.jsonl", f"{folder.name}: {parameter_count(model):,} parameters")
    return run


def _resume(folder: Path, given: Settings, display: Display) -> Run:
    """Go on with a run as it was begun, from its newest checkpoint."""
    config = continued_config(folder, given)
    corpus = open_corpus(config.data.source, config.data.valid, config.data.test)
    recorded = json.loads((folder / "data.json").read_text(encoding="utf-8"))
    if corpus.fingerprint != recorded["text_fingerprint"]:
        raise RunError(
            f"the text of {config.data.source} is not the one {folder} was begun with: its fingerprint is "
            f"{corpus.fingerprint[:12]}…, then it was {recorded['text_fingerprint'][:12]}…. "
            "Restore the text, or start a new run."
        )
    tokenizer = load_tokenizer(folder / "tokenizer.json")
    shards = open_shards(tokenize(corpus, tokenizer))
    checkpoint = latest_checkpoint(folder / "checkpoints")
    base = Run(recorded["init"]) if recorded.get("init") and checkpoint is None else None
    model = _make_model(config, choose_device(config.training.device), base)
    return _fit(folder, config, model, tokenizer, shards, display, checkpoint)


def _tokenizer(
    corpus: Corpus, given: Settings, base: Run | None, device: torch.device
) -> tuple[Tokenizer, dict[str, Any], str]:
    """The tokenizer of a run: another's, a file's, or a new one; with its settings and the reason."""
    asked: dict[str, Any] = given.get("tokenizer", {})
    if base is not None:
        if asked:
            raise UsageError("a run that starts from another one has its tokenizer: leave tokenizer.… out")
        settings = base.config.tokenizer.model_dump()
        return base.tokenizer, settings, f"the tokenizer of {base.path}"
    if asked.get("file"):
        tokenizer = load_tokenizer(asked["file"])
        chosen = {**asked, "kind": tokenizer.kind, "vocab": len(tokenizer)}
        return tokenizer, chosen, f"the tokenizer of {asked['file']}"
    characters = len(set().union(*corpus.texts(limit=1_000_000)))
    minutes = given.get("training", {}).get("minutes", 0.0)
    automatic, why = choose_tokenizer(
        corpus.bytes("train"), characters, device, minutes=minutes, kind=asked.get("kind")
    )
    if asked:
        why = ""
    settings = build({"tokenizer": {**automatic, **asked}}).tokenizer
    texts = corpus.texts(limit=TOKENIZER_SAMPLE)
    tokenizer = train_tokenizer(settings.kind, texts, settings.vocab, settings.pattern)
    return tokenizer, settings.model_dump(), why or f"{settings.kind} with {len(tokenizer)} entries"


def _agreed_vocab(given: Settings, tokenizer: Tokenizer) -> int:
    asked = given.get("model", {}).get("vocab") or len(tokenizer)
    if asked != len(tokenizer):
        raise UsageError(
            f"model.vocab {asked}: the tokenizer has {len(tokenizer)} entries. "
            "Leave model.vocab out, and set tokenizer.vocab."
        )
    return asked


def _validate(model: Decoder, tokens: Tokens, context: int) -> dict[str, float]:
    result = evaluate_likelihood(model, tokens, "valid", window=context)
    return {
        "loss": result.loss,
        "perplexity": result.perplexity,
        "bits_per_byte": result.bits_per_byte,
    }


def _sample(model: Decoder, tokenizer: Tokenizer, config: Config) -> str:
    """A short text by the model as it is now; the same seed each time, so that progress shows."""
    prompt = config.training.sample_prompt
    sampler = Sampler(temperature=0.8, seed=config.training.seed)
    return prompt + "".join(part for (part,) in stream_text(model, tokenizer, prompt, 60, sampler))


def _gather(source: str | None, recipe: str | None, settings: Settings | None) -> Settings:
    """Everything the user said, as one nested dictionary."""
    nested: Settings = {}
    for key, value in (settings or {}).items():
        section, dot, field = key.partition(".")
        nested = merge(nested, {section: {field: value}} if dot else {key: value})
    nested = coerce(nested, "settings")
    tested = load_recipe(recipe) if recipe else {}
    own: Settings = nested.get("training", {})
    if "optimizer" in own or own.get("schedule") == "noam":  # what was tuned for another does not carry over
        tuned = {"lr", "schedule", "warmup", "beta1", "beta2", "eps"}
        kept = {k: v for k, v in tested.get("training", {}).items() if k not in tuned}
        tested = {**tested, "training": kept}
    given = merge(tested, nested)
    return merge(given, {"data": {"source": source}}) if source else given


def _default_name(given: Settings) -> str:
    source = str(given.get("data", {}).get("source", "pydocs"))
    return "stdin" if source == "-" else Path(source).stem or "run"
