"""Write a quantized model as standard ONNX that other runtimes fuse.

Quantizers of any dialect (FakeQuantize, Q/DQ, QOperator, QONNX, Cast and Mul) move to where
primitives can take them, as in a plan, and the model is written back as ONNX: `--to qdq` for ONNX
Runtime and OpenVINO, `--to qoperator` for ONNX Runtime, with some of its own operators.

Codes differ from those of the model by at most 1, next to ties. What standard ONNX cannot say is
refused with the name of the node. The file is written at once or not at all; beyond 2 GiB, data
goes to OUT.data.
"""

from __future__ import annotations

import enum
from collections import Counter
from pathlib import Path
from typing import Annotated

from .options import AsJson, Color, ColorOption, Model, choice, option


class To(enum.StrEnum):
    """In which form."""

    QDQ = "qdq"
    QOPERATOR = "qoperator"


def command(
    model: Model,
    output: Annotated[Path, option("--output -o", "The file to write.", "OUT")],
    to: Annotated[
        To, choice("--to", To, "Quantizers around operators, or operators on codes.", "form")
    ] = To.QDQ,
    as_json: AsJson = False,
    color: ColorOption = Color.AUTO,
) -> None:
    """Exports a model, and sums up what was written."""
    from ..exporting import export
    from .progress import Progress

    with Progress() as progress:
        progress.say(f"exporting {model.name}")
        exported = export(model, output, to=to.value)
    nodes = exported.model.graph.node
    operators = Counter(
        f"{node.domain}.{node.op_type}" if node.domain else node.op_type for node in nodes
    )
    size = output.stat().st_size
    if as_json:
        from .console import print_json

        print_json(
            {
                "schema": "fqfuse.export/1",
                "model": str(model),
                "output": str(output),
                "bytes": size,
                "to": to.value,
                "opsets": {entry.domain: entry.version for entry in exported.model.opset_import},
                "operators": dict(operators.most_common()),
                "notes": [{"node": node, "note": note} for node, note in exported.notes],
                "products": [{"node": node, "note": note} for node, note in exported.products],
                "operations": [{"node": node, "note": note} for node, note in exported.operations],
            }
        )
    else:
        from ..report.exported import export_report
        from .console import show

        written = f"{output} ({size:,} bytes)"
        show(
            export_report(
                model.name,
                to.value,
                written,
                operators,
                exported.notes,
                exported.products,
                exported.operations,
            ),
            color,
        )
