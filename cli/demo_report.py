"""What the demo prints: the plan's totals and fates, a few digits, and how the three ways of
classifying them compare.
"""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from ..report.json import Json, fates_json, summary_json
from ..report.layout import Layout, heading, plain_table
from ..report.text import short_report
from .demo_result import Demo
from .digits_art import GAP, drawn_row, drawn_width

_MOST_DRAWN = 8
_INDENT = 2
_PIPE_WIDTH = 80


def demo_report(demo: Demo, layout: Layout) -> RenderableType:
    """The demo for people."""
    f32, unfused = demo.runs[0], demo.runs[-2]
    drawn = _fitting(demo, layout)
    table = plain_table("", "correct", "accuracy", "like f32", "like unfused", "time")
    for column in table.columns[2:]:
        column.justify = "right"
    for run in demo.runs:
        same = [
            str(demo.agreement(run, other)) if run is not other else "-" for other in (f32, unfused)
        ]
        table.add_row(
            "",
            run.title,
            str(demo.correct(run)),
            f"{demo.accuracy(run):.2f} %",
            *same,
            f"{1000 * run.seconds:.1f} ms",
        )
    checks = plain_table("", "", header=False)
    for text, holds in demo.checks():
        checks.add_row(
            "", Text("yes", style="green") if holds else Text("NO", style="bold red"), text
        )
    return Group(
        short_report(demo.plan, layout, title=f"digits, {demo.form.value} form"),
        Text(),
        heading(
            "Digits",
            f"{drawn} of {len(demo.labels)} that the network never saw, and what the plan takes them for",
        ),
        Padding(_digits(demo, drawn), (0, 0, 0, _INDENT), expand=False),
        Text(),
        heading("Accuracy", f"of {len(demo.labels)} digits; the columns “like” count equal labels"),
        table,
        Text(),
        checks,
    )


def _fitting(demo: Demo, layout: Layout) -> int:
    """How many digits fit side by side."""
    width = (_PIPE_WIDTH if layout.width is None else layout.width) - _INDENT + len(GAP)
    return min(max(width // drawn_width(demo.images.shape[-1]), 1), _MOST_DRAWN)


def _digits(demo: Demo, count: int) -> Text:
    captions = [
        f"{answer}" if answer == label else f"{answer}, not {label}"
        for answer, label in zip(demo.runs[-1].answers[:count], demo.labels[:count], strict=True)
    ]
    return Text(drawn_row(demo.images[:count, 0], captions))


def demo_json(demo: Demo) -> dict[str, Json]:
    """The demo for programs."""
    f32, unfused = demo.runs[0], demo.runs[-2]
    return {
        "schema": "fqfuse.demo/1",
        "form": demo.form.value,
        "target": demo.plan.target,
        "backend": demo.backend,
        "digits": len(demo.labels),
        "runs": {
            run.name: {
                "correct": demo.correct(run),
                "accuracy": demo.accuracy(run),
                "same_as_f32": demo.agreement(run, f32),
                "same_as_unfused": demo.agreement(run, unfused),
                "seconds": run.seconds,
                "labels": [int(label) for label in run.answers],
            }
            for run in demo.runs
        },
        "checks": [{"check": text, "holds": holds} for text, holds in demo.checks()],
        "summary": summary_json(demo.plan),
        "fates": fates_json(demo.plan),
    }
