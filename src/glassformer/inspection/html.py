"""A report as one page that stands alone: its data and its drawing are inside, and nothing is fetched."""

import json
from html import escape
from pathlib import Path
from typing import Any


def as_html(report: dict[str, Any]) -> str:
    page = Path(__file__).with_name("page.html").read_text(encoding="utf-8")
    # Inside a script element only "</" and "<!--" could end it early.
    data = json.dumps(report, ensure_ascii=False).replace("<", "\\u003c")
    return page.replace("__TITLE__", escape(report["text"][:60])).replace("__REPORT__", data)
