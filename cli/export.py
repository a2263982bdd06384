"""Write a quantized model as standard ONNX that other runtimes fuse.

Quantizers of any dialect (FakeQuantize, Q/DQ, QOperator, QONNX, Cast and Mul) move to where
primitives can take them, as in a plan, and the model is written back as ONNX: `--to qdq` for ONNX
Runtime and OpenVINO, `--to qoperator` for ONNX Runtime, with some of its own operators.

Codes differ from those of the model by at most 1, next to ties. No quantizer is added, unless
--calibrate gives data for its range. What standard ONNX cannot say is
refused with the name of the node. Sizes that are given are fixed in the file. The file is written at once or not at all;
beyond 2 GiB, data lies beside it in OUT.DIGEST.data, which changes in one step with it.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from .options import AsJson, Color, ColorOption, Model, choice, option
from .out import sizes_of
from .sizes import InputShape, ShapesOf, Size, given_sizes

if TYPE_CHECKING:
    from ..exporter.model import Exported
    from ..ir.graph import Graph
    from ..report.json import Json

Calibrate = Annotated[
    Path | None,
    option(
        "--calibrate",
        "Inputs, as an .npz file or a folder of such: quantizers are added where ONNX Runtime wants them, with the ranges that these give.",
        "DIR|NPZ",
    ),
]


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
    calibrate: Calibrate = None,
    size: Size = None,
    shape: InputShape = None,
    data: ShapesOf = None,
    as_json: AsJson = False,
    color: ColorOption = Color.AUTO,
) -> None:
    """Exports a model, and sums up what was written."""
    exported = _exported(
        model,
        output,
        to,
        calibrate,
        lambda graph: given_sizes([graph], size, shape, data, least=1)[0],
    )
    nodes = exported.model.graph.node
    operators = Counter(
        f"{node.domain}.{node.op_type}" if node.domain else node.op_type for node in nodes
    )
    count, written = sizes_of(output)
    if as_json:
        from .console import print_json

        print_json(_document(model, output, count, to, exported, operators))
    else:
        from ..report.exported import export_report
        from .console import show

        show(
            export_report(
                model.name,
                to.value,
                written,
                operators,
                exported.notes,
                exported.products,
                exported.operations,
                exported.added,
            ),
            color,
        )


def _document(
    model: Path, output: Path, count: int, to: To, exported: Exported, operators: Counter[str]
) -> Json:
    return {
        "schema": "fqfuse.export/1",
        "model": str(model),
        "output": str(output),
        "bytes": count,
        "to": to.value,
        "opsets": {entry.domain: entry.version for entry in exported.model.opset_import},
        "operators": dict(operators.most_common()),
        "notes": [{"node": node, "note": note} for node, note in exported.notes],
        "products": [{"node": node, "note": note} for node, note in exported.products],
        "operations": [{"node": node, "note": note} for node, note in exported.operations],
        "added": list(exported.added),
    }


def _exported(
    model: Path,
    output: Path,
    to: To,
    calibrate: Path | None,
    sizes: Callable[[Graph], Mapping[str, int]],
) -> Exported:
    from ..accuracy.data import given
    from ..exporting import placed, refuse_over, write_placed
    from .feeds import read_samples
    from .progress import Progress

    with Progress() as progress:
        progress.say(f"exporting {model.name}")
        refuse_over(output, model)
        graph = placed(model, to=to.value, sizes=sizes)
        if calibrate is None:
            return write_placed(graph, output, to.value)
        read = read_samples(calibrate, tuple(graph.inputs))
        samples = given(graph, read, calibrate.name).feeds
        progress.say(f"calibrating {model.name}")
        return write_placed(graph, output, to.value, samples)
