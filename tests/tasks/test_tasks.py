"""Every task from data to result: train, measure, resume to the bit, use, start from another run."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import glassformer as gf
from glassformer.config.grid import parse_sweep
from glassformer.core.errors import GlassformerError, RunError, UsageError
from glassformer.runs.bias import probe
from glassformer.runs.compare import compare_runs, show_table
from glassformer.runs.sweep import sweep_runs
from glassformer.training.display import Silent
from glassformer.training.log import read_metrics

SMALL = {
    "model.layers": 1,
    "model.width": 16,
    "model.heads": 2,
    "training.batch": 8,
    "training.steps": 4,
    "training.checkpoint_every": 2,
    "training.eval_every": 2,
    "training.keep": 9,
    "training.device": "cpu",
}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("data")
    good, bad = ["good", "great", "fine", "lovely"], ["bad", "awful", "dull", "poor"]
    rows = [
        f"a {w} film number {i}\t{label}"
        for i in range(40)
        for label, ws in (("1", good), ("0", bad))
        for w in ws
    ]
    files = {"classify": "r.tsv", "tag": "t.txt", "source": "p.en", "target": "p.de", "language": "l.txt"}
    paths = {task: folder / name for task, name in files.items()}
    paths["classify"].write_text("\n".join(rows))
    paths["tag"].write_text("\n\n".join(f"the DET\ncat{i % 9} NOUN\nruns VERB" for i in range(120)))
    paths["source"].write_text("\n".join(f"number {i % 40} is here" for i in range(200)))
    paths["target"].write_text("\n".join(f"die nummer {i % 40} ist hier" for i in range(200)))
    paths["language"].write_text("".join(f"item {i % 10} follows item {(i - 1) % 10}.\n" for i in range(300)))
    return paths


def train(task: str, data: dict[str, Path], out: Path, **more: object) -> gf.Run:
    source = data["source" if task == "translate" else "language" if task == "masked" else task]
    target = data["target"] if task == "translate" else None
    context = {} if task in ("classify", "tag", "translate") else {"model.context": 16}
    kind = {"tokenizer.kind": "char"} if "init" not in more else {}
    settings = {**SMALL, **context, **kind, **more.pop("settings", {})}  # type: ignore[dict-item]
    return gf.train(source, task=task, target=target, out=out, settings=settings, **more)


CASES = [
    *[("language", f) for f in ("transformer", "lstm", "rnn", "gru", "window")],
    *[(t, f) for t in ("masked", "classify", "tag", "translate") for f in ("transformer", "lstm")],
]


@pytest.mark.parametrize(("task", "family"), CASES)
def test_a_run_is_measured_and_resumes_to_the_bit(
    task: str, family: str, data: dict[str, Path], tmp_path: Path
) -> None:
    settings = {"model.family": family, "model.dropout": 0.1}
    run = train(task, data, tmp_path / "run", settings=settings)
    result = run.result
    assert result["steps"] == 4 and result["parameters"] > 0 and result["operations_per_token"] > 0
    assert result["floor_scores"]
    again = run.evaluate("valid").as_dict()
    assert json.loads(json.dumps(again)) == result["valid"]
    assert run.mistakes("valid").show()

    broken = tmp_path / "broken"
    shutil.copytree(tmp_path / "run", broken)
    shutil.rmtree(broken / "checkpoints" / "step-00000004")
    (broken / "result.json").unlink()
    train(task, data, broken, settings=settings, resume=True)
    for name in ("model.safetensors", "optimizer.safetensors", "carried.safetensors"):
        one, other = (
            load_file(f / "checkpoints" / "step-00000004" / name) for f in (tmp_path / "run", broken)
        )
        assert one.keys() == other.keys()
        assert all(torch.equal(one[k], other[k]) for k in one), name


def test_what_the_tasks_are_for(data: dict[str, Path], tmp_path: Path) -> None:
    longer = {"training.steps": 120, "training.eval_every": 60, "model.width": 32, "training.batch": 16}
    classifier = train("classify", data, tmp_path / "c", settings={**longer, "tokenizer.kind": "word"})
    answers = classifier.classify(["a lovely film number 3", "a dull film number 3"])
    assert [next(iter(a)) for a in answers] == ["1", "0"]
    assert all(sum(a.values()) == pytest.approx(1, abs=1e-5) for a in answers)
    assert classifier.evaluate().accuracy > 0.9  # type: ignore[attr-defined]
    tagger = train("tag", data, tmp_path / "t", settings=longer)
    assert tagger.tag(["the", "cat3", "runs"]) == ["DET", "NOUN", "VERB"]
    translator = train("translate", data, tmp_path / "x", settings=longer)
    assert len(translator.translate(["number 7 is here", "number 8 is here"], beams=2)) == 2
    for wrong in (lambda: classifier.generate("a"), lambda: tagger.translate(["a"])):
        with pytest.raises(UsageError, match="learned"):
            wrong()


def test_a_classifier_starts_from_a_masked_model(data: dict[str, Path], tmp_path: Path) -> None:
    base = train("masked", data, tmp_path / "base", settings={"model.context": 64, "tokenizer.kind": "byte"})
    run = train("classify", data, tmp_path / "tuned", init=tmp_path / "base")
    assert run.config.model.context == 64 and run.config.model.labels == 2
    assert len(run.tokenizer) == len(base.tokenizer)
    begun = load_file(tmp_path / "base" / "model.safetensors")
    tuned = load_file(tmp_path / "tuned" / "model.safetensors")
    assert {k for k in tuned if k.startswith("stack.")} == {k for k in begun if k.startswith("stack.")}
    frozen = train(
        "classify", data, tmp_path / "frozen", init=tmp_path / "base", settings={"training.freeze": ["stack"]}
    )
    kept = load_file(frozen.path / "model.safetensors")
    assert all(torch.equal(kept[k], begun[k]) for k in kept if k.startswith("stack."))
    with pytest.raises(RunError, match="does not fit"):
        train("classify", data, tmp_path / "no", init=tmp_path / "base", settings={"model.width": 32})


ENCODERS = [(t, f) for t in ("language", "masked") for f in ("transformer", "rnn", "gru", "lstm")]


@pytest.mark.parametrize(("task", "family"), ENCODERS)
def test_a_classifier_stands_on_frozen_encodings_of_any_family(
    task: str, family: str, data: dict[str, Path], tmp_path: Path
) -> None:
    settings = {"model.family": family, "tokenizer.kind": "byte", "model.context": 64}
    base = train(task, data, tmp_path / "base", settings=settings)
    run = train(
        "classify", data, tmp_path / "frozen", init=base.path, settings={"training.freeze": ["stack"]}
    )
    begun, kept = (load_file(r.path / "model.safetensors") for r in (base, run))
    body = {name for name in begun if name.startswith("stack.")}
    assert body == {name for name in kept if name.startswith("stack.")}
    assert all(torch.equal(kept[name], begun[name]) for name in body)
    assert run.result["frozen"] == sum(kept[name].numel() for name in body)
    assert gf.load(run.path).classify(["a good film"])


def test_a_window_gives_no_encodings_of_a_whole(data: dict[str, Path], tmp_path: Path) -> None:
    base = train("language", data, tmp_path / "w", settings={"model.family": "window"})
    with pytest.raises(UsageError, match=r"window cannot do the task classify; these can: transformer"):
        train("classify", data, tmp_path / "c", init=base.path)


def test_pairs_of_sentences_are_scored_for_base_and_tuned(data: dict[str, Path], tmp_path: Path) -> None:
    base = train("language", data, tmp_path / "base", settings={"tokenizer.kind": "byte"})
    tuned = train("language", data, tmp_path / "tuned", init=tmp_path / "base")
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("item 1\titem 2\nitem 3\titem 3\nitem 4 follows\titem 44 follows\n")
    found = probe(tuned, str(pairs))
    assert [p.difference for p in found.pairs][1] == 0 and found.pairs[0].base is not None
    assert found.pairs[0].difference == 0  # nothing follows the word that differs
    assert found.pairs[2].difference != 0
    assert found.pairs[2].base == pytest.approx(probe(base, str(pairs)).pairs[2].difference)
    assert "base" in found.show()
    classifier = train("classify", data, tmp_path / "c")
    masked = train("masked", data, tmp_path / "m")
    for run in (classifier, masked):
        assert len(probe(run, "default").pairs) > 10
    with pytest.raises(GlassformerError, match="two sentences per line"):
        probe(base, str(tmp_path / "none.tsv"))


def test_a_sweep_ends_in_a_table_with_seeds_as_one_line(data: dict[str, Path], tmp_path: Path) -> None:
    grid = parse_sweep(["model.family=transformer,lstm", "training.seed=0,1"])
    settings = {"model.context": 16, "tokenizer.kind": "char"}
    nested: dict[str, dict[str, object]] = {}
    for key, value in {**SMALL, **settings}.items():
        section, _, name = key.partition(".")
        nested.setdefault(section, {})[name] = value
    options = {"out": str(tmp_path / "s"), "settings": nested, "display": Silent()}
    runs = sweep_runs(str(data["language"]), grid, {}, **options)  # type: ignore[arg-type]
    assert [r.path.name for r in runs][:2] == ["family=transformer-seed=0", "family=transformer-seed=1"]
    compared = compare_runs(runs)
    shown = show_table(compared)
    assert "family=lstm × 2" in shown and "±" in shown and "baseline: " in shown
    for name in ("c.html", "c.svg", "c.png"):
        compared.save(str(tmp_path / name))
    page = (tmp_path / "c.html").read_text()
    assert "<svg" in page and "family=lstm × 2" in page and "http://" not in page.split("<svg")[0]
    again = sweep_runs(str(data["language"]), grid, {}, resume=True, **options)  # type: ignore[arg-type]
    assert [r.result["seconds"] for r in again] == [r.result["seconds"] for r in runs]
    with pytest.raises(RunError, match="exists already"):
        sweep_runs(str(data["language"]), grid, {}, **options)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="expected key=a,b,c"):
        parse_sweep(["model.layers"])
    with pytest.raises(UsageError, match=r"no setting 'model\.layer'"):
        parse_sweep(["model.layer=1,2"])
    with pytest.raises(UsageError, match="ends in"):
        compared.save(str(tmp_path / "c.txt"))


def test_labels_that_training_did_not_have_are_named(data: dict[str, Path], tmp_path: Path) -> None:
    run = train("classify", data, tmp_path / "c")
    other = tmp_path / "other.tsv"
    other.write_text("a film\t1\nanother\tfunny\n")
    with pytest.raises(GlassformerError, match="label 'funny' was not in training"):
        run.evaluate(data=str(other))
    other.write_text("a film\t1\nanother\t0\n")
    assert run.evaluate(data=str(other)).as_dict()["n"] == 2


def test_images_are_classified_by_the_same_encoder(tmp_path: Path) -> None:
    pytest.importorskip("sklearn")
    run = gf.train("digits", out=tmp_path / "d", settings={**SMALL, "training.steps": 30})
    assert run.config.model.patch == 4 and run.result["floor_scores"]["logistic regression"] > 0.9
    geometry = (run.config.data.image_size, run.config.data.patch_size, run.config.data.channels)
    assert geometry == (8, 2, 1)
    with pytest.raises(UsageError, match="reads images"):
        run.classify(["seven"])


def test_a_begun_run_is_resumed_with_its_own_command(
    data: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Relative paths and `training.steps=0` are resolved when a run begins, and are no change later."""
    monkeypatch.chdir(data["source"].parent)
    recipe = tmp_path / "own.yaml"
    recipe.write_text(
        "settings: {tokenizer: {kind: char}, model: {layers: 1, width: 16, heads: 2, context: 40},"
        " training: {steps: 0, minutes: 0.01, batch: 8, device: cpu}}"
    )
    for _ in range(2):
        run = gf.train("p.en", target="p.de", recipe=str(recipe), out=tmp_path / "run", resume=True)
    assert run.config.training.steps >= 10


