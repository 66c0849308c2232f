"""Attention under a causal mask, forward and backward, a block of queries against a block of keys at a time.

A position of q, k, v and of their gradients is STRIDE numbers from the next, its heads D from each other; z
lies (B, T, H, D). Softmaxes are in base 2, and so is `lse`. Blocks are N × N; pairs beyond the diagonal are
never looked at.

Letters: B batch, T positions, H heads, K key-value heads, D head width, N positions of a block.
"""

import triton
import triton.language as tl

from glassformer.models.gpu.kernels.dropout import kept

LOG2E, LN2 = tl.constexpr(1.4426950408889634), tl.constexpr(0.6931471805599453)


@triton.jit
def _block(BASE, position, stride, d, T):
    """The vectors (N, D) of these positions; zeros beyond the last."""
    return tl.load(BASE + position[:, None] * stride + d, mask=position[:, None] < T, other=0.0)


@triton.jit(do_not_specialize=["site", "bound"])
def attend(
    Q, K, V, Z, LSE, SEED, site, bound, grow, scale, T, q_stride, v_stride,
    H: tl.constexpr, GROUP: tl.constexpr, D: tl.constexpr, N: tl.constexpr, DROPS: tl.constexpr,
):  # fmt: skip
    """N queries of a head; GROUP heads share keys and values. The longest rows begin first."""
    bh, i = tl.program_id(0), tl.num_programs(1) - 1 - tl.program_id(1)
    b, h = (bh // H).to(tl.int64), bh % H
    Q += b * T * q_stride + h * D
    K += b * T * q_stride + h // GROUP * D
    V += b * T * v_stride + h // GROUP * D
    row, d = i * N + tl.arange(0, N), tl.arange(0, D)[None, :]
    q = _block(Q, row, q_stride, d, T)
    top, total = tl.full((N,), -1e30, tl.float32), tl.zeros((N,), tl.float32)
    z = tl.zeros((N, D), tl.float32)
    for on_diagonal in tl.static_range(2):
        for j in range(on_diagonal * i * N, (i + on_diagonal) * N, N):
            col = j + tl.arange(0, N)
            k, v = _block(K, col, q_stride, d, T), _block(V, col, v_stride, d, T)
            s = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
            if on_diagonal:
                s = tl.where(row[:, None] >= col[None, :], s, -1e30)
            new = tl.maximum(top, tl.max(s, 1))
            e, fix = tl.exp2(s - new[:, None]), tl.exp2(top - new)
            total, top = total * fix + tl.sum(e, 1), new
            if DROPS:
                e = tl.where(kept(SEED, site, (bh * T + row[:, None]) * T + col[None, :], bound), e, 0.0)
            z = tl.dot(e.to(v.dtype), v, z * fix[:, None], input_precision="ieee")
    z *= (grow / total)[:, None]
    place = ((b * T + row[:, None]) * H + h) * D + d
    tl.store(Z + place, z.to(Z.dtype.element_ty), mask=row[:, None] < T)
    tl.store(LSE + bh * T + row, top + tl.log2(total), mask=row < T)


@triton.jit(do_not_specialize=["site", "bound"])
def attend_dq(
    Q, K, V, Z, LSE, DZ, DELTA, DQ, SEED, site, bound, grow, scale, T, q_stride, v_stride,
    H: tl.constexpr, GROUP: tl.constexpr, D: tl.constexpr, N: tl.constexpr, DROPS: tl.constexpr,
):  # fmt: skip
    """The gradient of N queries; and δ = Σ z dz of each, for the kernel after this one."""
    bh, i = tl.program_id(0), tl.num_programs(1) - 1 - tl.program_id(1)
    b, h = (bh // H).to(tl.int64), bh % H
    K += b * T * q_stride + h // GROUP * D
    V += b * T * v_stride + h // GROUP * D
    row, d = i * N + tl.arange(0, N), tl.arange(0, D)[None, :]
    there = row[:, None] < T
    own = b * T * q_stride + h * D + row[:, None] * q_stride + d
    place = ((b * T + row[:, None]) * H + h) * D + d
    q, dz = tl.load(Q + own, mask=there, other=0.0), tl.load(DZ + place, mask=there, other=0.0)
    lse = tl.load(LSE + bh * T + row, mask=row < T, other=0.0)
    z = tl.load(Z + place, mask=there, other=0.0)
    delta = tl.sum(z.to(tl.float32) * dz.to(tl.float32), 1)
    tl.store(DELTA + bh * T + row, delta, mask=row < T)
    dq = tl.zeros((N, D), tl.float32)
    for on_diagonal in tl.static_range(2):
        for j in range(on_diagonal * i * N, (i + on_diagonal) * N, N):
            col = j + tl.arange(0, N)
            k, v = _block(K, col, q_stride, d, T), _block(V, col, v_stride, d, T)
            e = tl.exp2(tl.dot(q, tl.trans(k), input_precision="ieee") * scale - lse[:, None])
            de = tl.dot(dz, tl.trans(v), input_precision="ieee")
            if on_diagonal:
                e = tl.where(row[:, None] >= col[None, :], e, 0.0)
            if DROPS:
                stays = kept(SEED, site, (bh * T + row[:, None]) * T + col[None, :], bound)
                de = tl.where(stays, de * grow, 0.0)
            dq = tl.dot((e * (de - delta[:, None])).to(k.dtype), k, dq, input_precision="ieee")
    tl.store(DQ + own, (dq * scale * LN2).to(DQ.dtype.element_ty), mask=there)


@triton.jit(do_not_specialize=["site", "bound"])
def attend_dkv(
    Q, K, V, LSE, DZ, DELTA, DK, DV, SEED, site, bound, grow, scale, T, q_stride, v_stride,
    H: tl.constexpr, GROUP: tl.constexpr, D: tl.constexpr, N: tl.constexpr, DROPS: tl.constexpr,
):  # fmt: skip
    """The gradients of N keys and values, over all queries that see them, head after head of their group."""
    bk, j = tl.program_id(0), tl.program_id(1)
    b, kv = (bk // (H // GROUP)).to(tl.int64), bk % (H // GROUP)
    col, d = j * N + tl.arange(0, N), tl.arange(0, D)[None, :]
    there = col[:, None] < T
    k_place = b * T * q_stride + kv * D + col[:, None] * q_stride + d
    v_place = b * T * v_stride + kv * D + col[:, None] * v_stride + d
    k, v = tl.load(K + k_place, mask=there, other=0.0), tl.load(V + v_place, mask=there, other=0.0)
    dk, dv = tl.zeros((N, D), tl.float32), tl.zeros((N, D), tl.float32)
    for member in range(GROUP):
        h = kv * GROUP + member
        bh = b * H + h
        own_q, own_dz = Q + b * T * q_stride + h * D, DZ + (b * T * H + h) * D
        for beyond in tl.static_range(2):
            for i in range((j + beyond) * N, T if beyond else (j + 1) * N, N):
                row = i + tl.arange(0, N)
                q, dz = _block(own_q, row, q_stride, d, T), _block(own_dz, row, H * D, d, T)
                lse = tl.load(LSE + bh * T + row, mask=row < T, other=0.0)
                delta = tl.load(DELTA + bh * T + row, mask=row < T, other=0.0)
                e = tl.exp2(tl.dot(k, tl.trans(q), input_precision="ieee") * scale - lse[None, :])
                de = tl.dot(v, tl.trans(dz), input_precision="ieee")
                if not beyond:
                    e = tl.where(row[None, :] >= col[:, None], e, 0.0)
                used = e
                if DROPS:
                    place = (bh * T + row[None, :]) * T + col[:, None]
                    stays = kept(SEED, site, place, bound)
                    used, de = tl.where(stays, e * grow, 0.0), tl.where(stays, de * grow, 0.0)
                dv = tl.dot(used.to(dz.dtype), dz, dv, input_precision="ieee")
                dk = tl.dot((e * (de - delta[None, :])).to(q.dtype), q, dk, input_precision="ieee")
    tl.store(DK + k_place, (dk * scale * LN2).to(DK.dtype.element_ty), mask=there)
    tl.store(DV + v_place, dv.to(DV.dtype.element_ty), mask=there)
