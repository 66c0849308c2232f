"""Measurements beside the peers, in the same run: what `glassformer bench` prints.

    tokenizer.py         learning and encoding, beside other tokenizers
    tokenizer_worker.py  one measurement in a process of its own
    precision.py         training on each device, in each number type

What attention costs is measured in inspection/cost.py.
"""
