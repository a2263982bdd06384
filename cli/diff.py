"""Compare two models or plans step by step, or one model compiled in two ways.

Steps are aligned by the nodes of the model that both name. Told are the steps that only one of the
two has, what differs in the others, quantizers that went elsewhere, rules that decided otherwise, and
what that does to the arithmetic in int8, the bytes in f32 and the estimated time. Without B, A is
compared with itself, compiled as the options --other-... say. The exit code is 0 where all
steps are equal, and inputs, outputs and target, 1 where they differ.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .options import Approximate, AsJson, Color, ColorOption, Dynamic, Target, UsageError
from .sizes import InputShape, ShapesOf, Size, given_sizes

if TYPE_CHECKING:
    from ..report.diff.compare import Difference

OtherTarget = Annotated[
    str | None,
    typer.Option(
        "--other-target", metavar="NAME", help="The target for B, where it is another than A's."
    ),
]
OtherDynamic = Annotated[
    str | None,
    typer.Option("--other-dynamic", metavar="matmul|all", help="As --dynamic, for B alone."),
]
OtherApproximate = Annotated[
    list[str] | None,
    typer.Option("--other-approximate", metavar="NAME", help="As --approximate, for B alone."),
]


def command(
    first: Annotated[Path, typer.Argument(metavar="A", help="An ONNX model, or a plan.")],
    second: Annotated[
        Path | None, typer.Argument(metavar="B", help="Another one; A itself if not given.")
    ] = None,
    target: Target = None,
    other_target: OtherTarget = None,
    dynamic: Dynamic = None,
    other_dynamic: OtherDynamic = None,
    approximate: Approximate = None,
    other_approximate: OtherApproximate = None,
    size: Size = None,
    shape: InputShape = None,
    data: ShapesOf = None,
    as_json: AsJson = False,
    all_rows: Annotated[bool, typer.Option("--all", help="Show every row of every part.")] = False,
    color: ColorOption = Color.AUTO,
) -> None:
    """Tells what differs."""
    if second is None and not (other_target or other_dynamic or other_approximate):
        raise UsageError(
            "there is nothing to compare with",
            where="command line of fqfuse diff",
            hint="name a second model or plan, or another target with --other-target",
        )
    from .load import checked_options, plan_of

    other = second or first
    checked_options(other_target, other_dynamic, other_approximate, prefix="--other-")
    plans = (
        plan_of(first, target, dynamic, tuple(approximate or ())),
        plan_of(
            other,
            other_target or target,
            other_dynamic or dynamic,
            tuple(other_approximate or approximate or ()),
        ),
    )
    from ..report.diff.compare import difference_of

    difference = difference_of(*plans, sizes=given_sizes(plans, size, shape, data))
    if as_json:
        from ..report.diff.document import difference_data
        from .console import print_json

        print_json(difference_data(difference))
    else:
        titles = (f"{first}, {plans[0].target}", f"{other}, {plans[1].target}")
        _show(difference, titles, color, all_rows=all_rows)
    if not difference.is_empty:
        raise typer.Exit(1)


def _show(difference: Difference, titles: tuple[str, str], color: Color, *, all_rows: bool) -> None:
    from ..report.diff.screen import diff_report
    from .console import layout_of_stdout, show

    layout = layout_of_stdout(all_rows=all_rows)
    show(diff_report(difference, titles, layout, all_rows=all_rows), color)
