"""Word vectors from a file: read as they are, placed where their words are, held fixed, kept in the run."""

import gzip
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import glassformer as gf
from glassformer.core.errors import DataError, RunError, UsageError
from glassformer.data.vectors import LONGEST, read_vectors
from glassformer.runs.vectors import place_vectors
from glassformer.training.display import Silent

GOOD, BAD = ["good", "great", "fine", "lovely"], ["bad", "awful", "dull", "poor"]
SMALL = {
    "model.layers": 1,
    "model.heads": 2,
    "training.batch": 16,
    "training.steps": 4,
    "training.eval_every": 2,
    "training.checkpoint_every": 2,
    "training.device": "cpu",
}


def rows(words: list[str], dimension: int = 12) -> str:
    drawn = np.random.default_rng(0).normal(size=(len(words), dimension)).astype(np.float32)
    return "".join(
        f"{word} {' '.join(map(str, row))}\n" for word, row in zip(words, drawn.tolist(), strict=True)
    )


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("data")
    names = ("classify.tsv", "tag.txt", "p.en", "p.de", "language.txt", "v.txt")
    paths = {name.rpartition(".")[0] if name[0] != "p" else name: folder / name for name in names}
    labelled = [f"a {w} Film number{i}\t{int(w in GOOD)}" for i in range(12) for w in (*GOOD, *BAD)]
    paths["classify"].write_text("\n".join(labelled))
    paths["tag"].write_text(
        "\n\n".join(f"the DET\n{GOOD[i % 4]} ADJ\nfilm NOUN\nn{i} NUM" for i in range(60))
    )
    paths["p.en"].write_text("\n".join(f"a {GOOD[i % 4]} film n{i}" for i in range(80)))
    paths["p.de"].write_text("\n".join(f"ein Film n{i}" for i in range(80)))
    paths["language"].write_text("".join(f"a {w} film and a {v} one .\n" for w in GOOD for v in BAD) * 40)
    paths["v"].write_text(rows(["a", *GOOD, *BAD, "film", "and", "unused"]))
    return paths


class Lines(Silent):
    def __init__(self) -> None:
        self.said: list[str] = []

    def note(self, text: str) -> None:
        self.said.append(text)


def train(task: str, data: dict[str, Path], out: Path, **more: object) -> gf.Run:
    source = data["p.en" if task == "translate" else "language" if task == "masked" else task]
    target = data["p.de"] if task == "translate" else None
    context = {"model.context": 16} if task in ("language", "masked") else {}
    settings = {"data.vectors": str(data["v"]), **SMALL, **context, **more.pop("settings", {})}  # type: ignore[dict-item]
    settings = {key: value for key, value in settings.items() if value is not None}
    return gf.train(source, task=task, target=target, out=out, settings=settings, **more)  # type: ignore[arg-type]


TASKS = ["language", "masked", "classify", "tag", "translate"]


@pytest.mark.parametrize("family", ["transformer", "gru"])
@pytest.mark.parametrize("task", TASKS)
def test_the_vectors_of_every_task_stay_as_they_are_in_the_file(
    task: str, family: str, data: dict[str, Path], tmp_path: Path
) -> None:
    display = Lines()
    sides = {"tokenizer.sides": "separate"} if task == "translate" else {}
    run = train(task, data, tmp_path / "run", display=display, settings={"model.family": family, **sides})
    said = next(line for line in display.said if line.startswith("Vectors:"))
    assert "12 numbers for each" in said and "random ones for the rest; fixed" in said
    assert (run.config.model.width, run.config.model.embedding) == (12, "fixed")
    assert run.tokenizer.kind == "word"
    name = "encoder.embedding.weight" if task == "translate" else "stack.embedding.weight"
    weight = load_file(run.path / "model.safetensors")[name]
    words = run.source_tokenizer.ids  # type: ignore[attr-defined]
    of_file = {line.split()[0]: line.split()[1:] for line in data["v"].read_text().splitlines()}
    for word in words.keys() & of_file.keys():
        assert torch.equal(weight[words[word]], torch.from_numpy(np.array(of_file[word], np.float32))), word
    model = gf.make_model(task, run.config.model)
    place_vectors(model, read_vectors(data["v"], list(words)), run.config.training.seed)
    assert torch.equal(dict(model.named_parameters())[name], weight)  # the random ones have not moved either
    assert run.result["frozen"] == weight.numel()
    if task == "translate":  # what is written is learned
        assert dict(model.named_parameters())["decoder.embedding.weight"].requires_grad
    again = gf.load(run.path)
    assert json.loads(json.dumps(again.evaluate().as_dict())) == run.result["valid"]
    assert again.look("a good film").report()["residual"]


