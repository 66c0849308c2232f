"""Each kernel of a GPU's step beside its formula, at sizes that fill no block."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from glassformer.generation.gpu.kernels.attention import attend_kernel
from glassformer.generation.gpu.kernels.heads import heads_kernel
from glassformer.generation.gpu.kernels.products import tiles_kernel, vectors_kernel
from glassformer.generation.gpu.kernels.stream import embed_kernel, join_kernel
from glassformer.models.attention import attend_by_formula
from glassformer.models.layers import ACTIVATIONS
from glassformer.models.mask import Mask
from glassformer.models.position import Rotary

P = 4  # positions of a page


def numbers(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed + sum(shape)))


def close(found: Tensor, right: Tensor, limit: float = 2e-6) -> None:
    assert (found.float() - right).abs().max() <= limit * right.abs().max().clamp(min=1.0)


def norm_by_formula(x: Tensor, kind: str, gamma: Tensor, beta: Tensor | None, eps: float) -> Tensor:
    if kind == "layer":
        return F.layer_norm(x, x.shape[-1:], gamma, beta, eps)
    return F.rms_norm(x, x.shape[-1:], gamma, eps) if kind == "rms" else x


def finish_by_formula(y: Tensor, finish: str, before: Tensor) -> Tensor:
    match finish:
        case "store" | "part":
            return y
        case "add":
            return before + y
        case "swiglu":
            gate, linear = y.chunk(2, dim=-1)
            return F.silu(gate) * linear
    return ACTIVATIONS[finish](y)


@pytest.mark.parametrize("has_places", [False, True])
def test_embeddings(has_places: bool) -> None:
    C, tokens, positions = 13, torch.tensor([4, 0, 4]).int(), torch.tensor([7, 2, 0]).int()
    embedding, places = numbers(5, C), numbers(8, C) if has_places else None
    x = torch.full((3, C), torch.nan)
    embed_kernel[(3,)](x, tokens, positions, embedding, places, 2.5, C=C, BLOCK=16)
    close(x, embedding[tokens] * 2.5 + (places[positions] if places is not None else 0.0))


@pytest.mark.parametrize("kind", ["layer", "rms"])
@pytest.mark.parametrize("has_bias", [False, True])
def test_what_parts_add_to_the_stream_and_its_norm(kind: str, has_bias: bool) -> None:
    C, R, S, room = 21, 3, 2, 5
    x, parts, gamma = numbers(room, C), numbers(S, room, C), numbers(C)
    bias, beta = (numbers(C, seed=1), numbers(C, seed=2)) if has_bias else (None, None)
    beta = beta if kind == "layer" else None
    h, before = torch.full((room, C), torch.nan), x.clone()
    sizes = {"C": C, "BLOCK": 32, "STRIDE": room * C, "NORM": kind}
    join_kernel[(R,)](x, None, parts, bias, gamma, beta, 1e-5, h, S=S, **sizes)
    right = before[:R] + parts[:, :R].sum(0) + (bias if bias is not None else 0.0)
    close(x[:R], right)
    assert torch.equal(x[R:], before[R:])
    close(h[:R], norm_by_formula(right, kind, gamma, beta, 1e-5), 1e-5)
    picks = torch.tensor([4, 1]).int()
    join_kernel[(2,)](x, picks, parts, bias, gamma, beta, 1e-5, h, S=0, **sizes)
    close(h[:2], norm_by_formula(x[[4, 1]], kind, gamma, beta, 1e-5), 1e-5)


FINISHES = ["store", "add", "swiglu", *ACTIVATIONS]


@pytest.mark.parametrize("finish", FINISHES)
@pytest.mark.parametrize(
    ("kind", "has_bias", "dtype"),
    [
        ("none", True, torch.float32),
        ("layer", True, torch.float32),
        ("layer", False, torch.bfloat16),
        ("rms", False, torch.float32),
    ],
)
def test_products_by_vectors(finish: str, kind: str, has_bias: bool, dtype: torch.dtype) -> None:
    N, K, R = 11, 37, 3
    outputs = 2 * N if finish == "swiglu" else N
    x, weight, before = numbers(5, K), numbers(outputs, K).to(dtype), numbers(R, N)
    bias, gamma = numbers(outputs) if has_bias else None, numbers(K)
    beta = numbers(K, seed=1) if has_bias and kind == "layer" else None
    picks = torch.tensor([4, 0, 2]).int()
    out = torch.cat([before, torch.full((1, N), 7.0)])
    vectors_kernel[(3,)](
        x, picks, weight, bias, gamma, beta, 1e-5, out, R, N=N, K=K, NORM=kind, FINISH=finish, BN=4, BK=16
    )
    h = norm_by_formula(x[picks], kind, gamma, beta, 1e-5)
    close(out[:R], finish_by_formula(F.linear(h, weight.float(), bias), finish, before), 1e-5)
    assert (out[R] == 7.0).all()


@pytest.mark.parametrize("finish", ["store", "part", "swiglu", *ACTIVATIONS])
@pytest.mark.parametrize(("dtype", "limit"), [(torch.float32, 1e-5), (torch.float16, 2e-3)])
def test_products_by_tiles(finish: str, dtype: torch.dtype, limit: float) -> None:
    N, K, R = 27, 75, 19
    outputs, parts = 2 * N if finish == "swiglu" else N, 3 if finish == "part" else 1
    h, weight, bias = numbers(R, K).to(dtype), (numbers(outputs, K) / 8).to(dtype), numbers(outputs)
    out = torch.zeros(parts, R + 1, N)
    tiles_kernel[(2, 2, parts)](
        h,
        weight,
        None if finish == "part" else bias,
        out,
        R,
        N=N,
        K=K,
        FINISH=finish,
        STRIDE=(R + 1) * N,
        PART=32 if finish == "part" else 96,
        BR=16,
        BN=16,
        BK=16,
        PRECISION="ieee",
    )
    if finish == "part":
        for i, part in enumerate(out):
            inputs = slice(32 * i, 32 * (i + 1))
            close(part[:R], F.linear(h[:, inputs].float(), weight[:, inputs].float()), limit)
    else:
        right = finish_by_formula(F.linear(h.float(), weight.float(), bias), finish, bias)
        close(out[0, :R], right, limit)
    assert not out[:, R].any()


def scattered(texts: list[int], K: int, D: int, E: int) -> tuple[Tensor, Tensor, Tensor]:
    """A table (texts, pages) of pages in any order, and room for keys and values in them."""
    most = max(-(-n // P) for n in texts)
    order = torch.randperm(len(texts) * most, generator=torch.Generator().manual_seed(1))
    pages = len(order)
    tables = order.view(len(texts), most).int()
    return tables, torch.full((pages, K, P, D), torch.nan), torch.full((pages, K, P, E), torch.nan)


def put(pool: Tensor, table: Tensor, x: Tensor) -> None:
    """x (K, S, ·) at its positions."""
    for s in range(x.shape[1]):
        pool[table[s // P], :, s % P] = x[:, s]


@pytest.mark.parametrize("kind", ["none", "layer", "rms"])
@pytest.mark.parametrize("turns", [False, True])
def test_queries_keys_and_values(kind: str, turns: bool) -> None:
    H, K, D, E, R = 4, 2, 6, 5, 3
    positions, position = torch.tensor([9, 0, 6]).int(), Rotary(12, D)
    tables, keys, values = scattered([12, 12, 12], K, D, E)
    qkv, gamma = numbers(R, H * D + K * D + K * E), numbers(D)
    beta = numbers(D, seed=1) if kind == "layer" else None
    q = torch.full((R, H, D), torch.nan)
    cos, sin = (position.cos, position.sin) if turns else (None, None)
    heads_kernel[(R, H + 2 * K)](
        qkv,
        positions,
        tables,
        gamma,
        beta,
        1e-6,
        cos,
        sin,
        0.3,
        q,
        keys,
        values,
        H=H,
        G=K,
        D=D,
        E=E,
        BLOCK=8,
        P=P,
        TABLE=3,
        NORM=kind,
    )
    qk, v = qkv.split(((H + K) * D, K * E), dim=-1)
    qk = norm_by_formula(qk.view(R, 1, H + K, D).transpose(1, 2), kind, gamma, beta, 1e-6)
    if turns:
        qk = position.rotate(qk, positions[:, None].long())
    right_q, right_k = qk[:, :, 0].split((H, K), dim=1)
    close(q, right_q * 0.3)
    for row, at in enumerate(positions.tolist()):
        page = tables[row, at // P]
        close(keys[page, :, at % P], right_k[row])
        assert torch.equal(values[page, :, at % P], v[row].view(K, E))
    assert int(keys.isfinite().sum()) == R * K * D and int(values.isfinite().sum()) == R * K * E


@pytest.mark.parametrize("products", ["vectors", "tiles"])
@pytest.mark.parametrize("kv_heads", [1, 2])
@pytest.mark.parametrize("turns", [False, True])
def test_products_that_hand_out_heads(turns: bool, kv_heads: int, products: str) -> None:
    """Without a norm of queries and keys: what the product and heads_kernel make one after the other."""
    H, K, D, E, R, C, context = 4, kv_heads, 6, 5, 3, 21, 12
    positions, position = torch.tensor([9, 0, 6]).int(), Rotary(context, D)
    tables, keys, values = scattered([context] * R, K, D, E)
    N = (H + K) * D + K * E
    x, weight, bias, gain = numbers(R, C), numbers(N, C) / 4, numbers(N), numbers(C)
    norm = "rms" if products == "vectors" else "none"
    cos, sin = (position.cos, position.sin) if turns else (None, None)
    right_q, right_keys, right_values = numbers(R, H, D), keys.clone(), values.clone()
    heads = {"tokens_at": positions, "tables": tables, "cos": cos, "sin": sin, "scale": 0.3}
    heads |= {"H": H, "G": K, "D": D, "E": E, "P": P, "TABLE": tables.shape[1]}
    qkv = F.linear(norm_by_formula(x, norm, gain, None, 1e-5), weight, bias)
    heads_kernel[(R, H + 2 * K)](
        qkv=qkv, gamma=None, beta=None, eps=0.0, q=right_q, keys=right_keys, values=right_values, BLOCK=8,
        NORM="none", **heads,
    )  # fmt: skip
    q = torch.full((R + 1, H, D), torch.nan)
    heads |= {"keys": keys, "values": values}
    if products == "vectors":
        vectors_kernel[(-(-N // 4),)](
            x, None, weight, bias, gain, None, 1e-5, q, R, N=N, K=C, NORM=norm, FINISH="heads", BN=4, BK=16,
            **heads,
        )  # fmt: skip
    else:
        tiles_kernel[(-(-N // 16), 1, 1)](
            x, weight, bias, q, R, N=N, K=C, FINISH="heads", STRIDE=0, PART=32, BR=16, BN=16, BK=16,
            PRECISION="ieee", **heads,
        )  # fmt: skip
    close(q[:R], right_q, 1e-5)
    assert q[R].isnan().all()
    for found, right in ((keys, right_keys), (values, right_values)):
        assert torch.equal(found.isnan(), right.isnan())
        close(found.nan_to_num(), right.nan_to_num(), 1e-5)


@pytest.mark.parametrize("alone", [False, True])
@pytest.mark.parametrize("span", [8, 64])
@pytest.mark.parametrize(("slopes", "window"), [(False, 0), (True, 0), (False, 5), (True, 9)])
def test_attention(span: int, slopes: bool, window: int, alone: bool) -> None:
    H, K, D, E, context = 4, 2, 6, 5, 40
    texts = [1, 23, 8, 40]
    tables, keys, values = scattered([context] * 4, K, D, E)
    q, by = numbers(4, H, D), numbers(H).abs() if slopes else None
    right = []
    for row, S in enumerate(texts):
        k, v = numbers(K, S, D), numbers(K, S, E, seed=2)
        put(keys, tables[row], k)
        put(values, tables[row], v)
        bias = None if by is None else -by[:, None, None] * (S - 1 - torch.arange(S))
        mask = Mask(causal=True, window=window or None)
        z, _ = attend_by_formula(q[row][None, :, None] * D**0.5, k[None], v[None], mask, bias)
        right.append(z[0, :, 0])
    spans = -(-context // span)
    z, found = torch.full((4, H, E), torch.nan), torch.full((4, H, spans, E + 2), torch.nan)
    arrived = torch.zeros(4, H, dtype=torch.int32)
    for _ in range(2):  # counts are zero again afterwards
        attend_kernel[(4, H, spans)](
            q,
            keys,
            values,
            torch.tensor(texts).int() - 1,
            tables,
            by,
            z,
            found,
            arrived,
            H=H,
            K=K,
            D=D,
            E=E,
            BD=8,
            BE=8,
            P=P,
            TABLE=tables.shape[1],
            WINDOW=window,
            SPAN=span,
            SPANS=spans,
            ALONE=alone,
        )
        close(z, torch.stack(right))
        assert not arrived.any()
