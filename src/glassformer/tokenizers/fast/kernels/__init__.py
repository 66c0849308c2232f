"""The inner loops of byte-pair encoding over flat arrays, made machine code by numba.

    scan.py    where the next piece of text ends
    words.py   distinct pieces, numbered and counted
    learn.py   merges from counted pieces
    apply.py   ids of pieces by merges

They know nothing of files, threads or Python objects; the folder above calls them.
"""
