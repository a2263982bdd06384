"""The multiply-adds of what runs as ONNX has it: of operators without a primitive, and inside If, Loop
and Scan.

A body is counted at the shapes that it has in the first trip, as ONNX infers them. Of the branches of
an If the costlier one counts, unless the condition is constant.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import numpy as np
import onnx

from ...errors import UnsupportedOp
from ...ir.constants import for_types
from ...ir.ops import OPS
from ...ir.ops.foreign_guards import for_inference, onnx_speaking
from ...ir.ops.spec import Array
from ...plan.arguments import in_order
from ...plan.foreign import declared, foreign_model, known_tensor
from ...plan.types import Plan, Step

_EMPTY = onnx.GraphProto()
_NOTHING: Mapping[str, Array] = MappingProxyType({})


@dataclass(frozen=True)
class Body:
    """What the bodies of a node do in a run.

    Attributes:
        macs: multiply-adds of convolutions, matrix products and recurrences.
        nodes: how many nodes are computed, those of each trip anew.
        once: a loop whose trips nobody knows before it runs counts as one trip.
    """

    macs: int = 0
    nodes: int = 0
    once: bool = False

    def __add__(self, other: Body) -> Body:
        return Body(self.macs + other.macs, self.nodes + other.nodes, self.once or other.once)


def body_of(plan: Plan, step: Step) -> Body:
    """What the bodies of a step do that runs as If, Loop or Scan.

    Args:
        plan, step: the step, of the plan; sizes that are no numbers count as 1.
    """
    return _bodies(*_alone(plan, step))


def macs_of(plan: Plan, step: Step) -> int:
    """Multiply-adds of a step that runs as one of `MULTIPLYING`; sizes that are no numbers count as 1."""
    return _macs(*_alone(plan, step))


def _alone(plan: Plan, step: Step) -> tuple[onnx.NodeProto, _Scope]:
    """The node that a step runs as, and what it sees."""
    model, positions = foreign_model(step.params, f"node {step.name}")
    (node,) = model.graph.node
    values = in_order(OPS[step.op], step.args) or ()
    scope = _Scope({}, {}, tuple(model.opset_import))
    around = [*zip(positions, values, strict=False), *zip(node.output, step.outputs, strict=False)]
    for own, value in around:
        type_ = plan.find(value)
        if own and type_ is not None:
            scope.types[own] = declared(own, type_)
            scope.constants.update({own: plan.constants[value]} if value in plan.constants else {})
    return node, scope


@dataclass(frozen=True)
class _Scope:
    """What nodes see: the types of values, the data of constants, and the opsets."""

    types: dict[str, onnx.ValueInfoProto]
    constants: dict[str, Array]
    opsets: tuple[onnx.OperatorSetIdProto, ...]

    def shape(self, name: str) -> tuple[int, ...] | None:
        """The sizes of a value, 1 for one that nobody knows; None where even the rank is open."""
        info = self.types.get(name)
        if info is None or not info.type.tensor_type.HasField("shape"):
            return None
        return tuple(dim.dim_value or 1 for dim in info.type.tensor_type.shape.dim)

    def elements(self, name: str) -> int:
        """How many elements a value has."""
        return math.prod(self.shape(name) or ())


def _attributes(node: onnx.NodeProto) -> dict[str, Any]:
    known = (item for item in node.attribute if item.type != onnx.AttributeProto.UNDEFINED)
    return {item.name: onnx.helper.get_attribute_value(item) for item in known}


def _bodies(node: onnx.NodeProto, scope: _Scope) -> Body:
    given = _attributes(node)
    if node.op_type == "If":
        branches = [given.get(name, _EMPTY) for name in ("then_branch", "else_branch")]
        chosen = scope.constants.get(node.input[0])
        if chosen is not None and chosen.size == 1:
            branches = [branches[0 if chosen.any() else 1]]
        found = [_graph(branch, scope, []) for branch in branches]
        costliest = max(found, key=lambda body: (body.macs, body.nodes))
        return replace(costliest, once=any(body.once for body in found))
    body = given.get("body", _EMPTY)
    inputs: list[onnx.ValueInfoProto | None]
    if node.op_type == "Loop":
        counters = [(onnx.TensorProto.INT64, ()), (onnx.TensorProto.BOOL, ())]
        inputs = [_typed(*item) for item in counters]
        inputs += [scope.types.get(name) for name in node.input[2:]]
        going = {info.name: np.array(True) for info in body.input[1:2]}  # or no trip begins
        return _repeated(_graph(body, scope, inputs, going), _trips(node, body, scope))
    scanned = int(given.get("num_scan_inputs", 1))  # along their first axes: no other is supported
    states, rows = node.input[:-scanned], node.input[-scanned:]
    inputs = [*map(scope.types.get, states), *(_row(scope, name) for name in rows)]
    shape = scope.shape(rows[0])
    return _repeated(_graph(body, scope, inputs), shape[0] if shape else None)


def _repeated(body: Body, trips: int | None) -> Body:
    if trips is None:
        return replace(body, once=True)
    return Body(body.macs * trips, body.nodes * trips, body.once)


def _trips(node: onnx.NodeProto, body: onnx.GraphProto, scope: _Scope) -> int | None:
    """How often a Loop runs: known where the number is constant, and so is the condition."""
    most, going = (scope.constants.get(name) for name in (node.input[0], node.input[1]))
    if going is not None and not going.any():
        return 0
    if most is None or most.size != 1 or (node.input[1] and going is None) or not _goes_on(body):
        return None
    return max(0, int(most.reshape(-1)[0]))


def _goes_on(body: onnx.GraphProto) -> bool:
    """True of a body that hands on its condition as it is, or as a constant that holds."""
    if len(body.input) < 2 or not body.output:  # such a body fails in a run
        return False
    made = {name: node for node in body.node for name in node.output}
    name = body.output[0].name
    while name in made and made[name].op_type in ("Identity", "Cast") and made[name].input:
        name = made.pop(name).input[0]
    known = _constants(body).get(name)
    return name == body.input[1].name or (known is not None and bool(known.all()))


def _constants(graph: onnx.GraphProto) -> dict[str, Array]:
    """Initializers, and what Constant nodes hold: the small ones, on which counts and shapes depend."""
    found = {tensor.name: tensor for tensor in graph.initializer}
    for node in graph.node:
        value = _attributes(node).get("value") if node.op_type == "Constant" else None
        if isinstance(value, onnx.TensorProto):
            found[node.output[0]] = value
    return {
        name: onnx.numpy_helper.to_array(tensor)
        for name, tensor in found.items()
        if math.prod(tensor.dims) == 1
    }


def _typed(kind: int, shape: Sequence[int]) -> onnx.ValueInfoProto:
    return onnx.helper.make_tensor_value_info("", kind, shape)


def _row(scope: _Scope, name: str) -> onnx.ValueInfoProto | None:
    """The type of a row of a value, along its first axis."""
    info, shape = scope.types.get(name), scope.shape(name)
    return _typed(info.type.tensor_type.elem_type, shape[1:]) if info and shape else None


def _graph(
    graph: onnx.GraphProto,
    outer: _Scope,
    inputs: Sequence[onnx.ValueInfoProto | None],
    known: Mapping[str, Array] = _NOTHING,
) -> Body:
    """What the nodes of a body do, given the types of its inputs, and data, where they are known."""
    scope = _inferred(graph, outer, inputs)
    scope.constants.update(known)
    total = Body()
    for node in graph.node:
        if node.op_type in ("If", "Loop", "Scan"):
            total += _bodies(node, scope)
        elif node.op_type != "Constant":
            total += Body(_macs(node, scope), 1)
    return total


def _inferred(
    graph: onnx.GraphProto, outer: _Scope, inputs: Sequence[onnx.ValueInfoProto | None]
) -> _Scope:
    """What the nodes of a body see: the types that ONNX infers for it as a model of its own."""
    model = onnx.helper.make_model(graph, opset_imports=outer.opsets, ir_version=10)
    for own, known in zip(model.graph.input, inputs, strict=False):
        if known is not None:
            own.type.CopyFrom(known.type)
    taken = {info.name for info in model.graph.input}
    taken |= {tensor.name for tensor in model.graph.initializer}
    taken |= {name for node in model.graph.node for name in node.output}
    for name, info in outer.types.items():
        if name not in taken:
            model.graph.input.append(info)
            data = known_tensor(name, for_types(outer.constants, name))
            model.graph.initializer.extend([] if data is None else [data])
    found = model
    with suppress(UnsupportedOp), onnx_speaking(UnsupportedOp):
        found = onnx.shape_inference.infer_shapes(
            for_inference(model), check_type=False, strict_mode=False, data_prop=False
        )
    types = {
        tensor.name: onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
        for tensor in graph.initializer
    }
    types |= {info.name: info for info in _declared_in(found.graph)}
    hidden = {name: data for name, data in outer.constants.items() if name not in taken}
    return _Scope(types, hidden | _constants(graph), outer.opsets)


def _declared_in(graph: onnx.GraphProto) -> Iterator[onnx.ValueInfoProto]:
    for info in (*graph.output, *graph.value_info, *graph.input):
        if info.type.WhichOneof("value") == "tensor_type":
            yield info


# -- multiply-adds of one node ---------------------------------------------------------------------

_OPERANDS: Mapping[str, tuple[int, ...]] = MappingProxyType(
    {
        "MatMul": (0, 1),
        "MatMulInteger": (0, 1),
        "QLinearMatMul": (0, 3),
        "Conv": (0, 1),
        "ConvInteger": (0, 1),
        "QLinearConv": (0, 3),
        "ConvTranspose": (0, 1),
        "DeformConv": (0, 1),
        "LSTM": (0, 1, 2),
        "GRU": (0, 1, 2),
        "RNN": (0, 1, 2),
    }
)
"""Operator -> which inputs are multiplied."""

MULTIPLYING = frozenset({"Attention", "Einsum", "Gemm", *_OPERANDS})
"""Operators whose multiply-adds are counted."""


def _macs(node: onnx.NodeProto, scope: _Scope) -> int:
    """At least 1 of an operator that multiplies: what has no known size is there nevertheless."""
    operator = node.op_type
    if not node.input or not node.output:
        return 0
    if operator == "Einsum":
        return _einsum(node, scope)
    if operator == "Attention":
        return _attention(node, scope)
    if operator == "Gemm":
        shape = scope.shape(node.input[0]) or (1, 1)
        inner = shape[0 if _attributes(node).get("transA") else -1]
        return scope.elements(node.output[0]) * inner
    if operator not in _OPERANDS:
        return 0
    given = [*node.input, "", "", "", ""]  # what is missing fails in a run
    source, weights, *state = (given[place] for place in _OPERANDS[operator])
    if state:
        sequence = math.prod((scope.shape(source) or ())[:2])
        return sequence * (scope.elements(weights) + scope.elements(state[0]))
    if "MatMul" in operator:
        return scope.elements(node.output[0]) * (scope.shape(source) or (1,))[-1]
    window = math.prod((scope.shape(weights) or ())[1:])
    over = source if operator == "ConvTranspose" else node.output[0]
    return scope.elements(over) * window


def _einsum(node: onnx.NodeProto, scope: _Scope) -> int:
    """The product of all sizes that the equation runs over, for each operand behind the first."""
    terms = (
        _attributes(node)
        .get("equation", b"")
        .decode()
        .replace(" ", "")
        .partition("->")[0]
        .split(",")
    )
    sizes: dict[str, int] = {}
    for term, name in zip(terms, node.input, strict=False):
        before, dots, behind = term.partition("...")
        shape = scope.shape(name) or ()
        middle = len(shape) - len(before) - len(behind) if dots else 0
        letters = [*before, *(f"...{place}" for place in range(middle, 0, -1)), *behind]
        for letter, size in zip(letters, shape, strict=False):
            sizes[letter] = max(size, sizes.get(letter, 1))
    return math.prod(sizes.values()) * (len(terms) - 1)


def _attention(node: onnx.NodeProto, scope: _Scope) -> int:
    """Each query by each key, and each score by each value, those of the past among them; heads apart
    or side by side.
    """
    queries, keys, *_, past = (*node.input, "", "", "", "", "")[:5]
    known = sum(size for name in (keys, past) for size in (scope.shape(name) or ())[-2:-1])
    return (scope.elements(queries) + scope.elements(node.output[0])) * max(known, 1)
