"""The public names: few, typed, there; and what a researcher does with them without a run directory."""

import warnings
from pathlib import Path

import pytest
import torch

import glassformer as gf

DEPRECATED = {"Edit", "put", "see", "steer", "zero"}  # names of earlier versions; they go with 1.0


def test_public_names_are_a_decision() -> None:
    """Adding one means changing this list."""
    assert gf.__all__ == [
        *("BPE", "Byte", "Char", "Config", "Decoder", "Encoder", "EncoderDecoder", "Generation"),
        *("GlassformerError", "LanguageModelling", "ModelConfig", "Pairs", "Record", "Run", "Sampler"),
        *("Tokenizer", "Trainer", "TrainingConfig", "Word", "compare", "edit", "generate", "import_hf"),
        *(
            "load",
            "load_dataset",
            "load_tokenizer",
            "make_model",
            "plan",
            "record_trace",
            "save_run",
            "sweep",
        ),
        *("train", "train_tokenizer"),
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert all(callable(getattr(gf, name)) for name in gf.__all__ if name != "edit")


@pytest.mark.parametrize("name", sorted(DEPRECATED))
def test_earlier_names_still_work_and_say_what_to_write(name: str) -> None:
    with pytest.warns(DeprecationWarning, match=rf"gf\.{name} is now gf\."):
        assert callable(getattr(gf, name))
    assert name not in gf.__all__


def test_the_three_transformers_from_a_config() -> None:
    config = gf.ModelConfig(layers=1, heads=2, width=16, context=8, vocab=11, labels=3)
    ids = torch.randint(11, (2, 6))
    assert gf.Decoder(config)(ids).shape == (2, 6, 11)
    assert gf.Encoder(config)(ids).shape == (2, 3)
    assert gf.Encoder(config, "labels")(ids).shape == (2, 6, 3)
    assert gf.Encoder(config, "tokens")(ids).shape == (2, 6, 11)
    assert gf.EncoderDecoder(config)(ids, ids[:, :4]).shape == (2, 4, 11)


def test_what_cannot_be_built_is_said() -> None:
    with pytest.raises(gf.GlassformerError, match="no task 'banana'"):
        gf.make_model("banana", gf.ModelConfig(vocab=5))
    sizes = {"layers": 1, "heads": 2, "width": 8, "context": 8, "vocab": 5}
    with pytest.raises(gf.GlassformerError, match=r"model\.labels is 0"):
        gf.Encoder(gf.ModelConfig(**sizes))
    with pytest.raises(gf.GlassformerError, match="no head 'banana': expected label"):
        gf.Encoder(gf.ModelConfig(**sizes), "banana")
    with pytest.raises(gf.GlassformerError, match=r"model\.family is gru: expected transformer"):
        gf.Decoder(gf.ModelConfig(family="gru", **sizes))
    with pytest.raises(gf.GlassformerError, match=r"model\.family is window: expected rnn or gru or lstm"):
        gf.Encoder(gf.ModelConfig(family="window", window=2, labels=2, **sizes))
    with pytest.raises(gf.GlassformerError, match=r"model\.vocab is 0"):
        gf.Decoder(gf.ModelConfig())


def test_generating_without_a_run() -> None:
    torch.manual_seed(0)
    tokenizer = gf.Byte()
    config = gf.ModelConfig(layers=1, heads=2, width=16, context=16, vocab=len(tokenizer))
    model = gf.Decoder(config)
    torch.nn.init.normal_(model.unembedding.weight)
    sampler = gf.Sampler(temperature=0.7, top_k=20, seed=3)
    three = gf.generate(model, tokenizer, "ab", 5, n=3, sampler=sampler)
    (one,) = gf.generate(model, tokenizer, "ab", 5, sampler=gf.Sampler(temperature=0.7, top_k=20, seed=3))
    assert three[0].ids == one.ids and three[0].text == one.text  # a row does not depend on its neighbours
    assert three[1].ids != three[0].ids
    ids = torch.tensor([[tokenizer.eot_id, *tokenizer.encode("ab"), *one.ids]])
    expected = model(ids).log_softmax(-1)[0, 2:-1].gather(-1, ids[0, 3:, None])[:, 0]
    torch.testing.assert_close(torch.tensor(one.log_probs), expected.detach(), rtol=1e-4, atol=1e-5)
    assert tokenizer.decode(one.ids, specials=False) == one.text and not one.ended


def test_a_stop_string_ends_one_row_and_not_the_others() -> None:
    torch.manual_seed(0)
    tokenizer = gf.Byte()
    model = gf.Decoder(gf.ModelConfig(layers=1, heads=2, width=16, context=32, vocab=len(tokenizer)))
    free = gf.generate(model, tokenizer, "x", 12, n=2, sampler=gf.Sampler(seed=1))
    stop = next(c for c in free[0].text if c.isascii() and c not in free[1].text)
    stopped = gf.generate(model, tokenizer, "x", 12, n=2, sampler=gf.Sampler(seed=1), stop=[stop])
    assert stopped[0].ended and stop not in stopped[0].text and free[0].text.startswith(stopped[0].text)
    assert len(stopped[0].ids) < len(free[0].ids) and stopped[1] == free[1]


def test_sweep_and_compare(text_file: Path, tmp_path: Path) -> None:
    small = {"model.layers": 1, "model.width": 16, "model.heads": 2, "model.context": 16}
    small |= {"training.steps": 3, "training.batch": 4, "training.eval_every": 3}
    runs = gf.sweep(text_file, {"training.seed": [0, 1]}, out=tmp_path / "sweep", settings=small)
    assert [run.config.training.seed for run in runs] == [0, 1]
    comparison = gf.compare(tmp_path / "sweep")
    assert comparison.as_json() == gf.compare(*runs).as_json()
    (line,) = comparison.as_json()["runs"]
    assert len(line["runs"]) == 2 and line["score"]["deviation"] > 0 and "× 2" in str(comparison)


def test_plan_and_load_dataset(text_file: Path) -> None:
    plan = gf.plan("gpt2", gpu="h100", gpus=8, tokens=10e9)
    assert plan.tokens == 10e9 and plan.choice is not None
    assert gf.plan("gpt2", settings={"model.layers": 24}).config.model.layers == 24
    corpus = gf.load_dataset(text_file)
    assert set(corpus.splits) == {"train", "valid", "test"}
