"""A report as one page that stands alone: its data and its drawing are inside, and nothing is fetched."""

import json
import re
from html import escape
from pathlib import Path
from typing import Any


def as_html(report: dict[str, Any]) -> str:
    page = Path(__file__).with_name("page.html").read_text(encoding="utf-8")
    # Inside a script element only "</" and "<!--" could end it early.
    data = json.dumps(report, ensure_ascii=False).replace("<", "\\u003c")
    fields = {"__TITLE__": escape(report["text"][:60]), "__REPORT__": data}
    return re.sub("__TITLE__|__REPORT__", lambda match: fields[match[0]], page)
