"""An image of a report for the terminal: small squares of shades, side by side. Shows; computes nothing."""

from typing import Any

SHADES = "·░▒▓█"
AGAINST = "·-=%#"
COLUMNS = 100
FINEST = 24  # patches a side that a terminal has room for
NAMED = 4  # patches that are named


def about_picture(image: dict[str, Any]) -> str:
    n = image["size"] // image["patch"]
    colour = "grey" if image["channels"] == 1 else "colour"
    return (
        f"{image['size']} × {image['size']} pixels in {colour}, {n} rows and {n} columns of patches, "
        f"{image['patch']} × {image['patch']} each"
    )


def as_picture(image: dict[str, Any], label: str) -> str:
    """The picture by the brightness of its patches, where each layer looks, what accounts for the label."""
    n, attribution = image["size"] // image["patch"], image["attribution"]
    shares: list[float] = attribution["patches"]
    ranked = sorted(range(len(shares)), key=lambda t: -abs(shares[t]))
    best = ", ".join(f"{t // n},{t % n} ({shares[t]:+.2f})" for t in ranked[:NAMED])
    title = ["The picture and what its patches have to do with the answer"]
    rise = [
        f"  The logit of {label} is {attribution['logit']:.2f}; of a picture in its mean colour everywhere, "
        f"{attribution['nothing']:.2f}.",
        f"  What accounts for most of the difference, by row,column: {best}",
    ]
    if n > FINEST:
        return "\n".join([*title, f"  {n} × {n} are too fine for a terminal: --html shows them", *rise])
    bright = _brightness(image)
    low, high = min(bright), max(bright)
    panels = {"picture": [shade((v - low) / ((high - low) or 1.0)) for v in bright]}
    for layer, heads in enumerate(image.get("attention", [])):
        mean = [sum(column) / len(heads) for column in zip(*heads, strict=True)]
        panels[f"layer {layer}"] = [shade(w / max(mean)) for w in mean]
    if "attention" in image:
        title.append("  layer: what the answer takes from each, mean of the heads, █ is the most")
    title.append(f"  for it: what each accounts for in the logit of {label}; less of it: {AGAINST[1:]}")
    largest = max(map(abs, shares)) or 1.0
    panels["for it"] = [shade(abs(v) / largest, SHADES if v >= 0 else AGAINST) for v in shares]
    return "\n".join([*title, *_side_by_side(panels, n), *rise])


def _side_by_side(panels: dict[str, list[str]], n: int) -> list[str]:
    width = max(2 * n, 9)
    fitting = max(1, COLUMNS // (width + 3))
    lines: list[str] = []
    for first in range(0, len(panels), fitting):
        group = dict(list(panels.items())[first : first + fitting])
        lines.append("  " + "   ".join(name.ljust(width) for name in group).rstrip())
        for row in range(n):
            cells = ["".join(2 * c for c in cells[row * n : (row + 1) * n]) for cells in group.values()]
            lines.append(("  " + "   ".join(text.ljust(width) for text in cells)).rstrip())
    return lines


def _brightness(image: dict[str, Any]) -> list[float]:
    """The mean of each patch, from 0 to 1."""
    n, patch, pixels = image["size"] // image["patch"], image["patch"], image["pixels"]
    whole = 255 * patch * patch * image["channels"]
    return [
        sum(sum(pixels[row * patch + y][column * patch + x]) for y in range(patch) for x in range(patch))
        / whole
        for row in range(n)
        for column in range(n)
    ]


def shade(share: float, shades: str = SHADES) -> str:
    return shades[min(len(shades) - 1, int(max(0.0, share) * len(shades)))]
