"""A plan for people: the summary first, then steps, fates, and what did not fuse and why. All of it
rich renderables.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection, Mapping, Sequence
from types import MappingProxyType

from rich.console import Group, RenderableType
from rich.text import Text as RichText

from ..ir.decision import Decision
from ..ir.text_write import Writer
from ..plan.open_sizes import NO_SIZES, sizes_at
from ..plan.types import Plan
from .fates import fates_part
from .layout import FATE_STYLES, PIPE, Layout, Text, facts, heading, listed
from .lines import WIDTH, guess_lines
from .notation import bytes_text, count_text, title_text
from .refusals import decisions_part, refusals_part
from .steps import steps_part
from .summary import Summary, summary_of
from .verdict.shares import Shares, shares_of
from .verdict.work import at_sizes
from .weighed import weighed_part

_NOTHING: Mapping[str, str] = MappingProxyType({})


class Table(enum.Enum):
    """A part of the report."""

    TOTALS = "totals"
    STEPS = "steps"
    FATES = "fates"
    WEIGHED = "weighed"
    REFUSALS = "refusals"
    DECISIONS = "decisions"


def plan_report(
    plan: Plan,
    layout: Layout = PIPE,
    *,
    title: str = "",
    tables: Collection[Table] = tuple(Table),
    sizes: Mapping[str, int] = NO_SIZES,
) -> RenderableType:
    """The tables of `fqfuse inspect`, in the order of `Table`.

    Args:
        plan: any plan.
        layout: the room there is.
        title: stands in front; the plan's name if empty.
        tables: which ones.
        sizes: of what the model leaves open, for the totals; others are guessed.
    """
    parts: Mapping[Table, Callable[[], list[RenderableType]]] = {
        Table.STEPS: lambda: steps_part(plan, layout),
        Table.FATES: lambda: fates_part(plan, layout),
        Table.WEIGHED: lambda: weighed_part(plan, layout),
        Table.REFUSALS: lambda: refusals_part(plan.decision_records, layout),
        Table.DECISIONS: lambda: decisions_part(plan, layout),
    }
    head = _summary_part(plan, title, sizes=sizes, by="--size, --data")
    shown = [part() for table, part in parts.items() if table in tables]
    return _spaced([head if Table.TOTALS in tables else head[:1], *shown])


def summary_report(
    plan: Plan, title: str = "", more: Mapping[str, str] = _NOTHING
) -> RenderableType:
    """The totals alone, as `fqfuse compile` prints them; `more`: further rows."""
    return Group(*_summary_part(plan, title, more))


def converted_report(
    plan: Plan, decisions: Sequence[Decision], layout: Layout, title: str, more: Mapping[str, str]
) -> RenderableType:
    """The totals of a converted plan, and which steps could not be converted as they should have
    been.

    Args:
        plan: the new plan.
        decisions: of the conversion.
        layout: the room there is.
        title: stands in front.
        more: further rows of the totals.
    """
    refusals = refusals_part(decisions, layout, "Converted mechanically")
    return _spaced([_summary_part(plan, title, more), refusals])


def short_report(plan: Plan, layout: Layout = PIPE, *, title: str = "") -> RenderableType:
    """Totals, and the fates without their reasons, as `fqfuse demo` prints them."""
    return _spaced([_summary_part(plan, title), fates_part(plan, layout, reasons=False)])


def _summary_part(
    plan: Plan,
    title: str = "",
    more: Mapping[str, str] = _NOTHING,
    *,
    sizes: Mapping[str, int] = NO_SIZES,
    by: str = "",
) -> list[RenderableType]:
    """The header: what was compiled, or converted, for which target, and the totals."""
    summary = summary_of(plan)
    known, guessed = sizes_at(plan, sizes)
    shares = shares_of(at_sizes(plan, known))
    rows = [*_totals(summary, plan, shares), *((label, Text(text)) for label, text in more.items())]
    done = "converted" if "converted" in plan.options else "compiled"
    return [
        heading(
            title or title_text(summary.model) or "(a model without a name)",
            f"{done} for {summary.target}",
        ),
        *guess_lines(guessed, WIDTH, by=by),
        facts(rows),
    ]


def _totals(summary: Summary, plan: Plan, shares: Shares) -> list[tuple[str, RichText]]:
    kinds = ", ".join(f"{kind.steps} {name}" for name, kind in summary.kinds.items())
    attributes = [
        f"{name} on {count_text(count, 'step')}" for name, count in summary.attributes.items()
    ]
    post_ops = [f"{count} {name}" for name, count in summary.post_ops.items()]
    steps = f"{summary.steps:,}: {kinds}" if summary.steps else "none: the outputs are constant"
    decisions = f"{summary.fired:,} fired, {count_text(summary.refused, 'refusal')}"
    halves = [
        ("  quantize", _fates(summary.quantize)),
        ("  dequantize", _fates(summary.dequantize)),
    ]
    return [
        ("inputs", _values(plan, plan.inputs)),
        ("outputs", _values(plan, plan.outputs)),
        ("steps", Text(steps)),
        ("int8", _int8(summary)),
        ("multiply-adds", Text(shares.arithmetic)),
        ("between steps", Text(shares.handed_on)),
        ("attributes", Text(", ".join(attributes) or "none")),
        ("post-ops", Text(", ".join(post_ops) or "none")),
        ("constants", Text(f"{summary.constants:,}, {bytes_text(summary.constant_bytes)}")),
        ("quantizers", _quantizers(summary)),
        *(halves if summary.quantizers else []),
        ("decisions", Text(decisions)),
    ]


def _values(plan: Plan, names: tuple[str, ...]) -> RichText:
    writer = Writer(display=True)
    return listed([f"{name}: {writer.type(plan.type(name))}" for name in names] or ["none"])


def _int8(summary: Summary) -> Text:
    compute = summary.compute
    text = Text(f"{summary.int8:,} of {count_text(summary.steps, 'step')}")
    if compute.steps:
        style = "green" if compute.int8 == compute.steps else "yellow"
        text.append(
            f"; {compute.int8:,} of {count_text(compute.steps, 'convolution or matmul', 'convolutions and matmuls')}",
            style=style,
        )
    return text


def _quantizers(summary: Summary) -> Text:
    if not summary.quantizers:
        return Text(
            "none" if summary.int8 else "none: the model is not quantized, so nothing runs in int8"
        )
    forms = ", ".join(f"{count:,} {form}" for form, count in summary.forms.items())
    total = f"{summary.quantizers:,}: " if len(summary.forms) > 1 else ""
    ranges = f"; {summary.dynamic:,} by ranges at run time" if summary.dynamic else ""
    text = Text(f"{total}{forms}{ranges}; {summary.fused:,} cost no step of their own")
    if summary.settled != summary.quantizers:
        text.append(f"; {summary.quantizers - summary.settled:,} WITHOUT A FATE", style="bold red")
    return text


def _fates(fates: Mapping[str, int]) -> RichText:
    parts = [
        Text.assemble(f"{count:,} ", (name, FATE_STYLES.get(name, "green")))
        for name, count in fates.items()
    ]
    return Text(", ").join(parts)


def _spaced(parts: Sequence[list[RenderableType]]) -> RenderableType:
    """The parts that are not empty, with a blank line between."""
    rows: list[RenderableType] = []
    for part in filter(None, parts):
        rows += [*([Text()] if rows else []), *part]
    return Group(*rows)
