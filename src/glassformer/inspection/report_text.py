"""A report for the terminal. Shows; computes nothing."""

from typing import Any

from glassformer.core.terminal import printable
from glassformer.inspection.heads import named_kinds
from glassformer.inspection.map_text import as_map
from glassformer.inspection.picture_text import about_picture, as_picture, shade
from glassformer.inspection.relations import STANDS_OUT

BAR = " ▏▎▍▌▋▊▉█"
COPIES = 0.1  # nats saved from which a model is said to copy


def as_text(report: dict[str, Any], head: str | None = None) -> str:
    """The sections that the report has, one after the other; `head`: LAYER.HEAD, whose map is drawn."""
    sections = [
        _head(report),
        _answer(report),
        _picture(report),
        _alignment(report),
        _map(report, head),
        _lens(report),
        _attribution(report),
        _gradient(report),
        _heads(report),
        _relations(report),
        _errors(report),
        _omitted(report),
    ]
    return "\n\n".join(s for s in sections if s)


def _head(report: dict[str, Any]) -> str:
    model = report["model"]
    sizes = [f"{model[k]} {k}" for k in ("layers", "heads") if k in model] + [f"width {model['width']}"]
    lines = [", ".join([model["family"], *sizes])]
    if "image" in report:
        return "\n".join([*lines, f"{visible(report['text'])}: {about_picture(report['image'])}"])
    for part, tokens in report["tokens"].items():
        numbered_tokens = " ".join(f"{i}:{visible(t)}" for i, t in enumerate(tokens))
        name = f"{part.removesuffix('.')}: " if part else ""
        lines.append(f"{name}{len(tokens)} token{'s' * (len(tokens) != 1)}  {numbered_tokens}")
    return "\n".join(lines)


def _answer(report: dict[str, Any]) -> str:
    place = report["position"]
    best = report["predictions"][-1 if place is None else place]
    last = place == len(report["predictions"]) - 1
    if report["task"] in ("language", "translate"):
        what = "What comes next" if last else f"What comes after position {place}"
    else:
        what = "Its answer" if place is None else f"Its answer at position {place}"
    return "\n".join([what, *(f"  {visible(t):16} {p:6.1%} {bar(p, 30)}" for t, p in best)])


def _picture(report: dict[str, Any]) -> str:
    image = report.get("image")
    return as_picture(image, visible(image["attribution"]["output"])) if image else ""


def _alignment(report: dict[str, Any], most: int = 60) -> str:
    """Of a translator: what each position of the target takes from each of the source."""
    if "cross.attention" not in report:
        return ""
    source, target = report["tokens"]["encoder."], report["tokens"]["decoder."]
    heads = report["cross.attention"][-1]  # of the last layer that looks: (H, T, S)
    rows = [
        [sum(head[t][s] for head in heads) / len(heads) for s in range(len(source))]
        for t in range(len(target))
    ]
    lines = ["Where it looks in the source, a column for each of its tokens (last layer, mean of its heads)"]
    for token, weights in zip(target, rows, strict=True):
        best = max(range(len(source)), key=weights.__getitem__)
        map_ = "".join(shade(w) for w in weights[:most]) + ("…" if len(source) > most else "")
        lines.append(f"  {visible(token):12} {map_}  {best}:{visible(source[best])} {weights[best]:.2f}")
    return "\n".join(lines)


def _map(report: dict[str, Any], head: str | None) -> str:
    if "image" in report and head is None:  # its patches are shown as a picture
        return ""
    return as_map(
        report, {part: [visible(t) for t in tokens] for part, tokens in report["tokens"].items()}, head
    )


def _lens(report: dict[str, Any]) -> str:
    """Down the layers: how long the stream is and how far it has turned, and what it would answer."""
    residual = report["residual"]
    rows = ["The stream, layer by layer: its length and its cosine with the end, both means over positions"]
    if "lens" in residual:
        rows[0] += ";\nand what it would answer at the last one (the last norm is applied at each)"
    for row in residual["stream"]:
        answer = ""
        if "lens" in residual:
            token, p = residual["lens"][row["site"]][-1]
            answer = f"   says {visible(token)} {p:.1%}"
        rows.append(f"  {row['site']:9} length {row['length']:8.2f}   cosine {row['cosine']:6.2f}{answer}")
    return "\n".join(rows)


def _attribution(report: dict[str, Any], most: int = 12) -> str:
    attribution = report.get("attribution")
    if not attribution:
        return ""
    parts = sorted(attribution["parts"].items(), key=lambda item: -abs(item[1]))
    largest = max(abs(v) for _, v in parts) or 1.0
    place = "" if attribution["position"] is None else f" at position {attribution['position']}"
    rows = [
        f"Who adds what to the logit of {visible(attribution['output'])}{place}, {attribution['logit']:.3f}"
    ]
    for name, value in parts[:most]:
        rows.append(f"  {name:20} {value:+9.3f} {bar(abs(value) / largest, 30, '-' if value < 0 else None)}")
    if rest := parts[most:]:
        rows.append(f"  {f'{len(rest)} others':20} {sum(v for _, v in rest):+9.3f}")
    return "\n".join(rows)


