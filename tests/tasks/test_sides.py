"""A vocabulary for each side of a translation: learned and kept apart, the right one used everywhere."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import glassformer as gf
from glassformer.core.errors import RunError, TokenizerError, UsageError
from glassformer.objectives.translation import Translating
from glassformer.tasks.translator import TranslateTask

NUMBERS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
ZAHLEN = ["null", "eins", "zwei", "drei", "vier", "fünf", "sechs", "sieben", "acht", "neun"]
SMALL = {
    "tokenizer.kind": "word",
    "tokenizer.sides": "separate",
    "model.layers": 1,
    "model.width": 32,
    "model.heads": 2,
    "model.tied": False,
    "training.batch": 16,
    "training.steps": 4,
    "training.eval_every": 4,
    "training.checkpoint_every": 2,
    "training.keep": 9,
    "training.device": "cpu",
}


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two digits in English, and the same in German the other way round."""
    folder = tmp_path_factory.mktemp("pair")
    source, target = folder / "n.en", folder / "n.de"
    digits = [(i // 10 % 10, i % 10, i // 100) for i in range(400)]
    source.write_text("\n".join(f"say {NUMBERS[a]} {NUMBERS[b]} {c}" for a, b, c in digits))
    target.write_text("\n".join(f"{c} {ZAHLEN[b]} {ZAHLEN[a]}" for a, b, c in digits))
    return source, target


def train(pair: tuple[Path, Path], out: Path, **more: object) -> gf.Run:
    settings = {**SMALL, **more.pop("settings", {})}  # type: ignore[dict-item]
    return gf.train(pair[0], target=pair[1], out=out, settings=settings, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["bpe", "byte", "char", "word", "pairs"])
def test_every_kind_learns_each_side_by_itself(kind: str, pair: tuple[Path, Path], tmp_path: Path) -> None:
    run = train(pair, tmp_path / "run", settings={"tokenizer.kind": kind, "tokenizer.vocab": 300})
    model = run.config.model
    assert (model.source_vocab, model.vocab) == (len(run.source_tokenizer), len(run.tokenizer))
    weights = load_file(run.path / "model.safetensors")
    assert weights["encoder.embedding.weight"].shape == (model.source_vocab, 32)
    assert (
        weights["decoder.embedding.weight"].shape == weights["unembedding.weight"].shape == (model.vocab, 32)
    )
    if kind != "byte":
        texts = [*run.source_tokenizer.entries], [*run.tokenizer.entries]
        assert texts[0] != texts[1] and "ü".encode() not in b" ".join(texts[0])
    seal = json.loads((run.path / "seal.json").read_text())
    assert {"tokenizer.json", "source_tokenizer.json"} <= seal["files"].keys()
    assert "source_tokenizer_fingerprint" in run.data
    again = gf.load(run.path)
    assert json.loads(json.dumps(again.evaluate().as_dict())) == run.result["valid"]
    assert len(again.translate(["say one two 3"], beams=2)) == 1


def test_it_translates_and_a_look_names_the_tokens_of_each_side(
    pair: tuple[Path, Path], tmp_path: Path
) -> None:
    longer = {"training.steps": 250, "training.eval_every": 250, "training.warmup": 20}
    run = train(pair, tmp_path / "run", settings={**longer, "model.width": 64, "model.dropout": 0.0})
    assert run.evaluate("test").as_dict()["exact_match"] > 0.9
    assert run.translate(["say three five 2"]) == ["2 fünf drei"]
    look = run.look("say three five 2")
    assert look.tokens["encoder."] == ["say", "three", "five", "2", "<|endoftext|>"]
    assert look.tokens["decoder."] == ["<|endoftext|>", "2", "fünf", "drei"]
    assert look.report()["tokens"] == look.tokens
    assert run.look("say one two 3", target="3 zwei eins").tokens["decoder."][1:] == ["3", "zwei", "eins"]


def test_a_run_goes_on_to_the_bit_and_another_begins_from_it(pair: tuple[Path, Path], tmp_path: Path) -> None:
    settings = {"tokenizer.kind": "bpe", "tokenizer.vocab": 290, "training.merge_dropout": 0.2}
    run = train(pair, tmp_path / "run", settings=settings)
    broken = tmp_path / "broken"
    shutil.copytree(run.path, broken)
    shutil.rmtree(broken / "checkpoints" / "step-00000004")
    (broken / "result.json").unlink()
    train(pair, broken, settings=settings, resume=True)
    one, other = (
        load_file(f / "checkpoints" / "step-00000004" / "model.safetensors") for f in (run.path, broken)
    )
    assert all(torch.equal(one[name], other[name]) for name in one)
    with pytest.raises(UsageError, match=r"tokenizer\.sides: separate → joint"):
        train(pair, run.path, settings={"tokenizer.sides": "joint"}, resume=True)
    tuned = gf.train(
        pair[0],
        target=pair[1],
        init=run.path,
        out=tmp_path / "tuned",
        settings={"training.steps": 2, "training.device": "cpu"},
    )
    assert tuned.source_tokenizer.entries == run.source_tokenizer.entries
    assert tuned.config.tokenizer.sides == "separate" and tuned.translate(["say one two 3"])
    labels = tmp_path / "labels.tsv"
    labels.write_text("\n".join(f"{word} {i}\t{i % 2}" for i, word in enumerate(NUMBERS * 4)))
    with pytest.raises(UsageError, match=r"a vocabulary for each side .* and classify has one"):
        gf.train(labels, task="classify", init=run.path, out=tmp_path / "labels")


def test_a_tokenizer_that_was_changed_or_exchanged_is_refused(
    pair: tuple[Path, Path], tmp_path: Path
) -> None:
    run = train(pair, tmp_path / "run")
    file, other = run.path / "source_tokenizer.json", run.path / "tokenizer.json"
    kept = file.read_bytes()
    file.write_bytes(other.read_bytes())
    for use in (lambda r: r.evaluate(), lambda r: r.translate(["say one"]), lambda r: r.look("say one")):
        with pytest.raises(RunError, match=r"source_tokenizer\.json is not what was written"):
            use(gf.load(run.path))
    with pytest.raises(RunError, match=r"source_tokenizer\.json is not what was written"):
        train(pair, run.path, resume=True)
    file.unlink()
    with pytest.raises(TokenizerError, match=r"source_tokenizer\.json"):
        gf.load(run.path).translate(["say one"])
    file.write_bytes(kept)
    assert gf.load(run.path).translate(["say one"])


def test_what_can_be_tied_is_and_what_cannot_be_is_said(pair: tuple[Path, Path], tmp_path: Path) -> None:
    sizes = {"layers": 1, "heads": 2, "width": 8, "context": 8, "vocab": 11}
    one = gf.EncoderDecoder(gf.ModelConfig(tied=True, **sizes))
    assert one.encoder.embedding is one.decoder.embedding
    two = gf.EncoderDecoder(gf.ModelConfig(tied=True, source_vocab=7, **sizes))
    assert two.unembedding.weight is two.decoder.embedding.weight
    assert two.encoder.embedding.weight.shape == (7, 8)
    same = gf.EncoderDecoder(gf.ModelConfig(tied=True, source_vocab=11, **sizes))  # as large, not the same
    assert same.encoder.embedding is not same.decoder.embedding
    fixed = gf.EncoderDecoder(gf.ModelConfig(tied=True, source_vocab=7, embedding="fixed", **sizes))
    assert fixed.decoder.embedding.weight.requires_grad and not fixed.encoder.embedding.weight.requires_grad
    with pytest.raises(UsageError, match="one matrix would be held still"):
        gf.EncoderDecoder(gf.ModelConfig(tied=True, embedding="fixed", **sizes))
    tied = train(pair, tmp_path / "tied", settings={"model.tied": True})
    assert tied.translate(["say one two 3"]) and "unembedding.weight" not in load_file(
        tied.path / "model.safetensors"
    )
    given = str(tied.path / "tokenizer.json")
    for settings, message in (
        (
            {"tokenizer.file": given},
            r"tokenizer\.file is one tokenizer, tokenizer\.sides separate learns two",
        ),
        ({"model.source_vocab": 5}, r"model\.source_vocab 5: the data has"),
        ({"model.source_vocab": 5, "tokenizer.sides": "joint"}, r"model\.source_vocab 5: the data has 0"),
    ):
        with pytest.raises(UsageError, match=message):
            train(pair, tmp_path / "no", settings=settings)
    with pytest.raises(UsageError, match="separate: for translate"):
        gf.train(pair[0], out=tmp_path / "no", settings={"tokenizer.sides": "separate"})
    assert not (tmp_path / "no").exists()


def test_each_side_has_its_own_mark() -> None:
    task = Translating([np.array([5, 6])], [np.array([7, 8])], eot_id=9, source_eot_id=3)
    batch = task.batch(0, 1)
    assert batch["sources"].tolist() == [[5, 6, 3]]
    assert batch["inputs"].tolist() == [[9, 7, 8]] and batch["targets"].tolist() == [[7, 8, 9]]
    hiding = Translating([np.array([5] * 50)], [np.array([7] * 50)], 9, token_dropout=0.5, source_eot_id=3)
    hidden = hiding.batch(0, 1)
    assert set(hidden["sources"].unique().tolist()) == {3, 5}
    assert set(hidden["inputs"].unique().tolist()) == {7, 9}


def test_unknown_words_of_both_sides_are_counted(pair: tuple[Path, Path], tmp_path: Path) -> None:
    run = train(pair, tmp_path / "run", settings={"tokenizer.vocab": 6})
    task = run.task()
    assert isinstance(task, TranslateTask)
    unknown = tokens = 0
    for source, target in task.source.require("valid"):
        for tokenizer, text in ((run.source_tokenizer, source), (run.tokenizer, target)):
            pieces = tokenizer.show(text)
            unknown, tokens = unknown + pieces.count("<unk>"), tokens + len(pieces)
    assert unknown and run.result["unknown_share"] == pytest.approx(unknown / tokens)
    warnings: list[str] = []
    run.evaluate(warn=warnings.append)
    assert "lost: it cannot be read, nor written" in warnings[0]
