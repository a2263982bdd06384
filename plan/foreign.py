"""Foreign steps as ONNX models of one node: what runs them, and the proof, before anything runs,
that they are what ONNX defines.

What the node's subgraphs read of the graph around them comes as further inputs; the node's
metadata_props name all of them under `fqfuse.inputs`, one a line, and the opsets that the subgraphs
need under `fqfuse.opsets`, lines of `domain version` (frontend/operators/foreign.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np
import onnx
from google.protobuf.message import DecodeError

from ..errors import InvalidModel, PlanError
from ..ir.constants import for_types
from ..ir.element_types import ELEMENT_TYPES
from ..ir.ops import OPS, dims
from ..ir.ops.einsum import einsum_shape
from ..ir.ops.foreign_guards import for_inference, foreign_refusal, onnx_speaking
from ..ir.ops.spec import Array, Attr
from ..ir.text_write import name_text, type_text
from ..ir.types import Shape, TensorType
from .arguments import in_order
from .types import Plan, Step

INPUTS_KEY = "fqfuse.inputs"
OPSETS_KEY = "fqfuse.opsets"

_KNOWN_TO_INFERENCE = 1024
"""Elements of a constant that shape inference is shown; the shape of an output cannot need more."""

_AGAIN = "compile the model again"

_INFERRED = (np.int64, np.int32, np.float32)


def foreign_model(
    params: Mapping[str, Attr], where: str, types: Mapping[str, onnx.ValueInfoProto] | None = None
) -> tuple[onnx.ModelProto, list[str]]:
    """A model of one foreign node.

    Args:
        params: of the op `Onnx`: op_type, domain, opset, proto (a serialized NodeProto).
        where: the node in the user's model, for messages.
        types: types of its inputs and outputs, by the node's own names; without one a name alone is
            declared.

    Returns:
        The model, and the name of each input in order, those that subgraphs read included ('' for
        an absent one).

    Raises:
        InvalidModel: the node cannot be read.
    """
    domain, opset, proto = params.get("domain", ""), params.get("opset"), params.get("proto")
    if not isinstance(domain, str) or not isinstance(opset, int) or not isinstance(proto, bytes):
        raise InvalidModel("a foreign op lacks its domain, opset or node", where=where, hint=_AGAIN)
    node = onnx.NodeProto()
    try:
        node.ParseFromString(proto)
    except DecodeError as error:
        raise InvalidModel(f"a node cannot be read: {error}", where=where, hint=_AGAIN) from error
    notes = {entry.key: entry.value for entry in node.metadata_props}
    positions = notes[INPUTS_KEY].split("\n") if INPUTS_KEY in notes else list(node.input)
    told = types or {}
    inputs, outputs = (
        [told.get(name) or onnx.ValueInfoProto(name=name) for name in names if name]
        for names in (dict.fromkeys(positions), node.output)
    )
    graph = onnx.helper.make_graph([node], "foreign", inputs, outputs)
    try:
        opsets = _opsets(notes.get(OPSETS_KEY, "")) | {domain: opset}
        model = onnx.helper.make_model(
            graph,
            opset_imports=[onnx.helper.make_opsetid(*entry) for entry in opsets.items()],
            ir_version=10,
        )
    except (ValueError, TypeError) as error:
        raise InvalidModel(
            f"the opsets of a node cannot be read: {error}", where=where, hint=_AGAIN
        ) from error
    return model, positions


def _opsets(lines: str) -> dict[str, int]:
    rows = (line.rpartition(" ") for line in lines.splitlines())
    return {"": onnx.defs.onnx_opset_version()} | {name: int(version) for name, _, version in rows}


def check_foreign(plan: Plan) -> None:
    """Holds every foreign step against ONNX: its op's schema (attributes, inputs, outputs; in
    subgraphs, too), and the types that ONNX infers for it (for an Einsum, `einsum_shape`) against
    those that the plan states.

    Raises:
        PlanError: a step is not what ONNX defines.
    """
    for step in plan.steps:
        if step.op == "Onnx" and step.bodies is None:
            _check(plan, step)


def _check(plan: Plan, step: Step) -> None:
    from onnx.reference import ReferenceEvaluator  # takes 0.1 s to import

    where = f"node {step.name}"
    with onnx_speaking(lambda said: broken_foreign(step, said)):
        model, positions = foreign_model(step.params, where)
        node = model.graph.node[0]
        values = in_order(OPS[step.op], step.args)
        if values is None or len(values) > len(positions) or len(step.outputs) != len(node.output):
            raise broken_foreign(step, "its node has other inputs or outputs than the step")
        if node.op_type != step.params.get("op_type") or node.domain != step.params.get("domain"):
            raise broken_foreign(step, f"its node is {name_text(node.op_type)}")
        if any(bool(v) != bool(p) for v, p in zip(values, positions, strict=False)) or any(
            positions[len(values) :]
        ):
            raise broken_foreign(step, "an input of its node is not there")
        problem = shown_problem(node)
        if problem:
            raise broken_foreign(step, problem)
        pairs = [
            *zip(positions, values, strict=False),
            *zip(node.output, step.outputs, strict=True),
        ]
        types = {own: declared(own, plan.type(value)) for own, value in pairs if own and value}
        einsum = node.op_type == "Einsum" and not node.domain
        if einsum:
            types[node.output[0]].type.tensor_type.ClearField("shape")
        model, _ = foreign_model(step.params, where, types)
        for own, value in dict(pairs).items():
            known = known_tensor(own, for_types(plan.constants, value))
            model.graph.initializer.extend([] if known is None else [known])
        onnx.checker.check_model(_with_ranks(model))
        onnx.shape_inference.infer_shapes(
            for_inference(model), check_type=True, strict_mode=True, data_prop=True
        )
        if einsum:
            _check_einsum(plan, step, node)
        ReferenceEvaluator(model)  # what will run it knows each operator


def _check_einsum(plan: Plan, step: Step, node: onnx.NodeProto) -> None:
    stated = plan.type(step.output)
    (equation,) = (
        attribute.s.decode() for attribute in node.attribute if attribute.name == "equation"
    )
    expected = einsum_shape(equation, [plan.type(value).shape for _, value in step.args])
    if stated.shape is not None and not _may_be(stated.shape, expected):
        raise broken_foreign(
            step,
            f"it gives {type_text(replace(stated, shape=expected))}, and the plan says {type_text(stated)}",
        )


def _may_be(stated: Shape, expected: Shape | None) -> bool:
    return expected is None or (
        len(stated) == len(expected) and not any(map(dims.differ, stated, expected))
    )


def broken_foreign(step: Step, what: str) -> PlanError:
    """The error of a foreign step that is not what ONNX defines."""
    return PlanError(
        f"the plan is not sound: {step.primitive} is no valid ONNX node: {what}",
        where=f"node {step.name}",
        hint="compile the model again",
    )


def declared(name: str, type_: TensorType) -> onnx.ValueInfoProto:
    """A value for ONNX's inference. Two unknown sizes must not look equal, so they go without a
    name.
    """
    shape = type_.shape and [None if dim == dims.UNKNOWN else dim for dim in type_.shape]
    return onnx.helper.make_tensor_value_info(name, ELEMENT_TYPES[type_.dtype], shape)


def known_tensor(name: str, data: Array | None) -> onnx.TensorProto | None:
    """A constant that ONNX's inference is shown; None for one that no shape depends on."""
    if data is None or data.size > _KNOWN_TO_INFERENCE or data.dtype not in _INFERRED:
        return None
    return onnx.numpy_helper.from_array(np.asarray(data), name)


def _with_ranks(model: onnx.ModelProto) -> onnx.ModelProto:
    """The same with a rank for every input: the checker demands one, and does not look at it."""
    ranked = onnx.ModelProto()
    ranked.CopyFrom(model)
    for info in (*ranked.graph.input, *ranked.graph.output):
        info.type.tensor_type.shape.SetInParent()
    return ranked


def shown_problem(node: onnx.NodeProto) -> str | None:
    """What ONNX's own code crashes or never ends on, in a node or inside its subgraphs; None where
    nothing is.
    """
    for inner in _nodes(node):
        attributes = {
            a.name: onnx.helper.get_attribute_value(a)
            for a in inner.attribute
            if a.type != onnx.AttributeProto.UNDEFINED
        }
        problem = foreign_refusal(inner.op_type, attributes, len(inner.input), len(inner.output))
        if problem:
            return problem
    return None


def _nodes(node: onnx.NodeProto) -> Iterator[onnx.NodeProto]:
    yield node
    for attribute in node.attribute:
        for graph in (attribute.g, *attribute.graphs) if attribute.type in (5, 10) else ():
            for inner in graph.node:
                yield from _nodes(inner)
