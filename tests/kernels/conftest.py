"""Kernels of a GPU, in Triton's interpreter and through its compiler. `make test-kernels` runs these, in an
environment of its own with Triton and a NumPy that its interpreter knows. Elsewhere they are not collected,
so that none is ever counted without having run. What a process interprets it cannot compile, so files called
test_…_compiles.py have a turn of their own.
"""

import os
from pathlib import Path

TURN = os.environ.get("GLASSFORMER_KERNELS")  # interpreted, compiled; nothing: none

collect_ignore = [
    path.name
    for path in Path(__file__).parent.glob("test_*.py")
    if ("compiled" if path.stem.endswith("_compiles") else "interpreted") != TURN
]
