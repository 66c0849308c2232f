"""Measurements beside the peers, in the same run: what `glassformer bench` prints.

    tokenizer.py         learning and encoding, beside other tokenizers
    tokenizer_worker.py  one measurement in a process of its own

What attention costs is measured in inspection/cost.py.
"""
