"""Every setting, typed and validated in one place.

model.py  data.py  training.py    the sections (section.py: what they have in common)
schema.py                         the whole of them, and settings checked against it
recipes.py                        where settings come from: recipes, --set
saved.py                          the config.yaml of a run
"""
