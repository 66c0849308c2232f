"""A run from end to end: from what was asked to a folder that everything else opens.

    train.py         `gf.train`: from a source of data to a run directory
    run.py           `gf.load`: a run in use;  opened.py what its directory holds
    folder.py        whether a folder is one, told without opening it

    asked.py         what the user said, as one dictionary
    begin.py         the first files of a run directory, which a kill cannot spoil
    lengthen.py      a run that ended, given more steps
    prepare.py       the data that is named, its tokenizer, and the task that binds the two
    vectors.py       word vectors from a file, as the embedding that a model begins with
    spelling.py      how words are spelled, for a model that wants to know
    choose_tokenizer.py  how text is cut when nobody says
    autosize.py      sizes from how much text there is;  machine.py and what the machine can do
    resolve.py       the one way from these to a configuration
    processes.py     when several processes train, and what they must agree on

    sweep.py         several runs: a grid of settings, the variants of a recipe
    compare.py       runs side by side
    bias.py          which of two sentences a model finds likelier
    import_model.py  a model from elsewhere as a run;  save_model.py one of the user's own loop

What is in a run directory, docs/files.md says.
"""
