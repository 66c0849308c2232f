"""The pictures of a report, each as SVG and PNG with its caption as text. Draws; computes nothing."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, NullFormatter

from glassformer.core.drawing import Drawing, use_logarithm
from glassformer.core.files import make_folder
from glassformer.core.terminal import caption
from glassformer.inspection.map_plots import attention, depth_name, heads, lens, rollout
from glassformer.inspection.picture_plots import over_picture, picture
from glassformer.inspection.report_text import visible

INK, RULE, WARM, GREEN = "#1f3a5f", "#8fa3b8", "#c4512d", "#2f8f4e"
# Where a layer's output stands between the streams before and behind its block.
INSIDE = {"attn_out": 0.25, "cross.attn_out": 0.5, "mlp_out": 0.75}
BESIDE = "without residual connections"


def draw_all(report: dict[str, Any], folder: Path) -> list[Path]:
    """Every picture that the report has the numbers for, and its caption."""
    make_folder(folder)
    return [path for name, draw in drawings(report).items() for path in draw().save(folder / name)]


def drawings(report: dict[str, Any]) -> dict[str, Callable[[], Drawing]]:
    """What can be drawn of a report, or of those of its sections that are there, by name."""
    found: dict[str, Callable[[], Drawing]] = {}
    if image := report.get("image"):
        found["picture"] = lambda: picture(image, report["predictions"][0])
        if "attention" in image:
            found["picture-attention"] = lambda: over_picture(image)
    for part, tokens in report["tokens"].items():
        name, where = part.replace(".", "-"), f" of the {part.removesuffix('.')}" if part else ""
        if maps := report.get(f"{part}attention"):
            found[f"{name}attention"] = lambda m=maps, t=tokens, w=where: attention(
                m, t, t, f"Attention of every head{w}", w
            )
        if flow := report.get(f"{part}rollout"):
            found[f"{name}rollout"] = lambda f=flow, t=tokens, w=where: rollout(f, t, w)
    if cross := report.get("cross.attention"):
        sides = report["tokens"]["decoder."], report["tokens"]["encoder."]
        looks = ", of the source"
        found["cross-attention"] = lambda: attention(
            cross, *sides, "From the translation into the source", looks
        )
    if "residual" in report:
        found["stream"] = lambda: stream(report["residual"])
        if "lens" in report["residual"]:
            found["lens"] = lambda: lens(report)
    if report.get("attribution"):
        found["attribution"] = lambda: attribution(report["attribution"])
    if report.get("gradient", {}).get("layers"):
        found["gradient"] = lambda: gradient(report["gradient"])
    if report.get("heads"):
        found["heads"] = lambda: heads(report["heads"])
    return found


def stream(residual: dict[str, Any]) -> Drawing:
    """How long the stream is along the model, what each layer writes into it, how far both have turned."""
    figure = Figure(figsize=(10, 3.6), layout="constrained")
    sites = [row["site"] for row in residual["stream"]]
    kinds = {"attn_out": ("attention writes", WARM, "s"), "mlp_out": ("feed-forward net writes", GREEN, "^")}
    kinds["cross.attn_out"] = ("look into the source writes", RULE, "D")
    views = (
        ("length", "length", "length (Euclidean)"),
        ("cosine", "direction", "cosine with the stream's end"),
    )
    for axes, (key, what, label) in zip(figure.subplots(1, 2), views, strict=True):
        rows = residual["stream"]
        axes.plot(range(len(rows)), [r[key] for r in rows], "o-", color=INK, markersize=4, label="the stream")
        for kind, (name, colour, marker) in kinds.items():
            written = [r for r in residual["writes"] if r["site"].partition(".")[2] == kind]
            if written:
                places = [int(r["site"].partition(".")[0]) + INSIDE[kind] for r in written]
                values = [r[key] for r in written]
                axes.plot(places, values, marker, color=colour, markersize=4, label=name)
        _ticks_of_depth(axes, [depth_name(site) for site in sites])
        axes.set_xlabel("depth in the model", fontsize=8)
        axes.set_ylabel(f"{label}, mean over positions", fontsize=8)
        axes.set_title(f"The {what} of the residual stream", fontsize=9, loc="left")
        _finish(axes)
    between = ", and between them what each layer of a block writes into it" if residual["writes"] else ""
    return Drawing(
        figure,
        f"The residual stream from the embedding to behind the last block{between}: on the left its length, "
        "on the right its cosine with the stream's end (1: it points the same way), means over the positions "
        "of the text.",
    )


def attribution(section: dict[str, Any], most: int = 24) -> Drawing:
    parts = sorted(section["parts"].items(), key=lambda item: -abs(item[1]))
    shown = parts[:most][::-1]
    figure = Figure(figsize=(7, 1.3 + 0.22 * len(shown)), layout="constrained")
    axes = figure.add_subplot()
    axes.barh([n for n, _ in shown], [v for _, v in shown], color=[INK if v >= 0 else WARM for _, v in shown])
    axes.axvline(0, color=RULE, linewidth=0.8)
    axes.tick_params(labelsize=7)
    axes.set_xlabel("what it adds to the logit", fontsize=8)
    axes.set_ylabel("part of the model (layer.head, layer.mlp)", fontsize=8)
    place = "" if section["position"] is None else f" at position {section['position']}"
    output = visible(section["output"])
    axes.set_title(
        f"Who adds what to the logit of {caption(output)}{place}: {section['logit']:.3f} in all",
        fontsize=9,
        loc="left",
    )
    _plain(axes)
    cut = f"; the {most} largest of {len(parts)}" if len(parts) > most else ""
    return Drawing(
        figure,
        f"What each head and layer adds to the logit of {output}{place} (blue) or takes from it (orange), "
        f"which sums to {section['logit']:.3f}{cut}.",
    )


def gradient(section: dict[str, Any]) -> Drawing:
    """Over depth: what arrives, and its two ways; beside it, the same model without residual connections."""
    figure = Figure(figsize=(10, 3.8), layout="constrained")
    left, right = figure.subplots(1, 2)
    layers = section["layers"]
    x = range(len(layers))
    ways = {"before": ("all that arrives", "black"), "identity": ("along the identity", INK)}
    ways["through"] = ("through the layer", WARM)
    for key, (name, colour) in ways.items():
        values = [p[key] or np.nan for p in layers]
        left.plot(x, values, "o-", color=colour, markersize=3, label=name)
    use_logarithm(left, [p[key] for p in layers for key in ways])
    step = max(1, len(layers) // 12)
    names = [p["layer"] for p in layers]
    left.set_xticks(list(x)[::step], names[::step], fontsize=7, rotation=60, ha="right")
    left.set_xlabel("layer, from the embedding up", fontsize=8)
    left.set_ylabel("length of the gradient of the loss", fontsize=8)
    left.set_title("The gradient before each layer, and its two ways", fontsize=9, loc="left")
    ratios = relative(section["depth"])
    for (name, values), colour in zip(ratios.items(), (INK, WARM), strict=False):
        right.plot(range(len(values)), values, "o-", color=colour, markersize=3, label=name)
    use_logarithm(right, [v for values in ratios.values() for v in values if v > 0])
    _ticks_of_depth(
        right, [depth_name("embed" if i == 0 else f"{i - 1}.resid") for i in range(_deepest(ratios))]
    )
    right.set_xlabel("depth in the model", fontsize=8)
    right.set_ylabel("length, beside that behind the last block", fontsize=8)
    right.set_title("The gradient with and without residual connections", fontsize=9, loc="left")
    for axes in (left, right):
        _finish(axes)
    arrive = " and ".join(f"{_times(values[0])} {name}" for name, values in ratios.items())
    other = " (the same weights, which were trained with them)" if len(ratios) > 1 else ""
    return Drawing(
        figure,
        "On the left the gradient of the loss before each layer, and what of it came along the residual "
        "connection and what through the layer; on the right its length over depth beside that behind the "
        f"last block, which at the embedding is {arrive}{other}.",
    )


def relative(depth: dict[str, list[float]]) -> dict[str, list[float]]:
    """Lengths over depth beside the last of each, in words for a legend: two losses have two scales."""
    names = {"as it is": "as the model is", "without residuals": BESIDE}
    return {
        names.get(name, name): [n / lengths[-1] if lengths[-1] else np.nan for n in lengths]
        for name, lengths in depth.items()
    }


def _deepest(series: dict[str, list[float]]) -> int:
    return max(len(values) for values in series.values())


def _times(ratio: float) -> str:
    return "nothing" if np.isnan(ratio) else f"{ratio:.3g} times as long"


def cost(points: Sequence[Any], fits: Sequence[Any]) -> Drawing:
    """Time and memory over T and over C, on logarithmic axes; dotted, what the exponents should be."""
    figure = Figure(figsize=(12, 3.8), layout="constrained")
    slopes = {(f.part, f.over): f for f in fits}
    middle = max((p.T for p in points), key=[p.T for p in points].count)
    narrow = min(p.C for p in points)
    panels = figure.subplots(1, 3)
    views = (("T", "seconds", "time"), ("C", "seconds", "time"), ("T", "bytes", "memory"))
    names = {"T": "positions T", "C": "model width C"}
    for axes, (over, what, exponent) in zip(panels, views, strict=True):
        for part in dict.fromkeys(p.part for p in points):
            series = [
                p for p in points if p.part == part and (narrow == p.C if over == "T" else middle == p.T)
            ]
            fit = slopes.get((part, over))
            label = part if fit is None else f"{part}: {over}^{getattr(fit, exponent):.2f}"
            axes.loglog(
                [getattr(p, over) for p in series],
                [getattr(p, what) for p in series],
                "o-",
                markersize=3,
                label=label,
            )
            expected = (
                None if fit is None else (fit.expected_time if exponent == "time" else fit.expected_memory)
            )
            if expected is not None and series:
                x, y = np.array([getattr(p, over) for p in series], float), getattr(series[-1], what)
                axes.loglog(
                    x, y * (x / x[-1]) ** expected, ":", color=axes.lines[-1].get_color(), linewidth=0.9
                )
        sizes = sorted({getattr(p, over) for p in points})
        axes.set_xlabel(names[over], fontsize=8)
        axes.set_xticks(sizes, [str(n) for n in sizes])
        axes.set_ylabel(f"{exponent} ({what})", fontsize=8)
        held = f"C = {narrow}" if over == "T" else f"T = {middle}"
        axes.set_title(f"{exponent.capitalize()} over {names[over]}, {held}", fontsize=9, loc="left")
        _finish(axes)
    return Drawing(
        figure,
        "What attention, a feed-forward net and a recurrence cost forward and backward, over the number of "
        "positions and the width of the model, on logarithmic axes: in the legend the exponent that was "
        "measured, dotted the slope that the formula has.",
    )


def _ticks_of_depth(axes: Axes, names: list[str]) -> None:
    step = max(1, -(-len(names) // 10))
    axes.set_xticks(range(0, len(names), step), names[::step], rotation=30, ha="right")
    axes.xaxis.set_minor_locator(MaxNLocator(integer=True))


def _finish(axes: Axes) -> None:
    axes.legend(frameon=False, fontsize=7)
    axes.tick_params(labelsize=7)
    _plain(axes)


def _plain(axes: Axes) -> None:
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.yaxis.set_minor_formatter(NullFormatter())
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
