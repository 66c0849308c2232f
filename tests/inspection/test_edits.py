"""Reading and editing: per call, compiled or not, with a cache or without, in every family."""

import pytest
import torch
from torch import Tensor
from torch._dynamo.testing import CompileCounter

from glassformer.core.errors import UsageError
from glassformer.inspection.edits import Edit, Edits, edited, put, steer, zero
from glassformer.inspection.gradients import next_token_loss
from glassformer.inspection.trace import check_edits, gradients, record_trace
from tests.generation.writing import write
from tests.models.families import FAMILIES, close, ids, make


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_can_be_read_edited_and_differentiated(family: str) -> None:
    model, tokens = make("language", family), ids(2, 9)
    trace = record_trace(model, tokens)
    close(trace.logits, model(tokens))
    site = (
        "1.resid"
        if "1.resid" in trace.values
        else next(s for s in trace.values if s not in ("embed", "logits"))
    )
    edited = record_trace(model, tokens, sites=(site,), edits=[zero(site)])
    assert not edited[site].any() and not torch.allclose(edited.logits, trace.logits)
    same = record_trace(model, tokens, edits=[put(site, trace[site])])
    assert torch.equal(same.logits, trace.logits)
    _, slopes = gradients(trace, next_token_loss(tokens), [site])
    step = 1e-3 * torch.randn_like(slopes[site])
    logits_by_sign = [
        record_trace(model, tokens, edits=[Edit(site, s * step, adds=True)]).logits for s in (1, -1)
    ]
    losses = [next_token_loss(tokens)(logits.double()) for logits in logits_by_sign]
    slope = float((slopes[site] * step).sum())
    assert float(losses[0] - losses[1]) / 2 == pytest.approx(slope, rel=0.05, abs=2e-6)


def test_edits_choose_heads_and_positions() -> None:
    model, tokens = make("language", "transformer"), ids(2, 9)
    plain = record_trace(model, tokens)
    z = record_trace(model, tokens, edits=[zero("0.z", heads=1, positions=[2, -1])])["0.z"]
    mask = torch.zeros_like(z, dtype=torch.bool)
    mask[:, 1, [2, 8]] = True
    assert torch.equal(z, plain["0.z"].masked_fill(mask, 0.0))
    vector = torch.randn(16)
    resid = record_trace(model, tokens, edits=[steer("0.resid", vector, 2.0, positions=3)])["0.resid"]
    expected = plain["0.resid"].clone()
    expected[:, 3] += 2 * vector
    torch.testing.assert_close(resid, expected)


def test_a_wrong_site_is_named() -> None:
    model, tokens = make("language", "transformer"), ids(1, 5)
    with pytest.raises(UsageError, match=r"no site '9\.z'"):
        record_trace(model, tokens, edits=[zero("9.z")])
    with pytest.raises(UsageError, match="nothing was recorded at 'resid'"):
        record_trace(model, tokens, sites=("0.resid",))["resid"]
    with pytest.raises(UsageError, match="no heads"):
        record_trace(model, tokens, edits=[zero("0.resid", heads=0)])


def test_heads_and_positions_that_are_not_there_are_named() -> None:
    model, tokens = make("language", "transformer"), ids(1, 5)
    for edit, message in (
        (zero("0.z", heads=[0, 9]), "no head 9 at 0.z: expected 0 to 1"),
        (zero("0.z", positions=5), "no position 5"),
        (put("0.resid", torch.zeros(1, 4, 16)), "take just the positions that are meant"),
        (steer("0.resid", torch.zeros(15)), "does not fit"),
    ):
        with pytest.raises(UsageError, match=message):
            record_trace(model, tokens, edits=[edit])
    last, other = (record_trace(model, tokens, edits=[zero("0.z", heads=h)]) for h in (-1, 1))
    assert torch.equal(last.logits, other.logits)
    labels = make("classify", "transformer")
    with pytest.raises(UsageError, match="not listed by position"):
        record_trace(labels, ids(2, 5), edits=[zero("pool", positions=1)])


def test_calls_leave_nothing_behind() -> None:
    """Not in the weights, not in the averages of a batch norm; and dropout does not disturb."""
    model, tokens = make("language", "transformer", norm="batch", dropout=0.5), ids(1, 5)
    before = {name: t.clone() for name, t in model.state_dict().items()}
    model.train()
    looks = [record_trace(model, tokens).logits for _ in range(2)]
    record_trace(model, tokens, edits=[zero("0.z")])
    gradients(record_trace(model, tokens), next_token_loss(tokens), ["embed"])
    assert torch.equal(*looks) and model.training
    assert all(torch.equal(t, before[name]) for name, t in model.state_dict().items())


