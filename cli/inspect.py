"""Show what of a model runs in int8, what costs most, and what to change.

The first screen is the verdict: how much of the arithmetic runs in int8, how much of what lies between
steps is f32, an estimate of the time, and the findings that cost most, each with the change in the
words of the quantizer. --findings lists all of them; the tables behind the verdict have options of
their own. On a terminal tables longer than 200 rows are folded; in a pipe every row is there, on one
line each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from ..errors import InvalidInput, printable
from ..files import write_atomically
from .encoding import exact
from .options import (
    Approximate,
    AsJson,
    Color,
    ColorOption,
    Dynamic,
    ModelOrPlan,
    Target,
    option,
)
from .out import refuse_over, write_out
from .progress import Progress
from .sizes import InputShape, ShapesOf, Size, given_sizes

if TYPE_CHECKING:
    from rich.console import RenderableType

    from ..plan.types import Plan
    from ..report.approximations import Saving

_WHERE = "command line of fqfuse inspect"

Findings = Annotated[bool, option("--findings", "List every finding, with all of its layers.")]
Totals = Annotated[bool, option("--totals", "Count steps, attributes, quantizers and decisions.")]
Steps = Annotated[bool, option("--steps", "List the steps, with what is fused into them.")]
Fates = Annotated[bool, option("--fates", "Say where each half of each quantizer went, and why.")]
Weighed = Annotated[
    bool, option("--weighed", "Show the homes that were weighed, with their costs.")
]
Decisions = Annotated[
    bool, option("--decisions", "Show what did not fuse and why, and every decision of every rule.")
]
AsCsv = Annotated[
    bool,
    option("--csv", "Print one table as CSV: that of --findings, --steps, --fates or --decisions."),
]
AsText = Annotated[
    bool,
    option(
        "--text",
        "Print the plan in its text form (docs/contributing/text-form.md) instead; names over 500 characters are cut.",
    ),
]
AllRows = Annotated[
    bool,
    option(
        "--all",
        "Show all tables and fold nothing; with --text, print the data as well and cut no name, so that it reads back.",
    ),
]
AsPage = Annotated[
    Path | None,
    option(
        "--html",
        "Write all of it as a page as well: verdict, graph and tables, for any browser, offline.",
        "FILE",
    ),
]
AsPicture = Annotated[Path | None, option("--svg", "Write the graph as a picture as well.", "FILE")]


def command(
    model: ModelOrPlan,
    target: Target = None,
    dynamic: Dynamic = None,
    approximate: Approximate = None,
    as_json: AsJson = False,
    size: Size = None,
    shape: InputShape = None,
    data: ShapesOf = None,
    findings: Findings = False,
    totals: Totals = False,
    steps: Steps = False,
    fates: Fates = False,
    weighed: Weighed = False,
    decisions: Decisions = False,
    as_csv: AsCsv = False,
    as_text: AsText = False,
    all_rows: AllRows = False,
    as_page: AsPage = None,
    as_picture: AsPicture = None,
    color: ColorOption = Color.AUTO,
) -> None:
    """Reports a plan."""
    from .load import plan_of

    _check_forms({"--json": as_json, "--csv": as_csv, "--text": as_text})
    asked = {"totals": totals, "steps": steps, "fates": fates, "weighed": weighed}
    asked |= {"decisions": decisions, "findings": findings}
    wanted = [name for name, given in asked.items() if given]
    table = _csv_table(wanted) if as_csv else ""
    _check_files(model, as_page, as_picture)
    plan = plan_of(model, target, dynamic, approximate)
    (sizes,) = given_sizes([plan], size, shape, data)
    written = _written(plan, model, as_page, as_picture, sizes)
    if as_text:
        write_out(exact(_text(plan, whole=all_rows)))
        return
    from .console import print_csv, print_json, show

    if as_csv:
        print_csv(plan, table, sizes)
        return
    if as_json:
        from ..report.json import plan_json

        print_json(plan_json(plan, sizes=sizes, savings=_savings(plan, model)))
        return
    from ..report.notation import title_text

    if all_rows and not wanted:
        wanted = [name for name in asked if name != "findings"]
    more = "" if wanted else _approximations(plan, model)
    for content in _reports(plan, title_text(model.name), wanted, sizes, more, all_rows=all_rows):
        show(content, color)
    if written:
        write_out("\n" + "".join(f"  {line}\n" for line in written))


def _check_files(model: Path, page: Path | None, picture: Path | None) -> None:
    for name, path in (("--html", page), ("--svg", picture)):
        if path is not None:
            refuse_over(path, model, f"{name} would replace the model", name)
    if page is not None and page == picture:
        raise InvalidInput(
            "--html and --svg name the same file", where=str(page), hint="name two files"
        )


def _written(
    plan: Plan, model: Path, page: Path | None, picture: Path | None, sizes: Mapping[str, int]
) -> list[str]:
    """Writes the files that are asked for; what is told of them."""
    from ..report.notation import bytes_text, title_text

    told = []
    for kind, path in (("page", page), ("picture", picture)):
        if path is None:
            continue
        with Progress() as progress:
            progress.say(f"drawing {path.name}")
            data = _drawn(plan, kind, title_text(model.name), sizes).encode("utf-8")
        write_atomically(path, data)
        told.append(f"{kind:<8} {printable(str(path))} ({bytes_text(len(data))})")
    return told


def _drawn(plan: Plan, kind: str, title: str, sizes: Mapping[str, int]) -> str:
    if kind == "page":
        from ..report.html.page import to_html

        return to_html(plan, title=title, sizes=sizes)
    from ..report.html.picture import to_svg

    return to_svg(plan, title=title, sizes=sizes)


def _text(plan: Plan, *, whole: bool) -> str:
    from ..ir.text_write import shortened
    from ..plan.text import print_plan

    return print_plan(plan) if whole else shortened(print_plan(plan, data="digest"))


def _check_forms(forms: Mapping[str, bool]) -> None:
    given = [form for form, is_given in forms.items() if is_given]
    if len(given) > 1:
        raise InvalidInput(
            f"{' and '.join(given)} exclude each other",
            where=_WHERE,
            hint="leave one of them out" if len(given) == 2 else "leave two of them out",
        )


def _csv_table(wanted: Sequence[str]) -> str:
    """The one table that is asked for."""
    from ..report.tables import TABLES

    if len(wanted) != 1 or wanted[0] not in TABLES:
        options = ", ".join(f"--{name}" for name in TABLES)
        raise InvalidInput(
            f"--csv prints one table, and {', '.join(f'--{name}' for name in wanted) or 'none'} is asked for",
            where=_WHERE,
            hint=f"give one of {options}",
        )
    return wanted[0]


def _savings(plan: Plan, model: Path) -> list[Saving]:
    """What approximations would save; a plan file has no model to compile with them."""
    from ..explain import savings
    from .load import is_plan_file

    if is_plan_file(model):
        return []
    with Progress() as progress:
        progress.say("looking for what approximations would save")
        return savings(plan, model)


def _approximations(plan: Plan, model: Path) -> str:
    """Which approximations the plan has, and what others would save."""
    from ..report.approximations import approximated_text, savings_text

    parts = (approximated_text(plan), savings_text(_savings(plan, model)))
    return " ".join(filter(None, parts))


def _reports(
    plan: Plan,
    title: str,
    wanted: Sequence[str],
    sizes: Mapping[str, int],
    more: str,
    *,
    all_rows: bool,
) -> list[RenderableType]:
    """The findings and tables that are asked for; the first screen where none is."""
    from ..report.text import Table, plan_report
    from ..report.verdict.findings import verdict_of
    from ..report.verdict.screen import findings_report, verdict_report
    from .console import layout_of_stdout

    layout = layout_of_stdout(all_rows=all_rows)
    reports: list[RenderableType] = []
    if "findings" in wanted:
        reports.append(findings_report(plan, verdict_of(plan, sizes=sizes), layout, title=title))
    tables = [Table(name) for name in wanted if name != "findings"]
    if Table.DECISIONS in tables:
        tables.append(Table.REFUSALS)
    if tables:
        reports.append(plan_report(plan, layout, title=title, tables=tables, sizes=sizes))
    verdict = None if reports else verdict_of(plan, sizes=sizes)
    return (
        reports
        if verdict is None
        else [verdict_report(plan, verdict, layout, title=title, more=more)]
    )
