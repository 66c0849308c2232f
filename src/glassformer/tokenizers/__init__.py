"""Text to ids and back: byte-pair encoding from scratch, and the ways of cutting text that it replaced.

    bpe.py            the algorithm in plain Python: read this first
    bpe_tokenizer.py  BPE: the algorithm with a vocabulary, a pattern, a file format
    counting.py       how often each piece of a text occurs, which is what it learns from
    fast/             the same with compiled loops on all cores, to the last id

    tokenizer.py      the interface, special tokens, decoding as ids come; Byte
    vocabulary.py     dictionaries of whole pieces: Char, Word;  pairs.py character pairs and a shortlist
    spelling.py       which letters words have in common, as numbers
    load.py           the one way to a tokenizer: learned by the name of its kind, or read from a file
    formats.py        Hugging Face's `tokenizer.json`, written and read

    patterns.py       how text is cut into pieces before bytes are merged
    pattern_tree.py   a pattern as a tree;  automaton.py the tree as a table that reads text once
    unicode.py        which characters are letters, numbers and marks, in one fixed version of Unicode

Nothing here knows of tensors, data sets or models.
"""
