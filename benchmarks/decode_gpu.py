"""The step of own kernels on a GPU: does it compute what the open pass does, and how fast is it?

python benchmarks/decode_gpu.py [--streams 1,8,64] [--tokens 256] [--tiny] [--speed]

First the checks: scores beside those of the open pass, the same bits alone, in pieces and beside others, and
choices beside those of sampling.py. Then tokens a second of whole engines: ours, the open pass, and that call
by call. The weights are random. With --tiny it is small enough for Triton's interpreter on a CPU
(TRITON_INTERPRET=1), where the times say nothing.
"""

import argparse
import time
from collections.abc import Sequence

import torch
from torch import Tensor

from glassformer.config.model import ModelConfig
from glassformer.generation import sampling
from glassformer.generation.engine import Engine
from glassformer.generation.gpu import walk
from glassformer.generation.gpu.choose import Chooser
from glassformer.generation.gpu.step import GraphStep, Precision
from glassformer.generation.gpu.walk import Products
from glassformer.generation.open_step import OpenStep, pages_for
from glassformer.generation.pages import PagedStep
from glassformer.generation.request import Request
from glassformer.generation.sampling import Sampler
from glassformer.generation.step import Piece
from glassformer.models.build import Decoder

GPT2 = {"position": "learned", "activation": "gelu-tanh", "bias": True, "tied": True, "qk_norm": False}
OWN = {"norm": "rms", "activation": "swiglu", "kv_heads": 4, "qk_norm": True}
LARGE = {"layers": 12, "heads": 12, "width": 768, "context": 1024, "vocab": 50257}
TINY = {"layers": 1, "heads": 4, "width": 16, "context": 10, "vocab": 50}
LIMITS: dict[Precision, float] = {"float32": 1e-5, "bfloat16": 0.03}  # of the largest score
PRODUCTS: tuple[Products, ...] = ("vectors", "tiles")
SAMPLERS = {
    "greedy": Sampler(temperature=0),
    "top-k 50": Sampler(top_k=50, seed=1),
    "top-p 0.9": Sampler(top_p=0.9, seed=1),
    "both": Sampler(0.8, top_k=50, top_p=0.9, min_p=0.01, seed=1),
}
PROMPT = 16


def put(line: str) -> None:
    print(line, flush=True)  # noqa: T201


@torch.no_grad()
def new_model(shape: dict[str, object], device: torch.device) -> Decoder:
    """Weights that are all random, also those that start at zero in training."""
    torch.manual_seed(0)
    model = Decoder(ModelConfig.model_validate(shape)).eval()
    for p in model.parameters():
        p.add_(0.02 * torch.randn_like(p))
    return model.to(device)


def read(step: PagedStep, ids: Sequence[int], sizes: Sequence[int]) -> Tensor:
    """Scores after each token of a text that is read in pieces of these sizes."""
    slot, start, scores = step.open([], shares=False), 0, []
    assert step.reserve(slot, len(ids))
    for size in sizes:
        scores.append(step.scores([Piece(slot, ids[start : start + size], size)]))
        start += size
    step.close(slot)
    return torch.cat(scores)


