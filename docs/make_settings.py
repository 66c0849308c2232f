"""Write docs/settings.md from the descriptions in config/: `make docs`. A test checks that it was done."""

from pathlib import Path

from glassformer.config.schema import SECTIONS

INTRO = """# Settings

Every setting of `glassformer train`, for `--set key=value`, for a recipe's YAML, and for
`gf.train(settings={"key": value})`. Without a recipe, sizes and lengths that are not set are chosen from the
text and the machine; the defaults below are those of a recipe. Made from `src/glassformer/config/` by
`make docs`.
"""


def page() -> str:
    parts = [INTRO]
    for section, fields in SECTIONS.items():
        parts.append(f"\n## {section}\n\n| key | default | values | what |\n|---|---|---|---|\n")
        schema = fields.model_json_schema()["properties"]
        for name, field in fields.model_fields.items():
            default = "" if field.default is None else f"`{field.default}`"
            parts.append(
                f"| `{section}.{name}` | {default} | {_values(schema[name])} | {field.description} |\n"
            )
    return "".join(parts)


def _values(schema: dict) -> str:
    """What a key takes, in words: the choices, or the type with its limits."""
    options = [s for s in schema.get("anyOf", [schema]) if s.get("type") != "null"]
    option = options[0]
    if "enum" in option:
        return ", ".join(f"`{value}`" for value in option["enum"])
    if "const" in option:
        return f"`{option['const']}`"
    signs = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}
    limits = [f"{sign} {option[key]:g}" for key, sign in signs.items() if key in option]
    names = {"integer": "whole number", "number": "number", "boolean": "true, false", "string": "text"}
    return " ".join([names.get(option["type"], option["type"]), ", ".join(limits)]).strip()


if __name__ == "__main__":
    Path(__file__).with_name("settings.md").write_text(page(), encoding="utf-8")
