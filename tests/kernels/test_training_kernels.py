"""Each kernel of a training pass against its formula, ragged sizes: in float32 in Triton's interpreter; on a
GPU, products of attention in bfloat16."""

import math
from itertools import pairwise
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from glassformer.models.gpu import formulas, launch
from glassformer.models.gpu.narrow import SHARE_UNIT, TYPE
from glassformer.objectives.loss import NOT_SCORED, with_gradient
from tests.kernels.conftest import TURN

ON_GPU = TURN == "gpu"
DEVICE = "cuda" if ON_GPU else "cpu"
SEED = torch.tensor(1 << 61 | 12345, device=DEVICE)
KINDS = ["relu", "relu2", "gelu", "gelu-tanh", "swiglu"]


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed + sum(shape))).to(DEVICE)


def same(ours: Any, theirs: Any, tolerance: float = 2e-6) -> None:
    if isinstance(theirs, tuple):
        for a, b in zip(ours, theirs, strict=True):
            same(a, b, tolerance)
    elif theirs is None:
        assert ours is None
    else:
        assert ours.shape == theirs.shape and ours.dtype == theirs.dtype
        assert bool(ours.isfinite().all())
        assert float((ours - theirs).abs().max()) <= tolerance * max(1.0, float(theirs.abs().max()))


def added_up(rows: Tensor | None) -> Tensor | None:
    """A gradient that is given as rows; how many they are is each one's own."""
    return None if rows is None else rows.sum(dim=0)


@settings(max_examples=15)
@given(n=st.integers(1, 5000), p=st.sampled_from([0.1, 0.5, 0.9]), site=st.integers(0, 1 << 20))
def test_dropout_leaves_out_the_same(n: int, p: float, site: int) -> None:
    x = draw(n)
    ours, theirs = launch.drop(x, SEED, site, p), formulas.drop(x, SEED, site, p)
    assert torch.equal(ours == 0, theirs == 0)
    same(ours, theirs)


def test_dropout_leaves_out_its_share_and_no_pattern() -> None:
    shape = (400, 500)
    masks = [formulas.kept(shape, SEED, site, 0.3).float() for site in range(4)]
    masks += [formulas.kept(shape, SEED + step, 0, 0.3).float() for step in (1, 2)]
    spread = math.sqrt(0.21 / masks[0].numel())
    for mask in masks:
        assert abs(float(mask.mean()) - 0.7) < 5 * spread
        for axis in (0, 1):  # neither neighbours nor rows and columns know of each other
            shares = mask.mean(dim=axis)
            assert float(shares.std()) < 1.3 * math.sqrt(0.21 / mask.shape[axis])
            neighbours = (mask - 0.7).roll(1, dims=axis) * (mask - 0.7)
            assert abs(float(neighbours.mean())) < 5 * 0.21 / math.sqrt(mask.numel())
    for a, b in pairwise(masks):
        assert abs(float(((a - 0.7) * (b - 0.7)).mean())) < 5 * 0.21 / math.sqrt(a.numel())


