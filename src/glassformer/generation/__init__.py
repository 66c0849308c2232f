"""From a model to text, token by token.

    request.py      what is asked, and what is answered
    engine.py       many texts at once, one step after the other
    step.py         what a step is
    pages.py        where keys and values lie;  paged_state.py how a model sees them
    open_step.py    a step by the one forward pass;  make.py which of the three
    fast/           the same compiled, on a CPU;  gpu/ in graphs, for a GPU;  rows.py what both share
    plain.py        everything read again for each token: the oracle
    limits.py       what can be said about drawing
    sampling.py     from scores to a choice: penalties, temperature, top-k, top-p, min-p;  noise.py the draw
    speculative.py  a small model guesses, the large one checks
    constraint.py   texts that are held to a form
    beam.py         the best few beginnings instead of the best token
    seq2seq.py      from sources to translations;  memories.py what they look into
    stream.py       text while it is written: whole characters, nothing of a stop string
    text.py         `gf.generate`: texts, with the ids and probabilities they were made of

All but the last two and constraint.py handle ids, never text.
"""
