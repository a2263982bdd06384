"""The page: one HTML file that asks for nothing outside of itself.

Names come from a stranger's model. They travel as JSON without `<`, `>` and `&`, the scripts show them
as text only, and the page's policy lets no script run but those of `assets/`, by their digest.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from collections.abc import Mapping
from importlib.resources import files

from ...plan.open_sizes import NO_SIZES
from ...plan.types import Plan
from ..verdict.machine import Machine
from .data import document, measured_from

SCRIPTS = (
    "dom.js",
    "model.js",
    "view.js",
    "strip.js",
    "graph.js",
    "tables.js",
    "story.js",
    "page.js",
)
"""The files of the page's one script, in their order."""

_ESCAPED = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"})


def to_html(
    plan: Plan,
    *,
    title: str = "",
    sizes: Mapping[str, int] = NO_SIZES,
    machine: Machine | None = None,
    times: Mapping[int, float] | None = None,
    errors: Mapping[int, float] | None = None,
) -> str:
    """The page of a plan.

    Args:
        plan: any plan.
        title: what it is called; the plan's name if empty.
        sizes: of what the model leaves open, such as `{"sequence_length": 128}`; others are guessed.
        machine: what times are estimated for; None: this one.
        times: measured milliseconds, by the index of the step; steps may be missing.
        errors: measured signal to quantization noise in dB, likewise.

    Raises:
        InvalidInput: the model has no such size, or the plan no such step.
    """
    measured = measured_from(plan, times, errors)
    data = document(plan, title=title, machine=machine, sizes=sizes, measured=measured)
    style = _asset("page.css")
    script = "'use strict';\n(() => {\n" + "\n".join(map(_asset, SCRIPTS)) + "})();\n"
    details = data.pop("details")
    parts = {
        "title": html.escape(data["title"]),
        "policy": _policy(script, style),
        "style": style,
        "data": _json(data),
        "details": _json(details),
        "script": script,
    }
    # in one go: a part that holds another's place is left as it is
    return re.sub(r"\{\{(\w+)\}\}", lambda found: parts[found[1]], _asset("page.html"))


def _json(data: object) -> str:
    # ASCII only: what is no character at all reaches the page escaped, too
    written = json.dumps(data, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return written.translate(_ESCAPED)


def _asset(name: str) -> str:
    return (files(__package__) / "assets" / name).read_text(encoding="utf-8")


def _policy(script: str, style: str) -> str:
    allowed = {
        "default-src": "'none'",
        "script-src": f"'sha256-{_digest(script)}'",
        "style-src": f"'sha256-{_digest(style)}'",
        "img-src": "data:",  # the icon, which a browser would ask the server for
        "base-uri": "'none'",
        "form-action": "'none'",
    }
    return "; ".join(f"{what} {whence}" for what, whence in allowed.items())


def _digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode("ascii")
