"""What a batch has to get right: which batches there are, and the loss of a model on one.

    objective.py    the interface, and what they share
    loss.py         of scores and targets; head and loss in one
    language.py     the token that comes next
    masked.py       tokens that are hidden
    labelling.py    a label for the whole, or for each position
    translation.py  the target, token by token, given the source

A batch is a function of (seed, step); nothing here knows how a model is updated.
"""
