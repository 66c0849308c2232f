"""One measurement of one way to generate, in a process of its own, so that threads and memory are its alone.

python -m glassformer.tools.bench.generate_worker TASK      prints one JSON object; TASK is one itself
"""

import json
import sys
import time
from typing import Any

import torch

from glassformer.core.process import tune_process
from glassformer.core.strict_json import dump_json


def ours(task: dict[str, Any]) -> float:
    """Tokens a second of all streams together, from the first token on."""
    from glassformer.config.model import ModelConfig
    from glassformer.generation.engine import Engine
    from glassformer.generation.gpu import fits
    from glassformer.generation.make import make_step
    from glassformer.generation.request import Request
    from glassformer.generation.sampling import Sampler
    from glassformer.models.build import Decoder

    torch.manual_seed(0)
    streams, tokens = task["streams"], task["tokens"]
    model = Decoder(ModelConfig.model_validate({**task["shape"], **task["block"]})).eval().to(task["device"])
    weights = task["weights"]
    # A GPU without kernels takes the open pass, in this precision.
    if task["device"] != "cpu" and fits(model) is not None:
        model, weights = model.to(torch.bfloat16 if weights == "bf16" else torch.float32), "open"
    step = make_step(model, streams, weights=weights)
    sampler = Sampler(top_k=task["top_k"], seed=0) if task["top_k"] else Sampler(temperature=0)
    engine = Engine(step, rows=streams)
    best = 0.0
    for _ in range(task["repeats"] + 1):  # the first warms up
        times: list[float] = []
        for i in range(streams):
            prompt = [(7 * i + j) % model.vocab for j in range(task["prompt"])]
            request = Request(
                prompt,
                tokens + 1,
                sampler.for_row(i),
                on_token=lambda _, t=times: t.append(time.perf_counter()),
            )
            engine.submit(request)
        while engine.turn():
            pass
        began = times[streams - 1]  # every stream has its first token
        best = max(best, (len(times) - streams) / (times[-1] - began))
    return best


def transformers(task: dict[str, Any]) -> float:
    """Hugging Face's `generate` with GPT-2's block of the same sizes."""
    from transformers import GPT2Config, GPT2LMHeadModel

    shape = task["shape"]
    config = GPT2Config(
        vocab_size=shape["vocab"],
        n_positions=shape["context"],
        n_embd=shape["width"],
        n_layer=shape["layers"],
        n_head=shape["heads"],
        bos_token_id=0,
        eos_token_id=None,
    )
    torch.manual_seed(0)
    model = GPT2LMHeadModel(config).eval().to(task["device"])  # pyright: ignore[reportArgumentType]
    if task["weights"] == "bf16":
        model = model.bfloat16()
    prompts = torch.arange(task["prompt"]).repeat(task["streams"], 1).to(task["device"])
    options: dict[str, Any] = {"do_sample": bool(task["top_k"]), "pad_token_id": 0}
    if task["top_k"]:
        options["top_k"] = task["top_k"]

    def seconds(tokens: int) -> float:
        began = time.perf_counter()
        with torch.inference_mode():
            written = model.generate(  # pyright: ignore[reportAttributeAccessIssue]
                prompts, max_new_tokens=tokens, min_new_tokens=tokens, **options
            )
        written.tolist()
        return time.perf_counter() - began

    seconds(4)
    best = 0.0
    for _ in range(task["repeats"]):
        first = seconds(1)  # the prompt is not what is measured
        best = max(best, task["streams"] * task["tokens"] / (seconds(task["tokens"] + 1) - first))
    return best


def main() -> None:
    task = json.loads(sys.argv[1])
    tune_process()
    torch.set_num_threads(task["threads"])
    rate = (ours if task["tool"].startswith("glassformer") else transformers)(task)
    sys.stdout.write(dump_json({"tokens_per_second": rate}) + "\n")


if __name__ == "__main__":
    main()
