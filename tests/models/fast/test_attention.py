"""Attention by compiled loops beside the formula, dropout included."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from glassformer.core.lanes.vector import FIRST_FACTOR, GOLDEN, SECOND_FACTOR
from glassformer.models import attention
from glassformer.models.attention import attention_weights, shared
from glassformer.models.fast import attention as fast
from glassformer.models.mask import Mask

CAUSAL = Mask(causal=True)


@pytest.fixture(autouse=True)
def at_every_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fast, "LEAST", 0)
    monkeypatch.setattr(fast, "has_wide_registers", lambda: True)  # they compute the same without


def mixed(h: np.ndarray) -> np.ndarray:
    """The hash of the loops, on whole arrays."""
    for shift, factor in ((16, FIRST_FACTOR), (15, SECOND_FACTOR)):
        h = ((h ^ (h >> np.uint64(shift))) * np.uint64(factor)) & np.uint64(0xFFFFFFFF)
    return h ^ (h >> np.uint64(16))


def kept(seed: int, bound: int, B: int, H: int, T: int) -> Tensor:
    """True where a weight stays, (B, H, T, T)."""
    low = np.uint64(0xFFFFFFFF)
    rows = mixed(((np.arange(B * H * T, dtype=np.uint64) * np.uint64(GOLDEN)) ^ np.uint64(seed)) & low)
    columns = (np.arange(T, dtype=np.uint64) * np.uint64(GOLDEN)) & low
    hashes = mixed(columns[None, :] ^ rows[:, None])
    return torch.from_numpy(hashes >= np.uint64(bound)).view(B, H, T, T)


def by_formula(q: Tensor, k: Tensor, v: Tensor, seed: int, bound: int) -> Tensor:
    weights = attention_weights(q, k, CAUSAL)
    if bound:
        weights = weights * kept(seed, bound, *q.shape[:3]) / (1 - bound / fast.HASHES)
    return weights @ shared(v, q)


@settings(max_examples=30, deadline=None)
@given(
    eights=st.integers(1, 17),
    heads=st.sampled_from([(1, 1), (4, 4), (4, 2), (3, 1)]),
    width=st.sampled_from([32, 64]),
    p=st.sampled_from([0.0, 0.1, 0.5]),
    size=st.sampled_from([0.1, 1.0, 8.0]),
    apart=st.booleans(),
)
def test_the_loops_are_the_formula(
    eights: int, heads: tuple[int, int], width: int, p: float, size: float, apart: bool
) -> None:
    """Outputs and all gradients beside the formula in double precision, wherever the numbers lie."""
    torch.manual_seed(0)
    (H, K), T, B = heads, 8 * eights, 2

    def draw(count: int) -> Tensor:
        x = size * torch.randn(B, T, count, width).transpose(1, 2)
        return (x if apart else x.contiguous()).requires_grad_()

    q, k, v = draw(H), draw(K), draw(K)
    bound, seed = round(p * fast.HASHES), 123456789
    got = fast._Causal.apply(q, k, v, seed, bound)
    wide = [x.detach().double().requires_grad_() for x in (q, k, v)]
    want = by_formula(wide[0], wide[1], wide[2], seed, bound)
    above = torch.randn_like(got)
    gradients = torch.autograd.grad(got, (q, k, v), above), torch.autograd.grad(want, wide, above.double())
    for one, other in zip((got, *gradients[0]), (want, *gradients[1]), strict=True):
        assert (one.double() - other).norm() <= 3e-6 * (1 + size) * other.norm() + 1e-9


def test_a_thread_more_or_less_changes_no_bit() -> None:
    torch.manual_seed(0)
    x = [torch.randn(3, 4, 64, 32, requires_grad=True) for _ in range(3)]
    before, results = torch.get_num_threads(), []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            z = fast._Causal.apply(*x, 7, 1 << 30)
            results.append((z, *torch.autograd.grad(z.sum(), x)))
    finally:
        torch.set_num_threads(before)
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], other, strict=True))


def test_dropout_follows_the_generator() -> None:
    x = [torch.randn(1, 2, 32, 32, requires_grad=True) for _ in range(3)]
    drawn = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        drawn.append(fast.attend(x[0], x[1], x[2], CAUSAL, dropout=0.2))
    assert torch.equal(drawn[0], drawn[1]) and not torch.equal(drawn[0], drawn[2])


@pytest.mark.parametrize(("p", "off_by"), [(0.1, 0.002), (0.5, 0.003)])
def test_the_share_that_is_dropped(p: float, off_by: float) -> None:
    """Without scores all weights are alike, so an output that sums them shows how many are left."""
    torch.manual_seed(0)
    q, k = torch.zeros(2, 8, 8, 256, 32)
    z = fast.attend(q.requires_grad_(), k, torch.ones(8, 8, 256, 32), CAUSAL, dropout=p)
    assert z.mean().item() == pytest.approx(1.0, abs=off_by * 3)
    alone = z[:, :, 0, 0]  # the first sees itself alone: all or nothing
    torch.testing.assert_close(alone.unique(), torch.tensor([0.0, 1 / (1 - p)]))


def test_half_precision_is_widened() -> None:
    torch.manual_seed(0)
    half = [torch.randn(1, 2, 16, 32).bfloat16().requires_grad_() for _ in range(3)]
    with torch.autocast("cpu", torch.bfloat16):
        got = fast.attend(half[0], half[1], half[2], CAUSAL)
    want = attention.attend(*(x.detach().float() for x in half), CAUSAL)
    torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-6)
    assert torch.autograd.grad(got.sum(), half[0])[0].dtype == torch.bfloat16


@pytest.mark.parametrize(
    "changed",
    [
        {"mask": Mask(causal=True, window=4)},
        {"mask": Mask()},
        {"mask": Mask(causal=True, padding_mask=torch.ones(1, 16, dtype=torch.bool))},
        {"bias": torch.zeros(1, 2, 16, 16)},
        {"T": 12},
        {"D": 48},
        {"gradient": False},
        {"kind": torch.float64},
    ],
    ids=str,
)
def test_what_does_not_fit_takes_the_open_pass(
    changed: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Loops:
        @staticmethod
        def apply(*_: object) -> Tensor:
            raise AssertionError("not for this")

    monkeypatch.setattr(fast, "_Causal", Loops)
    shape = (1, 2, changed.get("T", 16), changed.get("D", 32))
    q, k, v = (torch.randn(shape, dtype=changed.get("kind", torch.float32)) for _ in range(3))
    q.requires_grad_(bool(changed.get("gradient", True)))
    mask = changed.get("mask", CAUSAL)
    assert isinstance(mask, Mask)
    bias = changed.get("bias")
    got = fast.attend(q, k, v, mask, bias)  # type: ignore[arg-type]
    assert torch.equal(got, attention.attend(q, k, v, mask, bias))  # type: ignore[arg-type]
    with pytest.raises(AssertionError, match="not for this"):
        fast.attend(*(torch.randn(1, 2, 16, 32, requires_grad=True) for _ in range(3)), CAUSAL)
