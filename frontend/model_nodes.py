"""The nodes of a model by name, without their data: for explanations of what no step is left of."""

from __future__ import annotations

from ..ir.model_node import ModelNode
from .budgets import DEFAULT, Budgets
from .functions import inlined
from .nodes import origin_of_proto
from .operators.dialects import HANDLERS
from .source import ModelSource, read_model
from .structure import captured_names, count_nodes
from .texts import check_texts


def model_nodes(source: ModelSource, *, budgets: Budgets = DEFAULT) -> tuple[ModelNode, ...]:
    """The nodes of a model in its order, as origins and decisions call them.

    Args:
        source: as `graph_from_onnx` takes it.
        budgets: limits on what the model may demand.

    Raises:
        InvalidInput, InvalidModel: as `graph_from_onnx`.
    """
    model = read_model(source, budgets).model
    check_texts(model)
    count_nodes(model.graph.node, budgets)
    graph = inlined(model, HANDLERS.keys(), budgets)
    return tuple(
        ModelNode(
            origin_of_proto(proto),
            proto.op_type,
            tuple(dict.fromkeys(filter(None, (*proto.input, *captured_names(proto))))),
            tuple(filter(None, proto.output)),
        )
        for proto in graph.node
    )
