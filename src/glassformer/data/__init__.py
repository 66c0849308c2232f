"""From a SOURCE to batches: text and examples, their splits, and which of them a step sees.

    datasets.py      `load_dataset`: the one way from a name, a path, a pattern or hf:… to data
    catalog.py       the data sets that have a name: what, for which task, from where
    generated/       those that are made here, a module for each
    download.py      those that are published: found on this machine, else downloaded and checked

    sources.py       Corpus: text as spans of documents, sorted into train, validation and test
    splits.py        the one way to sort it: by content, or as runs made before did
    own_text.py      a corpus of the user's files
    collection.py    a corpus of records, read in one pass and never held
    records.py       documents out of JSON lines and Parquet;  hub.py those of a Hugging Face stream
    mixtures.py      several corpora at once, each with a weight
    examples.py      Examples: inputs with the answers to learn;  tables.py reads the user's own
                     columns.py which of their columns is what
    image_folders.py  the same for images, a folder for each label;  images.py opens one;  patches.py cuts it
    text_files.py    which files there are, whether they hold text, their digests
    taking.py        what of a folder was taken and left out, for a person
    newlines.py      line ends, the same from every system
    vectors.py       word vectors out of a text file
    packed.py        files as streams of bytes, .gz and .zst unpacked on the way

    shards.py        a tokenized corpus as memory-mapped files
    shard_writer.py  written so that a process may be killed at any time;  digests.py knows documents again
    overlap.py       how much of what is held out is in the training text too
    differences.py   how unlike the splits are;  characters.py which characters a training text has
    batches.py       windows, mixtures, streams and buckets: samples by their number
    order.py         random order as a pure function

Which samples a step sees is a function of (seed, step); nothing here knows tensors or models.
"""
