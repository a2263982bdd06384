"""What did not fuse, and why: refusals grouped by their reason, each with what was expected, where
it is missing, and what would help.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text as RichText

from ..ir.decision import Decision, Outcome
from ..plan.types import Plan
from .layout import Layout, Text, folded, heading, listed, more, plain_table
from .notation import count_text

_SHOWN_PLACES = 6


@dataclass(frozen=True)
class Refusals:
    """Refusals of one rule for one reason.

    Attributes:
        rule, reason, expected, hint: what they have in common.
        places: (subject, what was found there), in the order of the decisions.
    """

    rule: str
    reason: str
    expected: str
    hint: str
    places: tuple[tuple[str, str], ...]


def grouped(decisions: Sequence[Decision]) -> list[Refusals]:
    """Refusals by rule, reason, expectation and hint; the largest group first, then in the order of
    the decisions.
    """
    groups: dict[tuple[str, str, str, str], dict[tuple[str, str], None]] = {}
    for decision in decisions:
        if decision.outcome is Outcome.REFUSED:
            key = (decision.rule, decision.reason, decision.expected, decision.hint)
            groups.setdefault(key, {})[decision.subject, decision.found] = None
    found = [Refusals(*key, places=tuple(places)) for key, places in groups.items()]
    return sorted(found, key=lambda group: -len(group.places))


def refusals_part(
    decisions: Sequence[Decision], layout: Layout, title: str = "Not fused"
) -> list[RenderableType]:
    """Heading and groups of refusals; nothing when no rule refused."""
    groups = grouped(decisions)
    if not groups:
        return []
    parts: list[RenderableType] = [
        heading(title, count_text(sum(len(group.places) for group in groups), "place"))
    ]
    return parts + [_group(group, layout) for group in groups]


def decisions_part(plan: Plan, layout: Layout) -> list[RenderableType]:
    """Heading and table of all decisions, fired and refused, in their order."""
    head, hidden, tail = folded(plan.decision_records, layout)
    if not plan.decision_records:
        return [heading("Decisions", "none")]
    table = plain_table("rule", "at", "reason")
    for decision in (*head, *tail):
        refused = decision.outcome is Outcome.REFUSED
        rule = Text(decision.rule, style="yellow" if refused else "green")
        reason = Text.assemble(("refused: ", "yellow") if refused else "", decision.reason)
        details = [
            ("expected", decision.expected),
            ("found", decision.found),
            ("fix", decision.hint),
        ]
        reason.append("".join(f"; {label} {text}" for label, text in details if text), style="dim")
        table.add_row("", rule, Text(decision.subject), reason)
    return [
        heading("Decisions", "of all rules, in their order"),
        table,
        *([more(hidden, "decisions")] if hidden else []),
    ]


def _group(group: Refusals, layout: Layout) -> RenderableType:
    lines = Table.grid(padding=(0, 1))
    lines.add_column(style="dim", no_wrap=True)
    lines.add_column(overflow="fold")
    title = Text.assemble((group.rule, "yellow"), f": {group.reason}")
    found = dict.fromkeys(text for _, text in group.places if text)
    same = next(iter(found)) if len(found) == 1 else ""
    for label, text in (("expected", group.expected), ("found", same), ("fix", group.hint)):
        if text:
            lines.add_row(label, Text(text))
    lines.add_row("at", _places(group, bool(same), layout))
    table = Table.grid()
    table.add_row(title)
    table.add_row(Padding(lines, (0, 0, 0, 2)))
    return Padding(table, (0, 0, 0, 2))


def _places(group: Refusals, same: bool, layout: Layout) -> RichText:
    limit = None if layout.rows is None else _SHOWN_PLACES
    shown = group.places[:limit]
    texts = [subject if same or not found else f"{subject} ({found})" for subject, found in shown]
    left = len(group.places) - len(shown)
    return listed(texts).append(f" and {left} more: --all shows them" if left else "")