WHOLE = {"model.dropout": 0.0, "training.token_dropout": 0.0}  # nothing is left out of so few examples


def test_a_classifier_learns_on_fixed_vectors_and_learned_ones_move(
    data: dict[str, Path], tmp_path: Path
) -> None:
    longer = {"training.steps": 120, "training.eval_every": 120, "training.checkpoint_every": 120}
    fixed = train("classify", data, tmp_path / "fixed", settings={**longer, "model.family": "lstm", **WHOLE})
    assert fixed.evaluate().as_dict()["accuracy"] > 0.9
    moved = train("classify", data, tmp_path / "moved", settings={"model.embedding": "learned"})
    weight = load_file(moved.path / "model.safetensors")["stack.embedding.weight"]
    still = load_file(fixed.path / "model.safetensors")["stack.embedding.weight"]
    assert weight.shape == still.shape and not torch.equal(weight, still)
    assert (weight - still).abs().max() < 0.1 and moved.result["frozen"] == 0


def test_the_file_is_needed_only_until_the_first_checkpoint(data: dict[str, Path], tmp_path: Path) -> None:
    vectors = tmp_path / "v.txt"
    shutil.copy(data["v"], vectors)
    run = train("classify", data, tmp_path / "run", settings={"data.vectors": str(vectors)})
    assert run.data["vectors"]["found"] < run.data["vectors"]["words"]
    begun = tmp_path / "begun"
    shutil.copytree(run.path, begun)
    shutil.rmtree(begun / "checkpoints")
    (begun / "result.json").unlink()
    train("classify", data, begun, settings={"data.vectors": str(vectors)}, resume=True)
    one, other = (load_file(f / "model.safetensors") for f in (run.path, begun))
    assert all(torch.equal(one[name], other[name]) for name in one)
    vectors.write_text(rows(["a", *GOOD]))
    shutil.rmtree(begun / "checkpoints")
    (begun / "result.json").unlink()
    with pytest.raises(RunError, match="is not the file of vectors that the run was begun with"):
        train("classify", data, begun, settings={"data.vectors": None}, resume=True)
    vectors.unlink()
    resumed = train("classify", data, run.path, settings={"data.vectors": None}, resume=True)
    assert resumed.classify(["a good film"]) and gf.load(run.path).evaluate()
    tuned = gf.train(
        data["classify"],
        task="classify",
        init=run.path,
        out=tmp_path / "tuned",
        settings={"training.steps": 2},
    )
    assert tuned.config.model.embedding == "fixed"
    assert torch.equal(
        load_file(tuned.path / "model.safetensors")["stack.embedding.weight"], one["stack.embedding.weight"]
    )


def test_formats(tmp_path: Path) -> None:
    text = rows(["the", "of", "New York", "Ü"], 3)
    header = f"4 3\n{text}"
    plain, vec, packed = tmp_path / "a.txt", tmp_path / "b.vec", tmp_path / "c.vec.gz"
    plain.write_text(text)
    vec.write_text(header.replace("\n", " \r\n"))
    packed.write_bytes(gzip.compress(header.encode()))
    words = ["The", "the", "ü", "Ü", "none", "New York"]
    first = read_vectors(plain, words)
    assert sorted(first.rows) == [0, 1, 3, 5] and first.in_lower_case == 1 and first.dimension == 3
    assert np.array_equal(first.rows[0], first.rows[1])
    for path in (vec, packed):
        other = read_vectors(path, words)
        assert other.digest != first.digest and other.rows.keys() == first.rows.keys()
        assert all(np.array_equal(other.rows[i], first.rows[i]) for i in first.rows)
    plain.write_text(text + "the 1 2 3\n")
    assert np.array_equal(read_vectors(plain, ["the"]).rows[0], first.rows[1])  # the first counts


