"""What looking inside costs: memory and time of recording, of one site, and of no tap at all.

python benchmarks/looking.py            GPT-2 124M on 1,024 tokens on a GPU; smaller without one
"""

import json
import sys
import time
from collections.abc import Callable
from typing import Any

import torch

from glassformer.config.model import ModelConfig
from glassformer.inspection.cost import peak_memory
from glassformer.inspection.edits import zero
from glassformer.inspection.gradients import backward, next_token_loss
from glassformer.inspection.residual import attribute, decompose
from glassformer.inspection.trace import record_trace
from glassformer.models.build import Decoder
from glassformer.models.tap import Record, off

GPT2 = {"position": "learned", "qk_norm": False, "bias": True, "activation": "gelu-tanh", "tied": True}
LARGE = {"layers": 12, "heads": 12, "width": 768, "context": 1024, "vocab": 50257}
SMALL = {"layers": 4, "heads": 4, "width": 256, "context": 512, "vocab": 4096}


def milliseconds(work: Callable[[], Any], device: torch.device, times: int = 30) -> float:
    """The median of so many calls, after a few that do not count."""
    times_ms: list[float] = []
    for i in range(times + 5):
        if device.type == "cuda":
            torch.cuda.synchronize()
        start = time.perf_counter()
        work()
        if device.type == "cuda":
            torch.cuda.synchronize()
        if i >= 5:
            times_ms.append(1e3 * (time.perf_counter() - start))
    return sorted(times_ms)[times // 2]


@torch.no_grad()
def costs(model: Decoder, ids: torch.Tensor) -> dict[str, float]:
    device = ids.device
    model(ids)
    values: dict[str, torch.Tensor] = {}

    def record_all() -> None:
        values.update(record_trace(model, ids).values)

    plain = peak_memory(lambda: model(ids), device)
    everything = peak_memory(record_all, device)
    stored = sum(x.numel() * x.element_size() for x in {x.data_ptr(): x for x in values.values()}.values())
    forward = milliseconds(lambda: model(ids), device)
    one = milliseconds(lambda: model(ids, tap=Record(f"{model.config.layers // 2}.z")), device)
    return {
        "forward, MB": plain / 1e6,
        "recording everything, MB": everything / 1e6,
        "stored, MB": stored / 1e6,
        "peak as a share of forward + stored": everything / (plain + stored),
        "forward, ms": forward,
        "one site, more time": one / forward - 1,
        "every site, more time": milliseconds(lambda: model(ids, tap=Record()), device) / forward - 1,
    }


@torch.no_grad()
def compiled(model: Decoder, ids: torch.Tensor) -> dict[str, Any]:
    """No tap against `tap=off`, in turns; and how many graphs the ablations of a layer's heads take."""
    fast = torch.compile(model)
    calls = (lambda: fast(ids)), (lambda: fast(ids, tap=off))
    turns = [[milliseconds(call, ids.device) for call in calls] for _ in range(3)]
    from torch._dynamo.utils import counters

    counters.clear()
    for head in range(model.config.heads):
        record_trace(model, ids, sites=("logits",), edits=[zero("1.z", heads=head)], compiled=fast)
    return {"no tap and tap=off, ms": turns, "graphs for a layer's heads": counters["stats"]["unique_graphs"]}


def sums(model: Decoder, ids: torch.Tensor) -> dict[str, float]:
    trace = record_trace(model, ids)
    _, layers = backward(trace, next_token_loss(ids))
    return {
        "parts → stream": decompose(trace, positions=[0, 1, -1], final=True).error,
        "parts → logit": attribute(trace, 5)[2],
        "identity + through → gradient": max(p.error for p in layers),
    }


def main() -> None:
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.manual_seed(0)
    sizes = LARGE if device.type == "cuda" else SMALL
    model = Decoder(ModelConfig.model_validate({**sizes, **GPT2, "init": "gpt2"})).to(device).eval()
    ids = torch.randint(sizes["vocab"], (1, sizes["context"]), device=device)
    results: dict[str, Any] = {"sums": sums(model, ids[:, :256]), "float32": costs(model, ids)}
    model = model.to(torch.bfloat16)
    results |= {"bfloat16": costs(model, ids), "compiled, bfloat16": compiled(model, ids)}
    sys.stdout.write(json.dumps(results, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
