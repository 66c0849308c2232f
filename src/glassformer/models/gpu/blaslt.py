"""Products that do more than multiply: add what is there, bend, bend back; by cuBLASLt.

This is the library below PyTorch's own products, and the file is the one in the process already; PyTorch
offers no way to these. Twins of `product_onto`, `gelu_product` and `gelu_product_back` in formulas.py. What
they save is a trip of the result to memory and back.

The library's first choice for a shape is taken and kept, never a trial: else the bits would follow the clock.
Sums are never added up in place by several at once, so that equal products give equal bits. Where it knows no
way, or a matrix begins where it does not look for one, there is no product: None.

Letters: n rows, K inputs, N outputs. For the library matrices lie column by column, so each is transposed.
"""

import ctypes
import threading
from functools import cache
from typing import Any

import torch
from torch import Tensor

from glassformer.models.gpu.narrow import TYPE, Pair

EIGHT = 8  # sizes are multiples of it, so that every row begins where wide reads can
ALIGNED = 256  # bytes, as its choices take for granted
WORKSPACE = 64 << 20  # bytes
# Numbers of its interface
COMPUTE_FLOAT32, FLOAT32, BFLOAT16, EIGHT_BITS = 68, 0, 14, 28
TRANSPOSE_A, TRANSPOSE_B, EPILOGUE, AUXILIARY, AUXILIARY_STRIDE = 3, 4, 7, 11, 12
UNIT_A, UNIT_B, FAST_SUMS = 17, 18, 25
MOST_WORKSPACE, REDUCTIONS = 1, 3
NOT_SUPPORTED, INVALID = 15, 7  # what it answers to what it has no kernel for; the latter of 8 bits alone
REPEATABLE = 2 | 4  # ways of adding up split sums: by a kernel of its own, in the sums' type or the result's
PLAIN, GELU_KEPT, GELU_BACK = 1, 32 | 128, 64 | 128


@cache
def missing() -> str | None:
    """Why there is no cuBLASLt here; None: there is."""
    if not torch.version.cuda or torch.version.hip:
        return "PyTorch was built without CUDA"
    try:
        _library(torch.cuda.current_device())
    except (OSError, RuntimeError) as error:
        return f"cuBLASLt was not found: {error}"
    return None


@cache
def _library(device: int) -> "_Library":
    """A GPU's own."""
    with torch.cuda.device(device):
        return _Library()


def _of(x: Tensor) -> "_Library":
    return _library(x.get_device())


def product_onto(x: Tensor, w: Tensor, onto: Tensor | None) -> Tensor | None:
    """x (n, K) wᵀ (N, K) on top of what is there (n, N)."""
    (n, K), N = x.shape, len(w)
    return _of(x).multiply(w, x, x.new_empty(n, N), (N, n, K), (True, False), onto=onto)


def gelu_product(x: Tensor, w: Tensor, narrow: Pair | None = None) -> tuple[Tensor, Tensor] | None:
    """x wᵀ, of both in 8 bits if they are given so, and its gelu (by tanh)."""
    (n, K), N = x.shape, len(w)
    before, after = x.new_empty(n, N), x.new_empty(n, N)
    a, b, units = w, x, None
    if narrow is not None:
        (b, unit_b), (a, unit_a) = narrow
        units = unit_a, unit_b
    done = _of(x).multiply(a, b, after, (N, n, K), (True, False), GELU_KEPT, before, units=units)
    return None if done is None else (before, after)


def gelu_product_back(dy: Tensor, w: Tensor, before: Tensor) -> Tensor | None:
    """dy (n, N) w (N, K), times the derivative of gelu at `before` (n, K)."""
    (n, N), K = dy.shape, w.shape[1]
    return _of(dy).multiply(w, dy, dy.new_empty(n, K), (K, n, N), (False, False), GELU_BACK, before)