BROKEN = {
    "empty": (b"", "is empty; expected a text file of word vectors"),
    "too few": (b"the 1 2 3\nof 1 2\n", "line 2: expected a word and 3 numbers, found 3 columns"),
    "too many": (b"the 1 2 3\nof 1 2 3 4\n", "line 2: expected a word and 3 numbers, found 5 columns"),
    "two blanks": (b"of 1 2 3\nthe  1 2\n", "line 2: expected a word and 3 numbers, found 3 columns"),
    "prose": (b"once\n", "line 1: expected a word and 1 numbers"),
    "no number": (b"of 1 2 3\nthe 1 two 3\n", "line 2: 'two' is no finite number"),
    "nan": (b"the 1 nan 3\n", "line 1: 'nan' is no finite number"),
    "inf": (b"the 1 2 -inf\n", "line 1: '-inf' is no finite number"),
    "too large": (b"the 1 2 1e99\n", "line 1: '1e99' is no finite number"),
    "binary": (b"2 3\nthe \x00\x01\x80?of \x00", "line 2 holds zero bytes, so the file is binary"),
    "cut off": (b"3 2\nthe 1 2\nof 1 2\n", "promises 3 vectors in its first line, and has 2"),
    "endless": (b"the " + b"1 " * LONGEST, "line 1 is longer than"),
    "foreign": (b"der 1 2\n", "has a vector for none of the 2 words"),
    "header alone": (b"0 3\n", "has a vector for none of the 2 words"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_file_that_is_none_of_vectors_is_refused_by_line(name: str, tmp_path: Path) -> None:
    content, message = BROKEN[name]
    path = tmp_path / "v.txt"
    path.write_bytes(content)
    with pytest.raises(DataError, match=message):
        read_vectors(path, ["the", "of"])


def test_what_cannot_be_is_refused_before_anything_is_written(data: dict[str, Path], tmp_path: Path) -> None:
    for settings, message in (
        ({"tokenizer.kind": "bpe"}, r"they are of words, and tokenizer\.kind is bpe"),
        ({"model.width": 16}, r"model\.width 16: the vectors of .* have 12 numbers.*Set model\.width=12"),
        ({"model.tied": True}, r"model\.embedding fixed and model\.tied"),
    ):
        with pytest.raises(UsageError, match=message):
            train("language", data, tmp_path / "no", settings=settings)
    with pytest.raises(DataError, match="cannot be read: No such file"):
        train("classify", data, tmp_path / "no", settings={"data.vectors": str(tmp_path / "none.txt")})
    with pytest.raises(DataError, match="cannot be read: it is no regular file"):
        train("classify", data, tmp_path / "no", settings={"data.vectors": str(tmp_path)})
    base = train("classify", data, tmp_path / "base")
    with pytest.raises(UsageError, match="has its embedding: leave"):
        train("classify", data, tmp_path / "no", init=base.path, settings={"model.heads": None})
    assert not (tmp_path / "no").exists()


def test_an_embedding_can_be_fixed_as_it_was_drawn(data: dict[str, Path], tmp_path: Path) -> None:
    settings = {"data.vectors": None, "model.embedding": "fixed", "model.width": 16}
    run = train("language", data, tmp_path / "run", settings=settings)
    torch.manual_seed(0)
    drawn = gf.make_model("language", run.config.model)
    weights = load_file(run.path / "model.safetensors")
    assert torch.equal(drawn.state_dict()["stack.embedding.weight"], weights["stack.embedding.weight"])
    assert not torch.equal(drawn.state_dict()["unembedding.weight"], weights["unembedding.weight"])
