"""A whole model: opsets, functions, inputs, constants, nodes, outputs, in this order."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import onnx
from onnx import GraphProto, NodeProto, TensorProto, ValueInfoProto

from ..errors import FqfuseError, InvalidModel, UnsupportedOp
from ..ir.decision import Decision, Outcome
from ..ir.graph import Graph
from ..ir.ops.spec import NotCovered
from ..ir.types import MOST_DIMENSIONS, DType, Shape, TensorType, dimensions
from .apart import is_apart, refused_port, with_sequences_apart
from .bodies import with_weights_inside
from .branches import branch_nodes
from .budgets import Budgets
from .element_types import dtype_of
from .functions import inlined
from .halves import widened
from .importer import Importer
from .nodes import DEFAULT_DOMAIN, OnnxNode, kind_told, normal_domain, read_node, signature
from .operators.dialects import HANDLERS, check_known, handler_of
from .source import Source
from .structure import check_wiring, count_nodes, initializer_names
from .tensors import Constant, TensorReader
from .texts import check_texts

_WEIGHT_BITS: Final = 8
_UNREADABLE: Final = re.compile(r"[`\[\],{}\s]+")  # would break the text form of types
_NO_NAME: Final = re.compile(r"[^A-Za-z_]*|[Nn]one|unk__\d+")
"""What exporters write for a dimension without a name (`?`, `-1`, `None`): two of them need not be equal."""


def graph_from_source(source: Source, budgets: Budgets, depth: int = 0) -> Graph:
    """The graph of a parsed model, which may be a body in so many others. Raises as `graph_from_onnx`;
    the place names the file too.
    """
    try:
        return _import(source, budgets, depth)
    except FqfuseError as error:
        where = f"{source.label}: {error.where}" if error.where else source.label
        raise type(error)(error.what, where=where, hint=error.hint) from error.__cause__


def _import(source: Source, budgets: Budgets, depth: int) -> Graph:
    model = source.model
    check_texts(model)
    opsets = _opsets(model)
    count_nodes(model.graph.node, budgets)
    graph = with_weights_inside(inlined(model, HANDLERS.keys(), budgets), model.graph)
    check_known(graph.node, opsets)
    wiring = check_wiring(graph, model.graph)
    apart = with_sequences_apart(graph)
    if apart is not graph:
        graph, wiring = apart, check_wiring(apart, model.graph)
    tensors = TensorReader(budgets, source.folder)

    def import_body(body: Source) -> Graph:
        return graph_from_source(body, budgets, depth + 1)

    ctx = Importer(graph, wiring, opsets, tensors, budgets, handler_of, import_body, depth)
    _add_inputs(ctx, source)
    _add_constants(ctx, source)
    for index in wiring.order:
        if index not in ctx.absorbed:
            _import_node(ctx, graph.node[index])
    if not graph.output:
        raise InvalidModel(
            "the model has no outputs, so it computes nothing",
            hint="declare the values that it should return",
        )
    ctx.graph.set_outputs([value.name for value in graph.output])
    _check_ranks(ctx.graph)
    _keep_weights(ctx.graph)
    return widened(ctx.graph)


def _check_ranks(graph: Graph) -> None:
    """Refuses values of more dimensions than arrays have.

    Raises:
        UnsupportedOp: there is one.
    """
    for value, type_ in graph.values.items():
        if len(type_.shape or ()) > MOST_DIMENSIONS:
            maker = graph.producer(value)
            raise UnsupportedOp(
                f"{value[:200]!r} has {dimensions(type_.rank)}, and at most {MOST_DIMENSIONS} are supported",
                where="an input of the model" if maker is None else ", ".join(maker.origin),
                hint="merge dimensions by a Reshape: those of size 1 tell nothing",
            )


def _keep_weights(graph: Graph) -> None:
    """Notes with each quantizer of constant codes how they decode: passes and primitives join
    other factors to that scale. The codes of an integer product have none of their own.
    """
    for node in graph.each("Dequantize"):
        if graph.constant(node.input) is None or graph.type(node.input).dtype.bits > _WEIGHT_BITS:
            continue  # a bias
        for name in node.quantizer:
            held = graph.quantizers[name]
            if not held.form.startswith(("MatMulInteger", "ConvInteger")):
                graph.quantizers[name] = replace(held, quant=node.quant)


def _import_node(ctx: Importer, proto: NodeProto) -> None:
    if _is_constant(proto):
        return
    for name in proto.input:
        if name in ctx.late:
            ctx.late.pop(name)()
    node = read_node(proto, ctx.node_name(proto), ctx.opsets)
    if _take_branch(ctx, node):
        return
    _check_text_inputs(ctx, node)
    try:
        ctx.take(node)
    except NotCovered as error:  # a dialect's op on types that it is not made for
        raise node.invalid(str(error), "correct the types of what feeds this node") from None


def _take_branch(ctx: Importer, node: OnnxNode) -> bool:
    """Imports the branch of an If whose condition is constant, or follows from sizes, in its place."""
    if node.op != "If" or node.domain or is_apart(node.proto):
        return False
    condition = ctx.constant(node.input(0))
    if condition is None or condition.size != 1:
        return False
    taken = "then_branch" if condition.item() else "else_branch"
    body = node.attr(taken, None)
    if not isinstance(body, GraphProto) or len(body.output) != len(node.outputs):
        return False
    nodes, constants = branch_nodes(body, node.outputs, partial(ctx.renamed, node))
    told = (
        f"the condition is always {bool(condition.item())}: {taken} stands in the place of the If"
    )
    ctx.graph.decide(Decision("take_branch", node.origin, Outcome.FIRED, told))
    _import_branch(ctx, nodes, constants)
    return True


def _import_branch(
    ctx: Importer, nodes: Sequence[NodeProto], constants: Iterable[TensorProto]
) -> None:
    """Imports nodes of a branch as the model's own."""
    for tensor in constants:
        _add_initializer(ctx, tensor, None)
    for index, proto in ctx.take_branch(nodes):
        if _is_constant(proto):
            inner = read_node(proto, proto.name, ctx.opsets)
            ctx.graph.add_constant(inner.output(0), *_constant_value(ctx, proto, inner.where))
        elif index not in ctx.absorbed:
            _import_node(ctx, proto)