class _Library:
    def __init__(self) -> None:
        major = (torch.version.cuda or "").split(".")[0]
        self._lib = ctypes.CDLL(f"libcublasLt.so.{major}")
        self._handle = self._made("cublasLtCreate")
        self._plans: dict[tuple[Any, ...], tuple[Any, ...] | None] = {}
        self._spaces: dict[int, Tensor] = {}  # of each stream
        self._busy = threading.Lock()  # a plan is told the place of its auxiliary just before it is called

    def multiply(
        self,
        a: Tensor,
        b: Tensor,
        out: Tensor,
        sizes: tuple[int, int, int],
        transposed: tuple[bool, bool],
        epilogue: int = PLAIN,
        auxiliary: Tensor | None = None,
        onto: Tensor | None = None,
        units: tuple[Tensor, Tensor] | None = None,
    ) -> Tensor | None:
        """out (m, n) = epilogue(a b) + onto, all column by column; sizes are m, n, k. With units, a and b are
        in 8 bits, to be multiplied by these.
        """
        tensors = [t for t in (a, b, out, auxiliary, onto) if t is not None]
        kinds = [torch.bfloat16 if units is None else TYPE] * 2 + [torch.bfloat16] * (len(tensors) - 2)
        assert all(t.is_contiguous() and t.dtype == kind for t, kind in zip(tensors, kinds, strict=True))
        if any(t.data_ptr() % ALIGNED for t in tensors) or any(size % EIGHT for size in sizes[::2]):
            return None
        stream = torch.cuda.current_stream(a.device).cuda_stream
        if stream not in self._spaces:  # two streams with one would wait for each other for ever
            self._spaces[stream] = torch.empty(WORKSPACE, dtype=torch.uint8, device=a.device)
        space, under = self._spaces[stream], out if onto is None else onto
        with self._busy, torch.cuda.device(a.device):
            key = sizes, transposed, epilogue, units is None
            if key not in self._plans:
                self._plans[key] = self._plan(sizes, transposed, epilogue, narrow=units is not None)
            plan = self._plans[key]
            if plan is None:
                return None
            description, of_a, of_b, of_out, algorithm = plan
            if auxiliary is not None:
                self._set("MatmulDesc", description, AUXILIARY, ctypes.c_void_p(auxiliary.data_ptr()))
            for name, unit in zip((UNIT_A, UNIT_B), units or (), strict=False):
                self._set("MatmulDesc", description, name, ctypes.c_void_p(unit.data_ptr()))
            at = [ctypes.c_void_p(t.data_ptr()) for t in (a, b, under, out, space)]
            one, share = ctypes.c_float(1.0), ctypes.c_float(0.0 if onto is None else 1.0)
            self._call(
                "cublasLtMatmul", self._handle, description, ctypes.byref(one), at[0], of_a, at[1], of_b,
                ctypes.byref(share), at[2], of_out, at[3], of_out, algorithm, at[4],
                ctypes.c_size_t(WORKSPACE), ctypes.c_void_p(stream),
            )  # fmt: skip
        return out

    def _plan(
        self, sizes: tuple[int, int, int], transposed: tuple[bool, bool], epilogue: int, narrow: bool
    ) -> tuple[Any, ...] | None:
        """What is multiplied, how the matrices lie, and the library's first choice, if it has one."""
        (m, n, k), (ta, tb) = sizes, transposed
        description = self._made(
            "cublasLtMatmulDescCreate", ctypes.c_int(COMPUTE_FLOAT32), ctypes.c_int(FLOAT32)
        )
        kinds = ((TRANSPOSE_A, ta), (TRANSPOSE_B, tb), (EPILOGUE, epilogue))
        for name, value in kinds:
            self._set("MatmulDesc", description, name, ctypes.c_int32(value))
        if epilogue != PLAIN:
            self._set("MatmulDesc", description, AUXILIARY_STRIDE, ctypes.c_int64(m))
            self._set("MatmulDesc", description, AUXILIARY, ctypes.c_void_p(WORKSPACE))  # any, to be asked
        if narrow:
            self._set("MatmulDesc", description, FAST_SUMS, ctypes.c_int8(1))
            for name in (UNIT_A, UNIT_B):
                self._set("MatmulDesc", description, name, ctypes.c_void_p(WORKSPACE))  # likewise
        shapes = ((k, m) if ta else (m, k)), ((n, k) if tb else (k, n)), (m, n)
        kind = EIGHT_BITS if narrow else BFLOAT16
        layouts = [
            self._layout(*shape, kind) for shape, kind in zip(shapes, (kind, kind, BFLOAT16), strict=True)
        ]
        wish = self._made("cublasLtMatmulPreferenceCreate")
        self._set("MatmulPreference", wish, MOST_WORKSPACE, ctypes.c_uint64(WORKSPACE))
        self._set("MatmulPreference", wish, REDUCTIONS, ctypes.c_uint32(REPEATABLE))
        found, count = (ctypes.c_uint64 * 16)(), ctypes.c_int()  # an answer; its first 8 words are the choice
        status = self._lib.cublasLtMatmulAlgoGetHeuristic(
            self._handle, description, *layouts, layouts[2], wish, ctypes.c_int(1), found, ctypes.byref(count)
        )
        self._call("cublasLtMatmulPreferenceDestroy", wish)
        lacking = status == NOT_SUPPORTED or (narrow and status == INVALID)
        if lacking or (status == 0 and not count.value):
            return None
        if status:
            raise RuntimeError(f"cublasLtMatmulAlgoGetHeuristic answered {status}")
        return description, *layouts, found

    def _layout(self, rows: int, columns: int, kind: int) -> ctypes.c_void_p:
        sizes = ctypes.c_uint64(rows), ctypes.c_uint64(columns), ctypes.c_int64(rows)
        return self._made("cublasLtMatrixLayoutCreate", ctypes.c_int(kind), *sizes)

    def _made(self, name: str, *arguments: Any) -> ctypes.c_void_p:
        thing = ctypes.c_void_p()
        self._call(name, ctypes.byref(thing), *arguments)
        return thing

    def _set(self, of: str, thing: ctypes.c_void_p, name: int, value: Any) -> None:
        size = ctypes.c_size_t(ctypes.sizeof(value))
        self._call(f"cublasLt{of}SetAttribute", thing, ctypes.c_int(name), ctypes.byref(value), size)

    def _call(self, name: str, *arguments: Any) -> None:
        status = getattr(self._lib, name)(*arguments)
        if status:
            raise RuntimeError(f"{name} answered {status}")
