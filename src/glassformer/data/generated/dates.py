"""`dates`: "the third of March, nineteen eighty-seven" → 1987-03-03."""

import datetime

from glassformer.data.examples import Example, Examples, divide_examples
from glassformer.data.order import fold_seed

HELD_OUT = 0.05  # share of validation, and of test
DATES = 12_000
SPELLINGS = 3  # of each date
FIRST_DAY, LAST_DAY = datetime.date(1900, 1, 1), datetime.date(2099, 12, 31)
MONTHS = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
]
WEEKDAYS = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]
ONES = [
    "zero",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
    "thirteen",
    "fourteen",
    "fifteen",
    "sixteen",
    "seventeen",
    "eighteen",
    "nineteen",
]
TENS = ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]
ORDINALS = {"one": "first", "two": "second", "three": "third", "five": "fifth", "eight": "eighth"}
ORDINALS |= {"nine": "ninth", "twelve": "twelfth", "twenty": "twentieth", "thirty": "thirtieth"}


def examples() -> Examples:
    """Spelled-out dates and their ISO form. A date is in one split only, whatever its spelling."""
    span = (LAST_DAY - FIRST_DAY).days + 1
    pairs: list[Example] = []
    for i in range(DATES):
        day = FIRST_DAY + datetime.timedelta(days=fold_seed(1, i) % span)
        spellings = _spellings(day)
        choices = {fold_seed(2, i, j) % len(spellings) for j in range(SPELLINGS)}
        pairs += [(spellings[k], day.isoformat()) for k in sorted(choices)]
    splits, _ = divide_examples(pairs, HELD_OUT, HELD_OUT, key=lambda e: e[1])
    return Examples("dates", splits, "whole dates by a hash: no spelling of a held-out date is trained on")


def _spellings(day: datetime.date) -> list[str]:
    month, weekday = MONTHS[day.month - 1], WEEKDAYS[day.weekday()]
    d, y = day.day, day.year
    suffix = "th" if 10 < d < 14 else {1: "st", 2: "nd", 3: "rd"}.get(d % 10, "th")
    ordinal, words = _ordinal(d), _year(y)
    return [
        f"{d} {month} {y}",
        f"{month} {d}, {y}",
        f"{weekday}, {d} {month} {y}",
        f"{d}{suffix} of {month} {y}",
        f"{month[:3]} {d}{suffix}, {y}",
        f"{weekday[:3]} {d} {month[:3]} {y}",
        f"the {ordinal} of {month}, {words}",
        f"{month} the {ordinal}, {words}",
        f"{weekday}, {month} {ordinal}, {y}",
        f"{y}, {month} the {d}{suffix}",
    ]


def _two_digits(n: int) -> str:
    if n < 20:
        return ONES[n]
    tens = TENS[n // 10 - 2]
    return f"{tens}-{ONES[n % 10]}" if n % 10 else tens


def _ordinal(n: int) -> str:
    head, dash, last = _two_digits(n).rpartition("-")
    return head + dash + ORDINALS.get(last, last + "th")


def _year(y: int) -> str:
    century, rest = divmod(y, 100)
    if rest == 0:
        return "two thousand" if y == 2000 else f"{ONES[century]} hundred"
    if rest < 10:
        return f"two thousand and {ONES[rest]}" if century == 20 else f"{ONES[century]} oh {ONES[rest]}"
    return f"{_two_digits(century)} {_two_digits(rest)}"
