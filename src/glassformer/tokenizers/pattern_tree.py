"""Regular expressions as trees, as far as automaton.py can turn them into tables."""

import regex

# ("set", source) ("then", nodes) ("or", nodes) ("repeat", node, least, most, greedy) ("look", node, positive)
Node = tuple


class Unsupported(Exception):  # noqa: N818 - a signal between modules, never shown
    """The pattern needs more than a table."""


class Parser:
    """Patterns to trees: alternatives, groups, sets, repeats, one character of lookahead."""

    def __init__(self, pattern: str):
        self.pattern, self.at, self.ignore_case = pattern, 0, False

    def parse(self) -> Node:
        tree = self.alternatives()
        if self.at < len(self.pattern):
            raise Unsupported(f"unexpected {self.pattern[self.at]!r}")
        return tree

    def take(self, word: str) -> bool:
        if self.pattern.startswith(word, self.at):
            self.at += len(word)
            return True
        return False

    def alternatives(self) -> Node:
        choices = [self.sequence()]
        while self.take("|"):
            choices.append(self.sequence())
        return choices[0] if len(choices) == 1 else ("or", choices)

    def sequence(self) -> Node:
        items: list[Node] = []
        while self.at < len(self.pattern) and self.pattern[self.at] not in "|)":
            items.append(self.repeated(self.item()))
        return ("then", items)

    def item(self) -> Node:
        if self.take("(?=") or self.take("(?!"):
            positive = self.pattern[self.at - 1] == "="
            inner = self.item()
            if inner[0] != "set" or not self.take(")"):
                raise Unsupported("looking ahead by more than one character")
            return ("look", inner, positive)
        if self.take("(?i:"):
            before, self.ignore_case = self.ignore_case, True
            return self.group(before)
        if self.take("(?:"):
            return self.group(self.ignore_case)
        if self.pattern.startswith("(?", self.at) or self.pattern.startswith("(*", self.at):
            raise Unsupported("a group with a flag or a condition")
        if self.take("("):
            return self.group(self.ignore_case)
        return self.one_set()

    def group(self, ignore_case: bool) -> Node:
        inner = self.alternatives()
        self.ignore_case = ignore_case
        if not self.take(")"):
            raise Unsupported("a group that does not end")
        return inner

    def one_set(self) -> Node:
        """One sign, one escape or one [class], as the text that `regex` will be asked about."""
        match = _ATOM.match(self.pattern, self.at)
        if match is None:
            raise Unsupported(f"{self.pattern[self.at :]!r}")
        self.at = match.end()
        source = match[0]
        return ("set", f"(?i:{source})" if self.ignore_case else source)

    def repeated(self, node: Node) -> Node:
        match = _REPEAT.match(self.pattern, self.at)
        if match is None:
            return node
        if node[0] == "look" or match["how"] == "+":
            raise Unsupported("a possessive repeat")
        self.at = match.end()
        if self.at < len(self.pattern) and self.pattern[self.at] in "*+?{":
            raise Unsupported("a repeat of a repeat")
        least, most = {"?": (0, 1), "*": (0, None), "+": (1, None)}.get(match["sign"], (0, None))
        if match["sign"].startswith("{"):
            least = int(match["least"])
            most = least if match["comma"] is None else int(match["most"]) if match["most"] else None
            if max(least, most or 0) > 100:
                raise Unsupported("a long repeat")
        return ("repeat", node, least, most, match["how"] != "?")


_ATOM = regex.compile(
    r"""\\[pP]\{\^?[\w\s=]+\} | \\[sSdDwWrntfv] | \\x[0-9a-fA-F]{2} | \\u[0-9a-fA-F]{4} | \\[^\w]
    | \[\^?\]?(?:\\[pP]\{\^?[\w\s=]+\}|\\[sSdDwWrntfv]|\\x[0-9a-fA-F]{2}|\\u[0-9a-fA-F]{4}|\\[^\w]
               |[^\[\]\\&~|]|(?<![|])[|](?![|]))+\]
    | [^\\\[\](){}*+?.^$|]  # a sign that stands for itself""",
    regex.VERBOSE,
)
_REPEAT = regex.compile(r"(?P<sign>[?*+]|\{(?P<least>\d+)(?P<comma>,(?P<most>\d*))?\})(?P<how>[+?])?")


def may_be_empty(node: Node) -> bool:
    match node:
        case ("set", _):
            return False
        case ("then", parts):
            return all(map(may_be_empty, parts))
        case ("or", parts):
            return any(map(may_be_empty, parts))
        case ("repeat", inner, least, _, _):
            return least == 0 or may_be_empty(inner)
    return True  # a look at the next character
