"""Data sets that are made here, so that every task can be tried without a download.

    pydocs.py      language    the manual and the docstrings that every Python carries
    repeats.py     language    random words, each said three times
    pronouns.py    language    small stories in which a pronoun has to be followed to whom it stands for
    dates.py       translate   "the third of March, nineteen eighty-seven" → 1987-03-03
    docstrings.py  classify    a docstring of the standard library → what its module is about
    pycode.py      tag         the words of a line of the standard library → keyword, call, attribute, …
    digits.py      classify    scikit-learn's 8 × 8 digits as patches → which digit (needs the extra)

Each is called like its data set in catalog.py, and has one function: `documents`, (name, text) of each, or
`examples`. One that brings marked sentences (inspection/marked.py) has `relations` too.
"""