@pytest.mark.parametrize("placed", [True, False])
@pytest.mark.parametrize(("V", "C", "T"), [(23, 16, 5), (512, 48, 37), (513, 48, 37), (700, 200, 90)])
def test_embeddings(V: int, C: int, T: int, placed: bool) -> None:
    """Small tables and large ones; entries that stand nowhere, once, and very often."""
    ids = torch.randint(V, (3, T), generator=torch.Generator().manual_seed(T)).to(DEVICE)
    ids[:, : T // 2] = 3
    table, places = draw(V, C), draw(T, C, seed=1) if placed else None
    how = (ids, table, places, 0.5, torch.float32)
    same(launch.embed(*how), formulas.embed(*how))
    dx, before = draw(3 * T, C, seed=2), draw(V, C, seed=3)
    for half in (torch.float32, torch.bfloat16):  # of a small table by a product, in bfloat16
        gradients = before.clone(), before.clone()
        for f, gradient in zip((launch, formulas), gradients, strict=True):
            f.embed_back(dx.to(half), ids, gradient, 0.5)
        same(gradients[0], gradients[1], 1e-5)


def test_a_broken_step_leaves_no_gradient() -> None:
    factor = torch.tensor(0.25, device=DEVICE)
    for broken, value in ((0.0, 0.25), (1.0, 0.0)):
        vector = torch.ones(5000, device=DEVICE)
        vector[-1] = float("nan") if broken else 1.0
        launch.tame(vector, factor, torch.tensor(broken, device=DEVICE))
        assert bool((vector == value).all())


@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_adamw(decay: float) -> None:
    """Three steps of a vector that no program's share divides; the last one is broken and moves nothing."""
    found = []
    for f in (launch, formulas):
        places = [draw(3001, seed=i) if i == 0 else torch.zeros(3001, device=DEVICE) for i in range(3)]
        for t in (1, 2, 3):
            g = draw(3001, seed=9 + t)
            g[7] = float("nan") if t == 3 else 0.0
            small = torch.tensor([1 - 0.9**t, 1 - 0.999**t], dtype=torch.float32, device=DEVICE)
            lr, factor, broken = (torch.tensor(x, device=DEVICE) for x in (0.01, 0.3, float(t == 3)))
            before = [place.clone() for place in places]
            f.adamw(*places[:1], g, *places[1:], lr, (0.9, 0.999), 1e-8, decay, small, factor, broken)
            assert all(torch.equal(a, b) for a, b in zip(before, places, strict=True)) == (t == 3)
        found.append(tuple(places))
    same(found[0], found[1])


@pytest.mark.parametrize("p", [0.0, 0.2])
@pytest.mark.parametrize("centred", [True, False])
@pytest.mark.parametrize("joined", [True, False])
@pytest.mark.parametrize(("n", "C"), [(1, 1), (7, 48), (33, 130), (3, 1600)])
def test_norm(n: int, C: int, joined: bool, centred: bool, p: float) -> None:
    u, x, above, stream = (draw(n, C, seed=i) for i in range(4))
    gain, shift = draw(C, seed=5), draw(C, seed=6) if joined else None
    how = (SEED, 3, p)
    arguments = (u, x if joined else None, gain, shift, 1e-5, centred, *how)
    ours, theirs = launch.norm(*arguments), formulas.norm(*arguments)
    same(ours[:2] + ours[3:], theirs[:2] + theirs[3:], 1e-5)  # no numbers of 8 bits were asked for
    if centred:
        same(ours[2], theirs[2])
    s, _, mean, rstd, _ = theirs
    back = (above, stream if joined else None, s, gain, mean, rstd, centred, joined, *how)
    ours, theirs = launch.norm_back(*back), formulas.norm_back(*back)
    # Of a vector of one number nothing is left but rounding, divided by the root of ε.
    tolerance = 2e-4 if C == 1 else 1e-5
    same(ours[:2], theirs[:2], tolerance)
    for rows in zip(ours[2:], theirs[2:], strict=True):
        same(*map(added_up, rows), tolerance)


@pytest.mark.parametrize("centred", [True, False])
@pytest.mark.parametrize("turned", [True, False])
@pytest.mark.parametrize("normed", [True, False])
@pytest.mark.parametrize(("B", "T", "H", "K", "D"), [(2, 5, 3, 1, 16), (1, 37, 2, 2, 32)])
def test_heads(B: int, T: int, H: int, K: int, D: int, normed: bool, turned: bool, centred: bool) -> None:
    qkv, above = draw(B, T, (H + 2 * K) * D), draw(B, T, (H + K) * D)
    gain = draw(D, seed=2) if normed else None
    cos, sin = draw(T, D // 2, seed=3), draw(T, D // 2, seed=4)
    tables = (torch.cat([cos, cos], 1), torch.cat([-sin, sin], 1)) if turned else (None, None)
    how = (H + K, D, gain, 1e-6, centred, *tables)
    same(launch.turn(qkv, *how), formulas.turn(qkv, *how), 1e-5)
    into = [torch.full_like(qkv, 7.0) for _ in range(2)]
    gains = launch.turn_back(above, qkv, into[0], *how), formulas.turn_back(above, qkv, into[1], *how)
    same(into[0], into[1], 1e-5)
    same(*map(added_up, gains), 1e-5)
    assert bool((into[0][..., (H + K) * D :] == 7).all())  # the values' place is another's


@pytest.mark.parametrize("p", [0.0, 0.3])
@pytest.mark.parametrize(
    ("B", "T", "H", "K", "D"),
    [(2, 64, 2, 2, 16), (1, 1, 1, 1, 32), (2, 100, 4, 2, 16), (1, 129, 2, 1, 32), (1, 256, 2, 1, 16)],
)
def test_attention(B: int, T: int, H: int, K: int, D: int, p: float) -> None:
    """Queries and keys lie in one tensor, values in another beside what is not read."""
    half, tolerance = (torch.bfloat16, 2e-2) if ON_GPU else (torch.float32, 1e-5)
    qk, qkv = draw(B, T, H + K, D).to(half), draw(B, T, H + 2 * K, D).to(half)
    q, k, v = qk[:, :, :H], qk[:, :, H:], qkv[:, :, H + K :]
    ours, theirs = (f.attend(q, k, v, SEED, 5, p) for f in (launch, formulas))
    same(ours, theirs, tolerance)
    z, lse = theirs
    dz, gradients = draw(B, T, H, D, seed=9).to(half), []
    for f in (launch, formulas):
        dqk, dqkv = torch.full_like(qk, 7.0), torch.full_like(qkv, 7.0)
        places = dqk[:, :, :H], dqk[:, :, H:], dqkv[:, :, H + K :]
        f.attend_back(q, k, v, z, lse, dz, *places, SEED, 5, p)
        assert bool((dqkv[:, :, : H + K] == 7).all())
        gradients.append((dqk, places[2]))
    same(*gradients, tolerance)


@pytest.mark.parametrize("p", [0.0, 0.2])
@pytest.mark.parametrize("kind", KINDS)
def test_hidden_units(kind: str, p: float) -> None:
    n, M = 9, 401
    a = 3 * draw(n, 2 * M if kind == "swiglu" else M)
    a[0, :3] = torch.tensor([0.0, 30.0, -30.0], device=DEVICE)
    above = draw(n, M)
    same(launch.activate(a, kind, SEED, 2, p), formulas.activate(a, kind, SEED, 2, p), 1e-6)
    ours, theirs = (f.activate_back(above, a, kind, SEED, 2, p) for f in (launch, formulas))
    same(ours, theirs, 2e-6)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize(("n", "V", "pad"), [(5, 23, 0), (11, 50, 14), (3, 9000, 24)])
def test_entropy(n: int, V: int, pad: int, smoothing: float) -> None:
    scores = 4 * draw(n, V)
    scores[0] += 1e4  # a softmax that must not overflow
    targets = torch.arange(n, device=DEVICE) * 7 % V
    targets[1] = NOT_SCORED
    losses, gradient = (x.float() for x in with_gradient(scores.double(), targets, smoothing))
    wide = torch.nn.functional.pad(scores, (0, pad), value=1e9)
    ours = launch.into_gradient(wide, targets, V, smoothing)
    same(ours, losses, 1e-5 if smoothing else 1e-6)  # a mean of large scores is rounded
    same(wide[:, :V], gradient, 1e-6)
    assert bool((wide[:, V:] == 0).all())


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize(("n", "V", "pad"), [(5, 23, 9), (3, 9000, 24)])
def test_the_gradient_of_scores_in_8_bits(n: int, V: int, pad: int, smoothing: float) -> None:
    """What is multiplied on the head's way back: shares to three bits of fraction, without what the target
    takes off, and nothing behind V."""
    wide = torch.nn.functional.pad(4 * draw(n, V), (0, pad), value=1e9)
    targets = torch.arange(n, device=DEVICE) * 7 % V
    targets[1] = NOT_SCORED
    narrow = torch.full_like(wide, 3.0).to(TYPE)
    launch.into_gradient(wide, targets, V, smoothing, narrow)
    shares = narrow.float() * SHARE_UNIT
    scored = targets >= 0
    wide[scored, targets[scored]] += 1 - smoothing
    wide[scored, :V] += smoothing / V
    # The interpreter does not carry what is rounded up over to the exponent.
    loss_of_bits = 0.063 if ON_GPU else 0.51
    assert bool(((shares - wide).abs() <= loss_of_bits * wide.abs() + 2**-18).all())
    assert bool((shares[:, V:] == 0).all()) and bool((shares[1] == 0).all())


@settings(max_examples=10)
@given(n=st.integers(1, 20), C=st.sampled_from([16, 48, 64]), power=st.integers(-12, 12))
def test_numbers_of_8_bits(n: int, C: int, power: int) -> None:
    """Of weights, and of what a norm gives: the bits of the formula.

    Triton's interpreter does not carry what is rounded up over to the exponent: there only what need not be
    rounded is compared to the bit.
    """
    unit = torch.tensor(2.0**power / 64, device=DEVICE)
    w, found = draw(n, C) * 2.0**power, torch.zeros(2, n + 3, C, device=DEVICE).to(TYPE)
    w = w if ON_GPU else formulas.narrowed(w, unit).float() * unit
    launch.narrow_into(w, unit, found[0])
    formulas.narrow_into(w, unit, found[1])
    assert torch.equal(found[0].view(torch.uint8), found[1].view(torch.uint8))
    how = (draw(n, C, seed=1), None, draw(C, seed=2), None, 1e-5, True, SEED, 0, 0.0)
    unit = torch.tensor(1 / 16, device=DEVICE)
    *ours, numbers = launch.norm(*how, unit)
    *theirs, expected = formulas.norm(*how, unit)
    same(tuple(ours), tuple(theirs))
    assert numbers is not None and expected is not None
    differ = (numbers.float() - expected.float()).abs() > 2**-3 * expected.float().abs()
    assert float(differ.float().mean()) <= (0.0 if ON_GPU else 0.15)
