"""Models from scratch: tensors in, scores out.

    plain_gpt.py     read this first: a GPT on one page
    tap.py           the window into a forward pass, and the names of its sites: `3.z`, what heads give

    attention.py     softmax(QKᵀ/√D)V and the layers around it;  fast/ compiled, for training on a CPU
    gpu/             the fused twin of a training pass, for a GPU
    mask.py          which keys a query may look at
    position.py      how a model knows the order of its tokens
    layers.py        norms and feed-forward nets
    spelling.py      words that share vectors by their letters
    dropout.py       numbers left out in training
    shift.py         the last few positions at hand: a short convolution
    block.py         one block, for every transformer;  transformer.py a stack of it
    ladder.py        the rungs to attention, each trainable in place of the next
    readout.py       labels, for each position or for the whole sequence

    recurrent.py     one vector carried from position to position;  cells.py its cells, written out
    window.py        the last n tokens through a feed-forward net
    ngram.py         the baseline of every language model;  bag_of_words.py that of every classifier

    model.py         what models are to the rest of the project
    build.py         from settings to a model: every variant is a component, chosen here
    init.py          how weights start
    state.py         what a model remembers between the steps of a generation
    roles.py         what parameters and modules are for;  foreign.py whether others have written some
    products.py      products whose sums are wanted whole
    operations.py    what a forward pass costs, counted

Nothing here knows of text, data sets or training.
"""
