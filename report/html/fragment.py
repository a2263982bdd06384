"""What a notebook shows of a plan: the verdict and its first findings, as a piece of HTML without
scripts or styles of its own.
"""

from __future__ import annotations

import html

from ...errors import printable
from ...plan.types import Plan
from ..notation import count_text, title_text
from ..verdict.findings import verdict_of
from ..verdict.screen import answer_text, change_text, gain_text, is_shown

__all__ = ["repr_html"]

_NAMES = 3
_SHOWN = 3


def repr_html(plan: Plan) -> str:
    """The verdict on a plan, for `_repr_html_`."""
    verdict = verdict_of(plan)
    rows = "".join(
        "<tr>"
        f"<td style='text-align:left'>{_safe(finding.what)}</td>"
        f"<td style='text-align:left'>{_safe(gain_text(finding, verdict))}</td>"
        f"<td style='text-align:left'>{_safe(': '.join(filter(None, change_text(finding, _NAMES))))}</td>"
        "</tr>"
        for finding in [found for found in verdict.findings if is_shown(found, verdict)][:_SHOWN]
    )
    table = (
        f"<table><tr><th>finding</th><th>gain</th><th>change</th></tr>{rows}</table>"
        if rows
        else ""
    )
    shares = verdict.shares
    name = title_text(plan.name) or "(a model without a name)"
    return (
        f"<div><b>{_safe(name)}</b> · {count_text(len(plan.steps), 'step')} for {_safe(plan.target)}"
        f"<br>{_safe(answer_text(verdict))}"
        f"<br><small>multiply-adds {_safe(shares.arithmetic)}; between steps {_safe(shares.handed_on)};"
        f" about {verdict.estimate.ms:.2g} ms at the peak rates of {_safe(verdict.machine.description)}"
        f"</small>{table}</div>"
    )


def _safe(text: str) -> str:
    return html.escape(printable(text))
