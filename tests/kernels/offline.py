"""Kernels compiled for a GPU that is not there: to machine code, by Triton and the assembler it brings."""

from collections.abc import Callable, Collection
from typing import Any

import torch
import triton
from torch import Tensor
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

HOPPER, ADA = GPUTarget("cuda", 90, 32), GPUTarget("cuda", 89, 32)
MOST_SHARED = {HOPPER: 227 << 10, ADA: 99 << 10}  # bytes of fast memory that a program may have there
OPTIONS = {"num_warps", "num_stages", "num_ctas", "maxnreg", "launch_pdl"}
TYPES = {
    torch.float32: "fp32",
    torch.float64: "fp64",
    torch.bfloat16: "bf16",
    torch.float16: "fp16",
    torch.int32: "i32",
    torch.int64: "i64",
}


def compile_for(
    kernel: Any,
    types: dict[str, str],
    constants: dict[str, Any],
    target: GPUTarget = HOPPER,
    aligned: bool = False,
    multiples: Collection[str] = (),
    **options: Any,
) -> Any:
    """`types` as Triton writes them (`*bf16`, `i32`); what `constants` names is known beforehand.

    `aligned`: addresses are multiples of 16, as those of tensors are, and so are the numbers of `multiples`.
    A launch finds that out by itself, and only then loads ahead.
    """
    signature = {name: types.get(name, "constexpr") for name in kernel.arg_names}
    attributes = {
        (i,): [["tt.divisibility", 16]]
        for i, name in enumerate(kernel.arg_names)
        if aligned and (signature[name].startswith("*") or name in multiples)
    }
    source = ASTSource(kernel, signature, constants, attributes)
    made = triton.compile(source, target=target, options=options)
    assert made.metadata.shared <= MOST_SHARED[target]
    return made


class Compiling:
    """Stands where a kernel stands, and compiles what would be launched. `done` says what, and what came."""

    def __init__(self, kernel: Any, done: Callable[[str, dict[str, Any], Any], None]):
        self.kernel, self.done = kernel, done
        self.unspecialised = {p.name for p in kernel.params if p.do_not_specialize}
        self.seen: set[str] = set()

    def __getitem__(self, grid: Any) -> Callable[..., None]:
        return self._launch

    def _launch(self, *args: Any, **named: Any) -> None:
        given = dict(zip(self.kernel.arg_names, args, strict=False)) | named
        options = {name: value for name, value in given.items() if name in OPTIONS}
        types, constants = {}, {}
        for name, value in given.items():
            if isinstance(value, Tensor):
                types[name] = f"*{TYPES[value.dtype]}"
            elif name in named or value is None:
                constants[name] = value
            elif isinstance(value, float):
                types[name] = "fp32"
            elif value == 1 and name not in self.unspecialised:  # a launch takes it as known
                constants[name] = value
            else:
                types[name] = "i32"
        constants = {name: value for name, value in constants.items() if name not in OPTIONS}
        key = repr((types, constants, options))
        if key not in self.seen:
            self.seen.add(key)
            made = compile_for(self.kernel, types, constants, aligned=True, **options)
            self.done(self.kernel.__name__, constants, made)
