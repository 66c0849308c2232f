"""How the threads of a team share the work of a walk, without waiting for who is late.

A walk is a sequence of *stretches*; the work of each is cut into parts, which the threads take. A stretch is
over when all its parts are done. Who takes which part makes no difference to any result. Each thread has
parts of its own, so that it reads the same weights every time; when it is through with them, and the others
still are not after a moment, it takes theirs. So a thread that has no core at the moment holds nobody up,
unless it stopped in the middle of a part.

A thread that wakes up late may believe to be in a stretch that is over, of a walk that is over, and see
anything there. Stretches are numbered, on and on through all walks, and each counter carries the number of
the stretch that it counts for, so that such a thread finds out:

    1  whoever takes his first part of a stretch looks whether a later one has begun; until then, nothing that
       the stretch reads has changed, so what he has read himself is right
    2  taking a part is one atomic exchange, which fails if anybody was there in between
    3  a walk ends by a number beyond all its stretches, before anything is changed for the next

Hence the rule for everyone who writes a walk: shared memory is written only by who holds a part, and what a
thread works out for itself before it takes one is good for the parts of this stretch alone.

The board, one line of memory for each number so that threads do not disturb each other:

    BEGUN         the number of the first stretch of the walk that was begun last
    LOST          how often thread 0 has waited long for a part of another, who had no core to finish it
    DONE          parts done of a stretch
    MINE + t      parts taken of those that belong to thread t; behind it, what t notes for itself
"""

import ctypes
import platform

import numba as nb
from llvmlite import ir
from numba import types
from numba.core import cgutils

from glassformer.core.lanes.vector import get_int, inlined, instruction, put_int

STEP = 8  # int64 to a line
BEGUN, LOST, DONE, MINE = range(4)
COUNT_BITS = 20
COUNT = (1 << COUNT_BITS) - 1
SPINS = 1 << 13  # looks at a counter, some tenths of a millisecond, before others get the core
PATIENCE = 20  # looks before I ask for others' parts: asking disturbs them, and mostly they are nearly done
UNTOLD, LOOKS, SEEN = 1, 2, 3  # a thread's notes: parts it did and has not told; looks so far; its stretch
MACHINE = platform.machine().lower()
CAN_YIELD = hasattr(ctypes.CDLL(None), "sched_yield") if platform.system() != "Windows" else False


def _line(builder, board, line):
    place = builder.mul(line, ir.Constant(ir.IntType(64), STEP))
    return builder.gep(builder.inttoptr(board, ir.IntType(64).as_pointer()), [place])


def _call(builder, name, result, arguments):
    kind = ir.FunctionType(result, [value.type for value in arguments])
    builder.call(cgutils.get_or_insert_function(builder.module, kind, name), arguments)


@instruction
def look(typing, board, line):
    """The number on a line, and all that was written before it was."""

    def generate(context, builder, signature, args):
        return builder.load_atomic(_line(builder, *args), "seq_cst", 8)

    return types.int64(types.int64, types.int64), generate


@instruction
def publish(typing, board, line, value):
    """Write a number on a line, after all that was written before."""

    def generate(context, builder, signature, args):
        builder.store_atomic(args[2], _line(builder, args[0], args[1]), "seq_cst", 8)
        return context.get_dummy_value()

    return types.none(types.int64, types.int64, types.int64), generate


@instruction
def all_read(typing):
    """What was read before is as it was before anything that is read after."""

    def generate(context, builder, signature, args):
        builder.fence("acquire")
        return context.get_dummy_value()

    return types.none(), generate


@instruction
def exchange(typing, board, line, old, new):
    """Write `new` if the line still has `old`; whether it had."""

    def generate(context, builder, signature, args):
        pair = builder.cmpxchg(_line(builder, args[0], args[1]), args[2], args[3], "seq_cst", "seq_cst")
        return builder.extract_value(pair, 1)

    return types.boolean(types.int64, types.int64, types.int64, types.int64), generate


@instruction
def breathe(typing):
    """Tell the processor that this loop waits."""

    def generate(context, builder, signature, args):
        if MACHINE in ("x86_64", "amd64"):
            _call(builder, "llvm.x86.sse2.pause", ir.VoidType(), [])
        elif MACHINE in ("aarch64", "arm64"):
            _call(builder, "llvm.aarch64.hint", ir.VoidType(), [ir.Constant(ir.IntType(32), 1)])
        return context.get_dummy_value()

    return types.none(), generate


@instruction
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
    notes = board + 8 * STEP * (MINE + me)
    if get_int(notes, SEEN) != stretch:
        all_read()
        if look(board, DONE) >> COUNT_BITS > stretch:
            return -1
        put_int(notes, SEEN, stretch)
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
            wait_for(board, stretch, parts, me)
        else:
            breathe()


@inlined
def end_walk(board, stretch):
    """A number beyond all stretches of a walk, all of whose parts are done."""
    publish(board, DONE, stretch << COUNT_BITS)


@inlined
def wait_for(board, stretch, parts, me):
    """Until the parts of a stretch, which all were taken, are done."""
    spins = 0
    while look(board, DONE) < (stretch << COUNT_BITS) + parts:
        spins += 1
        if spins % SPINS:
            breathe()
            continue
        if me == 0:
            publish(board, LOST, look(board, LOST) + 1)
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
