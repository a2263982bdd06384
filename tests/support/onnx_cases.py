"""Small ONNX models for the tests of the frontend, and the comparison of an imported graph with
ONNX Runtime.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import NodeProto, TensorProto, helper, numpy_helper
from support.judge import optimized_model, ort_session

from fqfuse.frontend import graph_from_onnx
from fqfuse.ir.graph import Graph
from fqfuse.ir.interpret import run_graph
from fqfuse.ir.verify import IMPORTED, check
from fqfuse.runtime.fallback import foreign_op

NEWEST_OF_ORT = 26
"""The newest opset that the tested ONNX Runtime accepts."""

Feeds = Mapping[str, Any]


def model(
    nodes: Sequence[NodeProto],
    *,
    inputs: Mapping[str, Sequence[int | str | None]] | None = None,
    outputs: Sequence[str] = ("y",),
    constants: Mapping[str, Any] | None = None,
    opset: int = 21,
    domains: Mapping[str, int] | None = None,
    types: Mapping[str, int] | None = None,
    functions: Sequence[onnx.FunctionProto] = (),
) -> onnx.ModelProto:
    """A model; inputs are f32 unless `types` says otherwise, constants keep the type of their
    arrays.
    """
    kinds = types or {}
    shapes = {"x": [2, 3, 4, 5]} if inputs is None else inputs
    infos = [
        helper.make_tensor_value_info(name, kinds.get(name, TensorProto.FLOAT), shape)
        for name, shape in shapes.items()
    ]
    results = [onnx.ValueInfoProto(name=name) for name in outputs]
    initializers = [tensor(name, value) for name, value in (constants or {}).items()]
    graph = helper.make_graph(list(nodes), "case", infos, results, initializers)
    imports = [
        helper.make_opsetid("", opset),
        *(helper.make_opsetid(name, version) for name, version in (domains or {}).items()),
    ]
    # IR version 10: the newest one that every tested ONNX Runtime reads; 8 came before int4.
    return helper.make_model(graph, opset_imports=imports, ir_version=10, functions=list(functions))


def tensor(name: str, value: Any) -> TensorProto:
    """A TensorProto from an array, or under another name from a TensorProto."""
    if isinstance(value, TensorProto):
        copy = TensorProto()
        copy.CopyFrom(value)
        copy.name = name
        return copy
    return numpy_helper.from_array(np.asarray(value), name)


def node(
    op: str, inputs: Sequence[str], outputs: Sequence[str] = ("y",), **attributes: Any
) -> NodeProto:
    """A node."""
    return helper.make_node(op, list(inputs), list(outputs), **attributes)


def random(
    shape: Sequence[int], seed: int = 0, scale: float = 1.0
) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Normally distributed f32."""
    return (np.random.default_rng(seed).standard_normal(shape) * scale).astype(np.float32)


def run_ort(proto: onnx.ModelProto, feeds: Feeds, *, optimized: bool = False) -> list[Any]:
    """The outputs of ONNX Runtime without any optimization, or with all of them."""
    arrays = {name: np.asarray(value) for name, value in feeds.items()}
    return list(ort_session(proto, optimized=optimized).run(None, arrays))


def optimized_operators(proto: onnx.ModelProto, folder: Path) -> Counter[str]:
    """The operators that ONNX Runtime makes of a model with all optimizations, by way of a folder."""
    return Counter(found.op_type for found in optimized_model(proto, folder).graph.node)


def run_import(proto: onnx.ModelProto, feeds: Feeds) -> tuple[Graph, list[Any]]:
    """The imported graph, held against the specification of its stage, and what it computes."""
    graph = graph_from_onnx(proto)
    check(graph, IMPORTED)
    arrays = {name: np.asarray(value) for name, value in feeds.items()}
    results = run_graph(
        graph, arrays, foreign=lambda node, given: foreign_op(node.attrs, node.name)(given)
    )
    return graph, list(results.values())


def compare(
    proto: onnx.ModelProto,
    feeds: Feeds,
    *,
    rtol: float = 0.0,
    atol: float = 0.0,
    expected: Sequence[Any] | None = None,
) -> Graph:
    """Imports, runs, and compares with ONNX Runtime (or with `expected`); gives the graph."""
    graph, found = run_import(proto, feeds)
    for name, actual, wanted in zip(
        graph.outputs, found, run_ort(proto, feeds) if expected is None else expected, strict=True
    ):
        assert actual.dtype == wanted.dtype, name
        assert actual.shape == wanted.shape, name
        known = graph.type(name).shape
        assert known is None or all(
            isinstance(k, str) or k == n for k, n in zip(known, wanted.shape, strict=True)
        ), name
        np.testing.assert_allclose(actual, wanted, rtol=rtol, atol=atol, err_msg=name)
    return graph


def ops(graph: Graph) -> list[str]:
    """The ops of a graph in order."""
    return [found.op for found in graph.nodes()]
