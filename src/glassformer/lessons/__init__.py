"""Whys, as numbers: each lesson computes a claim about transformers, in seconds, and says what came out.

    lesson.py      what a lesson is: a question, a table, an answer, curves
    names.py       the lessons there are, by name
    registry.py    what computes each

    scale.py       why scores are divided by √D
    masks.py       why what is hidden gets −∞ before the softmax, not zero after it
    residuals.py   what residual connections do to gradients, and to the likeness of tokens (collapse)
    norms.py       where a norm may stand, and why it is none over the batch
    positions.py   why a transformer needs positions
    toeplitz.py    when attention is a convolution
    kernel.py      attention as a soft dictionary, and as a kernel that is learned
    gradient.py    ∂L/∂θ written out, with what each layer received from above
    explosion.py   when numbers become NaN: a gradient that grows at every step of a recurrence
    length.py      how far back a loss reaches
    cost.py        where the feed-forward net costs more than attention, and the formula more than the kernel
    cache.py       what a key-value cache saves
    repetition.py  the loop of greedy decoding, and what cures it
    subjects.py    models and tokens that lessons are about: a run's, or made here

An answer is put together from the numbers of its table: where a number came out otherwise, it says otherwise.
"""
