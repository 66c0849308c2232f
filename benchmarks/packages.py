"""A large corpus that every machine has, and what nanoGPT learns of it in ten minutes.

    python benchmarks/packages.py build FOLDER [--site DIR]    sources of installed packages, a text for each
    glassformer train FOLDER --set data.split=name --out RUN   … with what settings one likes: ours
    python benchmarks/packages.py nanogpt RUN --nanogpt DIR    nanoGPT on the tokens of RUN, on a GPU

DIR holds nanoGPT's model.py. Its settings are those of its train.py for GPT-2: batches of 491,520 tokens,
AdamW at 6e-4 with β 0.9 and 0.95, decay 0.1, clipping at 1, a cosine to a tenth, bfloat16, compiled; warm-up
and cosine are shortened to the steps that there are (`--steps`). What is printed last is the loss over the
whole validation split, in windows of the context side by side, as `glassformer eval RUN` measures it.
"""

import argparse
import hashlib
import importlib.util
import json
import math
import sys
import sysconfig
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

import glassformer as gf
from glassformer.data.batches import Windows
from glassformer.data.shards import Tokens
from glassformer.tasks.language_model import LanguageTask

KINDS = {".py", ".pyi", ".h", ".hpp", ".c", ".cc", ".cpp", ".cu", ".cuh", ".md", ".rst"}
ROWS, ACCUMULATE, CONTEXT = 32, 15, 1024  # 491,520 tokens an update, as 12 × 40 rows are
PEAK, WARMUP = 6e-4, 0.1


def build(folder: Path, site: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    texts, seen = defaultdict(list[bytes]), set[bytes]()
    for path in sorted(site.rglob("*")):
        if path.suffix not in KINDS or path.is_symlink() or not path.is_file():
            continue
        content = path.read_bytes()
        digest = hashlib.sha256(content).digest()
        if digest not in seen and content.strip() and _is_text(content):
            seen.add(digest)
            texts[path.relative_to(site).parts[0].removesuffix(".py")].append(content)
    for package, contents in texts.items():
        (folder / f"{package}.txt").write_bytes(b"\n".join(contents))
    size = sum(len(content) for contents in texts.values() for content in contents)
    print(f"{len(texts)} packages, {len(seen):,} files, {size / 1e6:.1f} MB in {folder}")  # noqa: T201


def _is_text(content: bytes) -> bool:
    try:
        content.decode()
    except UnicodeDecodeError:
        return False
    return b"\0" not in content


def train_nanogpt(run: gf.Run, source: Path, steps: int, out: Path | None) -> None:
    spec = importlib.util.spec_from_file_location("nanogpt_model", source / "model.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["nanogpt_model"] = module  # its dataclass looks itself up there
    spec.loader.exec_module(module)
    torch.manual_seed(1337)
    torch.set_float32_matmul_precision("high")
    vocab = math.ceil(len(run.tokenizer) / 64) * 64
    sizes = {"n_layer": 12, "n_head": 12, "n_embd": 768, "block_size": CONTEXT}
    model = module.GPT(module.GPTConfig(vocab_size=vocab, dropout=0.0, bias=False, **sizes)).cuda()
    optimizer = model.configure_optimizers(0.1, PEAK, (0.9, 0.95), "cuda")
    forward = torch.compile(model)
    windows = Windows(_tokens(run, "train"), CONTEXT, seed=0)
    began, curve = time.perf_counter(), list[tuple[int, float]]()
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = rate(step, steps)
        total = torch.zeros((), device="cuda")
        for part in range(ACCUMULATE):
            ids = windows.read((step * ACCUMULATE + part) * ROWS, ROWS)
            rows = torch.from_numpy(ids).pin_memory().cuda(non_blocking=True)
            with torch.autocast("cuda", torch.bfloat16):
                loss = forward(rows[:, :-1].contiguous(), rows[:, 1:].contiguous())[1] / ACCUMULATE
            loss.backward()
            total += loss.detach()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if (step + 1) % 10 == 0:
            curve.append((step + 1, total.item()))
            seconds = time.perf_counter() - began
            print(f"step {step + 1} of {steps}, loss {curve[-1][1]:.4f}, {seconds:.0f} s", flush=True)  # noqa: T201
    found = {"steps": steps, "seconds": time.perf_counter() - began, "train": curve}
    found |= {"valid": evaluate(model, _tokens(run, "valid"))}
    print(json.dumps(found))  # noqa: T201
    if out is not None:
        out.write_text(json.dumps(found) + "\n")


def _tokens(run: gf.Run, split: str) -> Tokens:
    task = run.task()
    assert isinstance(task, LanguageTask)
    return task.tokens(split)


def rate(step: int, steps: int) -> float:
    warmup = WARMUP * steps
    if step < warmup:
        return PEAK * (step + 1) / (warmup + 1)
    share = (step - warmup) / max(1, steps - warmup)
    return PEAK * (0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi * share)))


@torch.no_grad()
def evaluate(model: Any, tokens: Tokens) -> float:
    """Nats per token, each predicted once, in windows of the context side by side."""
    model.eval()
    nats = 0.0
    for ids in _windows(tokens):
        rows = torch.from_numpy(ids).cuda()
        with torch.autocast("cuda", torch.bfloat16):
            nats += model(rows[:, :-1].contiguous(), rows[:, 1:].contiguous())[1].item() * rows[:, 1:].numel()
    return nats / (len(tokens) - 1)


def _windows(tokens: Tokens) -> Iterator[np.ndarray]:
    whole = (len(tokens) - 1) // CONTEXT
    for first in range(0, whole, ROWS):
        starts = range(first * CONTEXT, min(first + ROWS, whole) * CONTEXT, CONTEXT)
        yield np.stack([tokens.read(s, s + CONTEXT + 1) for s in starts]).astype(np.int64)
    if whole * CONTEXT < len(tokens) - 1:
        yield tokens.read(whole * CONTEXT, len(tokens))[None].astype(np.int64)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    what = parser.add_subparsers(dest="what", required=True)
    building = what.add_parser("build")
    building.add_argument("folder", type=Path)
    building.add_argument("--site", type=Path, default=Path(sysconfig.get_path("purelib")))
    beside = what.add_parser("nanogpt")
    beside.add_argument("run", type=Path)
    beside.add_argument("--nanogpt", type=Path, required=True)
    beside.add_argument("--steps", type=int, default=650)
    beside.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    if arguments.what == "build":
        build(arguments.folder, arguments.site)
    else:
        train_nanogpt(gf.load(arguments.run), arguments.nanogpt, arguments.steps, arguments.out)


if __name__ == "__main__":
    main()
