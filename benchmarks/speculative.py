"""When does a draft that guesses ahead pay?

    python benchmarks/speculative.py RUN DRAFT [--weights f32 --weights bf16] [--tokens 200] [--prompt TEXT]
    python benchmarks/speculative.py --random          GPT-2's shape and a draft of one layer, random weights

Tokens a second without and with the draft, how many of its guesses were right, and what a turn costs in
tokens written without it: guessing, and reading all guesses at once. It pays where a turn writes more tokens
(those that were right, and one) than it costs. With random weights only the cost means something.
"""

import argparse
import time
from collections.abc import Sequence

import torch

import glassformer as gf
from glassformer.core.process import tune_process
from glassformer.generation.engine import Engine
from glassformer.generation.make import Weights, make_engine
from glassformer.generation.request import Request
from glassformer.generation.sampling import Sampler
from glassformer.generation.speculative import SpeculativeEngine
from glassformer.generation.stream import prompt_ids
from glassformer.models.model import LanguageModel

SAMPLERS = {"greedy": Sampler(temperature=0), "drawn at 0.8": Sampler(temperature=0.8, seed=1)}
REPEATS = 3
KINDS: tuple[Weights, ...] = ("f32", "bf16", "int8")


def rate(engine: Engine, ids: Sequence[int], tokens: int, sampler: Sampler) -> float:
    """Tokens a second, the best of some texts after a first one."""
    best = 0.0
    for turn in range(REPEATS + 1):
        began = time.perf_counter()
        engine.write(Request(ids, tokens, sampler))
        if turn:
            best = max(best, tokens / (time.perf_counter() - began))
    return best


def measure(
    model: LanguageModel, draft: LanguageModel, ids: Sequence[int], tokens: int, weights: Weights
) -> None:
    for name, sampler in SAMPLERS.items():
        plain = rate(make_engine(model, 1, weights=weights), ids, tokens, sampler)
        engine = make_engine(model, 1, weights=weights, draft=draft)
        assert isinstance(engine, SpeculativeEngine)
        guessing = rate(engine, ids, tokens, sampler)
        right = engine.guesses * engine.right / max(1, engine.guessed)
        cost = plain / guessing * (1 + right)
        print(  # noqa: T201
            f"{weights:5} {name:13} {plain:8.1f} tokens/s, with the draft {guessing:8.1f}: "
            f"{right:.2f} of {engine.guesses} guesses right, a turn costs {cost:.2f}",
            flush=True,
        )


def random_model(layers: int, width: int) -> LanguageModel:
    shape = gf.ModelConfig(
        vocab=32_000, layers=layers, heads=width // 64, width=width, context=256, tied=True
    )
    model = gf.Decoder(shape).eval()
    with torch.no_grad():
        for p in model.parameters():
            p.add_(0.02 * torch.randn_like(p))
    return model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("run", nargs="?")
    parser.add_argument("draft", nargs="?")
    parser.add_argument("--random", action="store_true")
    parser.add_argument("--weights", action="append", choices=KINDS)
    parser.add_argument("--tokens", type=int, default=200)
    parser.add_argument("--prompt", default="The ")
    arguments = parser.parse_args()
    if arguments.random == (arguments.draft is not None):
        parser.error("expected RUN and DRAFT, or --random")
    tune_process()
    torch.manual_seed(0)
    if arguments.random:
        model, draft, ids = random_model(12, 768), random_model(1, 128), [1, 2, 3, 4]
    else:
        run = gf.load(arguments.run)
        model, draft = run.language_model, gf.load(arguments.draft).language_model
        ids = prompt_ids(run.tokenizer, arguments.prompt)
    for weights in arguments.weights or KINDS:
        measure(model, draft, ids, arguments.tokens, weights)


if __name__ == "__main__":
    main()
