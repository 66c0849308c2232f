"""The one mask function: hiding positions, any pattern, and that hidden means hidden."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from glassformer.models.attention import attend, attend_by_formula
from glassformer.models.mask import Mask
from tests.conftest import tiny_model
from tests.models.families import close, ids, make


def qkv(seed: int, T: int = 6) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    torch.manual_seed(seed)
    return tuple(torch.randn(2, 3, T, 4) for _ in range(3))  # type: ignore[return-value]


def test_a_hidden_position_is_seen_by_nobody_and_the_rest_still_sums_to_one() -> None:
    q, k, v = qkv(0)
    padding_mask = torch.ones(1, 6, dtype=torch.bool)
    padding_mask[0, 2] = False
    _, weights = attend_by_formula(q, k, v, Mask(padding_mask=padding_mask))
    assert weights[..., 2].abs().max() == 0
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, 3, 6))
    # Zeros after the softmax are another thing: the rows no longer sum to one.
    late = attend_by_formula(q, k, v, Mask())[1].clone()
    late[..., 2] = 0
    assert (late.sum(-1) < 0.999).all()


def test_a_hidden_position_does_not_reach_the_output() -> None:
    model, tokens = make("classify", "transformer"), ids(1, 8)
    padding_mask = torch.ones(1, 8, dtype=torch.bool)
    padding_mask[0, 3] = False
    other = tokens.clone()
    other[0, 3] = (other[0, 3] + 5) % 23
    assert torch.equal(model(tokens, padding_mask), model(other, padding_mask))
    assert not torch.equal(model(tokens), model(other))


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 99), T=st.integers(1, 7), causal=st.booleans(), batched=st.booleans())
def test_any_pattern_at_all_fast_and_slow(seed: int, T: int, causal: bool, batched: bool) -> None:
    q, k, v = qkv(seed, T)
    pairs = torch.rand((2, T, T) if batched else (T, T)) < 0.6
    pairs = pairs | torch.eye(T, dtype=torch.bool)  # a query that sees nothing has no answer
    mask = Mask(causal=causal, pairs=pairs)
    slow, weights = attend_by_formula(q, k, v, mask)
    close(attend(q, k, v, mask), slow)
    allowed = pairs if batched else pairs.expand(2, T, T)
    assert weights.masked_select(~allowed[:, None].expand_as(weights)).abs().sum() == 0


def test_a_causal_stack_without_lookahead_is_the_decoder() -> None:
    """An encoder stack under a causal mask is a decoder: the same weights give the same vectors."""
    decoder, encoder = make("language", "transformer"), make("tag", "transformer")
    encoder.stack.load_state_dict(decoder.stack.state_dict())
    tokens = ids(2, 9)
    assert not torch.allclose(encoder.stack(tokens), decoder.stack(tokens), atol=1e-3)
    encoder.stack.mask = Mask(causal=True)
    assert torch.equal(encoder.stack(tokens), decoder.stack(tokens))


def test_without_positions_and_mask_the_tokens_are_a_set() -> None:
    model = make("tag", "transformer", position="none")
    tokens, order = ids(1, 8), torch.randperm(8, generator=torch.Generator().manual_seed(0))
    close(model(tokens[:, order]), model(tokens)[:, order])
    placed = make("tag", "transformer")
    assert not torch.allclose(placed(tokens[:, order]), placed(tokens)[:, order], atol=1e-3)


def test_a_rule_is_a_mask_by_positions_with_the_cache_too() -> None:
    rule = Mask(causal=True, rule=lambda query, key: (query - key < 3) | (key < 1))
    at = torch.arange(6)
    expected = (at[:, None] >= at) & ((at[:, None] - at < 3) | (at < 1))
    assert torch.equal(rule.table(at, at), expected) and not rule.is_triangle(6, 6)
    model = tiny_model()
    model.stack.mask = rule
    tokens = torch.randint(23, (2, 9), generator=torch.Generator().manual_seed(0))
    state = model.new_state(2)
    pieces = [model(tokens[:, i : i + 3], state=state) for i in (0, 3, 6)]
    torch.testing.assert_close(torch.cat(pieces, dim=1), model(tokens), rtol=1e-4, atol=1e-5)
