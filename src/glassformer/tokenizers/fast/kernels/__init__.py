"""The inner loops of byte-pair encoding over flat arrays, made machine code by numba.

    scan.py      where the next piece of text ends
    words.py     distinct pieces, numbered and counted
    learn.py     merges from counted pieces;  heap.py the most frequent pair on top
    apply.py     ids of texts;  merge.py those of one piece
    hash_set.py  a set of 128-bit numbers, by which data/digests.py knows documents again

They know nothing of files, threads or Python objects; the folder above calls them.
"""
