"""One loop's parts, done by the threads of PyTorch's operators.

A loop that is to run on several cores is a function of a plan, a table of integers. Each thread calls it once
and takes part after part until there is none left. Who takes which makes no difference to any result.

The threads are those of the OpenMP that PyTorch itself computes with: threads of our own would stand in line
behind these, which stay awake between two operators. Where it is not GNU's OpenMP, one thread does it all.
"""

import ctypes
import platform
from functools import cache
from typing import Any

import numba as nb
import numpy as np
import torch
from llvmlite import ir
from numba import types
from numba.core import cgutils

from glassformer.core.lanes.vector import instruction
from glassformer.core.waiting import has_gnu_openmp

NEXT, THREADS, PARTS, FLUSH = range(4)  # what every plan begins with
FIRST = 4  # where what a loop needs itself begins
TINY_IS_ZERO = 0x8040  # as the control word of x86 has it
TINY = np.uint32(1 << 16).view(np.float32)  # 9e-41, from its bits: a conversion might already make it zero
X86 = platform.machine().lower() in ("x86_64", "amd64")
loop_of_plan = nb.cfunc("void(int64)", cache=True, error_model="numpy")  # what `run` runs


@instruction
def take(typing, plan, i):
    """Number i of a plan (an address), which is one larger afterwards, whoever else asks at the same time."""

    def generate(context, builder, signature, args):
        place = builder.gep(builder.inttoptr(args[0], ir.IntType(64).as_pointer()), [args[1]])
        return builder.atomic_rmw("add", place, ir.Constant(ir.IntType(64), 1), "seq_cst")

    return types.int64(types.int64, types.int64), generate


@instruction
def begin(typing, plan):
    """This thread's number in the loop. From here on it treats tiny numbers as the thread that called `run`
    does: as zero, or as they are. Threads that PyTorch made earlier may be set otherwise, and then a result
    would depend on who took which part. (Only x86 is known to differ from thread to thread.)
    """

    def generate(context, builder, signature, args):
        long, word = ir.IntType(64), ir.IntType(32)
        table = builder.inttoptr(args[0], long.as_pointer())
        if X86:
            kind = ir.FunctionType(ir.VoidType(), [ir.IntType(8).as_pointer()])
            read, write = (
                cgutils.get_or_insert_function(builder.module, kind, f"llvm.x86.sse.{name}")
                for name in ("stmxcsr", "ldmxcsr")
            )
            control = cgutils.alloca_once(builder, word)
            place = builder.bitcast(control, ir.IntType(8).as_pointer())
            builder.call(read, [place])
            flush = builder.trunc(builder.load(builder.gep(table, [ir.Constant(long, FLUSH)])), word)
            others = builder.and_(builder.load(control), ir.Constant(word, 0xFFFFFFFF ^ TINY_IS_ZERO))
            builder.store(builder.or_(others, flush), control)
            builder.call(write, [place])
        place = builder.gep(table, [ir.Constant(long, THREADS)])
        return builder.atomic_rmw("add", place, ir.Constant(long, 1), "seq_cst")

    return types.int64(types.int64), generate


def threads() -> int:
    """How many will take part."""
    return torch.get_num_threads() if _openmp() is not None else 1


def run(function: Any, plan: np.ndarray) -> None:
    """Call a compiled function (a `numba.cfunc` of one address) with this plan, on all threads."""
    plan[NEXT] = plan[THREADS] = 0
    plan[FLUSH] = TINY_IS_ZERO if TINY * np.float32(1.0) == 0 else 0
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