def _check_text_inputs(ctx: Importer, node: OnnxNode) -> None:
    """Refuses texts where ONNX demands numbers: what reads constants takes them for such.

    Raises:
        InvalidModel: an input of ONNX's own ops, or any of a dialect's, is a tensor of texts and
            may not be one.
    """
    found = signature(node.op, node.version, node.domain)
    for index, value in enumerate(node.inputs):
        if value not in ctx.graph.values or ctx.type(value).dtype is not DType.STRING:
            continue
        if found is None or not found.texts[min(index, len(found.texts) - 1)]:
            raise node.invalid(
                f"{node.op} takes no texts, and its input {value!r} holds texts", "feed it numbers"
            )


def _opsets(model: onnx.ModelProto) -> dict[str, int]:
    """Domain -> version.

    Raises:
        InvalidModel: none for ONNX's own ops, two for one domain, or one that the installed onnx
            package does not know yet.
    """
    opsets: dict[str, int] = {}
    for entry in model.opset_import:
        domain = normal_domain(entry.domain)
        if opsets.setdefault(domain, entry.version) != entry.version:
            raise InvalidModel(
                f"two opsets are imported for the domain {domain!r}",
                hint="keep one opset_import a domain",
            )
    if not opsets and model.ir_version < 3:  # files from before there were opsets
        opsets[DEFAULT_DOMAIN] = 1
    newest = onnx.defs.onnx_opset_version()
    version = opsets.get(DEFAULT_DOMAIN)
    if version is None:
        if any(normal_domain(node.domain) == DEFAULT_DOMAIN for node in model.graph.node):
            raise InvalidModel(
                "no opset is imported for ONNX's own operators",
                hint="add an opset_import with an empty domain",
            )
        opsets[DEFAULT_DOMAIN] = version = newest
    if not 1 <= version <= newest:
        hint = f"upgrade the onnx package (onnx {onnx.__version__} knows 1 to {newest}), or export to an older opset"
        raise InvalidModel(f"the model imports opset {version}, which is not known here", hint=hint)
    return opsets


# -- inputs ----------------------------------------------------------------------------------------


def _add_inputs(ctx: Importer, source: Source) -> None:
    """Adds the inputs, but those that an initializer of the same name makes constants."""
    constants = set(initializer_names(source.model.graph))
    inputs = [value for value in ctx.source.input if value.name not in constants]
    given = (d.dim_param for value in inputs for d in value.type.tensor_type.shape.dim)
    names = {
        name: ctx.size_name(_UNREADABLE.sub("_", name))
        for name in dict.fromkeys(() if source.apart else given)
        if not _NO_NAME.fullmatch(name)
    }
    sizes = _Sizes(source.size_of, names, source.named)
    for value in inputs:
        _add_input(ctx, value, sizes)


@dataclass(frozen=True)
class _Sizes:
    """Of the dimensions of inputs.

    Attributes:
        known: the number, where there is one.
        names: what a name in the file is called in the graph.
        given: sizes by their names in the graph.
    """

    known: Callable[[onnx.TensorShapeProto.Dimension], int | None]
    names: Mapping[str, str]
    given: Mapping[str, int]


def _add_input(ctx: Importer, value: ValueInfoProto, sizes: _Sizes) -> None:
    where = f"graph input {value.name[:200]!r}"
    kind = value.type.WhichOneof("value")
    if kind is None:
        raise InvalidModel(
            "the input has no type", where=where, hint="declare its element type and shape"
        )
    if kind != "tensor_type":
        raise refused_port("input", value.name, kind_told(kind))
    tensor, shape = value.type.tensor_type, None
    dtype = dtype_of(tensor.elem_type, where)
    if tensor.HasField("shape"):
        shape = _input_shape(ctx, value.name, tensor.shape.dim, sizes, where)
    ctx.graph.add_input(value.name, TensorType(dtype, shape))


