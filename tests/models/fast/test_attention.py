"""Attention by compiled loops beside the formula, dropout included."""

import sys
from collections.abc import Iterator
from typing import Any

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
from glassformer.models.fast.wanted import are_there, own_loops
from glassformer.models.mask import Mask

CAUSAL = Mask(causal=True)


@pytest.fixture(autouse=True)
def at_every_size(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(fast, "LEAST", 0)
    monkeypatch.setattr(fast, "has_wide_registers", lambda: True)  # they compute the same without
    with own_loops(True):
        yield


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
    """Outputs and all gradients, as near to those in double precision as the formula in float32 comes."""
    torch.manual_seed(0)
    (H, K), T, B = heads, 8 * eights, 2

    def draw(count: int) -> Tensor:
        x = size * torch.randn(B, T, count, width).transpose(1, 2)
        return (x if apart else x.contiguous()).requires_grad_()

    q, k, v = draw(H), draw(K), draw(K)
    bound, seed = round(p * fast.HASHES), 123456789
    above = torch.randn(B, H, T, width)

    def with_gradients(z: Tensor, *x: Tensor) -> list[Tensor]:
        gradients = torch.autograd.grad(z, x, above.to(z.dtype))
        return [y.detach().double() for y in (z, *gradients)]

    wide = [x.detach().double().requires_grad_() for x in (q, k, v)]
    exact = with_gradients(by_formula(wide[0], wide[1], wide[2], seed, bound), *wide)
    plain = with_gradients(by_formula(q, k, v, seed, bound), q, k, v)
    loops = with_gradients(fast._Causal.apply(q, k, v, seed, bound), q, k, v)
    for one, same, other in zip(loops, plain, exact, strict=True):
        rounding = (same - other).norm()
        recomputed = 1e-6 * (1 + size * size / 2)  # weights found again from log Σ exp feel how large that is
        assert (one - other).norm() <= 4 * rounding + recomputed * other.norm() + 1e-9


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


@pytest.mark.parametrize("flush", [True, False])
def test_tiny_numbers_are_the_same_to_all_threads(flush: bool) -> None:
    """Threads that were made under another setting follow the one that calls."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    torch.set_flush_denormal(not flush)
    torch.zeros(1 << 20).add_(1)  # now the other thread is there
    torch.set_flush_denormal(flush)
    try:
        torch.manual_seed(0)
        x = [torch.randn(4, 4, 64, 32, requires_grad=True) for _ in range(3)]
        z = fast._Causal.apply(*x, 0, 0)
        above = 1e-37 * torch.randn_like(z)
        results = [torch.autograd.grad(z, x, above, retain_graph=True) for _ in range(8)]
        assert all(torch.equal(a, b) for other in results for a, b in zip(results[0], other, strict=True))
        tiny = (results[0][0] != 0) & (results[0][0].abs().double() < 1.1e-38)
        assert tiny.any() != flush
    finally:
        torch.set_flush_denormal(False)
        torch.set_num_threads(before)


def test_dropout_follows_the_generator() -> None:
    x = [torch.randn(1, 2, 32, 32, requires_grad=True) for _ in range(3)]
    drawn = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        drawn.append(fast.attend(x[0], x[1], x[2], dropout=0.2))
    assert torch.equal(drawn[0], drawn[1]) and not torch.equal(drawn[0], drawn[2])


@pytest.mark.parametrize(("p", "off_by"), [(0.1, 0.002), (0.5, 0.003)])
def test_the_share_that_is_dropped(p: float, off_by: float) -> None:
    """Without scores all weights are alike, so an output that sums them shows how many are left."""
    torch.manual_seed(0)
    q, k = torch.zeros(2, 8, 8, 256, 32)
    z = fast.attend(q.requires_grad_(), k, torch.ones(8, 8, 256, 32), dropout=p)
    assert z.mean().item() == pytest.approx(1.0, abs=off_by * 3)
    alone = z[:, :, 0, 0]  # the first sees itself alone: all or nothing
    torch.testing.assert_close(alone.unique(), torch.tensor([0.0, 1 / (1 - p)]))


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
@pytest.mark.parametrize("which", [0, 1, 2])
@pytest.mark.parametrize("place", [0, 5, 17, 39])
def test_what_is_no_number_stays_none(bad: float, which: int, place: int) -> None:
    """Whoever may see it has no number either, so that training stops."""
    torch.manual_seed(0)
    x = [torch.randn(1, 1, 40, 32) for _ in range(3)]
    x[which][0, 0, place, 3] = bad
    z = fast.attend(x[0].requires_grad_(), x[1], x[2])
    touched = slice(place, place + 1) if which == 0 else slice(place, None)
    assert not z[0, 0, touched].isfinite().all(dim=-1).any()


def test_half_precision_is_widened() -> None:
    torch.manual_seed(0)
    half = [torch.randn(1, 2, 16, 32).bfloat16().requires_grad_() for _ in range(3)]
    with torch.autocast("cpu", torch.bfloat16):
        got = attention.attend(half[0], half[1], half[2], CAUSAL)
    want = by_formula(*(x.detach().float() for x in half), 0, 0)
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
        {"wanted": False},
        {"kind": torch.float64},
    ],
    ids=str,
)
def test_what_does_not_fit_takes_the_open_pass(
    changed: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Loops:
        @staticmethod
        def apply(*_: object) -> Tensor:
            raise AssertionError("not for this")

    monkeypatch.setattr(fast, "_Causal", Loops)
    shape = (1, 2, changed.get("T", 16), changed.get("D", 32))
    q, k, v = (torch.randn(shape, dtype=changed.get("kind", torch.float32)) for _ in range(3))
    mask, bias = changed.get("mask", CAUSAL), changed.get("bias")
    with own_loops(bool(changed.get("wanted", True))):
        got = attention.attend(q, k, v, mask, bias)
    torch.testing.assert_close(got, attention.attend_by_formula(q, k, v, mask, bias)[0])
    with pytest.raises(AssertionError, match="not for this"):
        attention.attend(*torch.randn(3, 1, 2, 16, 32), CAUSAL)


def test_shapes_that_do_not_go_together_do_not_fit() -> None:
    q, k = torch.randn(2, 3, 16, 32), torch.randn(2, 2, 16, 32)
    assert fast.fits(q, q, q, CAUSAL, 0.0) and fast.fits(q, q[:, :1], q[:, :1], CAUSAL, 0.0)
    assert not fast.fits(q, k, k, CAUSAL, 0.0)  # three heads cannot share two
    assert not fast.fits(q, q[:1], q[:1], CAUSAL, 0.0)
    assert not fast.fits(q, q, q[..., :16], CAUSAL, 0.0)


def test_loops_that_cannot_be_loaded_are_done_without_and_that_is_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As when numba has nowhere to keep them."""
    q = torch.randn(1, 1, 16, 32)
    want = attention.attend(q, q, q, CAUSAL)
    are_there.cache_clear()
    monkeypatch.setitem(sys.modules, "glassformer.models.fast.causal", None)
    monkeypatch.delattr("glassformer.models.fast.causal")
    try:
        with pytest.warns(UserWarning, match="Training goes without compiled loops, slower"):
            got = attention.attend(q, q, q, CAUSAL)
        torch.testing.assert_close(got, want)
    finally:
        are_there.cache_clear()
