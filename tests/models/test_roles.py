"""What parameters are for is what the models say, for every model there is, and for one of the user's."""

import pytest
import torch
from torch import nn

from glassformer.models import roles
from glassformer.models.roles import Role
from tests.models.families import FAMILIES, READERS, make

ALL = [("language", name) for name in FAMILIES]
ALL += [(task, name) for task in ("masked", "classify", "tag", "translate") for name in READERS]


@pytest.mark.parametrize(("task", "name"), ALL)
def test_matrices_of_blocks_are_those_inside_them(task: str, name: str) -> None:
    model = make(task, name)
    found = roles.roles(model)
    assert found.keys() == dict(model.named_parameters()).keys()
    for parameter, p in model.named_parameters():
        assert (found[parameter] is Role.VECTOR) == (p.ndim != 2)
        assert (found[parameter] is Role.MATRIX) == (p.ndim == 2 and "blocks." in parameter)
        if parameter.endswith("embedding.weight") and "un" not in parameter:
            assert found[parameter] is Role.EMBEDDING
        if parameter in ("unembedding.weight", "head.linear.weight"):
            assert found[parameter] is Role.HEAD


def test_fused_weights_fall_into_their_matrices() -> None:
    model = make("translate", "transformer", activation="swiglu")
    parts = roles.fused_parts(model)
    names = {name for name, p in model.named_parameters() if p in parts}
    assert names and all(name.endswith(("qkv.weight", "kv.weight", "up.weight")) for name in names)
    assert all(sum(rows) == p.shape[0] for p, rows in parts.items())


def test_what_several_processes_must_know() -> None:
    transformer, lstm = make("translate", "transformer"), make("language", "lstm")
    assert len(roles.sharding_units(transformer)) == 4 and roles.sharding_units(lstm) == []
    assert not roles.mixes_batch(transformer) and roles.mixes_batch(
        make("language", "transformer", norm="batch")
    )
    assert roles.may_idle(lstm) and not roles.may_idle(transformer)
    assert roles.entry_points(transformer) == ("encode", "decode") and roles.entry_points(lstm) == ()
    assert roles.shared_body(lstm) == ("stack.",) and roles.shared_body(transformer) == ()


def test_a_module_of_the_users_is_understood_by_its_shapes() -> None:
    module = nn.Sequential(nn.Embedding(5, 3), nn.Linear(3, 4), nn.LayerNorm(4))
    module.register_parameter("kernel", nn.Parameter(torch.zeros(2, 2, 2)))
    found = roles.roles(module)
    assert found["0.weight"] is Role.EMBEDDING and found["1.weight"] is Role.MATRIX
    assert {found[name] for name in ("1.bias", "2.weight", "2.bias", "kernel")} == {Role.VECTOR}
    assert roles.sharding_units(module) == [] and roles.shared_body(module) == ()
