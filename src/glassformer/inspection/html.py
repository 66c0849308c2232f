"""A report as one page that stands alone: its data and its drawing are inside, and nothing is fetched."""

import re
from html import escape
from pathlib import Path
from typing import Any

from glassformer.core.strict_json import dump_json


def as_html(report: dict[str, Any]) -> str:
    page = Path(__file__).with_name("page.html").read_text(encoding="utf-8")
    # Inside a script element only "</" and "<!--" could end it early.
    data = dump_json(report, ensure_ascii=False).replace("<", "\\u003c")
    fields = {"__TITLE__": escape(report["text"][:60]), "__REPORT__": data}
    return re.sub("__TITLE__|__REPORT__", lambda match: fields[match[0]], page)
