"""Models from and for other programs.

    huggingface.py  a folder in Hugging Face's GPT-2 layout, read

Nothing that comes from elsewhere is executed: no pickle, no code, no templates.
"""