def test_what_a_measurement_cannot_do_is_said(data: dict[str, Path], tmp_path: Path) -> None:
    translator = train("translate", data, tmp_path / "t")
    with pytest.raises(UsageError, match="stride means nothing to the task translate"):
        translator.evaluate(stride=4)
    both = translator.evaluate(data=str(data["source"]), target=str(data["target"]))
    assert both.as_dict()["n"] == 200
    with pytest.raises(UsageError, match="other language is missing"):
        translator.evaluate(data=str(data["source"]))
    recurrent = train("language", data, tmp_path / "r", settings={"model.family": "lstm"})
    with pytest.raises(UsageError, match="no windows"):
        recurrent.evaluate(stride=4)
    window = train("language", data, tmp_path / "w", settings={"model.family": "window", "model.window": 5})
    assert window.evaluate().as_dict()["window"] == 5


def test_tags_beyond_the_context_count_as_wrong(data: dict[str, Path], tmp_path: Path) -> None:
    run = train("tag", data, tmp_path / "t", settings={"model.context": 8})
    warnings: list[str] = []
    result = run.evaluate(warn=warnings.append).as_dict()
    words = sum(len(w) for w, _ in run.task().source.require("valid"))
    assert result["n"] == words and result["accuracy"] < 1.0
    assert "longer than model.context 8" in warnings[0]


