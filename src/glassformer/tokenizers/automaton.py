"""A split pattern as a table that reads text once, from left to right.

A regular expression tries its alternatives one after the other and goes back when one fails. The same
answer can be had without going back, by following all alternatives at once, in their order of preference:

1. Parse the pattern. Every sign, class and property (`\\p{L}`) in it is a *set* of code points.
2. Code points that lie in the same sets behave the same: they form one of a few dozen *classes*, and the
   end of text is one more.
3. Compile to threads (Thompson's construction): `take` a character of a set, `fork` in order of preference,
   `look` at the next character without taking it, `match`.
4. A state of the table is an ordered list of threads. Reading a class moves each thread; when one matches,
   those after it are dropped, because the pattern prefers this one to them (Pike's rule, as tables).

An entry `table[state, class]` says two things: whether a match ends before this character, and the next
state. Deciding one character late is what lets a thread look at the next character. A step is one look into
the table, whatever the pattern.

What cannot be done so (references back, looking behind, possessive repeats) raises `Unsupported`; such
patterns are left to the `regex` package.
"""

from functools import lru_cache
from typing import NamedTuple

import numpy as np
import regex

from glassformer.tokenizers.pattern_tree import Node, Parser, Unsupported, may_be_empty
from glassformer.tokenizers.unicode import CODE_POINTS, contains, everything, in_set

DEAD = 0
MOST_STATES, MOST_INSTRUCTIONS, MOST_WORK = 2000, 3000, 200_000


class Automaton(NamedTuple):
    """`classes[code point]`, and `table[state + class] = next state · 2 + (a match ends here)`.

    States are numbered by their offset in the flat table; 0 is the dead one. The last class is the end of
    text.
    """

    classes: np.ndarray  # uint8
    table: np.ndarray  # int32
    start: int
    end_class: int


@lru_cache(maxsize=16)
def compile_pattern(pattern: str) -> Automaton:
    """The table of a pattern, or `Unsupported`."""
    tree = Parser(pattern).parse()
    sets: dict[str, int] = {}
    threads = Threads(sets)
    first = threads.add(tree, threads.match)
    try:
        classes, members = _classes(list(sets))
    except regex.error as error:
        raise Unsupported(f"a set that stands alone differently: {error}") from None
    everything.cache_clear()  # four megabytes
    return _determinize(threads, first, classes, members)


class Threads:
    """Step 3: numbered instructions; each is built after the one that follows it."""

    def __init__(self, sets: dict[str, int]):
        self.sets = sets
        self.code: list[tuple] = [("match",)]
        self.match = 0

    def add(self, node: Node, then: int) -> int:
        """The number of the instruction that does `node` and goes on with `then`."""
        kind = node[0]
        if kind == "set":
            return self._new("take", self._set(node), then)
        if kind == "look":
            return self._new("look", self._set(node[1]), node[2], then)
        if kind == "then":
            for part in reversed(node[1]):
                then = self.add(part, then)
            return then
        if kind == "or":
            return self._new("fork", [self.add(choice, then) for choice in node[1]])
        _, inner, least, most, greedy = node
        if may_be_empty(inner):
            raise Unsupported("a repeat of what may be empty, on which engines differ")
        if most is None:
            loop = self._new("fork", [])
            body = self.add(inner, loop)
            self.code[loop] = ("fork", [body, then] if greedy else [then, body])
            then = loop
        else:
            done = then
            for _ in range(most - least):
                body = self.add(inner, then)
                then = self._new("fork", [body, done] if greedy else [done, body])
        for _ in range(least):
            then = self.add(inner, then)
        return then

    def _set(self, node: Node) -> int:
        return self.sets.setdefault(node[1], len(self.sets))

    def _new(self, *instruction: object) -> int:
        if len(self.code) > MOST_INSTRUCTIONS:
            raise Unsupported("a very long pattern")
        self.code.append(instruction)
        return len(self.code) - 1

    def ready(self, state: tuple[int, ...], inside: np.ndarray) -> list[int]:
        """The `take` and `match` instructions reached before a character that lies in the sets `inside`."""
        instructions: list[int] = []
        visited: set[int] = set()
        stack = list(reversed(state))
        while stack:
            number = stack.pop()
            if number in visited:
                continue
            visited.add(number)
            match self.code[number]:
                case ("fork", choices):
                    stack.extend(reversed(choices))
                case ("look", which, expected, then):
                    if bool(inside[which]) == expected:
                        stack.append(then)
                case _:
                    instructions.append(number)
        return instructions


def _classes(sources: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """Step 2: the class of every code point, and the sets each class lies in (the end of text: none)."""
    sets = [in_set(source) for source in sources]
    starts = np.unique(np.concatenate([[0], *sets]))  # between two of these all code points are alike
    starts = starts[starts < CODE_POINTS]
    inside = np.stack([contains(ends, starts) for ends in sets], axis=1)
    members, classes = np.unique(inside, axis=0, return_inverse=True)
    if len(members) > 250:
        raise Unsupported("very many classes")
    lengths = np.diff(starts, append=CODE_POINTS)
    return np.repeat(classes.ravel().astype(np.uint8), lengths), np.vstack(
        [members, np.zeros_like(members[:1])]
    )


def _determinize(threads: Threads, first: int, classes: np.ndarray, members: np.ndarray) -> Automaton:
    """Step 4: number the ordered lists of threads that can arise, and tabulate the moves between them."""
    number: dict[tuple[int, ...], int] = {(): DEAD, (first,): 1}
    queue, work = [(first,)], 0
    rows: list[list[int]] = [[0] * len(members)]
    while queue:
        state = queue.pop(0)
        work += len(state) * len(members)
        row: list[int] = []
        for inside in members:
            is_match, successors = 0, []
            for ready in threads.ready(state, inside):
                instruction = threads.code[ready]
                if instruction[0] == "match":
                    is_match = 1
                    break
                if inside[instruction[1]]:
                    successors.append(instruction[2])
            next_state = tuple(dict.fromkeys(successors))
            if next_state not in number:
                number[next_state] = len(number)
                queue.append(next_state)
            if is_match and state == (first,):
                raise Unsupported("a pattern that matches nothing")
            row.append(number[next_state] * len(members) * 2 + is_match)
        rows.append(row)
        if len(rows) > MOST_STATES or work > MOST_WORK:
            raise Unsupported("very many states")
    return Automaton(classes, np.array(rows, np.int32).ravel(), len(members), len(members) - 1)