def test_a_compiled_model_reads_edits_and_differentiates_without_compiling_again() -> None:
    """Another head, position or strength is no reason for another graph."""
    torch._dynamo.reset()
    model, tokens = make("language", "transformer"), ids(2, 9)
    counter = CompileCounter()
    compiled = torch.compile(model, backend=counter, fullgraph=True)
    for head in (0, 1):
        for position in range(6):
            edits = [zero("1.z", heads=head, positions=position)]
            plain = record_trace(model, tokens, sites=("z", "0.resid"), edits=edits)
            fast = record_trace(model, tokens, sites=("z", "0.resid"), edits=edits, compiled=compiled)
            assert plain.values.keys() == fast.values.keys()
            for site in plain.values:
                close(fast[site], plain[site])
            close(fast.logits, plain.logits)
    assert counter.frame_count == 1
    trace = record_trace(model, tokens, compiled=compiled)
    slopes = gradients(trace, next_token_loss(tokens), ["embed", "1.q"])[1]
    trace.compiled = None
    for site, gradient in gradients(trace, next_token_loss(tokens), ["embed", "1.q"])[1].items():
        close(slopes[site], gradient)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_half_precision_is_recorded_as_it_is(dtype: torch.dtype) -> None:
    model = make("language", "transformer").to(dtype)
    trace = record_trace(model, ids(1, 9), edits=[steer("0.resid", torch.ones(16), 0.5)])
    assert {v.dtype for v in trace.values.values()} == {dtype}


def test_only_what_is_asked_for_is_kept() -> None:
    model, tokens = make("language", "transformer"), ids(1, 9)
    trace = record_trace(model, tokens, sites=("v",))
    assert sorted(trace.values) == ["0.v", "1.v"]
    stored_bytes = sum(v.untyped_storage().nbytes() for v in trace.values.values())
    assert stored_bytes == sum(v.numel() * v.element_size() for v in trace.values.values())


@pytest.mark.parametrize("family", ["transformer", "transformer-learned-tied", "lstm"])
def test_a_generation_can_be_edited_with_and_without_a_cache(family: str) -> None:
    """The same tokens either way, also when the text outgrows the context; positions keep their meaning."""
    model, prompt = make("language", family), ids(4).tolist()
    site = "0.resid"

    def edited_text(cached: bool, edits: list[Edit]) -> list[int]:
        return write(model, prompt, 20, cached=cached, new_tap=edited(edits))  # pyright: ignore

    vector = 3 * torch.randn(16, generator=torch.Generator().manual_seed(0))
    for edits in ([steer(site, vector)], [steer(site, vector, positions=6)]):
        assert edited_text(True, edits) == edited_text(False, edits)
        assert edited_text(True, edits) != edited_text(True, [])


def test_what_was_written_looks_the_same_afterwards() -> None:
    """Under a causal mask, what a cached generation saw step by step is what one look at its text sees."""
    model, tokens = make("language", "transformer"), ids(1, 9)
    whole = record_trace(model, tokens, sites=("resid",))
    state, stepwise = model.new_state(1), []  # pyright: ignore

    def tap(site: str, x: Tensor) -> Tensor:
        if site == "1.resid":
            stepwise.append(x)
        return x

    with torch.no_grad():
        for t in range(9):
            model(tokens[:, t : t + 1], state=state, tap=tap)
    close(torch.cat(stepwise, dim=1), whole["1.resid"])


def test_a_position_stays_where_it_is_when_the_text_outgrows_the_context() -> None:
    """Token 6 is edited as token 6, and nothing else is, also after older tokens were dropped."""
    places: list[list[int]] = []

    class Spy(Edits):
        def __call__(self, site: str, x: Tensor) -> Tensor:
            out = super().__call__(site, x)
            if site == "0.resid":
                changed = (out != x).any(-1)[0].nonzero().flatten().tolist()
                places.append([self._end - x.shape[1] + c for c in changed])
            return out

    model = make("language", "transformer")  # its context is 12
    edits = [steer("0.resid", torch.ones(16), positions=6)]
    for cached in (True, False):
        places.clear()
        taps = lambda start: Spy(edits, goes_on=True, start=start)  # noqa: E731
        write(model, ids(4).tolist(), 20, cached=cached, new_tap=taps)  # pyright: ignore
        assert {p for some in places for p in some} == {6}


def test_edits_of_a_generation_are_checked() -> None:
    model = make("language", "transformer")
    for edit, message in (
        (zero("9.z"), "no site"),
        (zero("0.z", heads=5), "no head 5"),
        (zero("0.z", positions=-1), "start"),
    ):
        with pytest.raises(UsageError, match=message):
            check_edits(model, [edit])
    check_edits(model, [zero("0.z", positions=500)])


@pytest.mark.long
def test_more_sites_than_the_usual_limit_of_graphs() -> None:
    torch._dynamo.reset()
    model, tokens = make("language", "transformer", layers=12), ids(1, 5)
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    for layer in range(12):
        edits = [zero(f"{layer}.z", heads=0)]
        fast = record_trace(model, tokens, sites=("logits",), edits=edits, compiled=compiled)
        close(fast.logits, record_trace(model, tokens, edits=edits).logits)
