"""Sixteen numbers side by side, which one instruction of the processor treats alike, and numbers in memory.

numba's own loops leave it to the compiler in which order a sum is taken, and that order changes with the loop
around it. Here it is written down: `Lanes` are sixteen sums that run beside each other, and `total` adds them
in one fixed tree. So the same numbers give the same bits wherever they are added up.

Memory is named by its address, a plain integer, and counted in numbers from there: a model is then a table of
integers, whatever its shapes, and one compiled program serves all of them. Nothing checks these addresses:
whoever calls compiled code answers for them.
"""

import operator
from typing import Any

import numba as nb
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, lower_builtin, models, register_model, type_callable

WIDTH = 16
LINE = 64  # bytes that memory is read in
LOWEST = -3.4e38  # of float32, nearly
inlined = nb.njit(inline="always")  # what is written out where it is called, and compiled with the caller
# A division by zero gives infinity: Python's error would be lost, with all that comes after it.
loop = nb.njit(nogil=True, error_model="numpy")
instruction: Any = intrinsic  # what is called without the `typing` that it is written with

_FLOAT, _DOUBLE, _INT, _LONG = ir.FloatType(), ir.DoubleType(), ir.IntType(32), ir.IntType(64)
_FLOATS, _INTS = ir.VectorType(_FLOAT, WIDTH), ir.VectorType(_INT, WIDTH)
_IOTA = ir.Constant(_INTS, list(range(WIDTH)))
GOLDEN, FIRST_FACTOR, SECOND_FACTOR = 0x9E3779B1, 0x7FEB352D, 0x846CA68B  # of the hash of 32 bits


class Lanes(types.Type):
    def __init__(self) -> None:
        super().__init__("Lanes")


lanes = Lanes()
address = number = types.int64  # where numbers lie; how far from there


@register_model(Lanes)
class _LanesModel(models.PrimitiveModel):
    def __init__(self, manager, kind):
        super().__init__(manager, kind, _FLOATS)


def _pointer(builder, start, i, kind, lanes_of=None):
    """To number i of those that begin at an address."""
    place = builder.gep(builder.inttoptr(start, kind.as_pointer()), [i])
    return place if lanes_of is None else builder.bitcast(place, lanes_of.as_pointer())


def _call(builder, name, result, arguments):
    kind = ir.FunctionType(result, [value.type for value in arguments])
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, name), arguments)


def _constant(x):
    return ir.Constant(_FLOATS, [x] * WIDTH)


def _spread(builder, x):
    """One number in all lanes."""
    if x.type == _DOUBLE:
        x = builder.fptrunc(x, _FLOAT)
    one = builder.insert_element(ir.Constant(_FLOATS, ir.Undefined), x, ir.Constant(_INT, 0))
    return builder.shuffle_vector(one, one, ir.Constant(_INTS, [0] * WIDTH))


def _ints(x):
    return ir.Constant(_INTS, [x] * WIDTH)


def _spread_int(builder, x):
    one = builder.insert_element(
        ir.Constant(_INTS, ir.Undefined), builder.trunc(x, _INT), ir.Constant(_INT, 0)
    )
    return builder.shuffle_vector(one, one, ir.Constant(_INTS, [0] * WIDTH))


# Single numbers


def _get(kind, stored):
    def generate(context, builder, signature, args):
        start, i = args
        return builder.load(_pointer(builder, start, i, stored))

    return kind(address, number), generate


def _put(kind, stored):
    def generate(context, builder, signature, args):
        start, i, x = args
        builder.store(x, _pointer(builder, start, i, stored))
        return context.get_dummy_value()

    return types.none(address, number, kind), generate


@instruction
def get(typing, start, i):
    """Number i, a float32."""
    return _get(types.float32, _FLOAT)


@instruction
def get_double(typing, start, i):
    """Number i, a float64."""
    return _get(types.float64, _DOUBLE)


@instruction
def get_int(typing, start, i):
    """Number i, an int64."""
    return _get(types.int64, _LONG)


@instruction
def put(typing, start, i, x):
    """Make x number i, a float32."""
    return _put(types.float32, _FLOAT)


@instruction
def put_int(typing, start, i, x):
    """Make x number i, an int64."""
    return _put(types.int64, _LONG)


# Lanes and memory


