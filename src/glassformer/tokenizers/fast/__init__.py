"""Byte-pair encoding at full speed: compiled loops, on all cores, over text that streams through.

    feed.py      texts in batches of about a megabyte, and the threads that take them
    learner.py   pieces counted, merges learned
    encoder.py   ids
    kernels/     the loops themselves, compiled

The answers are those of the plain Python of bpe.py, to the last id, and tests hold it to that. Small jobs
stay there: loading the compiled code takes most of a second and compiling it, once per machine, about ten.
"""

import sys
from pathlib import Path

from glassformer.core.compiled import CompiledFolder

# Bytes of text that are worth loading the compiled code; compiling it; and calling it when it is there.
WORTH_LOADING, WORTH_COMPILING, WORTH_CALLING = 1_500_000, 12_000_000, 4096

compiled_loops = CompiledFolder(Path(__file__).with_name("kernels"))


def worthwhile(size: int) -> bool:
    """Whether the compiled code pays for a job of so many bytes."""
    return size >= WORTH_CALLING if is_loaded() else worthwhile_to_load(size)


def worthwhile_to_load(size: int) -> bool:
    return not is_loaded() and (
        size >= WORTH_COMPILING or (size >= WORTH_LOADING and compiled_loops.is_compiled)
    )


def is_loaded() -> bool:
    return "glassformer.tokenizers.fast.kernels.apply" in sys.modules
