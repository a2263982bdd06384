"""The table of steps: what runs, in which types, what is inside, and where in the model it came
from.
"""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.text import Text as RichText

from ..plan.types import Plan, Step, runs_in_int8
from .columns import columns
from .layout import Layout, Text, folded, heading, listed, plain_table
from .notation import Notation, middle_cut, short_names

_LEAST_ROOM = 24
_BESIDE = {True: 100, False: 62}
"""How many columns the others take, when each step has one line, and when its origin stands below
what is fused.
"""


def steps_part(plan: Plan, layout: Layout) -> list[RenderableType]:
    """Heading and table of the steps; a long table keeps its beginning and its end. Nothing when
    there are none.
    """
    if not plan.steps:
        return []
    notation, wide = Notation(plan), layout.is_wide
    head, hidden, tail = folded(tuple(enumerate(plan.steps)), layout)
    table = plain_table("#", "primitive", "types", "fused", *(["from"] if wide else []))
    table.columns[1].justify = "right"
    table.columns[2].no_wrap = wide
    for index, step in head:
        table.add_row("", *_cells(notation, index, step, layout))
    if hidden:
        table.add_row("", "…", Text(f"{hidden:,} more: see --all", style="dim"))
    for index, step in tail:
        table.add_row("", *_cells(notation, index, step, layout))
    return [heading("Steps", "what is fused stands in the order in which it is applied"), table]


def _cells(notation: Notation, index: int, step: Step, layout: Layout) -> list[RenderableType]:
    beside = [
        listed(notation.fused(step) or ["-"]),
        _origin(notation, step, layout),
    ]
    return [
        str(index),
        Text(notation.primitive(step), style=_style(notation.plan, step)),
        Text(notation.types(step)),
        *(beside if layout.is_wide else [Group(*(part for part in beside if part))]),
    ]


def _style(plan: Plan, step: Step) -> str:
    if runs_in_int8(plan, step):
        return "green"
    return "cyan" if step.primitive == "reorder" else "yellow"


def _origin(notation: Notation, step: Step, layout: Layout) -> RichText:
    if not layout.shortens:
        return listed(step.origin)
    room = max((layout.width or 0) - _BESIDE[layout.is_wide], _LEAST_ROOM)
    return Text(_fitting(short_names(notation.origin(step)), room), style="dim")


def _fitting(names: list[str], room: int) -> str:
    """As many names as fit, and how many more there are; at least the first one, with its middle
    left out if need be.
    """
    for count in range(len(names), 0, -1):
        left = f" +{len(names) - count}" if count < len(names) else ""
        text = ", ".join(names[:count]) + left
        if columns(text) <= room:
            return text
        if count == 1:
            return middle_cut(names[0], room - len(left)) + left
    return ""
