"""What an object shows in a notebook: a small table, everything in it escaped."""

from collections.abc import Iterable
from html import escape

CELL = "text-align: left; padding: .1em .8em .1em 0"


def html_table(rows: Iterable[tuple[str, str]], title: str = "") -> str:
    """Names and values in two columns."""
    head = f"<strong>{escape(title)}</strong>" if title else ""
    body = "".join(
        f'<tr><th style="{CELL}">{escape(name)}</th><td style="{CELL}">{escape(value)}</td></tr>'
        for name, value in rows
    )
    return f"{head}<table><tbody>{body}</tbody></table>"
