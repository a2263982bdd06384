"""Runs a foreign op, one that the op table has no row for, by `onnx.reference`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator

from ..composer.plan import Step
from ..errors import InternalError, InvalidInput, InvalidModel, UnsupportedOp
from ..ir.graph import Node
from ..ir.ops.spec import Array, Attr

__all__ = ["ForeignOp", "foreign_op", "run_foreign", "run_step_foreign"]

ForeignOp = Callable[[Sequence[Array | None]], list[Array]]
"""Inputs of a foreign op, in order (None: absent) -> its outputs."""


def foreign_op(params: Mapping[str, Attr], where: str) -> ForeignOp:
    """What runs one foreign node.

    Args:
        params: of the op `Onnx`: op_type, domain, opset, proto (a serialized NodeProto).
        where: the node in the user's model, for messages.

    Raises:
        UnsupportedOp: `onnx.reference` does not implement the op.
        InvalidModel: the node cannot be read.
    """
    domain, opset, proto = params.get("domain", ""), params.get("opset"), params.get("proto")
    if not isinstance(domain, str) or not isinstance(opset, int) or not isinstance(proto, bytes):
        raise InternalError(f"the foreign op at {where} lacks its domain, opset or proto")
    node = onnx.NodeProto()
    try:
        node.ParseFromString(proto)
    except Exception as error:  # protobuf's DecodeError differs between its implementations
        raise InvalidModel(f"a node cannot be read: {error}", where=where) from error
    inputs = list(dict.fromkeys(name for name in node.input if name))
    graph = onnx.helper.make_graph(
        [node],
        "foreign",
        [onnx.ValueInfoProto(name=name) for name in inputs],
        [onnx.ValueInfoProto(name=name) for name in node.output if name],
    )
    imports = [onnx.helper.make_opsetid(domain, opset)]
    if domain:
        imports.append(onnx.helper.make_opsetid("", onnx.defs.onnx_opset_version()))
    model = onnx.helper.make_model(graph, opset_imports=imports)
    try:
        evaluator = ReferenceEvaluator(model)
    except (NotImplementedError, onnx.reference.op_run.RuntimeContextError, RuntimeError, TypeError) as error:
        name = f"{domain}.{node.op_type}" if domain else node.op_type
        raise UnsupportedOp(
            f"nothing here can run the operator {name} (opset {opset}): {error}",
            where=where,
            hint="replace it in the model by standard ONNX operators",
        ) from error
    positions = list(node.input)
    outputs = list(node.output)

    def run(arrays: Sequence[Array | None]) -> list[Array]:
        feeds = {name: array for name, array in zip(positions, arrays, strict=False) if name}
        try:
            found = dict(zip([name for name in outputs if name], evaluator.run(None, feeds), strict=True))
        except (ValueError, IndexError, TypeError, RuntimeError, ZeroDivisionError) as error:
            shapes = ", ".join("absent" if a is None else f"{a.dtype}{list(a.shape)}" for a in arrays)
            raise InvalidInput(
                f"{node.op_type} cannot be computed on {shapes}: {error}", where=where, hint="check the inputs of this node"
            ) from error
        return [np.asarray(found[name]) if name else np.empty(0, np.float32) for name in outputs]

    return run


def run_foreign(node: Node, arrays: Sequence[Array | None]) -> Sequence[Array]:
    """A foreign node of a graph, for `ir.interpret.run_graph(foreign=...)`."""
    return foreign_op(node.attrs, ", ".join(node.origin) or node.name)(arrays)


def run_step_foreign(step: Step) -> ForeignOp:
    """A foreign step of a plan."""
    return foreign_op(step.params, ", ".join(step.origin) or step.name)
