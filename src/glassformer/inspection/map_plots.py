"""The maps of a report as plots: attention, the lens, kinds of heads. Draws; computes nothing."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from glassformer.core.drawing import Drawing
from glassformer.core.terminal import caption
from glassformer.inspection.heads import named_kinds
from glassformer.inspection.report_text import visible

MOST_MAPS = 48
LABELLED = 16  # tokens a side that have room for their names
LENS_TOKENS = 16


def attention(
    layers: Sequence[Any],
    queries: Sequence[str],
    keys: Sequence[str],
    title: str = "Attention of every head",
    where: str = "",
) -> Drawing:
    """A map for every head, a row for every layer; of many layers the first that fit."""
    rows = max(1, min(len(layers), MOST_MAPS // max(1, len(layers[0]))))
    columns = len(layers[0])
    labelled = max(len(queries), len(keys)) <= LABELLED and columns <= 4
    size = 2.6 if labelled else 1.5
    figure = Figure(figsize=(max(4.6, size * columns + 1.4), size * rows + 1.2), layout="constrained")
    for i in range(rows):
        for h in range(columns):
            axes = figure.add_subplot(rows, columns, i * columns + h + 1)
            _map(axes, layers[i][h], queries, keys, labelled)
            axes.set_title(f"head {i}.{h}" if labelled else f"{i}.{h}", fontsize=8, pad=2)
    cut = f"; the first {rows} of {len(layers)} layers" if rows < len(layers) else ""
    _frame(figure, title, labelled)
    return Drawing(
        figure,
        f"How much each token (a row) takes from each token (a column){where}: a map for every head, named "
        f"layer.head, from white (0) to dark blue (1){cut}.",
    )


def rollout(flow: Any, tokens: Sequence[str], where: str = "") -> Drawing:
    """One map for the whole stack."""
    labelled = len(tokens) <= 2 * LABELLED
    figure = Figure(figsize=(5.2, 4.6), layout="constrained")
    axes = figure.add_subplot()
    _map(axes, flow, tokens, tokens, labelled)
    _frame(figure, "Attention rolled out through all layers", labelled)
    return Drawing(
        figure,
        f"How much of each token (a column) has come to each token (a row){where} when attention is followed "
        "through all layers, the mean of the heads and the residual stream counted half each.",
    )


def _map(axes: Axes, weights: Any, queries: Sequence[str], keys: Sequence[str], labelled: bool) -> None:
    axes.imshow(np.array(weights), cmap="Blues", vmin=0, vmax=1, interpolation="nearest", aspect="auto")
    axes.set_xticks(range(len(keys)) if labelled else [])
    axes.set_yticks(range(len(queries)) if labelled else [])
    if labelled:
        axes.set_xticklabels([_name(t) for t in keys], fontsize=6, rotation=90)
        axes.set_yticklabels([_name(t) for t in queries], fontsize=6)


def _frame(figure: Figure, title: str, labelled: bool) -> None:
    """What all maps of a figure share: its title, what rows and columns are, what a colour means."""
    unit = "" if labelled else ", by position"
    figure.suptitle(title, fontsize=10)
    figure.supxlabel(f"token looked at (key{unit})", fontsize=8)
    figure.supylabel(f"token that looks (query{unit})", fontsize=8)
    bar = figure.colorbar(figure.axes[0].images[0], ax=figure.axes, shrink=0.8, aspect=30, pad=0.01)
    bar.set_label("weight (share of a row)", fontsize=7)
    bar.ax.tick_params(labelsize=6)


def lens(report: dict[str, Any]) -> Drawing:
    """What each depth would answer at each position, shaded by how sure it is."""
    depths, tokens = report["residual"]["lens"], next(reversed(report["tokens"].values()))
    sites = list(depths)
    window = slice(max(0, len(tokens) - LENS_TOKENS), len(tokens))  # the last that can be read
    table = [depths[site][window] for site in sites]
    figure = Figure(
        figsize=(max(5.0, 1.8 + 0.75 * len(table[0])), 1.5 + 0.32 * len(sites)), layout="constrained"
    )
    axes = figure.add_subplot()
    shown = axes.imshow(
        [[p for _, p in row] for row in table], cmap="Blues", vmin=0, vmax=1, aspect="auto", origin="lower"
    )
    for y, row in enumerate(table):
        for x, (token, p) in enumerate(row):
            colour = "white" if p > 0.5 else "black"
            axes.text(x, y, caption(visible(token)[:8]), ha="center", va="center", fontsize=7, color=colour)
    axes.set_yticks(range(len(sites)), [depth_name(site) for site in sites], fontsize=7)
    names = [_name(t) for t in tokens[window]]
    axes.set_xticks(range(len(table[0])), names, fontsize=7, rotation=60, ha="right")
    axes.set_xlabel("token of the text, by position", fontsize=8)
    axes.set_ylabel("depth in the model", fontsize=8)
    axes.set_title("What the model would answer if it ended at each depth", fontsize=9, loc="left")
    bar = figure.colorbar(shown, ax=axes, shrink=0.9, pad=0.01)
    bar.set_label("probability", fontsize=7)
    bar.ax.tick_params(labelsize=6)
    cut = f" (the last {LENS_TOKENS} tokens)" if len(tokens) > LENS_TOKENS else ""
    return Drawing(
        figure,
        "The likeliest answer at each position of the text when the stream at each depth is read out by the "
        f"model's last norm and unembedding, shaded by its probability{cut}.",
    )


def heads(scores: list[dict[str, Any]]) -> Drawing:
    """A panel for every kind, layers × heads."""
    kinds = named_kinds(scores[0]["scores"])
    layers, columns = 1 + max(h["layer"] for h in scores), 1 + max(h["head"] for h in scores)
    height = 1.5 + 1.5 * max(0.6, layers / max(columns, 4))
    figure = Figure(figsize=(1.9 * len(kinds) + 0.8, height), layout="constrained")
    for k, kind in enumerate(kinds):
        table = np.zeros((layers, columns))
        for h in scores:
            table[h["layer"], h["head"]] = h["scores"][kind]
        axes = figure.add_subplot(1, len(kinds), k + 1)
        axes.imshow(table, cmap="Blues", vmin=0, vmax=1)
        axes.set_title(kind, fontsize=9)
        axes.set_xticks(range(0, columns, max(1, columns // 6)))
        axes.set_yticks(range(0, layers, max(1, layers // 6)))
        axes.tick_params(labelsize=7)
        for i, h in np.argwhere(table >= 0.5):
            score = f"{table[i, h]:.2f}"[1:] if table[i, h] < 1 else "1"
            axes.text(h, i, score, ha="center", va="center", fontsize=6, color="white")
    figure.suptitle("What heads do, on random tokens said twice", fontsize=10)
    figure.supxlabel("head", fontsize=8)
    figure.supylabel("layer", fontsize=8)
    bar = figure.colorbar(figure.axes[0].images[0], ax=figure.axes, shrink=0.8, aspect=20, pad=0.01)
    bar.set_label("score (0 to 1)", fontsize=7)
    bar.ax.tick_params(labelsize=6)
    return Drawing(
        figure,
        "How far every head (a column) of every layer (a row) is one of the known kinds: what it puts, from "
        f"0 to 1, on the {', '.join(k for k in kinds if k != 'positional')} token where random tokens are "
        "said twice.",
    )


def depth_name(site: str) -> str:
    """`0.resid` is behind block 0."""
    return "embedding" if site == "embed" else f"behind block {site.partition('.')[0]}"


def _name(token: str) -> str:
    return caption(visible(token)[:10])
