"""Show what of a model runs in int8, and why each quantizer fused or did not.

First the totals, then the steps with what is fused into them, the fate of every quantizer with its
reason, and what did not fuse, with what would help. On a terminal tables longer than 200 rows are
folded; in a pipe every row is there, on one line each.
"""

from __future__ import annotations

from typing import Annotated

import typer

from ..errors import InvalidInput
from .options import Approximate, AsJson, Color, ColorOption, Dynamic, ModelOrPlan, Target
from .out import write_out

__all__ = ["command"]


def command(
    model: ModelOrPlan,
    target: Target = None,
    dynamic: Dynamic = None,
    approximate: Approximate = None,
    as_json: AsJson = False,
    decisions: Annotated[
        bool, typer.Option("--decisions", help="List every decision, those that fired as well.")
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
            help="Fold nothing; with --text, print the data as well and cut no name, so that it reads back.",
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
    plan = plan_of(model, target, dynamic, tuple(approximate or ()))
    if as_text:
        from ..ir.text_write import shortened
        from ..plan.text import print_plan

        write_out(print_plan(plan) if all_rows else shortened(print_plan(plan, data="digest")))
        return
    from .console import layout_of_stdout, print_json, show

    if as_json:
        from ..report.json import plan_json

        print_json(plan_json(plan))
        return
    from ..report.notation import title_text
    from ..report.text import plan_report

    show(
        plan_report(
            plan,
            layout_of_stdout(all_rows=all_rows),
            title=title_text(model.name),
            decisions=decisions,
        ),
        color,
    )
