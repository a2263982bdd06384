"""What the chooser weighed: for each kind of operation its homes with their costs, equal rows
counted together.
"""

from __future__ import annotations

from collections import Counter

from rich.console import RenderableType

from ..ir.decision import Alternative, Decision
from ..plan.types import Plan
from .layout import Layout, Text, folded, heading, more, plain_table


def weighed_part(plan: Plan, layout: Layout, *, every: bool = False) -> list[RenderableType]:
    """Heading and table of the choices; nothing where none was made. `every`: one row for each
    operation, instead of counts.
    """
    choices = [decision for decision in plan.decision_records if decision.alternatives]
    if not choices:
        return []
    title = heading("Weighed", "passes over the destination; the first home was chosen")
    if every:
        head, hidden, tail = folded(choices, layout)
        table = plain_table("choice", "at", "homes")
        for decision in (*head, *tail):
            table.add_row(
                "", Text(decision.rule), Text(decision.subject), Text(weighed_text(decision))
            )
        return [title, table, *([more(hidden, "choices")] if hidden else [])]
    counts = Counter((decision.rule, weighed_text(decision, anchors=False)) for decision in choices)
    table = plain_table("times", "choice", "homes")
    for (rule, text), count in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        table.add_row("", Text(f"{count:,}"), Text(rule), Text(text))
    return [title, table]


def weighed_text(decision: Decision, *, anchors: bool = True) -> str:
    """`sum 1 < binary 2 < own step 3`; illegal homes behind it with their reasons. Without
    `anchors`, names of branches are left out.
    """
    named = anchors or not decision.rule.startswith("branch")
    legal = [weighed for weighed in decision.alternatives if not weighed.why_not]
    text = ""
    for number, weighed in enumerate(legal):
        before = legal[number - 1].cost
        sign = " < " if before < weighed.cost else " = " if before == weighed.cost else " > "
        text += (sign if number else "") + _home(weighed, "taken" if not number else "other", named)
    return "; ".join(
        [
            text,
            *(
                f"no {weighed.home}: {weighed.why_not}"
                for weighed in decision.alternatives
                if weighed.why_not and named
            ),
        ]
    )


def _home(weighed: Alternative, word: str, named: bool) -> str:
    return f"{weighed.home if named else word} {weighed.cost:.3g}"
