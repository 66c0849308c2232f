"""Checkpoints: everything that a trajectory depends on, as safetensors and JSON.

    write.py       what a checkpoint is, and how it comes to be whole or not at all
    read.py        back from one, however its tensors lay when it was written
    snapshot.py    a copy of the state after a step, while training goes on
    background.py  the thread that writes it
    weights.py     the weights alone
    seal.py        what the files of a checkpoint must hash to
    run_seal.py    the same for a run directory, and its settings

Nothing in a checkpoint is ever executed.
"""
