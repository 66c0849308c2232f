"""Attention under a causal mask, forward and backward, a block of queries against a block of keys at a time.

A position of q, k, v and of their gradients is STRIDE numbers from the next, its heads D from each other; z
lies (B, T, H, D). Softmaxes are in base 2, and so is `lse`. Pairs beyond the diagonal are never looked at,
and blocks off it not masked. Where T is EVEN, a multiple of both blocks, no load asks what is there.

Letters: B batch, T positions, H heads, K key-value heads, D head width, M queries and N keys of a block.
"""

import triton
import triton.language as tl

from glassformer.models.gpu.kernels.dropout import kept

LOG2E, LN2 = tl.constexpr(1.4426950408889634), tl.constexpr(0.6931471805599453)


@triton.jit
def _block(BASE, position, stride, d, T, EVEN: tl.constexpr):
    """The vectors of these positions, of D numbers each; zeros beyond the last."""
    at = BASE + position[:, None] * stride + d
    return tl.load(at) if EVEN else tl.load(at, mask=position[:, None] < T, other=0.0)


@triton.jit
def _numbers(BASE, position, T, EVEN: tl.constexpr):
    """One number for each of these positions."""
    return tl.load(BASE + position) if EVEN else tl.load(BASE + position, mask=position < T, other=0.0)


@triton.jit(do_not_specialize=["site", "bound"])
def attend(
    Q, K, V, Z, LSE, SEED, site, bound, grow, scale, T, q_stride, v_stride,
    H: tl.constexpr, GROUP: tl.constexpr, D: tl.constexpr, M: tl.constexpr, N: tl.constexpr,
    EVEN: tl.constexpr, DROPS: tl.constexpr,
):  # fmt: skip
    """M queries of a head, a multiple of N; GROUP heads share keys and values. Long rows begin first."""
    bh, i = tl.program_id(0), tl.num_programs(1) - 1 - tl.program_id(1)
    b, h = (bh // H).to(tl.int64), bh % H
    Q += b * T * q_stride + h * D
    K += b * T * q_stride + h // GROUP * D
    V += b * T * v_stride + h // GROUP * D
    row, d = i * M + tl.arange(0, M), tl.arange(0, D)[None, :]
    q = _block(Q, row, q_stride, d, T, EVEN)
    top, total = tl.full((M,), -1e30, tl.float32), tl.zeros((M,), tl.float32)
    z = tl.zeros((M, D), tl.float32)
    for on_diagonal in tl.static_range(2):
        for j in range(on_diagonal * i * M, tl.minimum((i + on_diagonal) * M, T), N):
            col = j + tl.arange(0, N)
            k, v = _block(K, col, q_stride, d, T, EVEN), _block(V, col, v_stride, d, T, EVEN)
            s = tl.dot(q, tl.trans(k), input_precision="ieee")
            if on_diagonal:
                s = tl.where(row[:, None] >= col[None, :], s, -1e30)
            new = tl.maximum(top, tl.max(s, 1) * scale)
            e, fix = tl.exp2(s * scale - new[:, None]), tl.exp2(top - new)
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
    H: tl.constexpr, GROUP: tl.constexpr, D: tl.constexpr, M: tl.constexpr, N: tl.constexpr,
    EVEN: tl.constexpr, DROPS: tl.constexpr,
):  # fmt: skip
    """The gradient of M queries, a multiple of N; and δ = Σ z dz of each, for the kernel after this one."""
    bh, i = tl.program_id(0), tl.num_programs(1) - 1 - tl.program_id(1)
    b, h = (bh // H).to(tl.int64), bh % H
    Q += b * T * q_stride + h * D
    K += b * T * q_stride + h // GROUP * D
    V += b * T * v_stride + h // GROUP * D
    Z += (b * T * H + h) * D
    DZ += (b * T * H + h) * D
    row, d = i * M + tl.arange(0, M), tl.arange(0, D)[None, :]
    q, dz = _block(Q, row, q_stride, d, T, EVEN), _block(DZ, row, H * D, d, T, EVEN)
    lse = _numbers(LSE + bh * T, row, T, EVEN)
    z = _block(Z, row, H * D, d, T, EVEN)
    delta = tl.sum(z.to(tl.float32) * dz.to(tl.float32), 1)
    tl.store(DELTA + bh * T + row, delta, mask=row < T)
    dq = tl.zeros((M, D), tl.float32)
    for on_diagonal in tl.static_range(2):
        for j in range(on_diagonal * i * M, tl.minimum((i + on_diagonal) * M, T), N):
            col = j + tl.arange(0, N)
            k, v = _block(K, col, q_stride, d, T, EVEN), _block(V, col, v_stride, d, T, EVEN)
            e = tl.exp2(tl.dot(q, tl.trans(k), input_precision="ieee") * scale - lse[:, None])
            de = tl.dot(dz, tl.trans(v), input_precision="ieee")
            if on_diagonal:
                e = tl.where(row[:, None] >= col[None, :], e, 0.0)
            if DROPS:
                stays = kept(SEED, site, (bh * T + row[:, None]) * T + col[None, :], bound)
                de = tl.where(stays, de * grow, 0.0)
            dq = tl.dot((e * (de - delta[:, None])).to(k.dtype), k, dq, input_precision="ieee")
    own = b * T * q_stride + h * D + row[:, None] * q_stride + d
    tl.store(DQ + own, (dq * scale * LN2).to(DQ.dtype.element_ty), mask=row[:, None] < T)


@triton.jit(do_not_specialize=["site", "bound"])
def attend_dkv(
    Q, K, V, LSE, DZ, DELTA, DK, DV, SEED, site, bound, grow, scale, T, q_stride, v_stride,
    H: tl.constexpr, GROUP: tl.constexpr, D: tl.constexpr, M: tl.constexpr, N: tl.constexpr,
    EVEN: tl.constexpr, DROPS: tl.constexpr,
):  # fmt: skip
    """The gradients of N keys and values, a multiple of M, over all queries that see them, head after head of
    their group."""
    bk, j = tl.program_id(0), tl.program_id(1)
    b, kv = (bk // (H // GROUP)).to(tl.int64), bk % (H // GROUP)
    K += b * T * q_stride + kv * D
    V += b * T * v_stride + kv * D
    col, d = j * N + tl.arange(0, N), tl.arange(0, D)[None, :]
    k, v = _block(K, col, q_stride, d, T, EVEN), _block(V, col, v_stride, d, T, EVEN)
    dk, dv = tl.zeros((N, D), tl.float32), tl.zeros((N, D), tl.float32)
    for member in range(GROUP):
        h = kv * GROUP + member
        bh = b * H + h
        own_q, own_dz = Q + b * T * q_stride + h * D, DZ + (b * T * H + h) * D
        for beyond in tl.static_range(2):
            for i in range((j + beyond) * N, T if beyond else tl.minimum((j + 1) * N, T), M):
                row = i + tl.arange(0, M)
                q, dz = _block(own_q, row, q_stride, d, T, EVEN), _block(own_dz, row, H * D, d, T, EVEN)
                lse, delta = _numbers(LSE + bh * T, row, T, EVEN), _numbers(DELTA + bh * T, row, T, EVEN)
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
    k_place = b * T * q_stride + kv * D + col[:, None] * q_stride + d
    v_place = b * T * v_stride + kv * D + col[:, None] * v_stride + d
    tl.store(DK + k_place, (dk * scale * LN2).to(DK.dtype.element_ty), mask=col[:, None] < T)
    tl.store(DV + v_place, dv.to(DV.dtype.element_ty), mask=col[:, None] < T)
