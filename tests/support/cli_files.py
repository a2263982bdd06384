"""Files that a user may bring by mistake, each made from nothing but its name."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from onnx import NodeProto, TensorProto, helper, numpy_helper

from fqfuse.models.digits import digits_model_path

OPENVINO = "org.openvinotoolkit"


def truncated(path: Path) -> None:
    """A model whose copying was interrupted."""
    path.write_bytes(digits_model_path("fakequantize").read_bytes()[:60_000])


def no_onnx(path: Path) -> None:
    """A text file."""
    path.write_text("This is not the model you are looking for.\n")


def empty(path: Path) -> None:
    """Nothing at all."""
    path.write_bytes(b"")


def unknown_domain(path: Path) -> None:
    """A custom op."""
    _save(path, helper.make_node("Magic", ["x"], ["y"], name="wand", domain="com.acme"), "com.acme")


def two_inputs(path: Path) -> None:
    """A sound model: `sum` and `difference` of `a` and `b`, f32 [N, 2]."""
    a, b, s, d = (
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", 2])
        for name in ("a", "b", "sum", "file/difference")
    )
    nodes = [
        helper.make_node("Add", ["a", "b"], ["sum"], name="add"),
        helper.make_node("Sub", ["a", "b"], ["file/difference"], name="sub"),
    ]
    graph = helper.make_graph(nodes, "two", [a, b], [s, d])
    path.write_bytes(
        helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9
        ).SerializeToString()
    )


def _save(
    path: Path,
    node: NodeProto,
    domain: str,
    inputs: list[str] | None = None,
    constants: dict[str, float] | None = None,
) -> None:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 4])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 4])
    scalars = [helper.make_tensor_value_info(name, TensorProto.FLOAT, []) for name in inputs or []]
    initializers = [
        numpy_helper.from_array(np.float32(value), name)
        for name, value in (constants or {}).items()
    ]
    graph = helper.make_graph([node], "broken", [x, *scalars], [y], initializers)
    opsets = [helper.make_opsetid("", 19), helper.make_opsetid(domain, 1)]
    path.write_bytes(
        helper.make_model(graph, opset_imports=opsets, ir_version=9).SerializeToString()
    )
