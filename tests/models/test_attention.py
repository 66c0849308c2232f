"""Attention against its formula, and the masks."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from glassformer.models.attention import Attention, attend, attend_by_formula
from glassformer.models.mask import Mask, last_positions
from glassformer.models.position import Alibi, Position, Rotary, Sinusoidal

MASKS = {
    "all": Mask(),
    "causal": Mask(causal=True),
    "window": Mask(causal=True, window=3),
    "both sides": Mask(window=2),
    "padding": Mask(padding_mask=torch.tensor([[True] * 5 + [False] * 2, [True] * 7])),
    "causal padding": Mask(causal=True, padding_mask=torch.tensor([[True] * 5 + [False] * 2, [True] * 7])),
    "hidden position": Mask(padding_mask=torch.tensor([[True, True, True, False, True, True, True]] * 2)),
}


@pytest.mark.parametrize("mask", MASKS.values(), ids=list(MASKS))
@pytest.mark.parametrize("kv_heads", [4, 2, 1])
@pytest.mark.parametrize("value_width", [8, 5])
@pytest.mark.parametrize("bias", [None, "alibi"])
def test_the_fused_path_is_the_formula(mask: Mask, kv_heads: int, value_width: int, bias: str | None) -> None:
    torch.manual_seed(0)
    q = torch.randn(2, 4, 7, 8, dtype=torch.float64, requires_grad=True)
    k = torch.randn(2, kv_heads, 7, 8, dtype=torch.float64, requires_grad=True)
    v = torch.randn(2, kv_heads, 7, value_width, dtype=torch.float64, requires_grad=True)
    scores = Alibi(4).double().bias(torch.arange(7)[None], torch.arange(7)) if bias else None
    slow, weights = attend_by_formula(q, k, v, mask, scores)
    fast = attend(q, k, v, mask, scores)
    torch.testing.assert_close(fast, slow, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, 4, 7, dtype=torch.float64))
    gradients = [torch.autograd.grad(out.square().sum(), (q, k, v)) for out in (fast, slow)]
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-8, atol=1e-10)


def test_on_a_cpu_it_stays_in_float32_under_bfloat16() -> None:
    """Its kernel is slow in bfloat16 there: what comes out is float32's for the rounded numbers."""
    torch.manual_seed(0)
    rounded = [torch.randn(2, 4, 7, 8).bfloat16().requires_grad_() for _ in range(3)]
    wide = [x.detach().float().requires_grad_() for x in rounded]
    with torch.autocast("cpu", torch.bfloat16):
        got = attend(rounded[0], rounded[1], rounded[2], Mask(causal=True))
    want = attend(wide[0], wide[1], wide[2], Mask(causal=True))
    assert got.dtype == torch.float32 and torch.equal(got, want)
    gradients = torch.autograd.grad(got.sum(), rounded), torch.autograd.grad(want.sum(), wide)
    assert all(torch.equal(a, b.bfloat16()) for a, b in zip(*gradients, strict=True))


def test_the_formula_as_the_books_write_it() -> None:
    torch.manual_seed(1)
    Q, K, V = torch.randn(3, 5, 4).unbind(0)
    expected = torch.softmax(Q @ K.T / math.sqrt(4), dim=-1) @ V
    out = attend(Q[None, None], K[None, None], V[None, None], Mask())
    torch.testing.assert_close(out[0, 0], expected)


@given(st.integers(1, 6), st.integers(0, 6), st.booleans(), st.one_of(st.none(), st.integers(1, 8)))
def test_the_mask_table_says_what_it_means(new: int, old: int, causal: bool, window: int | None) -> None:
    table = Mask(causal=causal, window=window).table(*last_positions(new, old + new))
    for i in range(new):
        for j in range(old + new):
            query = old + i
            allowed = (not causal or j <= query) and (window is None or abs(query - j) < window)
            assert bool(table[i, j]) == allowed


def test_a_hidden_position_counts_for_nothing() -> None:
    """−∞ before the softmax, not zeros after: the other weights still sum to one."""
    q, k, v = torch.randn(3, 1, 2, 5, 4).unbind(0)
    mask = Mask(padding_mask=torch.tensor([[True, True, False, True, True]]))
    changed_k, changed_v = k.clone(), v.clone()
    changed_k[:, :, 2], changed_v[:, :, 2] = 99.0, -99.0
    torch.testing.assert_close(attend(q, k, v, mask), attend(q, changed_k, changed_v, mask))
    _, weights = attend_by_formula(q, k, v, mask)
    assert (weights[..., 2] == 0).all()
    torch.testing.assert_close(weights.sum(-1), torch.ones(1, 2, 5))


def test_concat_times_w_o_is_a_sum_over_heads() -> None:
    """The two forms of multi-head attention are equal."""
    torch.manual_seed(2)
    layer = Attention(12, 3, position=Position())
    x = torch.randn(2, 6, 12)
    seen: dict[str, torch.Tensor] = {}

    def tap(site: str, value: torch.Tensor) -> torch.Tensor:
        seen[site] = value
        return value

    out = layer(x, Mask(causal=True), tap=tap)
    per_head = layer.out.weight.view(12, 3, 4)  # (C, H, E): the slice of W_O that belongs to each head
    total = torch.einsum("bhte,che->btc", seen["z"], per_head) + layer.out.bias
    torch.testing.assert_close(total, out)


def test_rope_scores_depend_on_the_distance_alone() -> None:
    torch.manual_seed(3)
    rope = Rotary(64, 8)
    q, k = torch.randn(1, 1, 1, 8), torch.randn(1, 1, 1, 8)

    def score(t: int, s: int) -> float:
        return (rope.rotate(q, torch.tensor([[t]])) * rope.rotate(k, torch.tensor([[s]]))).sum().item()

    assert score(9, 4) == pytest.approx(score(40, 35), abs=1e-5)
    assert score(9, 4) != pytest.approx(score(9, 5), abs=1e-3)
    assert rope.rotate(q, torch.tensor([[17]])).norm().item() == pytest.approx(q.norm().item(), abs=1e-5)


def test_sinusoidal_positions_are_the_papers_and_no_parameter() -> None:
    table = Sinusoidal(50, 16)
    assert list(table.parameters()) == [] and table.state_dict() == {}
    assert dict(table.named_buffers()).keys() == {"table"}
    for pos in (0, 7, 49):
        for i in range(8):
            angle = pos / 10000 ** (2 * i / 16)
            assert table.table[pos, 2 * i].item() == pytest.approx(math.sin(angle), abs=1e-6)
            assert table.table[pos, 2 * i + 1].item() == pytest.approx(math.cos(angle), abs=1e-6)


def test_alibi_lowers_distant_keys_by_each_heads_slope() -> None:
    bias = Alibi(8).bias(torch.tensor([[4]]), torch.arange(5))[0]
    assert bias[:, 0, 4].tolist() == [0.0] * 8
    assert bias[0, 0].tolist() == [-2.0, -1.5, -1.0, -0.5, 0.0]
    assert (bias[7, 0] == torch.tensor([-4, -3, -2, -1, 0]) * 2.0**-8).all()
