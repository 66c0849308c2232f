"""An attention map for the terminal, in shades: who looks, by who is looked at. Shows; computes nothing."""

import re
from typing import Any
from unicodedata import combining, east_asian_width

from glassformer.core.errors import UsageError
from glassformer.inspection.picture_text import SHADES, shade

COLUMNS = 80
NAME = 11  # characters of a token
WIDEST = 32  # tokens that fit beside their names, two characters each


def as_map(report: dict[str, Any], names: dict[str, list[str]], head: str | None = None) -> str:
    """One head's map; without a name, that of the head which does most for the answer. `names`: of tokens,
    as they are shown."""
    key, layer, number, why = _chosen(report, head)
    if key not in report:
        return ""
    queries = names[key.removesuffix("attention")]
    title = f"Where head {head or f'{layer}.{number}'} looks{why}"
    if len(queries) > WIDEST:
        much = f"{len(queries)} tokens are too many for a map here"
        return f"{title}\n  {much}: --html FILE shows all heads, --plots FOLDER draws them"
    weights = report[key][layer][number]
    labels = [f"{i}:{_cut(name, NAME)}" for i, name in enumerate(queries)]
    size = max(map(width, labels))
    header = "".join(f"{i:<10}" for i in range(0, len(queries), 5))
    lines = [title, *_legend(), f"  {'':{size}} {header}".rstrip()]
    for label, row in zip(labels, weights, strict=True):
        cells = "".join(2 * (shade(w) if w else " ") for w in row)
        best = max(range(len(row)), key=row.__getitem__)
        line = f"  {label}{' ' * (size - width(label))} {cells}"
        most = f"  most {row[best]:.2f} on {labels[best]}"
        lines.append((line + most if width(line + most) <= COLUMNS else line).rstrip())
    return "\n".join(lines)


def width(text: str) -> int:
    """Columns that a text takes on a terminal: two for each sign of Chinese, Japanese and Korean."""
    return sum(0 if combining(c) else 2 if east_asian_width(c) in "WF" else 1 for c in text)


def _cut(text: str, columns: int) -> str:
    while width(text) > columns:
        text = text[:-1]
    return text


def _chosen(report: dict[str, Any], head: str | None) -> tuple[str, int, int, str]:
    """The key of its maps, its layer and number, and why it is the one."""
    part = next(reversed(report["tokens"]))
    if head is None:
        shares = (report.get("attribution") or {}).get("parts", {})
        found = {m: v for name, v in shares.items() if (m := re.fullmatch(r"(\d+)\.head (\d+)", name))}
        if not found:
            return f"{part}attention", 0, 0, ""
        best = max(found, key=lambda m: found[m])
        why = " (it adds most to the logit; --head LAYER.HEAD for another)"
        return f"{part}attention", int(best[1]), int(best[2]), why
    match = re.fullmatch(r"((?:encoder|decoder)\.)?(\d+)\.(\d+)", head)
    if match is None:
        raise UsageError(f"--head {head}: expected LAYER.HEAD, as in 1.0 (of a translator encoder.1.0)")
    key = f"{match[1] or part}attention"
    maps = report.get(key)
    if maps is None and key.removesuffix("attention") not in report["tokens"]:
        raise UsageError(f"--head {head}: this model has no {match[1].removesuffix('.')}")
    if maps is None:
        if "heads" in report["omitted"]:
            raise UsageError(f"--head {head}: a {report['model']['family']} has no heads")
        return key, 0, 0, ""  # left out, and said to be
    layer, number = int(match[2]), int(match[3])
    if layer >= len(maps) or number >= len(maps[0]):
        raise UsageError(
            f"--head {head}: the model has layers 0 to {len(maps) - 1} of heads 0 to {len(maps[0]) - 1}"
        )
    return key, layer, number, ""


def _legend() -> list[str]:
    steps = "  ".join(f"{sign} {i / len(SHADES):.1f}" for i, sign in enumerate(SHADES))
    return [
        "  each row is a token that looks, each column a position that is looked at;",
        f"  weights from {steps}  (blank: cannot be seen)",
    ]
