"""Marked sentences are read as they are marked; heads that follow them are found, and missed when off."""

from pathlib import Path

import pytest
import torch

import glassformer as gf
from glassformer.core.errors import GlassformerError
from glassformer.data.generated import pronouns
from glassformer.inspection import heads
from glassformer.inspection.maps import pattern
from glassformer.inspection.marked import MarkedList, data_list, find_list, parse, project_list
from glassformer.inspection.questions import Question, ask, ask_without, mean_outputs
from glassformer.inspection.relations import Words, relations
from glassformer.inspection.trace import record_trace
from tests.models.families import VOCAB, ids, make


def encode(text: str) -> tuple[list[int], list[tuple[int, int]]]:
    """A token for each character."""
    return [ord(c) % VOCAB for c in text], [(i, i + 1) for i in range(len(text))]


def next_token(ids: list[int], word: list[int]) -> Question | None:
    after = word[-1] + 1
    return Question(ids, [after - 1], [ids[after]]) if after < len(ids) else None


WORDS = Words(encode, next_token, "the token after it")
ABOUT = MarkedList("mine", {"back": [parse("The [cat] is {it}."), parse("A [dog], so {that} is the one.")]})


@pytest.mark.parametrize("marked", [project_list(), data_list("pronouns")], ids=lambda m: m.name)
def test_the_lists_that_are_here_are_well_marked(marked: MarkedList) -> None:
    assert set(marked.sentences) <= {"pronoun", "verb"}
    for examples in marked.sentences.values():
        assert len(examples) >= 20
        for sentence in examples:
            (a, b), (c, d) = sentence.target, sentence.source
            assert a < b <= c < d <= len(sentence.text) and not set(sentence.text) & set("[]{}")
    one = parse("The [queen] said {she} left.")
    assert (one.text[slice(*one.target)], one.text[slice(*one.source)]) == ("queen", "she")


