"""The pictures of a report, each as SVG and as PNG. Draws; computes nothing."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, NullFormatter

from glassformer.core.files import make_folder, replacing
from glassformer.core.terminal import caption
from glassformer.inspection.heads import named_kinds
from glassformer.inspection.picture_plots import over_picture, picture
from glassformer.inspection.report_text import visible

matplotlib.rcParams["svg.hashsalt"] = "glassformer"  # the same picture is the same file
INK, RULE, WARM = "#1f3a5f", "#8fa3b8", "#c4512d"


def draw_all(report: dict[str, Any], folder: Path) -> list[Path]:
    """Every picture that the report has the numbers for."""
    make_folder(folder)
    pictures: dict[str, Figure] = {}
    if "image" in report:
        pictures["picture"] = picture(report["image"], report["predictions"][0])
        if "attention" in report["image"]:
            pictures["picture-attention"] = over_picture(report["image"])
    for part, tokens in report["tokens"].items():
        if f"{part}attention" in report:
            name = f"{part.replace('.', '-')}attention"
            pictures[name] = attention(report[f"{part}attention"], tokens, tokens)
    if "cross.attention" in report:
        sides = report["tokens"]["decoder."], report["tokens"]["encoder."]
        pictures["cross-attention"] = attention(report["cross.attention"], *sides)
    for part, tokens in report["tokens"].items():
        if f"{part}rollout" in report:
            pictures[f"{part.replace('.', '-')}rollout"] = attention(
                [[report[f"{part}rollout"]]], tokens, tokens
            )
    pictures["stream"] = stream(report["residual"])
    if "lens" in report["residual"]:
        pictures["lens"] = lens(report)
    if report.get("attribution"):
        pictures["attribution"] = attribution(report["attribution"])
    if report["gradient"].get("layers"):
        pictures["gradient"] = gradient(report["gradient"])
    if report.get("heads"):
        pictures["heads"] = heads(report["heads"])
    return [path for name, figure in pictures.items() for path in save(figure, folder / name)]


def save(figure: Figure, stem: Path) -> list[Path]:
    paths = [stem.with_name(f"{stem.name}.{ending}") for ending in ("svg", "png")]
    for path in paths:
        ending = path.suffix[1:]
        with replacing(path) as temporary:
            metadata = {"Date": None} if ending == "svg" else None
            figure.savefig(temporary, format=ending, dpi=150, bbox_inches="tight", metadata=metadata)
    return paths


def attention(layers: Sequence[Any], queries: Sequence[str], keys: Sequence[str], most: int = 48) -> Figure:
    """A map for every head, a row for every layer; of many layers the first that fit."""
    rows = max(1, min(len(layers), most // max(1, len(layers[0]))))
    columns = len(layers[0])
    label = max(len(queries), len(keys)) <= 16 and columns <= 4
    size = 2.6 if label else 1.5
    figure = Figure(figsize=(size * columns + 0.6, size * rows + 0.6), layout="constrained")
    for i in range(rows):
        for h in range(columns):
            axes = figure.add_subplot(rows, columns, i * columns + h + 1)
            axes.imshow(
                np.array(layers[i][h]), cmap="Blues", vmin=0, vmax=1, interpolation="nearest", aspect="auto"
            )
            axes.set_title(f"head {i}.{h}" if label else f"{i}.{h}", fontsize=8, pad=2)
            if label:
                _tick(axes, keys, queries)
            else:
                axes.set_xticks([])
                axes.set_yticks([])
    return figure


def lens(report: dict[str, Any]) -> Figure:
    """What each depth would answer at each position, shaded by how sure it is."""
    depths, tokens = report["residual"]["lens"], next(reversed(report["tokens"].values()))
    sites = list(depths)
    window = slice(max(0, len(tokens) - 16), len(tokens))  # the last that can be read
    table = [depths[site][window] for site in sites]
    figure = Figure(figsize=(1.0 + 0.75 * len(table[0]), 0.8 + 0.32 * len(sites)), layout="constrained")
    axes = figure.add_subplot()
    axes.imshow(
        [[p for _, p in row] for row in table], cmap="Blues", vmin=0, vmax=1, aspect="auto", origin="lower"
    )
    for y, row in enumerate(table):
        for x, (token, p) in enumerate(row):
            colour = "white" if p > 0.5 else "black"
            axes.text(x, y, caption(visible(token)[:8]), ha="center", va="center", fontsize=7, color=colour)
    axes.set_yticks(range(len(sites)), sites, fontsize=7)
    axes.set_xticks(
        range(len(table[0])),
        [caption(visible(t)[:10]) for t in tokens[window]],
        fontsize=7,
        rotation=60,
        ha="right",
    )
    axes.set_title("What the stream would answer at each depth", fontsize=9, loc="left")
    return figure


def stream(residual: dict[str, Any]) -> Figure:
    """How long the stream is behind each layer, what each layer writes, and how far both have turned."""
    figure = Figure(figsize=(9, 2.8), layout="constrained")
    for axes, key, what in zip(
        figure.subplots(1, 2), ("length", "cosine"), ("length", "cosine with the end"), strict=True
    ):
        for name, colour in (("stream", INK), ("writes", WARM)):
            rows = residual[name]
            if rows:
                axes.plot(
                    range(len(rows)), [r[key] for r in rows], "o-", color=colour, markersize=3, label=name
                )
        axes.set_title(f"{what}, mean over positions", fontsize=9, loc="left")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.legend(frameon=False, fontsize=7)
        axes.tick_params(labelsize=7)
        _plain(axes)
    return figure


def attribution(section: dict[str, Any], most: int = 24) -> Figure:
    parts = sorted(section["parts"].items(), key=lambda item: -abs(item[1]))[:most][::-1]
    figure = Figure(figsize=(6, 0.8 + 0.22 * len(parts)), layout="constrained")
    axes = figure.add_subplot()
    axes.barh([n for n, _ in parts], [v for _, v in parts], color=[INK if v >= 0 else WARM for _, v in parts])
    axes.axvline(0, color=RULE, linewidth=0.8)
    axes.tick_params(labelsize=7)
    axes.set_title(
        f"The logit of {caption(visible(section['output']))}: {section['logit']:.3f}", fontsize=9, loc="left"
    )
    _plain(axes)
    return figure


def gradient(section: dict[str, Any]) -> Figure:
    """Over depth: what arrives, and its two ways; beside it, the same model without residual connections."""
    figure = Figure(figsize=(9, 3.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    layers = section["layers"]
    x = range(len(layers))
    for key, colour in (("before", "black"), ("identity", INK), ("through", WARM)):
        left.semilogy(
            x,
            [max(p[key], 1e-30) if p[key] else np.nan for p in layers],
            "o-",
            color=colour,
            markersize=3,
            label=key,
        )
    step = max(1, len(layers) // 12)
    left.set_xticks(
        list(x)[::step], [p["layer"] for p in layers][::step], fontsize=7, rotation=60, ha="right"
    )
    left.set_title("The gradient before each layer, and its two ways", fontsize=9, loc="left")
    for (name, lengths), colour in zip(section["depth"].items(), (INK, WARM), strict=False):
        right.semilogy(range(len(lengths)), lengths, "o-", color=colour, markersize=3, label=name)
    right.set_xlabel("blocks passed", fontsize=8)
    right.xaxis.set_major_locator(MaxNLocator(integer=True))
    right.set_title("Over depth, with and without residual connections", fontsize=9, loc="left")
    for axes in (left, right):
        axes.legend(frameon=False, fontsize=7)
        axes.tick_params(labelsize=7)
        _plain(axes)
    return figure


def heads(scores: list[dict[str, Any]]) -> Figure:
    """A panel for every kind, layers × heads."""
    kinds = named_kinds(scores[0]["scores"])
    layers, columns = 1 + max(h["layer"] for h in scores), 1 + max(h["head"] for h in scores)
    figure = Figure(
        figsize=(1.9 * len(kinds), 1.0 + 1.5 * max(0.6, layers / max(columns, 4))), layout="constrained"
    )
    for k, kind in enumerate(kinds):
        table = np.zeros((layers, columns))
        for h in scores:
            table[h["layer"], h["head"]] = h["scores"][kind]
        axes = figure.add_subplot(1, len(kinds), k + 1)
        axes.imshow(table, cmap="Blues", vmin=0, vmax=1)
        axes.set_title(kind, fontsize=9)
        axes.set_xlabel("head", fontsize=7)
        axes.set_xticks(range(0, columns, max(1, columns // 6)))
        axes.set_yticks(range(0, layers, max(1, layers // 6)))
        axes.tick_params(labelsize=7)
        if k == 0:
            axes.set_ylabel("layer", fontsize=7)
        for i, h in np.argwhere(table >= 0.5):
            axes.text(
                h,
                i,
                f"{table[i, h]:.2f}"[1:] if table[i, h] < 1 else "1",
                ha="center",
                va="center",
                fontsize=6,
                color="white",
            )
    return figure


def cost(points: Sequence[Any], fits: Sequence[Any]) -> Figure:
    """Time and memory over T and over C, on logarithmic axes; dotted, what the exponents should be."""
    figure = Figure(figsize=(11, 3.4), layout="constrained")
    slopes = {(f.part, f.over): f for f in fits}
    middle = max((p.T for p in points), key=[p.T for p in points].count)
    narrow = min(p.C for p in points)
    panels = figure.subplots(1, 3)
    views = (("T", "seconds", "time"), ("C", "seconds", "time"), ("T", "bytes", "memory"))
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
        axes.set_xlabel(over, fontsize=8)
        axes.set_xticks(sizes, [str(n) for n in sizes])
        axes.set_title(f"{what} over {over}", fontsize=9, loc="left")
        axes.legend(frameon=False, fontsize=7)
        axes.tick_params(labelsize=7)
        _plain(axes)
    return figure


def _tick(axes: Axes, keys: Sequence[str], queries: Sequence[str]) -> None:
    axes.set_xticks(range(len(keys)), [caption(visible(t)[:10]) for t in keys], fontsize=6, rotation=90)
    axes.set_yticks(range(len(queries)), [caption(visible(t)[:10]) for t in queries], fontsize=6)


def _plain(axes: Axes) -> None:
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.yaxis.set_minor_formatter(NullFormatter())
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