def check_scores(model: Decoder, precision: Precision, products: Products) -> bool:
    """Beside the open pass in float32; and the same bits however the text is read."""
    context = model.limit
    assert context is not None
    ids = [(7 * i * i + 3) % model.vocab for i in range(min(context, 300))]
    half = len(ids) // 2
    step = GraphStep(model, 3 * pages_for(context), precision=precision, products=products)
    whole = read(step, ids, [len(ids)])
    right = read(OpenStep(model, pages_for(context)), ids, [len(ids)])
    off = float((whole - right).abs().max() / right.abs().max())
    tokens = float((whole.argmax(-1) == right.argmax(-1)).float().mean())
    last = len(ids) - half
    pieces = [half, *[1] * (last - last // 2), *[5] * (last // 2 // 5), last // 2 % 5]
    singly = read(step, ids, [size for size in pieces if size])
    beside = []
    slots = [step.open([], shares=False) for _ in range(3)]
    for slot, text in zip(slots, (ids[1:half], ids[:half], ids[: half - 3]), strict=True):
        assert step.reserve(slot, len(ids))
        step.scores([Piece(slot, text, 0)])
    for token in ids[half : half + 8]:
        beside.append(step.scores([Piece(slot, [token]) for slot in slots])[1])
    same = torch.equal(singly, whole), torch.equal(torch.stack(beside), whole[half : half + 8])
    put(
        f"  {precision:9} {products:8} off by {off:.1e} of the largest, greedy tokens equal {tokens:.1%}; "
        f"same bits in pieces: {same[0]}, beside others: {same[1]}"
    )
    repeats = whole.is_cuda or products == "vectors"  # the interpreter's tiles are NumPy's, which need not
    return off < LIMITS[precision] and (all(same) or not repeats)


def check_choices(vocab: int, device: torch.device, rows: int) -> bool:
    """Token for token those of sampling.py, from the same scores."""
    chooser, good = Chooser(vocab, device), True
    # Spread alike over the vocabulary; and the likely ones side by side, as in byte-pair encoding.
    for spread, slope in ((0.5, 0.0), (2.0, 0.0), (8.0, 0.0), (0.5, 1.0), (2.0, 1.0)):
        random = spread * torch.randn(rows, vocab, generator=torch.Generator().manual_seed(1))
        logits = (random - slope * (torch.arange(vocab) + 5.0).log()).to(device)
        for name, sampler in SAMPLERS.items():
            samplers = [sampler.for_row(i) for i in range(rows)]
            before = chooser.drawing.unsure
            chosen = chooser.choose(logits, samplers, range(rows))
            right = sampling.choose(logits, samplers, range(rows)).tolist()
            asked = chooser.drawing.unsure - before
            differ = sum(a != b for a, b in zip(chosen, right, strict=True))
            good = good and differ == 0
            how = f"spread {spread} slope {slope:g} {name:9}"
            put(f"  {how} {differ} of {rows} differ; {asked} were asked of sampling.py")
    return good


def check(shape: dict[str, int], device: torch.device, tiny: bool) -> None:
    good = True
    for name, block in (("GPT-2's block", GPT2), ("RoPE, RMSNorm, SwiGLU, grouped queries", OWN)):
        put(name)
        model = new_model({**shape, **block}, device)
        for precision in LIMITS:
            for products in PRODUCTS:
                if not (tiny and precision == "bfloat16" and products == "tiles"):  # not as on a GPU
                    good = check_scores(model, precision, products) and good
    put("choices")
    good = check_choices(shape["vocab"], device, 4 if tiny else 64) and good
    put("all checks passed" if good else "SOME CHECKS FAILED")


def rate(step: PagedStep, sampler: Sampler, streams: int, tokens: int) -> float:
    """Tokens a second of all streams together, from the first token on; the better of two."""
    engine, best = Engine(step, rows=streams), 0.0
    for _ in range(3):  # the first warms up
        times: list[float] = []
        for i in range(streams):
            prompt = [(7 * i + j) % step.vocab for j in range(PROMPT)]
            engine.submit(
                Request(
                    prompt,
                    tokens + 1,
                    sampler.for_row(i),
                    on_token=lambda _, t=times: t.append(time.perf_counter()),
                )
            )
        while engine.turn():
            pass
        best = max(best, (len(times) - streams) / (times[-1] - times[streams - 1]))
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--streams", default="1,8,64")
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--tiny", action="store_true", help="for Triton's interpreter")
    parser.add_argument("--speed", action="store_true", help="without the checks")
    args = parser.parse_args()
    device, shape = torch.device("cpu" if args.tiny else "cuda"), TINY if args.tiny else LARGE
    torch.backends.cuda.matmul.allow_tf32 = False
    if args.tiny:  # the interpreter takes as long for a small program as for a large one
        walk.OUTPUTS, walk.INPUTS = 32, 16
    if not args.speed:
        check(shape, device, args.tiny)
    model = new_model({**shape, **GPT2}, device)
    for streams in (int(n) for n in args.streams.split(",")):
        pages = streams * pages_for(PROMPT + args.tokens + 1)
        steps: dict[str, PagedStep] = {
            "bf16": GraphStep(model, pages, precision="float32" if args.tiny else "bfloat16", texts=streams),
            "f32": GraphStep(model, pages, texts=streams),
            "open f32": OpenStep(model, pages),
            "calls f32": OpenStep(model, pages, repeats=False),
        }
        for name, step in steps.items():
            for how in SAMPLERS if name == "bf16" and not args.tiny else ("greedy",):
                speed = rate(step, SAMPLERS[how], streams, args.tokens)
                put(f"{streams:3} streams {name:9} {how:9} {speed:12,.1f} tokens/s")
        del steps


if __name__ == "__main__":
    main()
