"""From an ONNX model to a Graph.

The way of a model: `source` reads it, `wire` counts its fields, `functions` inlines its local
functions, `operators/dialects` refuses what nobody knows, `structure` checks and sorts its wires,
`tensors` reads its constants (`ir/lifting` large ones straight from the file), `nodes` checks each node
against ONNX's schema, and `operators/` writes it into the graph by way of `importer`: in its newest
form, by the file of its dialect, by the op table, or as it is. `bodies` makes models of the bodies of If,
Loop and Scan, which the compiler compiles by themselves. Everything is checked before memory
for it is allocated (`budgets`).
"""

from __future__ import annotations

from ..ir.graph import Graph
from .bodies import BodyModels, bodies_of
from .budgets import DEFAULT, Budgets, check_budgets
from .model import graph_from_source
from .source import ModelSource, Source, read_model, serialized
from .stated import stated_shapes, told_sizes

__all__ = [
    "DEFAULT",
    "BodyModels",
    "Budgets",
    "ModelSource",
    "Source",
    "bodies_of",
    "check_budgets",
    "graph_from_onnx",
    "read_model",
    "serialized",
    "stated_shapes",
    "told_sizes",
]


def graph_from_onnx(
    source: ModelSource | Source, *, budgets: Budgets = DEFAULT, depth: int = 0
) -> Graph:
    """Imports an ONNX model.

    Args:
        source: path of a model file, its bytes, or an onnx.ModelProto (which is not changed).
            External data is found only for a path. Or what `read_model` has read.
        budgets: limits on what the model may demand.
        depth: in how many bodies of If, Loop and Scan this model lies.

    Returns:
        A graph with the model's value names, node origins and quantizers; symbolic sizes keep their
        names. Ops are at their newest opset; ops that no rule touches are nodes `Onnx`.

    Raises:
        InvalidInput: the path is no readable file.
        InvalidModel: no ONNX, broken, contradicting itself, or past a budget.
        UnsupportedOp: valid, but with ops or types that nothing here can run.
    """
    return graph_from_source(read_model(source, budgets), budgets, depth)
