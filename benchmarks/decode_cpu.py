"""One text, token by token, on the compiled CPU step: tokens a second, and how fast its weights are read.

python benchmarks/decode_cpu.py [--tokens 128] [--threads 2] [--repeats 5] [--all-scores]
python benchmarks/decode_cpu.py --run RUN        the same of a trained model, and what it leaves to score

The weights are random but those of a run. A plain read of as many bytes, by as many threads, is the limit
beside it. `--all-scores` does without the sieve (generation/fast/sieve.py).
"""

import argparse
import threading
import time

import numba as nb
import numpy as np
import torch

import glassformer as gf
from glassformer.config.model import ModelConfig
from glassformer.generation.fast import sieve
from glassformer.generation.fast.step import FastStep
from glassformer.generation.fast.weights import PRECISIONS, Precision
from glassformer.generation.sampling import Sampler
from glassformer.generation.step import Piece
from glassformer.models.build import Decoder
from glassformer.models.model import LanguageModel

GPT2 = {
    "layers": 12, "heads": 12, "width": 768, "context": 1024, "vocab": 50257, "position": "learned",
    "activation": "gelu-tanh", "bias": True, "tied": True, "norm": "layer", "qk_norm": False,
}  # fmt: skip
SMALL = {"layers": 4, "heads": 4, "width": 128, "context": 256, "vocab": 2048, "activation": "relu2"}
SAMPLERS = {
    "greedy": Sampler(temperature=0),
    "top-k 50": Sampler(top_k=50, seed=1),
    "top-p 0.9": Sampler(top_p=0.9, seed=1),
    "plain": Sampler(seed=1),
    "min-p 0.05": Sampler(min_p=0.05, seed=1),
}
PROMPT = 16


def seconds(step: FastStep, sampler: Sampler, tokens: int) -> float:
    """For so many tokens behind a prompt."""
    slot = step.open(range(PROMPT))
    step.reserve(slot, PROMPT + tokens)
    step.scores([Piece(slot, range(PROMPT), 0)])
    token = 1
    began = time.perf_counter()
    for position in range(PROMPT + 1, PROMPT + 1 + tokens):
        (token,) = step.choose([Piece(slot, [token])], [sampler], [position])
    took = time.perf_counter() - began
    step.close(slot)
    return took


@nb.njit(nogil=True, fastmath=True)
def add_up(x: np.ndarray, times: int) -> np.float32:
    total = np.float32(0)
    for _ in range(times):
        for i in range(len(x)):
            total += x[i]
    return total


def reading(size: int, threads: int) -> float:
    """Bytes a second of a plain read."""
    x = np.ones(size // 4, np.float32)
    add_up(x[:16], 1)
    best, times = float("inf"), max(1, (1 << 28) // size)  # long enough that starting a thread is nothing
    for _ in range(5):
        workers = [threading.Thread(target=add_up, args=(part, times)) for part in np.array_split(x, threads)]
        began = time.perf_counter()
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        best = min(best, time.perf_counter() - began)
    return size * times / best


def measure(
    name: str, shape: dict[str, object], args: argparse.Namespace, precisions: tuple[str, ...]
) -> None:
    torch.manual_seed(0)
    model = Decoder(ModelConfig.model_validate(shape)).eval()
    for precision in precisions:
        kind: Precision = precision  # type: ignore[assignment]
        step = FastStep(model, 80, precision=kind, threads=args.threads)
        matrices = sum(p.numel() for n, p in model.named_parameters() if p.ndim == 2 and "position" not in n)
        if not shape.get("tied"):
            matrices -= model.vocab * model.unembedding.in_features  # of the embedding one row is read
        size = matrices * {"float32": 4, "bfloat16": 2, "int8": 1}[precision]
        limit = reading(size, step.threads)
        for how, sampler in SAMPLERS.items():
            seconds(step, sampler, 8)
            took = min(seconds(step, sampler, args.tokens) for _ in range(args.repeats)) / args.tokens
            print(  # noqa: T201
                f"{name} {precision:9} {how:9} {1 / took:8,.1f} tokens/s {took * 1e6:9,.1f} µs a token, "
                f"{size / took / 1e9:5.1f} GB/s of {limit / 1e9:5.1f} ({step.threads} threads)",
                flush=True,
            )


def left_to_score(path: str, tokens: int) -> None:
    """Of how many entries of a run's vocabulary the scores are made, token after token."""
    run = gf.load(path)
    model = run.model.eval()
    assert isinstance(model, LanguageModel)
    prompt = run.tokenizer.encode("It was the first of its kind , and")
    precisions: tuple[Precision, ...] = ("float32", "bfloat16")
    for precision in precisions:
        for how, sampler in SAMPLERS.items():
            step = FastStep(model, 40, precision=precision)
            slot, token, found = step.open(prompt), prompt[-1], list[int]()
            step.reserve(slot, len(prompt) + tokens + 1)
            step.scores([Piece(slot, prompt, 0)])
            for position in range(len(prompt) + 1, len(prompt) + 1 + tokens):
                (token,) = step.choose([Piece(slot, [token])], [sampler], [position])
                if step._sieve.memory and sieve.can_sift(sampler, step.vocab):
                    found.append(int(step._sieve._counts[0]))
            said = f"median {np.median(found):.0f}, most {max(found)}" if found else "all"
            times = f"{found.count(sieve.ALL)} times of {len(found)}"
            print(f"{precision:9} {how:10} scored of {step.vocab:,}: {said}; gave up {times}")  # noqa: T201


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--threads", type=int, default=None)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--all-scores", action="store_true", help="without the sieve")
    parser.add_argument("--run", help="a language model's run with a large vocabulary")
    args = parser.parse_args()
    if args.run:
        left_to_score(args.run, args.tokens)
        return
    if args.all_scores:
        sieve.WORTH = 1 << 60
    measure("4 × 128", SMALL, args, PRECISIONS)
    measure("GPT-2 124M", GPT2, args, PRECISIONS)


if __name__ == "__main__":
    main()
