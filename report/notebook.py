"""What a notebook shows for a plan: the answer, and the findings, in a few lines of HTML."""

from __future__ import annotations

from html import escape

from ..errors import printable
from ..plan.types import Plan
from .verdict.findings import Finding, verdict_of
from .verdict.machine import Machine
from .verdict.screen import answer_text, gain_text, is_shown, layers_text

_COLUMNS = ("what", "at", "gain", "change")
_ROWS = 5
# notebooks set numbers: to the right, and each in one line
_LEFT = ' style="text-align: left; white-space: normal; overflow-wrap: anywhere"'


def notebook_html(plan: Plan, machine: Machine | None = None) -> str:
    """The verdict on a plan as a fragment of HTML. All of it is escaped: names come from the model.

    Args:
        plan: any plan.
        machine: what times are estimated for; None: this one.
    """
    verdict = verdict_of(plan, machine)
    shown = [finding for finding in verdict.findings if is_shown(finding, verdict)][:_ROWS]
    head = f"<p><b>{_text(repr(plan))}</b><br>{_text(answer_text(verdict))}</p>"
    if not shown:
        return head
    titles = "".join(f"<th{_LEFT}>{title}</th>" for title in _COLUMNS)
    rows = "".join(_row(finding, gain_text(finding, verdict)) for finding in shown)
    return f"{head}<table><thead><tr>{titles}</tr></thead><tbody>{rows}</tbody></table>"


def _row(finding: Finding, gain: str) -> str:
    cells = (finding.what, layers_text(finding), gain, finding.change(3))
    return f"<tr>{''.join(f'<td{_LEFT}>{_text(cell)}</td>' for cell in cells)}</tr>"


def _text(text: str) -> str:
    return escape(printable(text))
