"""How the threads of a team share the work of a walk, without waiting for who is late.

A walk is a sequence of *stretches*; the work of each is cut into parts, which the threads take. A stretch ends
when all its parts are done. Who takes which part makes no difference to any result. Each thread has parts of
its own, so that it reads the same weights every time; when it is through with them, and the others still are
not after a moment, it takes theirs.
So a thread that has no core at the moment holds nobody up, unless it stopped in the middle of a part.

A thread that wakes up late may believe to be in a stretch that is over. Stretches are numbered, on and on
through all walks, and each counter carries the number of the stretch that it counts for; taking a part is one
atomic exchange that fails if the number has moved on. Hence the rule for everyone who writes a walk: shared
memory is written only by who holds a part, and what a thread works out for itself before it takes one, from
what earlier stretches left, is good for the parts of this stretch alone.

The board, one line of memory for each number so that threads do not disturb each other:

    BEGUN         the number of stretches before the walk that was begun last
    DONE          parts done of a stretch
    MINE + t      parts taken of those that belong to thread t
"""
# pyright: reportAttributeAccessIssue=false, reportArgumentType=false
# (an intrinsic's signature is that of the code that calls it, not the one it is written with)

import ctypes
import platform

import numba as nb
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from glassformer.generation.fast.kernels.vector import get_int, put_int

STEP = 8  # int64 to a line
BEGUN, DONE, MINE = range(3)
COUNT_BITS = 20
COUNT = (1 << COUNT_BITS) - 1
SPINS = 1 << 9  # looks at a counter before others get the core
PATIENCE = 20  # looks before I ask for others' parts: asking disturbs them, and mostly they are nearly done
UNTOLD, LOOKS = 1, 2  # a thread's notes: parts it did and has not told; looks so far
MACHINE = platform.machine().lower()
CAN_YIELD = hasattr(ctypes.CDLL(None), "sched_yield") if platform.system() != "Windows" else False


def _line(builder, board, line):
    place = builder.mul(line, ir.Constant(ir.IntType(64), STEP))
    return builder.gep(builder.inttoptr(board, ir.IntType(64).as_pointer()), [place])


def _call(builder, name, result, arguments):
    kind = ir.FunctionType(result, [value.type for value in arguments])
    builder.call(cgutils.get_or_insert_function(builder.module, kind, name), arguments)


@intrinsic
def look(typing, board, line):
    """The number on a line, and all that was written before it was."""

    def generate(context, builder, signature, args):
        return builder.load_atomic(_line(builder, *args), "seq_cst", 8)

    return types.int64(types.int64, types.int64), generate


@intrinsic
def publish(typing, board, line, value):
    """Write a number on a line, after all that was written before."""

    def generate(context, builder, signature, args):
        builder.store_atomic(args[2], _line(builder, args[0], args[1]), "seq_cst", 8)
        return context.get_dummy_value()

    return types.none(types.int64, types.int64, types.int64), generate


@intrinsic
def exchange(typing, board, line, old, new):
    """Write `new` if the line still has `old`; whether it had."""

    def generate(context, builder, signature, args):
        pair = builder.cmpxchg(_line(builder, args[0], args[1]), args[2], args[3], "seq_cst", "seq_cst")
        return builder.extract_value(pair, 1)

    return types.boolean(types.int64, types.int64, types.int64, types.int64), generate


@intrinsic
def breathe(typing):
    """Tell the processor that this loop waits."""

    def generate(context, builder, signature, args):
        if MACHINE in ("x86_64", "amd64"):
            _call(builder, "llvm.x86.sse2.pause", ir.VoidType(), [])
        elif MACHINE in ("aarch64", "arm64"):
            _call(builder, "llvm.aarch64.hint", ir.VoidType(), [ir.Constant(ir.IntType(32), 1)])
        return context.get_dummy_value()

    return types.none(), generate


@intrinsic
def give_way(typing):
    """Let another thread have the core."""

    def generate(context, builder, signature, args):
        if CAN_YIELD:
            _call(builder, "sched_yield", ir.IntType(32), [])
        return context.get_dummy_value()

    return types.none(), generate


@nb.njit(nogil=True)
def claim(board, stretch, t, team, parts):
    """The next part of those that belong to thread t, now mine; −1 if none is left."""
    first, last = parts * t // team, parts * (t + 1) // team
    while True:
        seen = look(board, MINE + t)
        number = seen >> COUNT_BITS
        if number > stretch:
            return -1
        taken = seen & COUNT if number == stretch else 0
        if first + taken >= last:
            return -1
        if exchange(board, MINE + t, seen, (stretch << COUNT_BITS) + taken + 1):
            return first + taken


@nb.njit(nogil=True)
def take(board, stretch, me, team, parts):
    """The number of a part to do. The one before it, if there was one, counts as done.

    −1 when the stretch is over: all parts are done, by whomever.
    """
    notes = board + 8 * STEP * (MINE + me)  # behind my counter: what only I read
    part = claim(board, stretch, me, team, parts)
    if part >= 0:
        put_int(notes, UNTOLD, get_int(notes, UNTOLD) + 1)
        return part
    did, looks = get_int(notes, UNTOLD), get_int(notes, LOOKS)
    put_int(notes, UNTOLD, 0)
    while True:
        seen = look(board, DONE)
        number = seen >> COUNT_BITS
        done = seen & COUNT if number == stretch else 0
        if number > stretch or (did == 0 and done == parts):
            put_int(notes, LOOKS, 0)
            return -1
        if did:
            if exchange(board, DONE, seen, (stretch << COUNT_BITS) + done + did):
                did = 0
            continue
        looks += 1
        if looks >= PATIENCE:
            looks = PATIENCE
            for k in range(1, team):
                part = claim(board, stretch, (me + k) % team, team, parts)
                if part >= 0:
                    put_int(notes, UNTOLD, 1)
                    put_int(notes, LOOKS, looks)
                    return part
            wait_for(board, stretch, parts)
        else:
            breathe()


@nb.njit(nogil=True)
def wait_for(board, stretch, parts):
    """Until the parts of a stretch, which all were taken, are done."""
    spins = 0
    while look(board, DONE) < (stretch << COUNT_BITS) + parts:
        spins += 1
        if spins % SPINS:
            breathe()
        else:
            give_way()


@nb.njit(nogil=True)
def await_walk(board, after, spins):
    """The number on BEGUN once it is larger than `after`, or −1 if that takes too long."""
    for i in range(spins):
        begun = look(board, BEGUN)
        if begun > after:
            return begun
        if i % SPINS:
            breathe()
        else:
            give_way()
    return -1
