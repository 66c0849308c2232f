"""Kernels of a GPU, in three turns, each of which runs what the others cannot:

    interpreted   without a GPU, in Triton's interpreter (`make test-kernels`)
    compiled      without a GPU, through Triton's compiler (likewise): files called test_…_compiles.py
    gpu           on a GPU (`make test-gpu`): files called test_…_gpu.py, and those of `ON_BOTH`

`make test-kernels` makes an environment of its own with Triton and a NumPy that its interpreter knows. In no
other turn are these tests collected, so that none is ever counted without having run.
"""

import os
from pathlib import Path

TURN = os.environ.get("GLASSFORMER_KERNELS")
ON_BOTH = ("test_training_kernels", "test_training_twins")


def _turns(path: Path) -> tuple[str, ...]:
    if path.stem.endswith("_compiles"):
        return ("compiled",)
    if path.stem.endswith("_gpu"):
        return ("gpu",)
    return ("interpreted", "gpu") if path.stem in ON_BOTH else ("interpreted",)


collect_ignore = [path.name for path in Path(__file__).parent.glob("test_*.py") if TURN not in _turns(path)]
