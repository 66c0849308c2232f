"""A number that stands for the source of this folder.

Numba keeps compiled code by the file of the function that is called, and does not notice a change in the
files of what that function calls. A function that holds on to this number is compiled again when any of them
has changed.
"""

import hashlib
from pathlib import Path

from glassformer.generation import noise


def fingerprint() -> int:
    """Of all files here, and of the constants of the noise."""
    hasher = hashlib.sha256(f"{noise.GOLDEN} {noise.FIRST} {noise.SECOND}".encode())
    for path in sorted(Path(__file__).parent.glob("*.py")):
        hasher.update(path.read_bytes())
    return int.from_bytes(hasher.digest()[:7])
