"""Models from and for other programs.

    folder.py       whether a folder may hold such a model
    huggingface.py  a folder in Hugging Face's GPT-2 layout, read

Nothing that comes from elsewhere is executed: no pickle, no code, no templates.
"""
