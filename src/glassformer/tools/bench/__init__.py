"""Measurements beside the peers, in the same run: what `glassformer bench` prints.

    tokenizer.py         learning and encoding, beside other tokenizers
    tokenizer_worker.py  one measurement in a process of its own
    precision.py         training on each device, in each number type
    train.py             a step of training, beside other tools;  train_worker.py one measurement
    generate.py          tokens a second, beside other tools;  generate_worker.py one measurement
    llama_worker.py      llama.cpp in an environment of its own

What attention costs is measured in inspection/cost.py.
"""
