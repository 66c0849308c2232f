"""What compiled loops over numbers are made of; numba makes machine code of them.

    vector.py     sixteen numbers at a time, and numbers in memory
    functions.py  exponentials and activations of them
    together.py   one loop's parts, done by the threads of PyTorch's operators
    sources.py    what compiled code is kept by

Importing any of it imports numba, which takes a while: whoever does not compute leaves it.
"""
