"""What checkpoints cost: steps per second without any, with saving that waits, and with saving beside it.

    python benchmarks/saving.py                          a small model on this machine
    python benchmarks/saving.py --width 768 --layers 12  GPT-2's size, for a GPU

The three are trained in turns, and a save is timed by what it takes from training: the time of a stretch with
one save in it, less that of a stretch without. The share is what that is of 500 steps, the default interval.
"""

import argparse
import json
import shutil
import tempfile
import time
from pathlib import Path

import numpy as np
import torch

from glassformer.config.schema import build
from glassformer.core.device import choose_device
from glassformer.core.process import tune_process
from glassformer.data.shards import Tokens
from glassformer.models.model import parameter_count
from glassformer.objectives.language import LanguageModelling
from glassformer.tasks.registry import make_model
from glassformer.training.display import Silent
from glassformer.training.hooks import Hooks
from glassformer.training.loop import Trainer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    for name, default in (("layers", 6), ("width", 256), ("context", 128), ("batch", 12), ("vocab", 4096)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--steps", type=int, default=40, help="of a stretch")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--compile", default="off")
    a = parser.parse_args()
    tune_process()
    device = choose_device()
    model = {"layers": a.layers, "heads": a.width // 32, "width": a.width, "context": a.context}
    training = {"batch": a.batch, "steps": 10**6, "optimizer": "adamw", "compile": a.compile, "keep": 1}
    config = build({"model": {**model, "vocab": a.vocab}, "training": training})
    ids = np.random.default_rng(0).integers(0, a.vocab, 1_000_000)
    task = LanguageModelling(Tokens([ids], len(ids)), a.context, 0)
    folder = Path(tempfile.mkdtemp(prefix="saving-"))
    net = make_model("language", config.model).to(device)
    hooks = Hooks(None, None, Silent())
    trainer = Trainer(net, task, config.training, folder, hooks, device=device, width=a.width)
    forward = trainer.layout.forward(a.compile == "on")

    def stretch(kind: str) -> float:
        began = time.perf_counter()
        for i in range(a.steps):
            trainer.step(forward)
            if i == 0 and kind != "none":
                trainer._save(wait=kind == "waiting")
        trainer.saver.check()
        if device.type == "cuda":
            torch.cuda.synchronize()
        took = time.perf_counter() - began
        trainer.saver.wait()
        return took

    for _ in range(3):
        trainer.step(forward)
    times: dict[str, list[float]] = {"none": [], "waiting": [], "beside": []}
    for _ in range(a.turns):
        for kind in times:
            times[kind].append(stretch(kind))
    size = sum(path.stat().st_size for path in folder.rglob("*.safetensors"))
    shutil.rmtree(folder)
    least = {kind: float(np.median(found)) for kind, found in times.items()}
    step = least["none"] / a.steps
    cost = {kind: least[kind] - least["none"] for kind in ("waiting", "beside")}
    result = {
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
        "parameters": parameter_count(net),
        "checkpoint_mb": round(size / 1e6),
        "step_ms": round(1000 * step, 2),
        "save_costs_s": {kind: round(value, 3) for kind, value in cost.items()},
        "share_of_500_steps": {kind: round(value / (500 * step), 4) for kind, value in cost.items()},
    }
    print(json.dumps(result))  # noqa: T201


if __name__ == "__main__":
    main()
