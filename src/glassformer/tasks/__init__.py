"""What `--task` names: everything that belongs to one task, joined.

    task.py            the interface
    registry.py        all of them, by name
    language_model.py  the next token of a text
    masked_model.py    hidden tokens of a text;  text.py what these two share
    classifier.py      one label for a text or an image
    tagger.py          a label for each word;  labels.py what these two share
    translator.py      another sequence
    examples.py        what the last three share

The parts stand in the folders of the flow; a task joins those that belong to one thing to learn. To add
one: its file here (a subclass of TextTask or ExamplesTask, if it learns from text or examples) with its line
in this map, its line in registry.py, and its name in config/schema.py.
"""
