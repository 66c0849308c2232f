"""A plan in words and columns."""

from glassformer.planning.count import count, operations
from glassformer.planning.plan import Plan, optimal

KERNELS = {"fused": "the fused step", "graph": "PyTorch's kernels, a graph for a step (not measured)"}
SMALLEST_FIT = 40e6  # parameters below which the paper fitted nothing


def show(plan: Plan) -> str:
    return "\n".join([*_model(plan), "", *_layouts(plan), "", *_verdict(plan), "", *_balance(plan)])


def _model(plan: Plan) -> list[str]:
    counts, m = count(plan.config.model), plan.config.model
    parts = ", ".join(f"{name} {_count(n)}" for name, n in counts.parts.items() if n)
    each = operations(m)
    return [
        f"Model        {_count(counts.parameters)} parameters: {parts}",
        f"Operations   {each:.3g} a token in training (6 for each of {_count(counts.all_matrices)} weights "
        f"that are multiplied, and attention over {m.context})",
        f"Data         {_count(plan.tokens)} tokens: {plan.steps:,.0f} steps of "
        f"{plan.config.training.batch} × {m.context}; {each * plan.tokens:.3g} operations in all",
    ]


def _layouts(plan: Plan) -> list[str]:
    d = plan.device
    how = "measured" if d.measured else "from its data sheet, not measured"
    t = plan.config.training
    lines = [
        f"{plan.devices} × {d.name}, {d.memory / 1e9:.0f} GB, {_count(d.matmul, 'G')}FLOP/s, "
        f"{_count(d.bandwidth, 'G')}B/s ({how}); {t.optimizer}, {t.precision}, "
        + (KERNELS.get(t.kernels) or ("compiled" if t.compile == "on" else "not compiled")),
        f"{'layout':8}{'parts':>6}{'weights':>9}{'grads':>8}{'optim.':>8}{'activ.':>8}{'logits':>8}"
        f"{'gathered':>9}{'peak GB':>9}{'':>6}{'ms/step':>10}{'tokens/s':>12}",
    ]
    for o in plan.options:
        p = {name: f"{value / 1e9:.2f}" for name, value in o.memory.parts().items()}
        lines.append(
            f"{o.layout:8}{o.accumulate:>6}{p['weights']:>9}{p['gradients']:>8}{p['optimizer']:>8}"
            f"{p['activations']:>8}{p['logits']:>8}{p['gathered']:>9}{o.peak_bytes / 1e9:>9.2f}"
            f"{'fits' if o.fits else 'no':>6}{1e3 * o.step_seconds:>10.1f}"
            f"{plan.tokens_per_step / o.step_seconds:>12,.0f}"
        )
    return lines


def _verdict(plan: Plan) -> list[str]:
    best, t = plan.choice, plan.config.training
    if best is None:
        least = min(plan.options, key=lambda o: o.peak_bytes)
        return [
            f"Nothing fits: the least is {least.peak_bytes / 1e9:.1f} GB ({least.layout} in "
            f"{least.accumulate} parts). More devices with fsdp, a smaller model.context, or a smaller model."
        ]
    seconds = plan.steps * best.step_seconds
    cost = seconds / 3600 * plan.devices * plan.price
    price = f", about ${cost:,.2f} at ${plan.price:g} an hour for each device" if plan.price else ""
    stall = 1e3 * best.communication
    network = f"; {stall:.0f} ms of a step wait for the network" if stall >= 1 else ""
    parallel = f" --set training.parallel={best.layout}" if plan.devices > 1 else ""
    advice = f"Take {best.layout}" if plan.devices > 1 else "It fits"
    return [
        f"{advice} with training.accumulate={best.accumulate}: {_duration(seconds)}{price}{network}.",
        f"Settings: --set training.batch={t.batch} --set training.accumulate={best.accumulate}{parallel}",
    ]


def _balance(plan: Plan) -> list[str]:
    counts = count(plan.config.model)
    o = optimal(operations(plan.config.model) * plan.tokens, counts.parameters, plan.tokens)
    ratio = o["tokens_per_parameter"]
    verdict = "near the 20 that use computing best"
    if ratio < 10:
        verdict = "few: a smaller model on more tokens would use the same computing better"
    elif ratio > 40:
        verdict = "more than computing alone asks for, as is right for a model that is used a lot"
    lines = [
        f"Balance      {ratio:.3g} tokens a parameter, {verdict}.",
        f"             For this computing: {_count(o['parameters'])} parameters on {_count(o['tokens'])} "
        f"tokens, 20 each (Hoffmann et al., 2022).",
    ]
    if min(o["parameters"], counts.parameters) >= SMALLEST_FIT:
        lines.append(
            f"             Their fit expects a loss of {o['expected_loss']:.2f} nats a token from "
            f"this plan, {o['expected_loss_optimal']:.2f} from that."
        )
    return lines


def _count(n: float, billion: str = "B") -> str:
    for size, sign in ((1e12, "T"), (1e9, billion), (1e6, "M"), (1e3, "k")):
        if n >= size:
            return f"{n / size:.3g} {sign}"
    return f"{n:.0f}"


def _duration(seconds: float) -> str:
    for size, name in ((86400, "days"), (3600, "hours"), (60, "minutes")):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {name}"
    return f"{seconds:.0f} seconds"
