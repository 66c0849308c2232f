"""Every kernel of a training pass becomes machine code for a GPU, in bfloat16, in many of its forms."""

from itertools import product
from typing import Any

import pytest

from glassformer.models.gpu import attention_blocks
from glassformer.models.gpu.kernels import attention, dropout, entropy, heads, hidden, norm, vectors
from tests.kernels.offline import ADA, HOPPER, compile_for

WIDE = {"SEED": "*i64", "GAIN": "*fp32", "SHIFT": "*fp32", "MEAN": "*fp32", "RSTD": "*fp32", "LSE": "*fp32"}
WIDE |= {"DELTA": "*fp32", "COS": "*fp32", "SIN": "*fp32", "GAINS": "*fp32", "SHIFTS": "*fp32"}
WIDE |= {"LOSSES": "*fp32", "TARGETS": "*i64", "UNIT": "*fp32", "NARROW": "*fp8e4nv", "NUMBERS": "*fp8e4nv"}
WIDE |= dict.fromkeys(
    ("LR", "CORRECTIONS", "FACTOR", "BROKEN", "WEIGHTS", "FIRST", "SECOND", "GRADIENT"), "*fp32"
)
NUMBERS = dict.fromkeys(("decay", "keep1", "new1", "keep2", "new2"), "fp32")
NUMBERS |= {
    "site": "i32",
    "bound": "i32",
    "grow": "fp32",
    "eps": "fp32",
    "scale": "fp32",
    "smoothing": "fp32",
}
COUNTS = dict.fromkeys(("n", "T", "M", "HEADS", "STRIDE", "q_stride", "v_stride"), "i32")


def compiles(kernel: Any, constants: dict[str, Any], **options: Any) -> None:
    """Tensors that are not named above are of the pass's own type; flags are constants."""
    types = {name: "*bf16" for name in kernel.arg_names if name.isupper() and name not in constants}
    named = WIDE | NUMBERS | COUNTS
    types |= {k: v for k, v in named.items() if k in kernel.arg_names and k not in constants}
    multiples = [name for name in ("T", "STRIDE", "q_stride", "v_stride") if name in kernel.arg_names]
    for target in (HOPPER, ADA):
        made = compile_for(kernel, types, constants, target, True, multiples, **options)
        assert made.asm["cubin"]


@pytest.mark.parametrize(
    "flags", [(True,) * 4, (False,) * 4, (True, False, True, False), (False, True, False, True)]
)
def test_norm(flags: tuple[bool, ...]) -> None:
    joined, drops, centred, shifted = flags
    named = {"JOINED": joined, "DROPS": drops, "CENTRED": centred, "SHIFTED": shifted}
    absent = {name: None for name, there in (("X", joined), ("SHIFT", shifted)) if not there}
    for narrow in ({"UNIT": None, "NARROW": None}, {}):
        compiles(norm.norm, {"C": 768, "W": 1024, "R": 4, **named, **absent, **narrow})
    named = {"STREAM": joined, "DROPS": drops, "CENTRED": centred, "SHIFTED": True}
    compiles(norm.norm_back, {"C": 1600, "W": 2048, **named, **({} if joined else {"DS": None})}, num_warps=4)


@pytest.mark.parametrize("flags", [(True, True, True), (True, False, True), (False, False, True)])
def test_heads(flags: tuple[bool, ...]) -> None:
    normed, centred, turned = flags
    named = {"D": 64, "HEADS": 24, "STRIDE": 2304, "NORMED": normed, "CENTRED": centred, "TURNED": turned}
    absent = {n: None for n, t in (("GAIN", normed), ("COS", turned), ("SIN", turned)) if not t}
    compiles(heads.turn, {"N": 64, **named, **absent})
    compiles(heads.turn_back, {"N": 32, **named, **absent})


@pytest.mark.parametrize("drops", [True, False])
@pytest.mark.parametrize("D", [32, 64, 128])
def test_attention(D: int, drops: bool) -> None:
    constants = {"H": 12, "GROUP": 1 if D < 128 else 3, "D": D, "DROPS": drops}
    for T in (256, 1000, 1024):
        for kernel, blocks in (
            (attention.attend, attention_blocks.forward(T, D)),
            (attention.attend_dq, attention_blocks.queries(T, D)),
            (attention.attend_dkv, attention_blocks.keys(T, D)),
        ):
            sizes = {"M": blocks.M, "N": blocks.N, "EVEN": T % max(blocks.M, blocks.N) == 0}
            compiles(kernel, constants | sizes, **blocks.options)


@pytest.mark.parametrize("kind", range(5))
def test_hidden_units(kind: int) -> None:
    for kernel, drops in product((hidden.activate, hidden.activate_back), (True, False)):
        compiles(kernel, {"N": 2048, "KIND": kind, "DROPS": drops})


def test_dropout_and_loss() -> None:
    compiles(dropout.drop, {"N": 2048})
    compiles(vectors.narrow, {"N": 2048})
    compiles(vectors.adamw, {"N": 1024})
    for smoothed, narrow in product((True, False), ({"NARROW": None}, {})):
        sizes = {"V": 50257, "STRIDE": 50304, "N": 2048, "TILES": 5, "UNITS": 2.0**15}
        compiles(entropy.entropy, {**sizes, "SMOOTHED": smoothed, **narrow}, num_warps=8)
