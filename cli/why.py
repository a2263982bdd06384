"""Tell the story of one node, quantizer, value or step.

Where it ended (which fused step, and as what), every rule that looked at it with what it expected and
what it found, and what stands in the way of better, with the change that removes it. Names are those
of the model; a node without a name has that of its first output, a step may be called 3 or #3. A
pattern such as '*conv1*', the beginning of names or the last part of their paths lists the nodes that
match. A plan file keeps no graph of the model: of what was folded away only the model itself tells.
"""

from __future__ import annotations

from typing import Annotated

import typer

from .options import Approximate, AsJson, Color, ColorOption, Dynamic, ModelOrPlan, Target
from .sizes import InputShape, ShapesOf, Size, given_sizes


def command(
    model: ModelOrPlan,
    node: Annotated[
        str, typer.Argument(metavar="NODE", help="A node, quantizer, value or step, or a pattern.")
    ],
    target: Target = None,
    dynamic: Dynamic = None,
    approximate: Approximate = None,
    size: Size = None,
    shape: InputShape = None,
    data: ShapesOf = None,
    as_json: AsJson = False,
    all_rows: Annotated[
        bool, typer.Option("--all", help="Fold no long list of names or quantizers.")
    ] = False,
    color: ColorOption = Color.AUTO,
) -> None:
    """Answers for one name."""
    from .load import is_plan_file, plan_of

    plan = plan_of(model, target, dynamic, tuple(approximate or ()))
    from ..explain import index_of

    (sizes,) = given_sizes([plan], size, shape, data)
    index = index_of(plan, None if is_plan_file(model) else model)
    matches = index.matching(node)
    from ..report.why.story import story_of
    from .console import layout_of_stdout, print_json, show

    if as_json:
        from ..report.why.document import matches_data, story_data

        several = len(matches) > 1
        print_json(
            matches_data(index, matches)
            if several
            else story_data(index.home(matches[0]).plan, story_of(index, matches[0], sizes=sizes))
        )
        return
    from ..report.notation import title_text
    from ..report.why.screen import matches_report, story_report

    layout = layout_of_stdout(all_rows=all_rows)
    if len(matches) > 1:
        show(matches_report(index, node, matches, layout), color)
        return
    story = story_of(index, matches[0], sizes=sizes)
    show(
        story_report(index.home(matches[0]).plan, story, layout, title=title_text(model.name)),
        color,
    )
