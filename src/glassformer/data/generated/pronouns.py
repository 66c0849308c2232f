"""Small stories in which a pronoun can only be gone on with by one who knows whom it stands for.

    by the sea aunt Fisher and the dog Baker saw Mr Weaver . a little later it baked , and soon she fished .

Three meet, each called by a title and a name. Then a pronoun takes up one of them, and the next word is what
people of that name do. Which titles go with which names, who comes first, who is taken up and how many words
stand between are drawn. So the words nearby do not tell what comes next, nor their distance, nor all words
together without their order: from the pronoun one has to look at the name behind the right title.
"""

import numpy as np

from glassformer.data.order import fold_seed

DOCUMENTS, LINES = 400, 50
MARKED = 100
TITLES = {
    "she": ("Mrs", "Miss", "Lady", "aunt"),
    "he": ("Mr", "Sir", "Lord", "uncle"),
    "it": ("the dog", "the cat", "the horse", "the parrot"),
    "they": ("the brothers", "the sisters", "the twins", "the family"),
}
NAMES = {
    "Baker": "baked",
    "Brewer": "brewed",
    "Cook": "cooked",
    "Driver": "drove",
    "Farmer": "farmed",
    "Fiddler": "fiddled",
    "Fisher": "fished",
    "Hunter": "hunted",
    "Miller": "milled",
    "Painter": "painted",
    "Piper": "piped",
    "Potter": "potted",
    "Sawyer": "sawed",
    "Shepherd": "herded",
    "Singer": "sang",
    "Smith": "forged",
    "Tinker": "tinkered",
    "Weaver": "wove",
}
MEETINGS = (
    "{0} met {1} and {2} {place} .",
    "{place} {0} and {1} saw {2} .",
    "{place} , {0} stood behind {1} , not far from {2} .",
    "{0} , {1} and {2} came together {place} .",
    "{0} sat {place} with {1} . nobody but {2} knew .",
    "{0} passed {1} {place} , where {2} lived .",
)
PLACES = ("in the park", "near the old mill", "at the station", "by the sea", "on the long bridge", "outside")
TIMES = ("then", "later", "soon", "a little later", "that evening", "as ever ,", "in the end", "at last")


def documents() -> list[tuple[str, str]]:
    """(name, text) of each; the same on every machine."""
    plain = str.maketrans("", "", "[]{}")
    return [
        (f"pronouns {d}", "".join(f"{story}\n" for story in _stories(d, LINES)).translate(plain))
        for d in range(DOCUMENTS)
    ]


def relations() -> dict[str, list[str]]:
    """Stories that are in no document; the first {pronoun} is marked, and the [name] it stands for."""
    return {"pronoun": _stories(DOCUMENTS, MARKED)}


def _stories(document: int, count: int) -> list[str]:
    random = np.random.Generator(np.random.PCG64(fold_seed(document)))
    return [_story(random) for _ in range(count)]


def _story(random: np.random.Generator) -> str:
    def draw(choices: tuple[str, ...], count: int) -> list[str]:
        """Some of them, each once, in any order."""
        return [choices[k] for k in random.permutation(len(choices))[:count].tolist()]

    pronouns, names = draw(tuple(TITLES), 3), draw(tuple(NAMES), 3)
    titles = [draw(TITLES[pronoun], 1)[0] for pronoun in pronouns]
    first, second = (pronouns.index(pronoun) for pronoun in draw(tuple(pronouns), 2))
    (meeting,), (place,), (sooner, later) = draw(MEETINGS, 1), draw(PLACES, 1), draw(TIMES, 2)
    who = [f"{title} {name}" for title, name in zip(titles, names, strict=True)]
    who[first] = f"{titles[first]} [{names[first]}]"
    did = [NAMES[name] for name in names]
    return (
        f"{meeting.format(*who, place=place)} {sooner} {{{pronouns[first]}}} {did[first]} , "
        f"and {later} {pronouns[second]} {did[second]} ."
    )
