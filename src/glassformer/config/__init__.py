"""Every setting, typed and validated in one place.

    model.py     the settings of a model
    data.py      those of data and tokenizer
    training.py  those of training
    section.py   what these sections have in common
    schema.py    the whole of them, and settings checked against it
    recipes.py   where settings come from: recipes, --set
    grid.py      the values of --sweep
    saved.py     the config.yaml of a run

Only this folder imports pydantic.
"""
