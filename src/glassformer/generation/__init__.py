"""From a model to text, token by token.

    engine.py    one token at a time, each fed back in, with a cache or without
    limits.py    what can be said about drawing
    sampling.py  from scores to a choice: greedy, temperature, top-k, top-p, min-p
    beam.py      the best few beginnings instead of the best token;  seq2seq.py the same for many sources
    stream.py    text while it is written: whole characters, nothing of a stop string
    text.py      `gf.generate`: texts, with the ids and probabilities they were made of

The first five handle ids, never text.
"""