def _load(builder, start, i, kind, size):
    value = builder.load(_pointer(builder, start, i, kind, ir.VectorType(kind, WIDTH)))
    value.align = size
    return value


def _inside(builder, i, n):
    """True in the lanes that hold a number before n, if the first holds number i."""
    left = builder.sub(n, i)
    most = builder.select(
        builder.icmp_signed("<", left, ir.Constant(_LONG, WIDTH)), left, ir.Constant(_LONG, WIDTH)
    )
    return builder.icmp_signed("<", _IOTA, _spread_int(builder, most))


def _load_part(builder, start, i, n, kind, size):
    wide = ir.VectorType(kind, WIDTH)
    name = f"llvm.masked.load.v{WIDTH}{'f' if kind == _FLOAT else 'i'}{8 * size}.p0"
    pointer = _pointer(builder, start, i, kind, wide)
    nothing = ir.Constant(wide, [0] * WIDTH)
    return _call(builder, name, wide, [pointer, ir.Constant(_INT, size), _inside(builder, i, n), nothing])


def _from_bf16(builder, value):
    """A bfloat16 is the upper half of a float32."""
    upper = builder.shl(builder.zext(value, _INTS), ir.Constant(_INTS, [16] * WIDTH))
    return builder.bitcast(upper, _FLOATS)


def _from_int8(builder, value):
    return builder.sitofp(builder.sext(value, _INTS), _FLOATS)


def _plain(builder, value):
    return value


def _loads(kind, size, convert):
    """What loads lanes of this kind of number from number i on, all of them, or those before number n."""

    @instruction
    def load(typing, start, i):
        def generate(context, builder, signature, args):
            start, i = args
            return convert(builder, _load(builder, start, i, kind, size))

        return lanes(address, number), generate

    @instruction
    def load_part(typing, start, i, n):
        def generate(context, builder, signature, args):
            start, i, n = args
            return convert(builder, _load_part(builder, start, i, n, kind, size))

        return lanes(address, number, number), generate

    return load, load_part


load, load_part = _loads(_FLOAT, 4, _plain)
load_bf16, load_bf16_part = _loads(ir.IntType(16), 2, _from_bf16)
load_int8, load_int8_part = _loads(ir.IntType(8), 1, _from_int8)


@instruction
def store(typing, start, i, x):
    """The lanes of x become the numbers from i on."""

    def generate(context, builder, signature, args):
        place = _pointer(builder, args[0], args[1], _FLOAT, _FLOATS)
        builder.store(args[2], place).align = 4
        return context.get_dummy_value()

    return types.none(address, number, lanes), generate


@instruction
def store_bf16(typing, start, i, x):
    """The same as bfloat16, rounded to the nearest, ties to even; not for what is no number."""

    def generate(context, builder, signature, args):
        bits, short = builder.bitcast(args[2], _INTS), ir.VectorType(ir.IntType(16), WIDTH)
        odd = builder.and_(builder.lshr(bits, _ints(16)), _ints(1))
        bits = builder.add(bits, builder.add(odd, _ints(0x7FFF)))
        place = _pointer(builder, args[0], args[1], ir.IntType(16), short)
        builder.store(builder.trunc(builder.lshr(bits, _ints(16)), short), place).align = 2
        return context.get_dummy_value()

    return types.none(address, number, lanes), generate


@instruction
def store_part(typing, start, i, n, x):
    """The same for those before number n."""

    def generate(context, builder, signature, args):
        start, i, n, x = args
        place = _pointer(builder, start, i, _FLOAT, _FLOATS)
        name = f"llvm.masked.store.v{WIDTH}f32.p0"
        kind = ir.FunctionType(
            ir.VoidType(), [_FLOATS, place.type, _INT, ir.VectorType(ir.IntType(1), WIDTH)]
        )
        builder.call(
            cgutils.get_or_insert_function(builder.module, kind, name),
            [x, place, ir.Constant(_INT, 4), _inside(builder, i, n)],
        )
        return context.get_dummy_value()

    return types.none(address, number, number, lanes), generate


