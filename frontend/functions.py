"""Model-local functions: inlined by the onnx package, after their growth has been counted."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Final

import onnx
import onnx.inliner
from onnx import FunctionProto, GraphProto, NodeProto, TensorProto

from ..errors import InvalidModel
from .budgets import Budgets
from .nodes import normal_domain
from .structure import initializer_names, subgraphs

_Key = tuple[str, str, str]  # domain, name, overload
_HINT: Final = "inline the functions before (onnx.inliner), or export the model without them"


def inlined(
    model: onnx.ModelProto, keep: Collection[tuple[str, str]], budgets: Budgets
) -> GraphProto:
    """The model's graph with all calls of local functions inlined; the data of its initializers may
    be missing.

    Args:
        model: not changed.
        keep: (domain, name) of functions that stay calls, because their meaning is known.
        budgets: limits.

    Raises:
        InvalidModel: functions that call themselves, that grow past the budget `nodes`, or that the
            inliner refuses.
    """
    functions: dict[_Key, FunctionProto] = {}
    for function in model.functions:
        key = normal_domain(function.domain), function.name, function.overload
        if key in functions:
            raise InvalidModel(f"the model has two local functions {_label(key)}", hint=_HINT)
        if key[:2] not in keep:
            functions[key] = function
    if next(_calls(model.graph.node, functions), None) is None:
        return model.graph
    budgets.check("nodes", _grown(model.graph, functions), "the model, with its functions inlined,")
    try:
        result = onnx.inliner.inline_selected_functions(
            _without_data(model), sorted(keep), exclude=True
        )
    except (RuntimeError, ValueError, onnx.checker.ValidationError) as error:
        raise InvalidModel(
            f"the model's local functions cannot be inlined: {error}", hint=_HINT
        ) from None
    left = next(_calls(result.graph.node, functions), None)
    if left is not None:
        raise InvalidModel(f"the local function {_label(left)} cannot be inlined", hint=_HINT)
    return result.graph


def _without_data(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with empty initializers: the inliner works on serialized models, which end at 2
    GiB.
    """
    bare = onnx.ModelProto(
        ir_version=model.ir_version, opset_import=model.opset_import, functions=model.functions
    )
    graph = model.graph
    bare.graph.CopyFrom(
        GraphProto(
            name=graph.name,
            node=graph.node,
            input=graph.input,
            output=graph.output,
            value_info=graph.value_info,
        )
    )
    for name in initializer_names(graph):
        bare.graph.initializer.add(name=name, data_type=TensorProto.FLOAT, dims=[0])
    return bare


def _label(key: _Key) -> str:
    return ".".join(filter(None, key[:2]))


def _calls(nodes: Iterable[NodeProto], keys: Collection[_Key]) -> Iterator[_Key]:
    for node in nodes:
        key = normal_domain(node.domain), node.op_type, node.overload
        if key in keys:
            yield key
        for body in subgraphs(node):
            yield from _calls(body.node, keys)


def _grown(graph: GraphProto, functions: dict[_Key, FunctionProto]) -> int:
    """How many nodes there will be: each function's size is counted once, after those it calls."""
    sizes: dict[_Key, int] = {}
    for start in functions:
        pending = [start]
        entered: dict[_Key, None] = {}
        while pending:
            key = pending[-1]
            if key in sizes:
                pending.pop()
                continue
            waiting = [
                callee
                for callee in dict.fromkeys(_calls(functions[key].node, functions))
                if callee not in sizes
            ]
            if key in entered and waiting:
                cycle = " -> ".join(map(_label, [*entered, key]))
                raise InvalidModel(
                    f"the model's local functions call each other in a circle: {cycle}",
                    hint="export the model again",
                )
            entered[key] = None
            if waiting:
                pending += waiting
            else:
                sizes[key] = _size(functions[key].node, sizes)
    return _size(graph.node, sizes)


def _size(nodes: Iterable[NodeProto], sizes: dict[_Key, int]) -> int:
    total = 0
    for node in nodes:
        total += sizes.get((normal_domain(node.domain), node.op_type, node.overload), 1)
        total += sum(_size(body.node, sizes) for body in subgraphs(node))
    return total
