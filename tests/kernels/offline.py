"""Kernels compiled for a GPU that is not there: to machine code, by Triton and the assembler it brings."""

from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

HOPPER = GPUTarget("cuda", 90, 32)
MOST_SHARED = 227 << 10  # bytes of fast memory that a program may have there


def compile_for(
    kernel: Any, types: dict[str, str], constants: dict[str, Any], target: GPUTarget = HOPPER, **options: Any
) -> Any:
    """`types` as Triton writes them (`*bf16`, `i32`); what `constants` names is known beforehand."""
    signature = {name: types.get(name, "constexpr") for name in kernel.arg_names}
    made = triton.compile(ASTSource(kernel, signature, constants), target=target, options=options)
    assert made.metadata.shared <= MOST_SHARED
    return made