@instruction(prefer_literal=True)
def store_some(typing, start, i, x, first, count):
    """So many lanes of x from lane `first` on (both constants) become the numbers from i on."""
    some = _places(list(range(first.literal_value, first.literal_value + count.literal_value)))

    def generate(context, builder, signature, args):
        x = builder.shuffle_vector(args[2], args[2], some)
        builder.store(x, _pointer(builder, args[0], args[1], _FLOAT, x.type)).align = 4
        return context.get_dummy_value()

    return types.none(address, number, lanes, first, count), generate


@instruction(prefer_literal=True)
def prefetch(typing, start, lines):
    """Say that so many lines (a constant) from an address on will be read; they need not even be there.

    They are fetched half the way, into the second nearest memory: many can be on their way there at once.
    """

    def generate(context, builder, signature, args):
        byte = ir.IntType(8).as_pointer()
        kind = ir.FunctionType(ir.VoidType(), [byte, _INT, _INT, _INT])
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        read, second, data = (ir.Constant(_INT, x) for x in (0, 2, 1))
        for line in range(lines.literal_value):
            place = builder.add(args[0], ir.Constant(_LONG, LINE * line))
            builder.call(function, [builder.inttoptr(place, byte), read, second, data])
        return context.get_dummy_value()

    return types.none(address, lines), generate


# Arithmetic


@instruction
def fill(typing, x):
    """The same number in all lanes."""
    return lanes(x), lambda context, builder, signature, args: _spread(builder, *args)


def _operator(op, name):
    @type_callable(op)
    def of_lanes(context):
        def typer(a, b):
            if isinstance(a, Lanes) and isinstance(b, (Lanes, types.Float)):
                return lanes
            return lanes if isinstance(a, types.Float) and isinstance(b, Lanes) else None

        return typer

    for left, right in ((lanes, lanes), (lanes, types.Float), (types.Float, lanes)):

        @lower_builtin(op, left, right)
        def generate(context, builder, signature, args):
            a, b = (x if x.type == _FLOATS else _spread(builder, x) for x in args)
            return getattr(builder, name)(a, b)


for _op, _name in (
    (operator.add, "fadd"),
    (operator.sub, "fsub"),
    (operator.mul, "fmul"),
    (operator.truediv, "fdiv"),
):
    _operator(_op, _name)


def _function(name, *kinds):
    """One of LLVM's functions of lanes; a single number stands for the same in all lanes."""

    def generate(context, builder, signature, args):
        wide = [x if x.type == _FLOATS else _spread(builder, x) for x in args]
        return _call(builder, f"llvm.{name}.v{WIDTH}f32", _FLOATS, wide)

    return lanes(*kinds), generate


@instruction
def fma(typing, a, b, c):
    """a · b + c, rounded once."""
    return _function("fmuladd", a, b, c)


@instruction
def larger(typing, a, b):
    return _function("maxnum", a, b)


@instruction
def smaller(typing, a, b):
    return _function("minnum", a, b)


@instruction
def absolute(typing, a):
    return _function("fabs", a)


@instruction
def with_sign(typing, a, b):
    """The size of a, the sign of b."""
    return _function("copysign", a, b)


@instruction
def nearest(typing, a):
    """The nearest whole number."""
    return _function("rint", a)


@instruction
def times_power(typing, a, n):
    """a · 2ⁿ for whole n, as long as a and the result are normal numbers."""

    def generate(context, builder, signature, args):
        power = builder.shl(builder.fptosi(args[1], _INTS), ir.Constant(_INTS, [23] * WIDTH))
        return builder.bitcast(builder.add(builder.bitcast(args[0], _INTS), power), _FLOATS)

    return lanes(lanes, lanes), generate


@instruction
def where_less(typing, a, b, yes, no):
    """`yes` where a < b, else `no`."""

    def generate(context, builder, signature, args):
        a, b, yes, no = (x if x.type == _FLOATS else _spread(builder, x) for x in args)
        return builder.select(builder.fcmp_ordered("<", a, b), yes, no)

    return lanes(a, b, yes, no), generate


@instruction
def before(typing, x, i, n):
    """x with zeros in the lanes from number n on, if the first lane holds number i."""

    def generate(context, builder, signature, args):
        return builder.select(_inside(builder, args[1], args[2]), args[0], _constant(0.0))

    return lanes(lanes, number, number), generate