def _input_shape(ctx: Importer, name: str, dims: Sequence[Any], sizes: _Sizes, where: str) -> Shape:
    """Sizes; symbolic ones by their name in the model, and new names where it has none (-1 counts as none,
    see `_NO_NAME`).
    """
    shape: list[int | str] = []
    for axis, dim in enumerate(dims):
        size = sizes.known(dim)
        if size is not None:
            if size < 0:
                hint = "give it a size, or a name if it is symbolic"
                raise InvalidModel(f"dimension {axis} has the size {size}", where=where, hint=hint)
            shape.append(size)
        else:
            free = sizes.names.get(dim.dim_param)
            free = free or ctx.size_name(re.sub(r"\W", "_", f"{name}_{axis}"))
            shape.append(sizes.given.get(free, free))
    return tuple(shape)


# -- constants -------------------------------------------------------------------------------------


def _add_constants(ctx: Importer, source: Source) -> None:
    """Initializers and Constant nodes that something reads, before any node: their names are theirs
    then.
    """
    model = source.model
    for index, tensor in enumerate(model.graph.initializer):
        # what is not kept as it is goes at once
        raw = source.lifted.pop(index, None)
        if not _is_read(ctx, tensor.name):
            continue
        if raw is not None and _is_packed_again(ctx, tensor):
            ctx.late[tensor.name] = partial(_add_initializer, ctx, tensor, raw)
        else:
            _add_initializer(ctx, tensor, raw)
    for sparse in model.graph.sparse_initializer:
        name = sparse.values.name
        if _is_read(ctx, name):
            where = f"sparse initializer {name[:200]!r}"
            ctx.graph.add_constant(name, *ctx.tensors.read_sparse(sparse, where))
    for proto in ctx.source.node:
        if _is_constant(proto) and proto.output and _is_read(ctx, proto.output[0]):
            node = read_node(proto, proto.name, ctx.opsets)
            ctx.graph.add_constant(node.output(0), *_constant_value(ctx, proto, node.where))


def _add_initializer(ctx: Importer, tensor: TensorProto, raw: npt.NDArray[np.uint8] | None) -> None:
    where = f"initializer {tensor.name[:200]!r}"
    ctx.graph.add_constant(tensor.name, *ctx.tensors.read_as_it_lies(tensor, where, raw))


def _is_packed_again(ctx: Importer, tensor: TensorProto) -> bool:
    """True of 4-bit codes, one to a byte in the graph, that one DequantizeLinear in blocks reads,
    which packs them.
    """
    name = tensor.name
    readers = [proto for _, proto in ctx.readers(name)]
    return (
        tensor.data_type in (TensorProto.INT4, TensorProto.UINT4)
        and len(readers) == 1
        and name not in ctx.model_outputs
        and (readers[0].op_type, normal_domain(readers[0].domain))
        == ("DequantizeLinear", DEFAULT_DOMAIN)
        and list(readers[0].input).count(name) == 1
        and readers[0].input[0] == name
        and any(item.name == "block_size" and item.i > 0 for item in readers[0].attribute)
    )


def _is_read(ctx: Importer, name: str) -> bool:
    return bool(ctx.wiring.readers.get(name)) or name in ctx.model_outputs


def _is_constant(proto: NodeProto) -> bool:
    return proto.op_type == "Constant" and normal_domain(proto.domain) == DEFAULT_DOMAIN


_NUMBERS: Final = {
    "value_int": ("i", DType.S64),
    "value_ints": ("ints", DType.S64),
    "value_float": ("f", DType.F32),
    "value_floats": ("floats", DType.F32),
}
"""Attribute of Constant -> where protobuf holds its numbers, and their type."""


def _constant_value(ctx: Importer, proto: NodeProto, where: str) -> Constant:
    """The value of a Constant node: a tensor, a sparse one, numbers or texts."""
    values = dict(_constant_forms(ctx, proto, where))
    if len(values) != 1:
        raise InvalidModel(
            f"a Constant has {len(values)} values, and needs one",
            where=where,
            hint="export the model again",
        )
    return next(iter(values.values()))


def _constant_forms(ctx: Importer, proto: NodeProto, where: str) -> Iterator[tuple[str, Constant]]:
    for attribute in proto.attribute:
        name = attribute.name
        if name == "value":
            yield name, ctx.tensors.read(attribute.t, where)
        elif name == "sparse_value":
            yield name, ctx.tensors.read_sparse(attribute.sparse_tensor, where)
        elif name in _NUMBERS:
            field, dtype = _NUMBERS[name]
            yield name, (np.asarray(getattr(attribute, field), dtype.numpy), dtype)
        elif name in ("value_string", "value_strings"):
            single = name == "value_string"
            texts = [attribute.s] if single else list(attribute.strings)
            tensor = TensorProto(
                data_type=TensorProto.STRING,
                dims=[] if single else [len(texts)],
                string_data=texts,
            )
            yield name, ctx.tensors.read(tensor, where)
