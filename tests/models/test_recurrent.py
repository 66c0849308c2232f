"""The recurrent cells are what the formulas say, and what PyTorch's modules compute."""

import pytest
import torch
from torch import nn

from glassformer.models.cells import CELLS, unroll
from glassformer.models.dropout import drop
from glassformer.models.recurrent import FUSED, Recurrence, RecurrentStack
from tests.conftest import tiny_config
from tests.models.families import close, ids, make

KINDS = list(CELLS)


@pytest.mark.parametrize("kind", KINDS)
def test_the_written_out_cell_equals_torch_nn(kind: str) -> None:
    torch.manual_seed(0)
    peer = FUSED[kind][0](6, 5, batch_first=True)
    x = torch.randn(3, 7, 6)
    cell, _, parts = CELLS[kind]
    start = tuple(torch.randn(3, 5) for _ in range(parts))
    given = tuple(s[None] for s in start)
    expected, after = peer(x, given if parts > 1 else given[0])
    weights = (peer.weight_ih_l0, peer.weight_hh_l0, peer.bias_ih_l0, peer.bias_hh_l0)
    out, state = unroll(cell, x, start, *weights)
    torch.testing.assert_close(out, expected, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(state, tuple(a[0] for a in (after if parts > 1 else (after,))))


@pytest.mark.parametrize("kind", KINDS)
def test_the_fused_layer_equals_its_slow_twin_forward_and_backward(kind: str) -> None:
    torch.manual_seed(0)
    layer = Recurrence(kind, 6, 5)
    x = torch.randn(2, 9, 6)
    results = []
    for way in (layer.forward, layer.by_formula):
        layer.zero_grad()
        out, state = way(x, layer.begin(2))
        (out.square().sum() + sum(s.sum() for s in state)).backward()
        results.append((out, *state, *(p.grad.clone() for p in layer.parameters())))
    for fast, slow in zip(*results, strict=True):
        torch.testing.assert_close(fast, slow, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_weights_are_left_out_between_hidden_states_and_in_training_alone(kind: str) -> None:
    """As the formula has it with a U of which half is zero, the rest doubled: outputs and gradients."""
    torch.manual_seed(0)
    layer, x = Recurrence(kind, 6, 5, dropout=0.5), torch.randn(2, 9, 6)
    U = layer.fused.weight_hh_l0
    torch.manual_seed(7)
    mask = drop(torch.ones_like(U), 0.5)
    assert set(mask.unique().tolist()) == {0.0, 2.0} and 0.2 < float((mask == 0).float().mean()) < 0.8
    others = (layer.fused.bias_ih_l0, layer.fused.bias_hh_l0)
    results = []
    for way in ("formula", "slow twin", "fast"):
        layer.zero_grad()
        torch.manual_seed(7)
        if way == "formula":
            out, state = unroll(layer.cell, x, layer.begin(2), layer.fused.weight_ih_l0, U * mask, *others)
        else:
            out, state = (layer if way == "fast" else layer.by_formula)(x, layer.begin(2))
        (out.square().sum() + sum(s.sum() for s in state)).backward()
        results.append((out, *state, *(p.grad.clone() for p in layer.parameters())))
    for way in results[1:]:
        for got, expected in zip(way, results[0], strict=True):
            torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-6)
    assert ((U.grad == 0) == (mask == 0)).all()
    without = Recurrence(kind, 6, 5)
    without.load_state_dict(layer.state_dict())  # nothing is kept under another name
    assert torch.equal(layer.eval()(x, layer.begin(2))[0], without(x, without.begin(2))[0])
    assert not torch.equal(layer.train()(x, layer.begin(2))[0], layer(x, layer.begin(2))[0])


@pytest.mark.parametrize("kind", KINDS)
def test_two_directions_equal_torchs_bidirectional_module(kind: str) -> None:
    torch.manual_seed(0)
    config = tiny_config(family=kind, layers=1, width=8)
    stack = RecurrentStack(config, nn.Embedding(23, 8), directions=2).eval()
    peer = FUSED[kind][0](8, 4, batch_first=True, bidirectional=True)
    for suffix, layer in zip(("", "_reverse"), stack.blocks[0], strict=True):
        for name in ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0"):
            getattr(peer, name + suffix).data.copy_(getattr(layer.fused, name))
    tokens = ids(3, 6)
    lengths = torch.tensor([6, 4, 2])
    packed = nn.utils.rnn.pack_padded_sequence(stack.embedding(tokens), lengths, batch_first=True)
    expected, _ = nn.utils.rnn.pad_packed_sequence(peer(packed)[0], batch_first=True)
    padding_mask = torch.arange(6)[None] < lengths[:, None]
    close(stack(tokens, padding_mask) * padding_mask[..., None], expected)


def test_the_initial_state_is_learned() -> None:
    model = make("language", "lstm").train()
    model(ids(2, 4)).sum().backward()
    layer = next(m for m in model.modules() if isinstance(m, Recurrence))
    assert all(s.grad is not None and s.grad.abs().max() > 0 for s in layer.start)


def test_a_window_model_sees_its_window_and_no_further() -> None:
    model = make("language", "window")  # five tokens
    tokens = ids(1, 12)
    further = tokens.clone()
    further[0, 3] = (further[0, 3] + 1) % 23
    same = model(tokens)[0] == model(further)[0]
    changed = [t for t in range(12) if not same[t].all()]
    assert changed == [3, 4, 5, 6, 7]
