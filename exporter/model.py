"""The ONNX model around the nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from onnx import ModelProto, NodeProto, ValueInfoProto, helper

from ..ir.cleanup import erase_dead
from ..ir.element_types import ELEMENT_TYPES
from ..ir.graph import Graph
from ..ir.node import Node, subject
from ..ir.ops.spec import Array
from ..ir.types import TensorType
from .biases import place_biases
from .calibrated import quantize_rest
from .channels import one_scale
from .clips import fold_clips
from .concats import decode_parts
from .constants import place_constants
from .factors import fold_factors
from .foreign import write_foreign
from .left_in_f32 import (
    decoded_weights,
    operations_in_f32,
    products_in_f32,
    products_without_operator,
)
from .liberties import give_up_generated_names, would_be_quantized
from .names import Writer
from .normalizations import join_affine
from .on_codes import convolve_channels
from .packed import join_packed
from .qoperator import fused_operators, operations_of
from .quantizers import write_dequantize, write_quantize
from .rows import is_standard, refused, write_row
from .run_time import operations_at_run_time, run_time_operators
from .signs import unsigned_codes
from .spelled import SPELLED
from .sums import place_sums
from .zero_points import settle_zero_points

FORMS = ("qdq", "qoperator")
"""`qdq`: QuantizeLinear and DequantizeLinear around float operators. `qoperator`: operators on
codes, some of them ONNX Runtime's own.
"""

_IR_VERSION = 10  # what opset 21 came with


@dataclass(frozen=True)
class Exported:
    """A model that was written.

    Attributes:
        model: the ONNX model.
        notes: quantizers that peers compute in f32: (node, why).
        products: convolutions and matrix products of quantized inputs that ONNX Runtime computes in f32
            all the same: (node, why).
        operations: other operations that read codes and that ONNX Runtime computes in f32: (node, why).
        added: nodes behind which a quantizer was added, and quantizers that got one scale.
    """

    model: ModelProto
    notes: tuple[tuple[str, str], ...]
    products: tuple[tuple[str, str], ...] = ()
    operations: tuple[tuple[str, str], ...] = ()
    added: tuple[str, ...] = ()


_Write = Callable[[Writer, Graph, Node], None]

_OWN: Mapping[str, _Write] = {
    **SPELLED,
    "Dequantize": write_dequantize,
    "Onnx": write_foreign,
    "Quantize": write_quantize,
}


def model_from_graph(
    graph: Graph, form: str, samples: Iterable[Mapping[str, Array]] | None = None
) -> Exported:
    """Writes a graph behind the passes as ONNX. The graph is changed: quantizers are placed.

    Args:
        graph: consistent; nothing else has it.
        form: one of `FORMS`.
        samples: arrays of the inputs: quantizers are added by the ranges that they give
            (`quantize_rest`); None: none are added.

    Raises:
        UnsupportedOp: an operation cannot be said in standard ONNX; the node is named.
        InvalidInput: the samples do not fit the model.
    """
    decode_parts(graph)
    settle_zero_points(graph)
    fold_clips(graph, on_codes=form == "qoperator")
    one_scale(graph)
    added = () if samples is None else quantize_rest(graph, samples)
    if added:
        fold_clips(graph, on_codes=form == "qoperator")
    fold_factors(graph)
    join_affine(graph)
    convolve_channels(graph)
    erase_dead(graph)
    place_sums(graph)
    unsigned_codes(graph)
    if form == "qoperator":
        join_packed(graph)
    place_constants(graph)
    at_run_time = operations_at_run_time(graph)
    fused = fused_operators(graph)
    taken = operations_of(graph, fused) | at_run_time
    if form == "qoperator":
        left = [*products_without_operator(graph, taken)]
    else:
        fused = {}
        place_biases(graph)
        left = [*products_in_f32(graph, at_run_time)]
    between = [*operations_in_f32(graph, taken)]
    give_up_generated_names(graph)
    fused |= run_time_operators(graph)
    writer = Writer([*graph.values, *graph.constants])
    writer.spelled |= decoded_weights(graph, (node for node, _ in left))
    for node in graph.nodes():
        found = fused.get(node.name)
        if found is not None:
            found(writer)
        else:
            _write(writer, graph, node)
    for name in graph.outputs:
        if would_be_quantized(graph, name):
            _return_apart(writer, name)
    products, operations = (
        tuple((subject(node), why) for node, why in found) for found in (left, between)
    )
    return Exported(_model(writer, graph), tuple(writer.notes), products, operations, added)


def _write(writer: Writer, graph: Graph, node: Node) -> None:
    write = _OWN.get(node.op)
    if write is not None:
        write(writer, graph, node)
    elif is_standard(node):
        write_row(writer, graph, node)
    else:
        raise refused(node, f"ONNX has no operator {node.op}")


def _model(writer: Writer, graph: Graph) -> ModelProto:
    outputs = [_returned(writer, graph, name) for name in graph.outputs]
    nodes = _read_nodes(writer.nodes, graph.outputs)
    read = {name for node in nodes for name in _reads(node)}
    for name in graph.constants:
        if name in read and name not in writer.tensors:
            writer.file(name, graph.constants[name], graph.type(name).dtype)
    made = helper.make_graph(
        nodes,
        graph.name or "model",
        [_value_info(name, graph.type(name)) for name in graph.inputs],
        outputs,
        [writer.tensors[name] for name in writer.tensors if name in read],
    )
    domains = {"", *(node.domain for node in nodes)}
    imports = [
        helper.make_opsetid(domain, version)
        for domain, version in sorted(writer.opsets.items())
        if domain in domains
    ]
    return helper.make_model(
        made, opset_imports=imports, ir_version=_IR_VERSION, producer_name="fqfuse"
    )


def _returned(writer: Writer, graph: Graph, name: str) -> ValueInfoProto:
    """An output; a constant that the model returns goes through an Identity."""
    if name in graph.constants:
        held = writer.constant(f"{name}/constant", graph.constants[name], graph.type(name).dtype)
        writer.node("Identity", [held], [name], name)
    return _value_info(name, graph.type(name))


def _return_apart(writer: Writer, name: str) -> None:
    """Gives a computed output another name, and returns a copy."""
    inner = writer.fresh(f"{name}/inner")
    makers = [index for index, node in enumerate(writer.nodes) if name in node.output]
    for node in writer.nodes:
        node.input[:] = [inner if value == name else value for value in node.input]
        node.output[:] = [inner if value == name else value for value in node.output]
    writer.node("Sum", [inner], [name], name)  # an Identity is taken out again
    writer.nodes.insert(makers[0] + 1, writer.nodes.pop())


def _reads(node: NodeProto) -> Iterator[str]:
    """The values that a node reads, those of its subgraphs included."""
    yield from node.input
    for attribute in node.attribute:
        for graph in [attribute.g, *attribute.graphs]:
            yield from (value.name for value in graph.output)
            for inner in graph.node:
                yield from _reads(inner)


def _read_nodes(nodes: Sequence[NodeProto], outputs: Sequence[str]) -> list[NodeProto]:
    """The nodes whose results something reads."""
    read, kept = set(outputs), []
    for node in reversed(nodes):
        if read.intersection(node.output):
            read.update(_reads(node))
            kept.append(node)
    return kept[::-1]


def _value_info(name: str, kind: TensorType) -> ValueInfoProto:
    """A declared value; sizes without a name stay without one."""
    shape = None if kind.shape is None else [None if dim == "?" else dim for dim in kind.shape]
    return helper.make_tensor_value_info(name, ELEMENT_TYPES[kind.dtype], shape)
