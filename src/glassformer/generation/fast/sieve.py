"""The rough copy of an unembedding that most of a vocabulary is ruled out by (kernels/sieve.py).

    w = scale · q + e    for each row of the weights as they are multiplied, q from −127 to 127

What is kept of e is its length, and more than the rounding of sums adds to it: a product of C columns is a
chain of C/16 roundings and five more (kernels/products.py), each 2⁻²⁴ of Σ |w| |x| ≤ |w| |x| at most; and
two such sums are compared.

Letters: V vocabulary, C model width.
"""

import ctypes
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from glassformer.core.lanes.vector import WIDTH
from glassformer.generation.fast.choose import NOTHING
from glassformer.generation.fast.kernels.plan import Plan
from glassformer.generation.fast.kernels.products import FLOAT32, INT8, SIZES
from glassformer.generation.fast.kernels.sieve import ALL, FEW
from glassformer.generation.fast.weights import to_int8
from glassformer.generation.sampling import Sampler

# Texts that scores are sifted for; with more the weights are used so often that reading them is little.
ROWS = 8
WORTH = 8 << 20  # bytes of weights from which a copy pays: what is less stays near the processor
FIRST = 8  # draws before it is made
# Between them scores that differ still do when they are divided by a temperature.
COLDEST, HOTTEST = 1e-3, 1e3
LONGEST_REST = 1 << 12  # draws
CHUNK = 1024  # rows that are rounded together
ROUNDING, SMALLEST = 2.0**-22, 1e-30


class Sieve:
    """The part of a plan that is about tokens that cannot be chosen."""

    def __init__(self, plan: np.ndarray, weight: Tensor):
        """`weight` is the parameter that the plan reads or was copied from; when it changes, a plan that
        reads it needs another copy. PyTorch counts changes, but none made through `.data` or NumPy."""
        self._plan, self._weight = plan, weight
        self._copied: int | None = None  # the version of what was copied
        self._draws = self._rest = 0  # since there is nothing to copy anew; until it is tried again
        self._next_rest = 1
        self.memory: list[np.ndarray] = []

    def helps(self, samplers: Sequence[Sampler]) -> bool:
        """Whether the next walk is to sift; then the plan is ready for it."""
        plan = self._plan
        size = SIZES[plan[Plan.KIND]] * plan[Plan.VOCAB] * plan[Plan.WIDTH]
        if plan[Plan.KIND] == INT8 or plan[Plan.UNEMBEDDING_BIAS] or size < WORTH or len(samplers) > ROWS:
            return False
        if not all(can_sift(sampler, int(plan[Plan.VOCAB])) for sampler in samplers):
            return False
        if plan[Plan.KIND] == FLOAT32 and self._weight.is_inference():
            return False  # of such tensors nobody counts the changes
        if self._rest:
            self._rest -= 1
            return False
        version = self._weight._version if plan[Plan.KIND] == FLOAT32 else 0
        if version != self._copied:
            self._draws += 1
            if self._draws <= FIRST:
                return False
            self._copy()
            self._copied, self._draws = version, 0
        return True

    def was_right(self, rows: int) -> bool:
        """After a walk that sifted, whether its choices hold: not if the weights have changed unseen."""
        strange, counts = self._strange[:rows], self._counts[:rows]
        if strange.any():
            strange[:] = 0
            self._copied = None
            return False
        if (counts == ALL).any():
            self._rest, self._next_rest = self._next_rest, min(2 * self._next_rest, LONGEST_REST)
        else:
            self._next_rest = 1
        return True

    def _copy(self) -> None:
        """The weights as they are now. The memory stays where it is: a thread that is late may look at it."""
        if not self.memory:
            self._make_room()
        whole, scales, errors = (torch.from_numpy(array) for array in self.memory[:3])
        for start in range(0, len(whole), CHUNK):
            rows = slice(start, start + CHUNK)
            weight = self._rows(start, min(CHUNK, len(whole) - start))
            whole[rows], scales[rows] = to_int8(weight)
            rest = (weight - whole[rows].float() * scales[rows, None]).norm(dim=1)
            steps = weight.shape[1] / WIDTH + 8
            errors[rows] = (1 + 1e-4) * rest + ROUNDING * steps * weight.norm(dim=1) + SMALLEST

    def _make_room(self) -> None:
        plan = self._plan
        V, C = int(plan[Plan.VOCAB]), int(plan[Plan.WIDTH])
        self._counts, self._strange = np.zeros(ROWS, np.int64), np.zeros(ROWS, np.int64)
        arrays = {
            Plan.SIEVE: np.zeros((V, C), np.int8),
            Plan.SIEVE_SCALE: np.zeros(V, np.float32),
            Plan.SIEVE_ERROR: np.zeros(V, np.float32),
            Plan.ESTIMATES: np.zeros((ROWS, V), np.float32),
            Plan.LENGTHS: np.zeros(ROWS, np.float32),
            Plan.FOUND: np.zeros((ROWS, V // FEW), np.int64),
            Plan.FOUND_COUNTS: self._counts,
            Plan.STRANGE: self._strange,
        }
        for name, array in arrays.items():
            plan[name] = array.ctypes.data
        self.memory = list(arrays.values())

    def _rows(self, start: int, count: int) -> Tensor:
        """Rows of the weights that the plan reads, in float32."""
        C, kind = int(self._plan[Plan.WIDTH]), int(self._plan[Plan.KIND])
        size = SIZES[kind] * C
        memory = (ctypes.c_uint8 * (count * size)).from_address(
            int(self._plan[Plan.UNEMBEDDING]) + start * size
        )
        numbers = torch.from_numpy(np.ctypeslib.as_array(memory))
        return numbers.view(torch.float32 if kind == FLOAT32 else torch.bfloat16).view(count, C).float()


def can_sift(sampler: Sampler, vocab: int) -> bool:
    """Whether what a sampler can choose follows from bounds of each score by itself."""
    if sampler.is_greedy:
        return True
    top_k = NOTHING if sampler.top_k is None else sampler.top_k
    adds_up = sampler.top_p is not None and sampler.top_p < 1 and top_k >= vocab
    return COLDEST <= sampler.temperature <= HOTTEST and not adds_up
