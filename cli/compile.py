"""Compile a model into a plan of fused int8 primitives.

The plan is one ONNX file: fused primitives are nodes of the domain fqfuse, weights are int8, and
the decisions are in its metadata. It is written at once or not at all, and the same model gives the
same bytes. `fqfuse inspect` shows it, `fqfuse run` runs it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from ..errors import InvalidInput
from .options import Approximate, AsJson, Color, ColorOption, Dynamic, Model, Target, option
from .out import refuse_over, sizes_of


def command(
    model: Model,
    output: Annotated[Path, option("--output -o", "The file to write the plan to.", "PLAN")],
    target: Target = None,
    dynamic: Dynamic = None,
    approximate: Approximate = None,
    as_json: AsJson = False,
    color: ColorOption = Color.AUTO,
) -> None:
    """Compiles a model, and writes and sums up the plan."""
    from ..plan.file import save_plan
    from ..plan.saturation import steps_at_risk
    from .load import compiled, is_plan_file

    if is_plan_file(model):
        raise InvalidInput(
            "the file is a plan already",
            where=str(model),
            hint="inspect or run it as it is, or compile the model it was made of",
        )
    refuse_over(output, model, "the plan would replace the model")
    plan = compiled(model, target, dynamic, approximate)
    save_plan(plan, output)

    from ..report.json import summary_json
    from ..report.notation import title_text
    from ..report.text import summary_report
    from ..report.verdict.screen import without_vnni
    from .console import print_json, show

    size, told = sizes_of(output)
    if as_json:
        print_json(
            {
                "schema": "fqfuse.compile/1",
                "model": str(model),
                "plan": str(output),
                "bytes": size,
                "summary": summary_json(plan),
            }
        )
    else:
        rows = without_vnni(len(steps_at_risk(plan, "avx2"))) | {"plan": told}
        show(summary_report(plan, title_text(model.name), rows), color)
