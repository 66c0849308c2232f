"""What `--task` names: everything that belongs to one task, joined.

task.py             the interface
language_model.py   the next token of a text            masked_model.py   hidden tokens of a text
classifier.py       one label for a text or an image    tagger.py         a label for each word
translator.py       another sequence                    registry.py       all of them, by name
examples.py, labels.py: what some of them share
"""
