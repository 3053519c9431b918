"""A report as one page that a browser shows without a network: `sambac inspect --html`.

The page is a template, styles and scripts of this package, and the report as JSON. Names in a
report come from files that nobody vouches for: the JSON holds no character that could end its
element, scripts put names into text nodes alone, and a policy lets nothing but the page's own
script run.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
from importlib import resources
from string import Template

from pef.text import visible

from .rows import Report

_SCRIPTS = (
    *("base", "model", "panzoom", "graph", "memory", "roofline", "tables", "details"),
    *("overview", "compare", "main"),
)
_UNSAFE = {ord(mark): f"\\u{ord(mark):04x}" for mark in "<>&\u2028\u2029"}


def page(report: Report, against: Report | None = None) -> str:
    """Return the page of `report`, with a comparison where there is another one to compare with."""
    script = _script()
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return Template(_text("page.html")).substitute(
        policy=f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'",
        title=html.escape(_title(report, against)),
        style=_text("page.css"),
        data=_safe_json({"report": report, "against": against}),
        script=script,
    )


def _script() -> str:
    parts = (_text(f"{name}.js") for name in _SCRIPTS)
    return f'\n(() => {{\n"use strict";\n{"".join(parts)}}})();\n'


def _title(report: Report, against: Report | None) -> str:
    names = [
        each["file"]["name"] if each["file"] else each["source"]["name"]
        for each in (report, against)
        if each is not None
    ]
    return visible(" beside ".join(names))


def _safe_json(data: object) -> str:
    """Return JSON that can stand in a page: what could be markup is written as its code."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    return text.translate(_UNSAFE)


def _text(name: str) -> str:
    return resources.files(__package__).joinpath("page", name).read_text("utf-8")
