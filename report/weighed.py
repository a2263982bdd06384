"""What was weighed for each operation: its homes with their costs."""

from __future__ import annotations

from rich.console import RenderableType

from ..ir.decision import Decision
from ..plan.types import Plan
from .layout import Layout, Text, folded, heading, more, plain_table


def weighed_part(plan: Plan, layout: Layout) -> list[RenderableType]:
    """Heading and table of the choices; nothing where none was made."""
    choices = [decision for decision in plan.decision_records if decision.alternatives]
    if not choices:
        return []
    head, hidden, tail = folded(choices, layout)
    table = plain_table("choice", "at", "homes")
    for decision in (*head, *tail):
        table.add_row("", Text(decision.rule), Text(decision.subject), Text(weighed_text(decision)))
    title = heading("Weighed", "passes over the destination; the first home was chosen")
    return [title, table, *([more(hidden, "choices")] if hidden else [])]


def weighed_text(decision: Decision) -> str:
    """`sum 1 < binary 2 < own step 3`; illegal homes behind it with their reasons."""
    legal = [weighed for weighed in decision.alternatives if not weighed.why_not]
    text = ""
    for number, weighed in enumerate(legal):
        before = legal[number - 1].cost
        sign = " < " if before < weighed.cost else " = " if before == weighed.cost else " > "
        text += (sign if number else "") + f"{weighed.home} {weighed.cost:.3g}"
    illegal = [weighed for weighed in decision.alternatives if weighed.why_not]
    return "; ".join([text, *(f"no {weighed.home}: {weighed.why_not}" for weighed in illegal)])