def test_runs_are_one_line_only_when_nothing_but_the_seed_differs(
    data: dict[str, Path], tmp_path: Path
) -> None:
    base = train("language", data, tmp_path / "a", settings={"tokenizer.kind": "byte"})
    again = train("language", data, tmp_path / "b", settings={"tokenizer.kind": "byte", "training.seed": 1})
    tuned = train("language", data, tmp_path / "c", init=tmp_path / "a")
    shown = show_table(compare_runs([base, again, tuned]))
    assert shown.count("× 2") == 1 and "\nc " in shown
    old = tmp_path / "old"  # from before there were scores, and seals
    shutil.copytree(Path(__file__).parents[1] / "kept" / "run", old)
    (old / "result.json").write_text(json.dumps({"valid": {}}))
    with pytest.raises(RunError, match="older version"):
        compare_runs([gf.load(old)])


def test_a_recipe_and_a_base_go_together(data: dict[str, Path], tmp_path: Path) -> None:
    train("masked", data, tmp_path / "base", settings={"model.context": 64, "tokenizer.kind": "byte"})
    recipe = tmp_path / "own.yaml"
    recipe.write_text(
        "settings: {tokenizer: {kind: word}, model: {layers: 3, width: 64, dropout: 0.25, word_dropout: 0.1},"
        " training: {steps: 4, batch: 8, device: cpu}}"
    )
    run = gf.train(
        data["classify"], task="classify", recipe=str(recipe), out=tmp_path / "c", init=tmp_path / "base"
    )
    assert (run.config.model.width, run.config.model.dropout, run.tokenizer.kind) == (16, 0.25, "byte")
    assert run.config.model.word_dropout == 0.1
    found = probe(run, "default")
    assert found.base_unit == "nats" and found.unit == "p(1)" and "base, nats" in found.show()


def test_a_loss_with_penalties_is_not_told_in_bits_per_byte(text_file: Path, tmp_path: Path) -> None:
    settings = {"model.family": "lstm", "model.layers": 1, "model.width": 8, "model.context": 8}
    settings |= {
        "training.steps": 3,
        "training.batch": 2,
        "training.compile": "off",
        "tokenizer.kind": "byte",
    }
    for penalty in (0.0, 1.0):
        wanted = {**settings, "training.activation_penalty": penalty}
        run = gf.train(text_file, out=tmp_path / str(penalty), settings=wanted)
        for record in read_metrics(run.path / "metrics.jsonl"):
            assert ("bits_per_byte" in record) == (record["split"] == "valid" or not penalty)
