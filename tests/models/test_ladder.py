"""The ladder to attention: each rung is the next one with something left out; a convolution beside it."""

import torch
from torch.nn import functional as F

from glassformer.models.attention import Attention, UnscaledAttention, attend_by_formula
from glassformer.models.ladder import Convolution, Distance, Projected, QueryKey, Similarity
from glassformer.models.mask import Mask
from glassformer.models.position import Position

C, H, T = 12, 2, 7
NONE = Position()
at = torch.arange(T)[None]


def x(seed: int = 0) -> torch.Tensor:
    return torch.randn(2, T, C, generator=torch.Generator().manual_seed(seed))


def identity(linear: torch.nn.Linear) -> None:
    linear.weight.data.copy_(torch.eye(C))


def test_raw_similarity_is_softmax_of_inner_products() -> None:
    layer, given = Similarity(C, 1, position=NONE), x()
    weights = (given @ given.transpose(1, 2) / C**0.5).softmax(-1)
    torch.testing.assert_close(layer(given, Mask()), weights @ given)
    assert list(layer.parameters()) == []


def test_projecting_by_nothing_is_raw_similarity() -> None:
    upper, lower, given = Projected(C, H, C // H, position=NONE), Similarity(C, H, position=NONE), x()
    identity(upper.u)
    torch.testing.assert_close(upper(given, Mask(causal=True)), lower(given, Mask(causal=True)))


def test_queries_that_are_keys_are_one_projection() -> None:
    upper, lower = (kind(C, H, C // H, position=NONE) for kind in (QueryKey, Projected))
    lower.u.weight.data.copy_(upper.q.weight)
    upper.k.weight.data.copy_(upper.q.weight)
    torch.testing.assert_close(upper(x(), Mask()), lower(x(), Mask()))


def test_values_and_outputs_that_change_nothing_leave_queries_and_keys() -> None:
    upper = Attention(C, H, position=NONE, bias=False)
    lower = QueryKey(C, H, C // H, position=NONE)
    upper.qkv.weight.data.copy_(torch.cat([lower.q.weight, lower.k.weight, torch.eye(C)]))
    identity(upper.out)
    torch.testing.assert_close(upper(x(), Mask(causal=True)), lower(x(), Mask(causal=True)))


def test_one_projection_looks_both_ways_alike_and_two_do_not() -> None:
    one, two = Projected(C, 1, 4, position=NONE), QueryKey(C, 1, 4, position=NONE)
    for layer, symmetric in ((one, True), (two, False)):
        q, k, _ = layer.project(x(), at)
        scores = q @ k.transpose(-2, -1)
        assert torch.allclose(scores, scores.transpose(-2, -1), atol=1e-6) is symmetric


def test_values_and_outputs_are_a_low_rank_read_out() -> None:
    layer = Attention(C, H, position=NONE, bias=False)
    D = C // H
    q, k, _ = layer.project(x(), at)
    _, weights = attend_by_formula(q, k, k, Mask())
    read_out = 0.0
    for h in range(H):
        U_v = layer.qkv.weight[2 * C + h * D : 2 * C + (h + 1) * D]  # (D, C)
        U_o = layer.out.weight[:, h * D : (h + 1) * D]  # (C, D)
        V = U_o @ U_v  # (C, C), of rank D
        assert torch.linalg.matrix_rank(V) == D
        read_out = read_out + weights[:, h] @ x() @ V.T
    torch.testing.assert_close(layer(x(), Mask()), read_out, rtol=1e-4, atol=1e-5)


def test_attention_by_distance_is_a_toeplitz_matrix_and_a_convolution() -> None:
    torch.manual_seed(0)
    layer = Distance(C, H, 16, position=NONE)
    torch.nn.init.normal_(layer.scores)
    q, k, v = layer.project(x(), at)
    _, weights = attend_by_formula(q, k, v, Mask(), layer.bias(at, at[0]))
    kernel = layer.bias(at, at[0])[0].exp()
    for t in range(T - 1):  # constant along the diagonals before the rows are normalised
        torch.testing.assert_close(kernel[:, t, :-1], kernel[:, t + 1, 1:])
    torch.testing.assert_close(weights[0], kernel / kernel.sum(-1, keepdim=True))

    # With the causal mask the un-normalised sum is a one-sided convolution of the values.
    table = Mask(causal=True).table(at[0], at[0])
    summed = (kernel * table) @ v
    for h in range(H):
        taps = kernel[h, T - 1].flip(0)  # a_0, a_1, …: the weight of each distance
        padded = F.pad(v[:, h].transpose(1, 2), (T - 1, 0))  # (B, D, T − 1 + T)
        convolved = F.conv1d(padded.flatten(0, 1)[:, None], taps.flip(0)[None, None])
        torch.testing.assert_close(
            convolved.view(2, -1, T).transpose(1, 2), summed[:, h], rtol=1e-4, atol=1e-5
        )
    out = layer(x(), Mask(causal=True))
    expected = layer.read_out(summed / (kernel * table).sum(-1)[..., None])
    torch.testing.assert_close(out, expected, rtol=1e-4, atol=1e-5)
    assert not torch.equal(layer(x(), Mask()), out)


def test_a_convolution_is_one_and_toeplitz_as_it_is_used() -> None:
    torch.manual_seed(0)
    layer = Convolution(C, H, 16, position=NONE)
    torch.nn.init.normal_(layer.scores)
    q, k, v = layer.project(x(), at)
    A = layer.weights(q, k, Mask(causal=True), layer.bias(at, at[0]))  # (B, H, T, T)
    for t in range(T - 1):  # constant along the diagonals, in the weights that are used
        assert torch.equal(A[:, :, t, : t + 1], A[:, :, t + 1, 1 : t + 2])
    z = layer.mix(q, k, v, Mask(causal=True), layer.bias(at, at[0]))
    for h in range(H):
        taps = layer.scores[h, 15 : 15 + T]  # of distance 0, 1, …
        padded = F.pad(v[:, h].transpose(1, 2), (T - 1, 0))  # (B, D, T − 1 + T)
        convolved = F.conv1d(padded.flatten(0, 1)[:, None], taps.flip(0)[None, None])
        torch.testing.assert_close(convolved.view(2, -1, T).transpose(1, 2), z[:, h], rtol=1e-4, atol=1e-5)


def test_unscaled_scores_are_those_of_wider_queries() -> None:
    torch.manual_seed(0)
    layer = UnscaledAttention(C, H, position=NONE, bias=False)
    plain = Attention(C, H, position=NONE, bias=False)
    plain.load_state_dict(layer.state_dict())
    q, k, v = plain.project(x(), at)
    expected = (q @ k.mT).masked_fill(torch.ones(T, T).triu(1).bool(), float("-inf")).softmax(-1) @ v
    torch.testing.assert_close(layer(x(), Mask(causal=True)), plain.read_out(expected), rtol=1e-4, atol=1e-5)