def _gradient(report: dict[str, Any]) -> str:
    gradient = report["gradient"]
    if not gradient:
        return "No gradient: a text of one token has no next token to predict."
    own = "" if report["task"] in ("language", "translate") else " of its own answer"
    rows = ["Backwards: the gradient, from the last layer down to the embedding"]
    if "layers" in gradient:
        rows = [
            f"Backwards: the gradient of the loss{own} ({gradient['loss']:.3f}), from the last layer down"
        ]
        rows.append(
            "  its length before each layer: what came along the residual connection, what through the"
        )
        rows.append("  layer (the two are vectors: they add up, their lengths need not)")
    for p in reversed(gradient.get("layers", [])):
        ways = f"residual {p['identity']:10.3e}   layer {p['through']:10.3e}"
        rows.append(f"  {p['layer']:14} {p['before']:10.3e}   {ways}")
    for name, lengths in gradient["depth"].items():
        same = ", same weights, trained with them" if name == "without residuals" else ""
        if lengths[-1]:
            ratio = lengths[0] / lengths[-1]
            rows.append(
                f"  {name}{same}: at the embedding {ratio:.3g} times as long as behind the last layer"
            )
        else:
            rows.append(f"  {name}: nothing of it arrives behind the last layer")
    return "\n".join(rows)


def _heads(report: dict[str, Any], most: int = 16) -> str:
    heads = report.get("heads")
    if not heads:
        return ""
    rows = ["What heads do, on random tokens said twice (0 to 1)"]
    columns = list(heads[0]["scores"])
    places = [kind for kind in named_kinds(columns) if kind != "positional"]
    rows.append("  layer.head  " + "".join(f"{kind:>11}" for kind in columns) + "   called")
    ranking = sorted(heads, key=lambda h: -max(h["scores"][kind] for kind in places))
    for h in sorted(ranking[:most], key=lambda h: (h["layer"], h["head"])):
        scores = "".join(f"{h['scores'][kind]:8.2f} {shade(h['scores'][kind])} " for kind in columns)
        rows.append(f"  {h['layer']:5}.{h['head']:<4}  {scores}   {h['kind'] or ''}".rstrip())
    if len(heads) > most:
        rows.append(f"  … the {most} that do most of one thing, of {len(heads)}")
    for kind in places:
        best = ", ".join(f"{i}.{h} {score:.2f}" for i, h, score in report["ranking"][kind][:4])
        rows.append(f"  most {kind}: {best}")
    if copying := report.get("copying"):
        ablation, saved = copying["without"], copying["saved"]
        if saved > COPIES:
            rows.append(
                f"  Copying saves {saved:.2f} nats a token the second time; with the mean of head "
                f"{ablation['layer']}.{ablation['head']} in its place, {ablation['saved']:.2f}."
            )
        else:
            costs = f"{copying['second']:.2f} nats a token, the first {copying['first']:.2f}"
            rows.append(f"  It does not copy: the second time costs {costs}.")
    return "\n".join(rows)


def _relations(report: dict[str, Any]) -> str:
    rows: list[str] = []
    arrows = {"pronoun": "from a pronoun to what it stands for", "verb": "from a verb to its subject"}
    for relation in report.get("relations", []):
        weights = [(w, i, h) for i, row in enumerate(relation["weights"]) for h, w in enumerate(row)]
        name, even = str(relation["name"]), relation["even"]
        outliers = [item for item in sorted(weights, reverse=True)[:3] if item[0] > STANDS_OUT * even]
        best = ", ".join(f"{i}.{h} {w:.2f}" for w, i, h in outliers) or "none stands out"
        where = f"{relation['sentences']} sentences of {printable(relation['list'])}"
        rows.append(f"  {printable(arrows.get(name, name))}: {best}   (an even look: {even:.2f}; {where})")
        if relation.get("without"):
            rows += _ablations(relation)
    return "\n".join(["Heads that connect words", *rows]) if rows else ""


def _ablations(relation: dict[str, Any], most: int = 16) -> list[str]:
    """What the model answers without each head, the most needed first."""
    asked = f"asked for {relation['asked']}"
    width = max(len(asked), 20)
    rows = [
        f"    {asked:{width}}  weight    right     nats",
        f"    {'all heads':{width}}        {relation['right']:9.1%} {relation['log_prob']:8.3f}",
    ]
    needed = sorted(relation["without"], key=lambda item: item["log_prob"])
    for item in needed[:most]:
        i, h = item["layer"], item["head"]
        weight, name = relation["weights"][i][h], f"without {i}.{h}"
        rows.append(f"    {name:{width}}    {weight:.2f}{item['right']:9.1%} {item['log_prob']:8.3f}")
    if len(needed) > most:
        rows.append(f"    … the {most} that are needed most, of {len(needed)}")
    return rows


def _errors(report: dict[str, Any]) -> str:
    if not (errors := report.get("errors")):
        return ""
    rows = [f"  {name:32} {error:.1e}" for name, error in errors.items()]
    return "\n".join(["Everything sums; the largest error, as a share of the whole", *rows])


def _omitted(report: dict[str, Any]) -> str:
    if not report["omitted"]:
        return ""
    if "heads" not in report["omitted"]:
        return f"Left out: {', '.join(report['omitted'])}; --maps brings them."
    return (
        f"A {report['model']['family']} has no self-attention: no maps of it, no heads, and no parts that a "
        "logit is "
        "a sum of."
    )


def visible(token: str) -> str:
    """A token so that its blanks can be seen, and nothing in it can act on a terminal."""
    signs = {" ": "␣", "\n": "↵", "\t": "⇥"}
    return "".join(signs.get(c) or (c if c.isprintable() else f"⟨{ord(c):02X}⟩") for c in token) or "∅"


def bar(share: float, width: int, sign: str | None = None) -> str:
    """A bar of up to `width` characters; of `sign`s, if one is given."""
    eighths = round(max(0.0, min(1.0, share)) * width * 8)
    if sign:
        return sign * max(1, eighths // 8)
    return BAR[8] * (eighths // 8) + (BAR[eighths % 8] if eighths % 8 else "")
