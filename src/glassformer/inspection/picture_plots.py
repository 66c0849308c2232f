"""An image of a report as a plot: its patches, and what heads and label have to do with them, laid over it.

Draws; computes nothing.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from glassformer.core.drawing import Drawing
from glassformer.core.terminal import caption
from glassformer.inspection.report_text import visible

FOR, AGAINST, GRID = (0.08, 0.36, 0.76), (0.77, 0.32, 0.18), (0.5, 0.5, 0.5, 0.5)
STRONGEST = 0.75  # how much of the picture the strongest patch covers
MOST_HEADS = 48
LABELLED = 16  # patches a side that have room for their numbers


def picture(image: dict[str, Any], predictions: Sequence[Sequence[Any]]) -> Drawing:
    """The image as the model gets it, with its rows and columns of patches; what accounts for its label."""
    attribution = image["attribution"]
    figure = Figure(figsize=(8.4, 4.3), layout="constrained")
    left, right = figure.subplots(1, 2)
    _plain_picture(left, image)
    label, probability = predictions[0]
    left.set_title(
        f"The image, taken for {caption(visible(label))} ({probability:.1%})", fontsize=9, loc="left"
    )
    _accounts(right, image)
    rise = attribution["logit"] - attribution["nothing"]
    right.set_title(
        f"What accounts for the logit of {caption(visible(attribution['output']))}, {rise:+.2f} in all\n"
        f"(blue: for it, orange: against it; the most is {max(map(abs, attribution['patches'])):.2f})",
        fontsize=8,
        loc="left",
    )
    _frame(figure)
    return Drawing(
        figure,
        f"On the left the image as the model gets it, in {image['size'] // image['patch']} rows and columns "
        f"of patches, which it takes for {visible(label)}; on the right what each patch accounts for in the "
        f"logit of {visible(attribution['output'])}, blue for it and orange against it.",
    )


def over_picture(image: dict[str, Any]) -> Drawing:
    """Where every head looks for the answer, a row for every layer; the colour is strongest at its most."""
    layers = image["attention"]
    heads = len(layers[0])
    rows = max(1, min(len(layers), MOST_HEADS // heads))
    size = 1.9 if heads <= 6 else 1.4
    figure = Figure(figsize=(size * (heads + 1), (size + 0.25) * rows + 0.3), layout="constrained")
    panels = figure.subplots(rows, heads + 1, squeeze=False)
    for i, (beside, *of_heads) in enumerate(panels):
        if i == 0:
            _plain_picture(beside, image)
            beside.set_title("the image", fontsize=8, pad=3)
        elif i == 1:
            _accounts(beside, image)
            label = caption(visible(image["attribution"]["output"]))
            beside.set_title(f"for {label}", fontsize=8, pad=3)
        else:
            beside.set_axis_off()
        for h, axes in enumerate(of_heads):
            weights = np.array(layers[i][h])
            _over(axes, image, weights, float(weights.max()))
            _patches(axes, image, numbered=False)
            axes.set_title(f"head {i}.{h}, most {weights.max():.2f}", fontsize=8, pad=3)
    figure.suptitle(
        f"What the answer takes from each patch (an even look: {1 / len(layers[0][0]):.3f})", fontsize=9
    )
    _frame(figure)
    cut = f"; the first {rows} of {len(layers)} layers" if rows < len(layers) else ""
    return Drawing(
        figure,
        "How much the answer takes from each patch of the image in every head, named layer.head, the colour "
        f"strongest at the most of each{cut}; at the left the image, and what each patch accounts for.",
    )


def _frame(figure: Figure) -> None:
    figure.supxlabel("column of patches", fontsize=8)
    figure.supylabel("row of patches", fontsize=8)


def _plain_picture(axes: Axes, image: dict[str, Any]) -> None:
    axes.imshow(_colours(image), interpolation="nearest")
    _patches(axes, image)


def _accounts(axes: Axes, image: dict[str, Any]) -> None:
    shares = np.array(image["attribution"]["patches"])
    _over(axes, image, shares, float(np.abs(shares).max()))
    _patches(axes, image)


def _over(axes: Axes, image: dict[str, Any], values: np.ndarray, largest: float) -> None:
    """A faded picture, and over each patch a colour as strong as its value."""
    n = image["size"] // image["patch"]
    colours = _colours(image).mean(axis=-1)
    low, high = colours.min(), colours.max()
    faded = 0.62 + 0.37 * (colours - low) / max(1e-9, high - low)
    axes.imshow(faded, cmap="gray", vmin=0, vmax=1, interpolation="nearest")
    layer = np.zeros((n, n, 4))
    grid = values.reshape(n, n)
    layer[..., :3] = np.where(grid[..., None] >= 0, FOR, AGAINST)
    layer[..., 3] = STRONGEST * np.abs(grid) / (largest or 1.0)
    edge = image["size"] - 0.5
    axes.imshow(layer, interpolation="nearest", extent=(-0.5, edge, edge, -0.5))


def _colours(image: dict[str, Any]) -> np.ndarray:
    """Pixels (S, S, 3) from 0 to 1."""
    pixels = np.array(image["pixels"]) / 255
    return pixels if image["channels"] == 3 else pixels.repeat(3, axis=-1)


def _patches(axes: Axes, image: dict[str, Any], numbered: bool = True) -> None:
    """Lines between patches, and the numbers of rows and columns."""
    size, patch = image["size"], image["patch"]
    n = size // patch
    for i in range(1, n):
        axes.axhline(i * patch - 0.5, color=GRID, linewidth=0.7)
        axes.axvline(i * patch - 0.5, color=GRID, linewidth=0.7)
    places = [i * patch + (patch - 1) / 2 for i in range(n)] if numbered and n <= LABELLED else []
    axes.set_xticks(places, [str(i) for i in range(len(places))], fontsize=7)
    axes.set_yticks(places, [str(i) for i in range(len(places))], fontsize=7)
    axes.tick_params(length=0)
    for side in axes.spines.values():
        side.set_visible(False)
