"""Pages: handed out once, shared by equal beginnings, never written into by two."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from glassformer.generation.open_step import OpenStep
from glassformer.generation.pages import SIZE, Pages, chain
from glassformer.generation.step import Piece
from tests.conftest import tiny_model
from tests.models.families import close, ids


@settings(max_examples=100)
@given(
    st.lists(st.tuples(st.sampled_from(["take", "share", "release", "publish", "find"]), st.integers(0, 7)))
)
def test_no_page_has_two_owners_by_accident(moves: list[tuple[str, int]]) -> None:
    pages, held, named = Pages(4), list[int](), dict[int, bytes]()
    for move, number in moves:
        if move == "take":
            page = pages.take()
            assert (page is None) == (len(set(held)) == 4)
            if page is not None:
                assert page not in held
                held.append(page)
                named.pop(page, None)
        elif move == "share" and held:
            pages.share(held[number % len(held)])
            held.append(held[number % len(held)])
        elif move == "release" and held:
            pages.release(held.pop(number % len(held)))
        elif move == "publish" and held:
            page, name = held[number % len(held)], chain(b"", [number])
            pages.publish(page, name)
            if pages.find(name) == page:
                named[page] = name
        elif move == "find":
            page = pages.find(chain(b"", [number]))
            assert page is None or page in named
        assert pages.available == 4 - len(set(held))
        assert [pages.users[p] for p in range(4)] == [held.count(p) for p in range(4)]


def test_what_was_used_longest_ago_goes_first() -> None:
    pages = Pages(2)
    for number in (0, 1):
        page = pages.take()
        assert page is not None
        pages.publish(page, chain(b"", [number]))
        pages.release(page)
    pages.share(0)  # used again, so it is the newer one
    pages.release(0)
    assert pages.take() == 1 and pages.find(chain(b"", [1])) is None and pages.find(chain(b"", [0])) == 0


def test_a_fork_is_a_text_of_its_own() -> None:
    model, text = tiny_model(context=64), ids(21).tolist()
    step = OpenStep(model, 12)
    slot = step.open(text)
    step.reserve(slot, 30)
    step.scores([Piece(slot, text, 0)])
    other = step.fork(slot)
    assert other.pages[0] == slot.pages[0] and other.pages[1] != slot.pages[1]  # a full page, and another
    step.reserve(other, 5)
    one, two = step.scores([Piece(slot, [3])]), step.scores([Piece(other, [4])])
    for scores, last in ((one, 3), (two, 4)):
        close(scores[0], model(torch.tensor([[*text, last]]))[0, -1])
    step.forget(other, 18)
    close(step.scores([Piece(other, [5])])[0], model(torch.tensor([[*text[:18], 5]]))[0, -1])
    for each in (slot, other):
        step.close(each)
    assert step.pages.available == 12


def test_only_whole_pages_with_all_that_stands_before_them_are_shared() -> None:
    model, text = tiny_model(context=64), ids(40).tolist()
    step = OpenStep(model, 12)
    slot = step.open(text)
    step.reserve(slot, 40)
    step.scores([Piece(slot, text, 0)])
    step.publish(slot, text)
    for tokens, shared in (
        (text, 2 * SIZE),
        (text[: 2 * SIZE], SIZE),  # the last token is read, for its scores
        (text[: 2 * SIZE + 1], 2 * SIZE),
        ([text[0] ^ 1, *text[1:]], 0),
        ([*text[:SIZE], text[SIZE] ^ 1, *text[SIZE + 1 :]], SIZE),
        (text[SIZE:], 0),
    ):
        other = step.open(tokens)
        assert other.length == shared
        step.close(other)
    assert step.open(text, shares=False).length == 0
