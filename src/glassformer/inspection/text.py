"""A report for the terminal. Shows; computes nothing."""

from typing import Any

from glassformer.inspection.heads import KINDS

BAR = " ▏▎▍▌▋▊▉█"
SHADES = "·░▒▓█"
STANDS_OUT = 1.5  # times an even look


def as_text(report: dict[str, Any], width: int = 100) -> str:
    """The sections that the report has, one after the other."""
    sections = [
        _head(report),
        _answer(report),
        _lens(report),
        _attribution(report, width),
        _gradient(report, width),
        _heads(report),
        _relations(report),
        _errors(report),
    ]
    return "\n\n".join(s for s in sections if s)


def _head(report: dict[str, Any]) -> str:
    model = report["model"]
    about = [f"{model[k]} {k}" for k in ("layers", "heads")] + [f"width {model['width']}"]
    lines = [", ".join([model["family"], *about])]
    for part, tokens in report["tokens"].items():
        shown = " ".join(f"{i}:{visible(t)}" for i, t in enumerate(tokens))
        lines.append(f"{part}{len(tokens)} tokens  {shown}")
    return "\n".join(lines)


def _answer(report: dict[str, Any]) -> str:
    best = report["predictions"][-1]
    what = {"language": "What comes next", "translate": "What comes next"}.get(report["task"], "Its answer")
    return "\n".join([what, *(f"  {visible(t):16} {p:6.1%} {bar(p, 30)}" for t, p in best)])


def _lens(report: dict[str, Any]) -> str:
    """Down the layers at the last position: what the stream would answer there, and how far it has turned."""
    if "lens" not in report.get("residual", {}):
        return ""
    residual = report["residual"]
    rows = ["The stream, layer by layer, at the last position (the last norm is applied at each)"]
    for row in residual["stream"]:
        token, p = residual["lens"][row["site"]][-1]
        rows.append(
            f"  {row['site']:9} length {row['length']:8.2f}   cosine with the end {row['cosine']:6.2f}   "
            f"says {visible(token)} {p:.1%}"
        )
    return "\n".join(rows)


def _attribution(report: dict[str, Any], width: int, most: int = 12) -> str:
    found = report.get("attribution")
    if not found:
        return ""
    parts = sorted(found["parts"].items(), key=lambda item: -abs(item[1]))
    largest = max(abs(v) for _, v in parts) or 1.0
    rows = [f"Who adds what to the logit of {visible(found['output'])}, {found['logit']:.3f}"]
    for name, value in parts[:most]:
        rows.append(f"  {name:20} {value:+9.3f} {bar(abs(value) / largest, 30, '-' if value < 0 else None)}")
    if rest := parts[most:]:
        rows.append(f"  {f'{len(rest)} others':20} {sum(v for _, v in rest):+9.3f}")
    return "\n".join(rows)


def _gradient(report: dict[str, Any], width: int) -> str:
    found = report.get("gradient")
    if not found:
        return ""
    rows = [f"The gradient of the loss, {found['loss']:.3f}, on its way down"]
    for p in reversed(found["layers"]):
        rows.append(
            f"  {p['layer']:14} arrives {p['before']:10.3e} = identity {p['identity']:10.3e} "
            f"+ through {p['through']:10.3e}"
        )
    for name, lengths in found["depth"].items():
        ratio = lengths[0] / lengths[-1] if lengths[-1] else float("nan")
        rows.append(f"  {name}: {ratio:.3g} times the last layer's gradient reaches the embedding")
    return "\n".join(rows)


def _heads(report: dict[str, Any], most: int = 16) -> str:
    heads = report.get("heads")
    if not heads:
        return ""
    rows = ["What heads do, on random tokens said twice (0 to 1)"]
    rows.append("  layer.head  " + "".join(f"{kind:>11}" for kind in KINDS) + "   called")
    ranked = sorted(heads, key=lambda h: -max(v for k, v in h["scores"].items() if k in KINDS[:5]))
    for h in sorted(ranked[:most], key=lambda h: (h["layer"], h["head"])):
        scores = "".join(f"{h['scores'][kind]:8.2f} {shade(h['scores'][kind])} " for kind in KINDS)
        rows.append(f"  {h['layer']:5}.{h['head']:<4}  {scores}   {h['kind'] or ''}".rstrip())
    if len(heads) > most:
        rows.append(f"  … the {most} that do most of one thing, of {len(heads)}")
    if copying := report.get("copying"):
        gone = copying["without"]
        rows.append(
            f"  Copying saves {copying['saved']:.2f} nats a token the second time; without head "
            f"{gone['layer']}.{gone['head']}, {gone['saved']:.2f}."
        )
    return "\n".join(rows)


def _relations(report: dict[str, Any]) -> str:
    rows: list[str] = []
    arrows = {"pronoun": "from a pronoun to what it stands for", "verb": "from a verb to its subject"}
    for relation in report.get("relations", []):
        each = [(w, i, h) for i, row in enumerate(relation["weights"]) for h, w in enumerate(row)]
        name, even = arrows.get(relation["name"], relation["name"]), relation["even"]
        far = [item for item in sorted(each, reverse=True)[:3] if item[0] > STANDS_OUT * even]
        best = ", ".join(f"{i}.{h} {w:.2f}" for w, i, h in far) or "none stands out"
        rows.append(f"  {name}: {best}   (an even look: {even:.2f})")
    return "\n".join(["Heads that connect words", *rows]) if rows else ""


def _errors(report: dict[str, Any]) -> str:
    errors = report.get("errors", {})
    return (
        "\n".join(
            ["Everything sums; errors as a share of the whole"]
            + [f"  {k:32} {v:.1e}" for k, v in errors.items()]
        )
        if errors
        else ""
    )


def visible(token: str) -> str:
    """A token so that its blanks can be seen."""
    return token.replace(" ", "␣").replace("\n", "↵").replace("\t", "⇥") or "∅"


def bar(share: float, width: int, sign: str | None = None) -> str:
    """A bar of up to `width` characters; of `sign`s, if one is given."""
    eighths = round(max(0.0, min(1.0, share)) * width * 8)
    if sign:
        return sign * max(1, eighths // 8)
    return BAR[8] * (eighths // 8) + (BAR[eighths % 8] if eighths % 8 else "")


def shade(share: float) -> str:
    return SHADES[min(4, int(max(0.0, share) * 5))]