def test_a_list_is_found_by_what_it_is_called(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("friend:\n  - '[Anna] knows {her} friend.'\n")
    assert find_list(path).sentences == {"friend": [parse("[Anna] knows {her} friend.")]}
    assert find_list("pronouns").name == find_list(None, "pronouns").name == "pronouns"
    assert find_list(None, "pydocs").name == find_list(None).name == "relations.yaml"


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("friend:\n  - [Anna] knows {her} friend.\n", "not valid YAML.*in quotes"),
        ("- one\n- two\n", "expected names and sentences"),
        ("friend: Anna knows her\n", "below friend is no list"),
        ("friend: [3]\n", "below friend is no list"),
        ("friend:\n  - Anna knows {her} friend.\n", "one {word} and one"),
        ("friend:\n  - Anna [knows] {her} {friend}.\n", "one {word} and one"),
        ("friend:\n  - Anna [] knows {her}.\n", "one {word} and one"),
        ("friend:\n  - '[Anna knows {her}.'\n", "one {word} and one"),
        ("{}", "is empty"),
        (None, "no file.*pronouns"),
    ],
    ids=str,
)
def test_what_is_no_list_is_said(content: str | None, says: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    if content is not None:
        path.write_text(content)
    with pytest.raises(GlassformerError, match=says):
        find_list(path)


@pytest.mark.parametrize("task", ["language", "masked"])
def test_even_weights_are_what_is_called_an_even_look(task: str) -> None:
    model = make(task, "distance", context=100)
    with torch.no_grad():
        for block in model.stack.blocks:  # pyright: ignore
            block.attention.scores.zero_()
    for relation in relations(model, WORDS, project_list(), 100):
        assert relation.sentences >= 20 and not relation.without  # none stands out
        for row in relation.weights:
            assert row == pytest.approx([relation.even] * 2, rel=1e-4)


@pytest.mark.parametrize("task", ["language", "masked"])
def test_a_relation_is_the_weight_on_the_word_meant(task: str) -> None:
    """Many sentences of unequal length give the mean of each by itself."""
    model = make(task, "transformer", context=64)
    (relation,) = relations(model, WORDS, ABOUT)
    looks = []
    for sentence in ABOUT.sentences["back"]:
        trace = record_trace(model, torch.tensor([encode(sentence.text)[0]]))
        A = torch.stack([pattern(trace, i)[0, :, sentence.source[1] - 1] for i in range(2)])
        looks.append(A[..., sentence.target[0] : sentence.target[1]].sum(-1))
    torch.testing.assert_close(torch.tensor(relation.weights), torch.stack(looks).mean(0))


def test_what_a_causal_model_cannot_see_is_left_out() -> None:
    forward = MarkedList("mine", {"forward": [parse("When {it} came, the [cat] left.")]})
    causal, masked = (make(task, "transformer", context=64) for task in ("language", "masked"))
    assert relations(causal, WORDS, forward) == []
    assert relations(masked, WORDS, forward)[0].sentences == 1
    assert relations(masked, WORDS, forward, limit=5) == []


def test_a_head_that_is_switched_off_has_its_mean_in_its_place() -> None:
    """On texts of one length it is the ablation of heads.py, and answers are those of the model itself."""
    model, texts = make("language", "transformer"), ids(3, 9)
    questions = [Question(row.tolist(), [4, 7], [3, 5]) for row in texts]
    trace = record_trace(model, texts)
    for layer, mean in enumerate(mean_outputs(model, [q.ids for q in questions])):
        torch.testing.assert_close(mean, trace[f"{layer}.z"].mean(dim=(0, 2), keepdim=True))
    whole, same = ask(model, questions)
    assert same == questions
    (without,) = ask_without(model, questions, [(1, 0)]).values()
    ablated = record_trace(model, texts, edits=[heads.ablation(trace, 1, 0)])
    for answer, logits in ((whole, trace.logits), (without, ablated.logits)):
        log_probs = logits.log_softmax(-1)
        nats = log_probs[:, 4, 3] + log_probs[:, 7, 5]
        assert answer.log_prob == pytest.approx(float(nats.mean()), rel=1e-5)
    assert without.log_prob != pytest.approx(whole.log_prob, rel=1e-3)


def test_padding_is_no_part_of_a_mean_or_an_answer() -> None:
    model = make("classify", "transformer")
    texts = [[1, 2, 3], [4, 5, 6, 7, 8, 9]]
    alone = [mean_outputs(model, [text]) for text in texts]
    for layer, mean in enumerate(mean_outputs(model, texts)):
        torch.testing.assert_close(mean, (alone[0][layer] * 3 + alone[1][layer] * 6) / 9)
    own = [Question(text, None, None) for text in texts]  # held to what it says itself
    together, known = ask(model, own)
    assert together.right == 1.0
    each = [ask(model, [q])[0].log_prob for q in known]
    assert together.log_prob == pytest.approx(sum(each) / 2, rel=1e-5)


def test_the_stories_that_are_marked_are_in_no_document() -> None:
    lines = {line for _, text in pronouns.documents() for line in text.splitlines()}
    marked = data_list("pronouns").sentences["pronoun"]
    assert len(lines) > 19_000 and not {sentence.text for sentence in marked} & lines
    for sentence in marked:
        name = sentence.text[slice(*sentence.target)]
        pronoun, did = sentence.text[sentence.source[0] :].split()[:2]
        title = sentence.text[: sentence.target[0]].split()[-1]
        assert any(title in t.split() for t in pronouns.TITLES[pronoun]) and pronouns.NAMES[name] == did


def test_the_recipe_grows_a_head_that_follows_pronouns(tmp_path: Path) -> None:
    """It looks from a pronoun to the name it stands for, and without it alone the next word is guessed."""
    run = gf.train(recipe="pronouns", out=tmp_path / "run", settings={"training.steps": 200})
    (relation,) = run.look("then she").report(relations="pronouns")["relations"]
    weights = {(i, h): w for i, row in enumerate(relation["weights"]) for h, w in enumerate(row)}
    head = max(weights, key=weights.__getitem__)
    assert weights[head] > 0.5 > 5 * relation["even"]
    right = {(item["layer"], item["head"]): item["right"] for item in relation["without"]}
    without = right.pop(head)
    assert relation["right"] > 0.9 and without < min(0.6, *right.values())  # no other is needed as much
    found = run.look("then she").report()["relations"]  # the run's own data set brings the sentences
    assert found[0]["weights"] == relation["weights"] and len(found[0]["without"]) < len(right) + 1
