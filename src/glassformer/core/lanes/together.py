"""One loop's parts, done by the threads of PyTorch's operators.

A loop that is to run on several cores is a function of a plan, a table of integers. Each thread calls it once
and takes part after part until there is none left. Who takes which makes no difference to any result.

The threads are those of the OpenMP that PyTorch itself computes with: threads of our own would stand in line
behind these, which stay awake between two operators. Where it is not GNU's OpenMP, one thread does it all.
"""

import ctypes
from functools import cache
from typing import Any

import numpy as np
import torch
from llvmlite import ir
from numba import types

from glassformer.core.lanes.vector import instruction
from glassformer.core.waiting import has_gnu_openmp

NEXT, THREADS, PARTS = range(3)  # what every plan begins with
FIRST = 3  # where what a loop needs itself begins


@instruction
def take(typing, plan, i):
    """Number i of a plan (an address), which is one larger afterwards, whoever else asks at the same time."""

    def generate(context, builder, signature, args):
        place = builder.gep(builder.inttoptr(args[0], ir.IntType(64).as_pointer()), [args[1]])
        return builder.atomic_rmw("add", place, ir.Constant(ir.IntType(64), 1), "seq_cst")

    return types.int64(types.int64, types.int64), generate


def threads() -> int:
    """How many will take part."""
    return torch.get_num_threads() if _openmp() is not None else 1


def run(function: Any, plan: np.ndarray) -> None:
    """Call a compiled function (a `numba.cfunc` of one address) with this plan, on all threads."""
    plan[NEXT] = plan[THREADS] = 0
    count = min(threads(), int(plan[PARTS]))
    if count <= 1:
        function.ctypes(plan.ctypes.data)
    else:
        _openmp()(ctypes.c_void_p(function.address), ctypes.c_void_p(plan.ctypes.data), count, 0)


@cache
def _openmp() -> Any:
    """What starts a team of threads; None where there is none that PyTorch shares with us."""
    if not has_gnu_openmp():
        return None
    try:
        start = ctypes.CDLL(None).GOMP_parallel
    except (OSError, AttributeError, TypeError):
        return None
    start.restype = None
    start.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint]
    return start
