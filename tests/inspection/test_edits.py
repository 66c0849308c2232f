"""Reading and editing: per call, compiled or not, with a cache or without, in every family."""

import pytest
import torch
from torch import Tensor
from torch._dynamo.testing import CompileCounter

from glassformer.errors import UsageError
from glassformer.generation.engine import generate
from glassformer.inspection.edit import Edit, Edits, put, steer, zero
from glassformer.inspection.gradients import next_token_loss
from glassformer.inspection.record import gradients, see
from tests.models.families import FAMILIES, close, ids, make


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_can_be_read_edited_and_differentiated(family: str) -> None:
    model, tokens = make("language", family), ids(2, 9)
    seen = see(model, tokens)
    close(seen.logits, model(tokens))
    site = (
        "1.resid"
        if "1.resid" in seen.values
        else next(s for s in seen.values if s not in ("embed", "logits"))
    )
    edited = see(model, tokens, sites=(site,), edits=[zero(site)])
    assert not edited[site].any() and not torch.allclose(edited.logits, seen.logits)
    same = see(model, tokens, edits=[put(site, seen[site])])
    assert torch.equal(same.logits, seen.logits)
    _, found = gradients(seen, next_token_loss(tokens), [site])
    step = 1e-3 * torch.randn_like(found[site])
    moved = [see(model, tokens, edits=[Edit(site, s * step, adds=True)]).logits for s in (1, -1)]
    losses = [next_token_loss(tokens)(logits.double()) for logits in moved]
    slope = float((found[site] * step).sum())
    assert float(losses[0] - losses[1]) / 2 == pytest.approx(slope, rel=0.05, abs=2e-6)


def test_edits_choose_heads_and_positions() -> None:
    model, tokens = make("language", "transformer"), ids(2, 9)
    plain = see(model, tokens)
    z = see(model, tokens, edits=[zero("0.z", heads=1, positions=[2, -1])])["0.z"]
    changed = torch.zeros_like(z, dtype=torch.bool)
    changed[:, 1, [2, 8]] = True
    assert torch.equal(z, plain["0.z"].masked_fill(changed, 0.0))
    vector = torch.randn(16)
    resid = see(model, tokens, edits=[steer("0.resid", vector, 2.0, positions=3)])["0.resid"]
    wanted = plain["0.resid"].clone()
    wanted[:, 3] += 2 * vector
    torch.testing.assert_close(resid, wanted)


def test_a_wrong_site_is_named() -> None:
    model, tokens = make("language", "transformer"), ids(1, 5)
    with pytest.raises(UsageError, match=r"no site '9\.z'"):
        see(model, tokens, edits=[zero("9.z")])
    with pytest.raises(UsageError, match="nothing was recorded at 'resid'"):
        see(model, tokens, sites=("0.resid",))["resid"]
    with pytest.raises(UsageError, match="no heads"):
        see(model, tokens, edits=[zero("0.resid", heads=0)])


def test_calls_leave_nothing_behind() -> None:
    model, tokens = make("language", "transformer"), ids(1, 5)
    before = model(tokens)
    see(model, tokens, edits=[zero("0.z")])
    assert torch.equal(model(tokens), before)


def test_a_compiled_model_reads_edits_and_differentiates_without_compiling_again() -> None:
    """Another head, position or strength is no reason for another graph."""
    torch._dynamo.reset()
    model, tokens = make("language", "transformer"), ids(2, 9)
    counter = CompileCounter()
    compiled = torch.compile(model, backend=counter, fullgraph=True)
    for head in (0, 1):
        for position in range(6):
            edits = [zero("1.z", heads=head, positions=position)]
            plain = see(model, tokens, sites=("z", "0.resid"), edits=edits)
            fast = see(model, tokens, sites=("z", "0.resid"), edits=edits, compiled=compiled)
            assert plain.values.keys() == fast.values.keys()
            for site in plain.values:
                close(fast[site], plain[site])
            close(fast.logits, plain.logits)
    assert counter.frame_count == 1
    seen = see(model, tokens, compiled=compiled)
    found = gradients(seen, next_token_loss(tokens), ["embed", "1.q"])[1]
    seen.compiled = None
    for site, gradient in gradients(seen, next_token_loss(tokens), ["embed", "1.q"])[1].items():
        close(found[site], gradient)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_half_precision_is_recorded_as_it_is(dtype: torch.dtype) -> None:
    model = make("language", "transformer").to(dtype)
    seen = see(model, ids(1, 9), edits=[steer("0.resid", torch.ones(16), 0.5)])
    assert {v.dtype for v in seen.values.values()} == {dtype}


def test_only_what_is_asked_for_is_kept() -> None:
    model, tokens = make("language", "transformer"), ids(1, 9)
    seen = see(model, tokens, sites=("v",))
    assert sorted(seen.values) == ["0.v", "1.v"]
    kept = sum(v.untyped_storage().nbytes() for v in seen.values.values())
    assert kept == sum(v.numel() * v.element_size() for v in seen.values.values())


@pytest.mark.parametrize("family", ["transformer", "transformer-learned-tied", "lstm"])
def test_a_generation_can_be_edited_with_and_without_a_cache(family: str) -> None:
    """The same tokens either way, also when the text outgrows the context; positions keep their meaning."""
    model, prompt = make("language", family), ids(1, 4)
    site = "0.resid"

    def write(cached: bool, edits: list[Edit]) -> list[int]:
        taps = lambda: Edits(edits, goes_on=True)  # noqa: E731
        steps = generate(model, prompt, 20, lambda logits: logits.argmax(-1), cached=cached, new_tap=taps)  # pyright: ignore
        return [int(t) for t in steps]

    vector = 3 * torch.randn(16, generator=torch.Generator().manual_seed(0))
    for edits in ([steer(site, vector)], [steer(site, vector, positions=6)]):
        assert write(True, edits) == write(False, edits)
        assert write(True, edits) != write(True, [])


def test_what_was_written_looks_the_same_afterwards() -> None:
    """Under a causal mask, what a cached generation saw step by step is what one look at its text sees."""
    model, tokens = make("language", "transformer"), ids(1, 9)
    whole = see(model, tokens, sites=("resid",))
    state, stepwise = model.new_state(1), []  # pyright: ignore

    def tap(site: str, x: Tensor) -> Tensor:
        if site == "1.resid":
            stepwise.append(x)
        return x

    with torch.no_grad():
        for t in range(9):
            model(tokens[:, t : t + 1], state=state, tap=tap)
    close(torch.cat(stepwise, dim=1), whole["1.resid"])
