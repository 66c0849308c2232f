"""Compiles for a Hopper card all kernels that a step of a generation would launch there.

python -m tests.kernels.compile_decode     a line for each kernel: its registers, spilled bytes, fast memory

Run without Triton's interpreter. The model's weights are nowhere: only their shapes are needed.
"""

import re
import subprocess
import sys
import tempfile
from typing import Any

import torch

from glassformer.config.model import ModelConfig
from glassformer.generation.gpu import choose, walk
from glassformer.generation.gpu.asked import Asked
from glassformer.generation.gpu.choose import PLACES, SETTINGS, Drawing
from glassformer.generation.gpu.walk import Products, Standing, Walk
from glassformer.generation.gpu.weights import lay_out
from glassformer.models.build import Decoder
from tests.kernels.offline import Compiling

GPT2 = {"position": "learned", "tied": True, "bias": True, "qk_norm": False, "activation": "gelu-tanh"}
SHAPES: dict[str, dict[str, object]] = {
    "gpt2-124m": {"layers": 12, "heads": 12, "width": 768, "context": 1024, "vocab": 50304, **GPT2},
    "llama-like": {
        "layers": 2,
        "heads": 8,
        "kv_heads": 2,
        "width": 512,
        "context": 512,
        "vocab": 4096,
        "norm": "rms",
        "activation": "swiglu",
        "qk_norm": True,
    },
    "alibi": {
        "layers": 2,
        "heads": 6,
        "width": 384,
        "context": 256,
        "vocab": 65,
        "position": "alibi",
        "window": 100,
        "activation": "gelu",
    },
    "odd": {"layers": 1, "heads": 1, "width": 37, "head_width": 10, "hidden": 21, "context": 40, "vocab": 23},
}
KERNELS = ("embed_kernel", "join_kernel", "vectors_kernel", "tiles_kernel", "heads_kernel", "attend_kernel")
DRAWING = ("keys_kernel", "settle_kernel")


def resources(made: Any) -> str:
    """What the assembler says of registers, and of what had to be put into memory for want of them."""
    from triton.backends.nvidia.compiler import get_ptxas

    with tempfile.NamedTemporaryFile("w", suffix=".ptx") as file:
        file.write(made.asm["ptx"])
        file.flush()
        command = [get_ptxas(90).path, "-v", "--gpu-name=sm_90a", file.name, "-o", "/dev/null"]
        said = subprocess.run(command, capture_output=True, text=True).stderr
    registers = re.search(r"Used (\d+) registers", said)
    spilled = re.search(r"(\d+) bytes spill stores", said)
    return f"{registers and registers[1]:>4} registers, {spilled and spilled[1]} bytes spilled"


def put(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> None:
    def say(name: str, constants: dict[str, Any], made: Any) -> None:
        told = {k: v for k, v in constants.items() if k in ("N", "K", "FINISH", "NORM", "S", "SPANS", "R")}
        put(f"    {name:16}{resources(made)}, {made.metadata.shared:6} bytes shared   {told}")

    for name in KERNELS:
        setattr(walk, name, Compiling(getattr(walk, name), say))
    for name in DRAWING:
        setattr(choose, name, Compiling(getattr(choose, name), say))
    for name, shape in SHAPES.items():
        with torch.device("meta"):
            model = Decoder(ModelConfig.model_validate(shape))
        kinds: tuple[Products, ...] = ("vectors", "tiles")
        for dtype in (torch.bfloat16, torch.float32):
            for products in kinds:
                put(f"{name} {dtype} {products}")
                rows = torch.empty(64, dtype=torch.int32, device="meta")
                for R in (1, 8, 64):
                    made = Walk(lay_out(model, dtype), 64, 65, 16, products, R)
                    made._early = {"EARLY": True, "launch_pdl": True}  # as on a Hopper card
                    tables = torch.empty(64, 64, dtype=torch.int32, device="meta")
                    for alone in (False, True):
                        made.read(R, rows, Standing(rows, tables, model.limit or 0, alone))
                    made.score(R, rows)
        asked, places = (Asked(torch.device("cpu"), shapes) for shapes in (SETTINGS, PLACES))
        for multiplies in (True, False):
            drawing = Drawing(asked, places, model.vocab, torch.device("meta"))
            drawing._multiplies = multiplies  # as on a GPU, and as on a CPU
            drawing.launch(1, torch.empty(64, model.vocab, device="meta"))


if __name__ == "__main__":
    main()
