"""Which models the compiled step takes, what it says of the others, and that asking loads no compiler."""

import subprocess
import sys
from collections.abc import Callable

import pytest
from torch import Tensor, nn

from glassformer.generation.fast import fits
from glassformer.models.attention import Attention
from glassformer.models.build import Decoder, make_language_model
from glassformer.models.layers import LayerNorm, RMSNorm
from glassformer.models.mask import Mask
from tests.conftest import tiny_config, tiny_model
from tests.generation.fast.test_scores import SETTINGS


@pytest.mark.parametrize("name", SETTINGS)
def test_transformers_fit(name: str) -> None:
    assert fits(tiny_model(**SETTINGS[name])) is None


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"family": "lstm"}, "a Recurrent is no transformer language model"),
        ({"family": "window", "window": 5}, "a Window is no transformer language model"),
        ({"attention": "similarity"}, "block 0 attends by a Similarity"),
        ({"attention": "distance", "position": "none"}, "block 0 attends by a Distance"),
        ({"norm": "batch"}, "its norm is a BatchNorm or LayerNorm"),
    ],
)
def test_others_do_not(changes: dict[str, object], words: str) -> None:
    assert fits(make_language_model(tiny_config(**changes))) == words


class Own(Attention):
    """Somebody's own."""


def own_activation(x: Tensor) -> Tensor:
    return x


def _set(path: str, value: Callable[[Decoder], object]) -> Callable[[Decoder], None]:
    def change(model: Decoder) -> None:
        owner, _, name = path.rpartition(".")
        setattr(model.get_submodule(owner), name, value(model))

    return change


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            _set("stack.blocks.1.mlp.activation", lambda _: own_activation),
            "block 1 has an activation of its own",
        ),
        (
            _set("stack.blocks.1.mlp.up", lambda m: nn.Sequential(m.stack.blocks[1].mlp.up)),
            "no plain nn.Linear",
        ),
        (_set("stack.blocks.1.mlp_norm", lambda _: RMSNorm(16)), "norms of two kinds"),
        (_set("stack.norm", lambda _: nn.LayerNorm(16)), "its norm is a LayerNorm or LayerNorm"),
        (_set("stack.blocks.0.placement", lambda _: lambda x, n, f, j: x), "in a way of its own"),
        (_set("stack.blocks.1.mlp.down", lambda _: nn.Linear(32, 16)), "not shaped as the first"),
        (
            _set("stack.mask", lambda _: Mask(causal=True, rule=lambda q, k: q >= k)),
            "mask is more than causal",
        ),
        (_set("unembedding", lambda m: nn.Sequential(m.unembedding)), "its unembedding is a Sequential"),
        (
            _set("stack.blocks.1.attention_norm", lambda _: LayerNorm(16, bias=True)),
            "not shaped as the first",
        ),
        (
            lambda m: m.stack.blocks[0].mlp.register_forward_hook(lambda *_: None),
            "stack.blocks.0.mlp has a hook",
        ),
        (lambda m: m.to("meta"), "its weights lie on meta"),
        (
            _set(
                "stack.blocks.0.attention",
                lambda m: Own(16, 2, position=m.stack.position, bias=False),
            ),
            "block 0 attends by a Own",
        ),
    ],
)
def test_what_a_user_put_in_is_told_apart(change: Callable[[Decoder], object], words: str) -> None:
    model = tiny_model(bias=False)
    change(model)
    assert words in (fits(model) or "it fits")


def test_asking_loads_no_compiler() -> None:
    code = "import sys; from glassformer.generation.fast import fits; assert 'numba' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_threads_end_with_the_program() -> None:
    """Also while they wait awake for the next walk."""
    code = (
        "from tests.conftest import tiny_model; from tests.generation.fast.reading import *\n"
        "step = new_step(tiny_model(), threads=4)\n"
        "for _ in range(5): read(step, [1, 2, 3], [1, 1, 1])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
