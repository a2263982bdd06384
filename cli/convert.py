"""Convert a plan for oneDNN 2 into one for oneDNN 3, or one for either into the unified scheme.

Mechanically every float operation stays, and the new plan gives the same numbers. Semantically
scales, biases and post-ops speak of real numbers, as a plan that was compiled for oneDNN 3 does;
codes differ by at most 1, and only next to a tie.

The plan is written at once or not at all. A step that has no semantic reading is converted
mechanically, and told with the reason; where one cannot be converted at all, nothing is written.
Sessions convert plans for oneDNN 2 themselves where they run them on oneDNN 3.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import FqfuseError, InvalidInput
from .options import AsJson, Color, ColorOption, choice, option
from .out import refuse_over, sizes_of

if TYPE_CHECKING:
    from ..ir.decision import Decision
    from ..plan.types import Plan


class To(enum.StrEnum):
    """For which scheme of attributes."""

    V3 = "onednn-v3"
    UNIFIED = "unified"


class How(enum.StrEnum):
    """How attributes are converted."""

    MECHANICAL = "mechanical"
    SEMANTIC = "semantic"


Old = Annotated[
    Path,
    typer.Argument(metavar="PLAN", help="A plan that `fqfuse compile --target onednn-v2` wrote."),
]
New = Annotated[Path, option("--output -o", "The file to write the new plan to.", "NEW")]
ToOption = Annotated[To, choice("--to", To, "For which scheme of attributes.", "conversion to")]
HowOption = Annotated[
    How,
    choice("--how", How, "Keep every float operation, or speak of real numbers.", "conversion"),
]


def command(
    plan: Old,
    output: New,
    to: ToOption = To.V3,
    how: HowOption = How.MECHANICAL,
    as_json: AsJson = False,
    color: ColorOption = Color.AUTO,
) -> None:
    """Converts a plan, and writes and sums up the new one."""
    from ..compiler import load_plan
    from ..plan.conversion.convert import convert
    from ..plan.file import save_plan
    from .load import is_plan_file

    if not is_plan_file(plan):
        raise InvalidInput(
            "the file is no plan",
            where=str(plan),
            hint=f"compile the model: fqfuse compile MODEL -o PLAN --target {to}",
        )
    refuse_over(output, plan, "the new plan would replace the old one")
    old = load_plan(plan)
    try:
        new = convert(old, to.value, how.value)
    except FqfuseError as error:
        raise type(error)(
            error.what, where=": ".join(filter(None, (str(plan), error.where))), hint=error.hint
        ) from error
    save_plan(new, output)

    decisions = new.decision_records[len(old.decision_records) :]
    if as_json:
        from .console import print_json

        print_json(
            {
                "schema": "fqfuse.convert/1",
                "source": str(plan),
                "plan": str(output),
                "bytes": sizes_of(output)[0],
                "how": how.value,
                **_counted(new, decisions),
            }
        )
    else:
        _show(new, output, decisions, plan, color)


def _counted(new: Plan, decisions: Sequence[Decision]) -> dict[str, Any]:
    """What the document says of the steps and of the new plan."""
    from ..report.json import record, summary_json

    ways, refused = _ways(decisions)
    return {
        "steps": {
            **{way.value: ways[way.value] for way in How},
            "unchanged": len(new.steps) - len(decisions),
        },
        "refusals": list(map(record, refused)),
        "summary": summary_json(new),
    }


def _show(new: Plan, output: Path, decisions: Sequence[Decision], plan: Path, color: Color) -> None:
    from ..report.notation import title_text
    from ..report.text import converted_report
    from .console import layout_of_stdout, show

    ways, _ = _ways(decisions)
    kinds = ", ".join(f"{count:,} {way}" for way, count in ways.items() if count)
    rows = {
        "converted": f"{len(decisions):,} of {len(new.steps):,} steps: {kinds or 'none has attributes of oneDNN 2'}",
        "plan": sizes_of(output)[1],
    }
    title = title_text(plan.name)
    show(converted_report(new, decisions, layout_of_stdout(), title, rows), color)


def _ways(decisions: Sequence[Decision]) -> tuple[Counter[str], list[Decision]]:
    """How many steps were converted in which way, and the refusals to do better."""
    from ..ir.decision import Outcome

    refused = [decision for decision in decisions if decision.outcome is Outcome.REFUSED]
    fired = (decision for decision in decisions if decision.outcome is Outcome.FIRED)
    ways = Counter(decision.reason.partition(":")[0] for decision in fired)
    ways[How.MECHANICAL.value] += len(refused)
    return ways, refused
