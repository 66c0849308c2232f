"""Every kind of model, small, for the tests that all of them must pass."""

import torch
from torch import Tensor, nn

from glassformer.tasks.registry import make_model
from tests.conftest import tiny_config

FAMILIES = {
    "transformer": {},
    "transformer-sinusoidal-post": {"position": "sinusoidal", "placement": "post"},
    "transformer-learned-tied": {"position": "learned", "tied": True},
    "transformer-alibi": {"position": "alibi"},
    "transformer-sliding": {"window": 4},
    "transformer-shift-embedding": {"shift": "embedding"},
    "transformer-shift-layers": {"shift": "layers", "placement": "post"},
    "query-key": {"attention": "query-key"},
    "projected": {"attention": "projected"},
    "similarity": {"attention": "similarity"},
    "distance": {"attention": "distance", "position": "none"},
    "convolution": {"attention": "convolution", "position": "none"},
    "rnn": {"family": "rnn"},
    "gru": {"family": "gru"},
    "lstm": {"family": "lstm"},
    "lstm-one-layer-tied": {"family": "lstm", "layers": 1, "tied": True},
    "window": {"family": "window", "window": 5},
}
READERS = {name: c for name, c in FAMILIES.items() if name != "window"}
READERS |= {"gru-one-direction": {"family": "gru", "directions": 1}}
VOCAB, LABELS = 23, 3


def make(task: str, name: str, seed: int = 0, **more: object) -> nn.Module:
    """A model whose weights are all random, also those that start at zero in training."""
    torch.manual_seed(seed)
    settings = {**{**FAMILIES, **READERS}[name], "labels": LABELS, **more}
    model = make_model(task, tiny_config(**settings))
    with torch.no_grad():
        for p in model.parameters():
            p.add_(0.1 * torch.randn_like(p))
    return model.eval()


def ids(*shape: int, seed: int = 1) -> Tensor:
    return torch.randint(VOCAB, shape, generator=torch.Generator().manual_seed(seed))


def close(a: Tensor, b: Tensor) -> None:
    """Equal to one part in a million of the largest value."""
    a, b = a.detach(), b.detach()
    assert float((a - b).abs().max()) <= 1e-6 * max(1.0, float(b.abs().max()))