@instruction
def kept(typing, x, key, i, bound):
    """x with zeros in some lanes: a lane stays if the hash of its number, the first being i, reaches `bound`.

    Key and bound are whole numbers below 2³²; the share of what is left out is bound / 2³².
    """

    def generate(context, builder, signature, args):
        x, key, i, bound = args
        h = builder.add(_IOTA, _spread_int(builder, i))
        h = builder.xor(builder.mul(h, _ints(GOLDEN)), _spread_int(builder, key))
        for shift, factor in ((16, FIRST_FACTOR), (15, SECOND_FACTOR)):
            h = builder.mul(builder.xor(h, builder.lshr(h, _ints(shift))), _ints(factor))
        h = builder.xor(h, builder.lshr(h, _ints(16)))
        stays = builder.icmp_unsigned(">=", h, _spread_int(builder, bound))
        return builder.select(stays, x, _constant(0.0))

    return lanes(lanes, number, number, number), generate


def _any(compare):
    """Whether a comparison holds in any lane."""

    def generate(context, builder, signature, args):
        wide = [x if x.type == _FLOATS else _spread(builder, x) for x in args]
        bits = builder.bitcast(compare(builder, *wide), ir.IntType(WIDTH))
        return builder.icmp_unsigned("!=", bits, ir.Constant(ir.IntType(WIDTH), 0))

    return generate


@instruction
def any_larger(typing, a, b):
    """Whether a > b in any lane."""
    return types.boolean(a, b), _any(lambda builder, a, b: builder.fcmp_ordered(">", a, b))


@instruction
def any_reaching(typing, a, b):
    """Whether a ≥ b in any lane."""
    return types.boolean(a, b), _any(lambda builder, a, b: builder.fcmp_ordered(">=", a, b))


@instruction
def any_nan(typing, a):
    """Whether any lane holds no number."""
    return types.boolean(lanes), _any(lambda builder, a: builder.fcmp_unordered("uno", a, a))


# Sums over the lanes: 8 apart, then 4, 2, 1. Several at once share the instructions, not the numbers.


def _tree(builder, values):
    """The totals of 1, 2, 4, 8 or 16 lanes, side by side in as many lanes."""
    apart = WIDTH // 2
    while apart:
        pairs = zip(values[::2], values[1::2], strict=True) if len(values) > 1 else [(values[0], None)]
        values, folded = [], apart
        for a, b in pairs:
            lanes_in = a.type.count
            firsts = [i for i in range(lanes_in) if i % (2 * folded) < folded]
            both = firsts if b is None else firsts + [lanes_in + i for i in firsts]
            b = a if b is None else b
            low = builder.shuffle_vector(a, b, _places(both))
            high = builder.shuffle_vector(a, b, _places([i + folded for i in both]))
            values.append(builder.fadd(low, high))
        apart //= 2
    return values[0]


def _places(numbers):
    return ir.Constant(ir.VectorType(_INT, len(numbers)), numbers)


def _larger_tree(builder, value):
    apart = WIDTH // 2
    while apart:
        low = builder.shuffle_vector(value, value, _places(list(range(apart))))
        high = builder.shuffle_vector(value, value, _places(list(range(apart, 2 * apart))))
        value = _call(builder, f"llvm.maxnum.v{apart}f32", low.type, [low, high])
        apart //= 2
    return builder.extract_element(value, ir.Constant(_INT, 0))


@instruction
def total(typing, a):
    """The sum of the lanes."""

    def generate(context, builder, signature, args):
        return builder.extract_element(_tree(builder, list(args)), ir.Constant(_INT, 0))

    return types.float32(lanes), generate


@instruction
def largest(typing, a):
    """The largest of the lanes."""
    return types.float32(lanes), lambda context, builder, signature, args: _larger_tree(builder, args[0])


@instruction
def totals_8(typing, a, b, c, d, e, f, g, h):
    """The sums of eight, in the first eight lanes."""

    def generate(context, builder, signature, args):
        eight = _tree(builder, list(args))
        return builder.shuffle_vector(eight, eight, _places([*range(8), *range(8)]))

    return lanes(*[lanes] * 8), generate


@instruction
def totals_16(typing, a, b, c, d, e, f, g, h, i, j, k, m, n, o, p, q):
    """The sums of sixteen."""
    return lanes(*[lanes] * 16), lambda context, builder, signature, args: _tree(builder, list(args))
