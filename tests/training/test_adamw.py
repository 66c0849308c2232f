"""The fused AdamW is PyTorch's, to the bit, and training starts without PyTorch's compiler."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.optim import AdamW

from glassformer.training.adamw import FusedAdamW

START = """
import sys
import glassformer as gf
settings = {"training.steps": 2, "model.layers": 1, "model.width": 32, "training.compile": "off"}
gf.train(sys.argv[1], out=sys.argv[2], settings=settings, quiet=True)
print([name for name in ("torch._dynamo", "torch._inductor", "sympy") if name in sys.modules])
"""


def moved(kind: type[AdamW], broken: bool, steps: int = 4) -> tuple[list[torch.Tensor], dict[Any, Any]]:
    generator = torch.Generator().manual_seed(0)
    parameters = [torch.nn.Parameter(torch.randn(n, 3, generator=generator)) for n in (1, 5, 40)]
    groups = [{"params": parameters[:2], "weight_decay": 0.1}, {"params": parameters[2:], "lr": 0.02}]
    optimizer = kind(groups, lr=0.01, betas=(0.8, 0.95), eps=1e-9, fused=True)
    for step in range(steps):
        for p in parameters[step == 2 :]:
            p.grad = torch.randn(p.shape, generator=generator)
        if step == 2:
            parameters[0].grad = None
        if broken:
            optimizer.found_inf = torch.tensor(float(step == 1))  # type: ignore[attr-defined]
        optimizer.step()
    return parameters, optimizer.state_dict()


@pytest.mark.parametrize("broken", [False, True])
def test_it_is_pytorchs_to_the_bit(broken: bool) -> None:
    (ours, state), (theirs, expected) = (moved(kind, broken) for kind in (FusedAdamW, AdamW))
    assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))
    assert state["param_groups"] == expected["param_groups"]
    for i, entry in expected["state"].items():
        assert state["state"][i].keys() == entry.keys()
        assert all(torch.equal(state["state"][i][name], value) for name, value in entry.items())


def test_training_starts_without_the_compiler(tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("a line to learn from, and another one\n" * 500)
    done = subprocess.run(
        [sys.executable, "-c", START, str(text), str(tmp_path / "run")],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip().splitlines()[-1] == "[]"
