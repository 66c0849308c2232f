"""Greedy generation with the cache, in tokens a second, with and without cuDNN's attention.

python benchmarks/decoding.py        GPT-2 124M on a GPU; on a CPU a small model
"""

import contextlib
import time

import torch

from glassformer.config.model import ModelConfig
from glassformer.core.device import choose_device
from glassformer.generation import open_step as steps
from glassformer.generation.engine import Engine
from glassformer.generation.request import Request
from glassformer.generation.sampling import Sampler
from glassformer.models.build import Decoder

GPT2 = {"norm": "layer", "position": "learned", "activation": "gelu-tanh", "bias": True, "tied": True}


def rate(model: Decoder, rows: int, tokens: int) -> float:
    """Tokens a second over `rows` texts, after a prompt of 16."""
    prompts = torch.randint(model.vocab - 1, (rows, 16)).tolist()
    engine = Engine(steps.open_step(model, rows), rows=rows)
    for count in (4, tokens):  # the first warms up
        began = time.perf_counter()
        for prompt in prompts:
            engine.submit(Request(prompt, count, Sampler(temperature=0)))
        while engine.turn():
            pass
    return rows * tokens / (time.perf_counter() - began)


def main() -> None:
    device = choose_device()
    shape = {"layers": 12, "heads": 12, "width": 768, "context": 1024, "vocab": 50304}
    if device.type == "cpu":
        shape = {"layers": 4, "heads": 4, "width": 128, "context": 256, "vocab": 2048}
    model = Decoder(ModelConfig.model_validate({**shape, **GPT2, "qk_norm": False})).eval()
    left_out = steps.growing_keys
    for dtype in (torch.float32, torch.bfloat16):
        model = model.to(device, dtype)
        for name, context in (("left out", left_out), ("allowed", contextlib.nullcontext)):
            steps.growing_keys = context
            for rows in (1, 64):
                speed = rate(model, rows, 64)
                print(f"{dtype}, cuDNN {name}, {rows} texts: {speed:,.0f} tokens/s")  # noqa: T201
    steps.growing_keys = left_out


if __name__ == "__main__":
    main()
