"""Show what of a model runs in int8, what costs most, and what to change.

The first screen is the verdict: how much of the arithmetic runs in int8, how much of what lies between
steps is f32, an estimate of the time, and the findings that cost most, each with the change in the
words of the quantizer. --findings lists all of them; the tables behind the verdict have options of
their own. On a terminal tables longer than 200 rows are folded; in a pipe every row is there, on one
line each.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import InvalidInput
from .options import (
    Approximate,
    AsJson,
    Color,
    ColorOption,
    Dynamic,
    ModelOrPlan,
    Target,
    sizes_of,
)
from .out import write_out

if TYPE_CHECKING:
    from rich.console import RenderableType

    from ..plan.types import Plan

__all__ = ["command"]


def command(
    model: ModelOrPlan,
    target: Target = None,
    dynamic: Dynamic = None,
    approximate: Approximate = None,
    as_json: AsJson = False,
    size: Annotated[
        list[str] | None,
        typer.Option(
            "--size",
            metavar="NAME=N",
            help="For the estimate: a size that the model leaves open, else 1; several times for several.",
        ),
    ] = None,
    findings: Annotated[
        bool, typer.Option("--findings", help="List every finding, with all of its layers.")
    ] = False,
    totals: Annotated[
        bool, typer.Option("--totals", help="Count steps, attributes, quantizers and decisions.")
    ] = False,
    steps: Annotated[
        bool, typer.Option("--steps", help="List the steps, with what is fused into them.")
    ] = False,
    fates: Annotated[
        bool, typer.Option("--fates", help="Say where each half of each quantizer went, and why.")
    ] = False,
    weighed: Annotated[
        bool, typer.Option("--weighed", help="Show the homes that were weighed, with their costs.")
    ] = False,
    decisions: Annotated[
        bool,
        typer.Option(
            "--decisions", help="Show what did not fuse and why, and every decision of every rule."
        ),
    ] = False,
    as_text: Annotated[
        bool,
        typer.Option(
            "--text",
            help="Print the plan in its text form (docs/text-form.md) instead; names over 500 characters are cut.",
        ),
    ] = False,
    all_rows: Annotated[
        bool,
        typer.Option(
            "--all",
            help="Show all tables and fold nothing; with --text, print the data as well and cut no name, so that it reads back.",
        ),
    ] = False,
    color: ColorOption = Color.AUTO,
) -> None:
    """Reports a plan."""
    from .load import plan_of

    if as_json and as_text:
        raise InvalidInput(
            "--json and --text exclude each other",
            where="command line of fqfuse inspect",
            hint="leave one of them out",
        )
    sizes = sizes_of(size)
    plan = plan_of(model, target, dynamic, tuple(approximate or ()))
    if as_text:
        from ..ir.text_write import shortened
        from ..plan.text import print_plan

        write_out(print_plan(plan) if all_rows else shortened(print_plan(plan, data="digest")))
        return
    from .console import print_json, show

    if as_json:
        from ..report.json import plan_json

        print_json(plan_json(plan, sizes=sizes))
        return
    from ..report.notation import title_text

    asked = {
        "totals": totals,
        "steps": steps,
        "fates": fates,
        "weighed": weighed,
        "refusals": decisions,
        "decisions": decisions,
    }
    wanted = [name for name, given in asked.items() if given]
    if all_rows and not wanted and not findings:
        wanted = list(asked)
    title = title_text(model.name)
    for content in _reports(plan, title, wanted, sizes, findings=findings, all_rows=all_rows):
        show(content, color)


def _reports(
    plan: Plan,
    title: str,
    tables: list[str],
    sizes: Mapping[str, int],
    *,
    findings: bool,
    all_rows: bool,
) -> list[RenderableType]:
    """The findings and tables that are asked for; the first screen where none is."""
    from ..report.text import Table, plan_report
    from ..report.verdict.findings import verdict_of
    from ..report.verdict.screen import findings_report, verdict_report
    from .console import layout_of_stdout

    layout = layout_of_stdout(all_rows=all_rows)
    reports: list[RenderableType] = []
    if findings:
        reports.append(findings_report(plan, verdict_of(plan, sizes=sizes), layout, title=title))
    if tables:
        wanted = [Table(name) for name in tables]
        reports.append(plan_report(plan, layout, title=title, tables=wanted))
    return reports or [verdict_report(plan, verdict_of(plan, sizes=sizes), layout, title=title)]
