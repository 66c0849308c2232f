"""Kernels of a GPU, in Triton's interpreter and through its compiler. `make test-kernels` runs these, in an
environment of its own with Triton and a NumPy that its interpreter knows. Elsewhere they are not collected,
so that none is ever counted without having run.
"""

import os

collect_ignore_glob = [] if os.environ.get("GLASSFORMER_KERNELS") == "1" else ["test_*.py"]
