"""Texts of a model: protobuf hands out those that are no UTF-8 as bytes, so they are looked at
before anything works with them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any

import onnx
from onnx import GraphProto, NodeProto, SparseTensorProto, TensorProto, TypeProto, ValueInfoProto

from ..errors import InvalidModel
from .structure import subgraphs


def check_texts(model: onnx.ModelProto) -> None:
    """Looks at every name, op type, domain and symbolic size.

    Raises:
        InvalidModel: one of them is no UTF-8.
    """
    functions = (
        (f.name, f.domain, f.overload, *f.input, *f.output, *f.attribute) for f in model.functions
    )
    found: Iterable[Any] = chain(
        (entry.domain for entry in model.opset_import),
        chain.from_iterable(functions),
        chain.from_iterable(_of_nodes(f.node) for f in model.functions),
        _of_graph(model.graph),
    )
    for text in found:
        if not isinstance(text, str):
            hint = "export the model again, or fetch the file once more"
            raise InvalidModel(
                f"a name in the model is no UTF-8 text: {bytes(text[:40])!r}", hint=hint
            )


def _of_graph(graph: GraphProto) -> Iterator[Any]:
    yield graph.name
    for value in chain(graph.input, graph.output, graph.value_info):
        yield from _of_value(value)
    for tensor in graph.initializer:
        yield from _of_tensor(tensor)
    for sparse in graph.sparse_initializer:
        yield from _of_sparse(sparse)
    yield from _of_nodes(graph.node)


def _of_nodes(nodes: Iterable[NodeProto]) -> Iterator[Any]:
    for node in nodes:
        yield node.name
        yield node.op_type
        yield node.domain
        yield node.overload
        yield from node.input
        yield from node.output
        for attribute in node.attribute:
            yield attribute.name
            yield attribute.ref_attr_name
            yield from _of_tensor(attribute.t)
            for tensor in attribute.tensors:
                yield from _of_tensor(tensor)
            yield from _of_sparse(attribute.sparse_tensor)
        for body in subgraphs(node):
            yield from _of_graph(body)


def _of_value(value: ValueInfoProto) -> Iterator[Any]:
    yield value.name
    yield from _of_type(value.type)


def _of_type(type_: TypeProto) -> Iterator[Any]:
    for size in type_.tensor_type.shape.dim:
        yield size.dim_param


def _of_tensor(tensor: TensorProto) -> Iterator[Any]:
    yield tensor.name
    for entry in tensor.external_data:
        yield entry.key
        yield entry.value


def _of_sparse(sparse: SparseTensorProto) -> Iterator[Any]:
    yield from _of_tensor(sparse.values)
    yield from _of_tensor(sparse.indices)
