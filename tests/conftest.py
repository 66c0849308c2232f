"""What the tests share: a cache of their own, the data folder when there is one, and tiny models."""

import os
from pathlib import Path

import pytest
import torch
from hypothesis import settings

from glassformer.config.model import ModelConfig
from glassformer.models.build import Decoder

# Tests run side by side; more threads than cores only wait for each other.
torch.set_num_threads(1)
os.environ["OMP_NUM_THREADS"] = "1"
# A busy machine is slow at anything: how long an example took says nothing about the code.
settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    os.environ["GLASSFORMER_CACHE"] = str(tmp_path_factory.mktemp("cache"))


@pytest.fixture(autouse=True)
def _denormals() -> None:
    """Training flushes them to zero for speed, for the whole process; hypothesis counts on them."""
    torch.set_flush_denormal(False)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Public data sets, where they are at hand: GLASSFORMER_DATA, or ../shared/data."""
    folder = Path(os.environ.get("GLASSFORMER_DATA", Path(__file__).parents[2] / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"no data sets under {folder}; set GLASSFORMER_DATA to run this test")
    return folder


@pytest.fixture(scope="session")
def text_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A few kilobytes of text with structure that a tiny model can learn."""
    lines = [f"item {i % 10} follows item {(i - 1) % 10}, and then comes a new line.\n" for i in range(400)]
    path = tmp_path_factory.mktemp("text") / "items.txt"
    path.write_text("".join(lines), encoding="utf-8")
    return path


def tiny_config(**changes: object) -> ModelConfig:
    sizes = {"layers": 2, "heads": 2, "width": 16, "context": 12, "vocab": 23, **changes}
    return ModelConfig.model_validate(sizes)


def tiny_model(seed: int = 0, **changes: object) -> Decoder:
    """A small decoder whose weights are all random, also those that start at zero in training."""
    torch.manual_seed(seed)
    model = Decoder(tiny_config(**changes))
    with torch.no_grad():
        for p in model.parameters():
            p.add_(0.1 * torch.randn_like(p))
    return model.eval()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest first, so that two workers end together: a page's commands are one test of minutes."""
    first = ("the_commands_of_a_page", "killed_training", "several_processes_read")
    items.sort(key=lambda item: not any(name in item.nodeid for name in first))
    for item in items:
        if item.get_closest_marker("long") and not os.environ.get("GLASSFORMER_LONG"):
            item.add_marker(pytest.mark.skip(reason="takes long; make test-long"))
