"""A whole model: opsets, functions, inputs, constants, nodes, outputs, in this order."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import onnx
from onnx import GraphProto, NodeProto, TensorProto, ValueInfoProto

from ..errors import FqfuseError, InvalidModel, UnsupportedOp
from ..ir.decision import Decision, Outcome
from ..ir.graph import Graph
from ..ir.ops import dims
from ..ir.ops.spec import NotCovered
from ..ir.types import DType, Shape, TensorType
from .bodies import with_weights_inside
from .branches import branch_nodes
from .budgets import Budgets
from .element_types import dtype_of
from .functions import inlined
from .halves import widened
from .importer import Importer
from .nodes import DEFAULT_DOMAIN, OnnxNode, kind_told, normal_domain, read_node, signature
from .operators.derived import Derived
from .operators.dialects import HANDLERS, check_known, handler_of
from .operators.grown import with_places, with_rows
from .operators.sequences import SEQUENCES
from .source import Source
from .structure import captured_names, check_wiring, count_nodes, initializer_names
from .tensors import Constant, TensorReader
from .texts import check_texts

_WEIGHT_BITS: Final = 8
_UNREADABLE: Final = re.compile(r"[`\[\],{}\s]+")  # would break the text form of types


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
    tensors = TensorReader(budgets, source.folder)

    def import_body(body: Source) -> Graph:
        return graph_from_source(body, budgets, depth + 1)

    ctx = Importer(graph, wiring, opsets, tensors, budgets, handler_of, import_body, depth)
    _add_inputs(ctx, model)
    _add_constants(ctx, source)
    for index in wiring.order:
        if index not in ctx.absorbed:
            _import_node(ctx, graph.node[index])
    if not graph.output:
        raise InvalidModel(
            "the model has no outputs, so it computes nothing",
            hint="declare the values that it should return",
        )
    _check_outputs(ctx)
    ctx.graph.set_outputs([value.name for value in graph.output])
    _keep_weights(ctx.graph)
    return widened(ctx.graph)


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
    if node.op == "Identity" and not node.domain and node.input(0) in ctx.sequences:
        ctx.sequences[node.output(0)] = ctx.sequences[node.input(0)]
        return
    if node.op == "Identity" and not node.domain and node.input(0) in ctx.stacked:
        ctx.stacked[node.output(0)] = ctx.stacked[node.input(0)]
        return
    if _unrolled(ctx, node) or _take_branch(ctx, node):
        return
    node = with_rows(ctx, with_places(ctx, node))
    if _map_sequence(ctx, node):
        return
    _check_tensors(ctx, node)
    _check_text_inputs(ctx, node)
    try:
        ctx.take(node)
    except NotCovered as error:  # a dialect's op on types that it is not made for
        raise node.invalid(str(error), "correct the types of what feeds this node") from None


def _check_tensors(ctx: Importer, node: OnnxNode) -> None:
    """Refuses sequences and optionals where nothing here knows them.

    Raises:
        UnsupportedOp: a node reads one, in a body of its own, or as an operator that has no handler.
    """
    known = (node.domain, node.op) in SEQUENCES
    inside = captured_names(node.proto)
    for name in inside if known else (*node.inputs, *inside):
        if name in ctx.sequences or name in ctx.optionals or name in ctx.stacked:
            raise UnsupportedOp(
                f"{node.op} reads {name!r}, which is no tensor but a sequence or an optional",
                where=node.where,
                hint="give it the tensors: loops and branches over sequences are not taken apart",
            )


def _check_outputs(ctx: Importer) -> None:
    for value in ctx.source.output:
        if any(value.name in held for held in (ctx.sequences, ctx.optionals, ctx.stacked)):
            raise UnsupportedOp(
                f"the output {value.name!r} is no tensor but a sequence or an optional",
                hint="export the model with the tensors in it as outputs of their own",
            )


def _take_branch(ctx: Importer, node: OnnxNode) -> bool:
    """Imports the branch of an If whose condition is constant, or follows from sizes, in its place."""
    if node.op != "If" or node.domain:
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


def _map_sequence(ctx: Importer, node: OnnxNode) -> bool:
    """Imports the body of a SequenceMap once for each tensor of a sequence of known length, in its place;
    the copies share the body's constants.
    """
    if node.op != "SequenceMap" or node.domain or node.input(0) not in ctx.sequences:
        return False
    count = len(ctx.sequences[node.input(0)])
    body = node.attr("body", None)
    if (
        not isinstance(body, GraphProto)
        or len(body.output) != len(node.outputs)
        or len(body.input) != len(node.inputs)
    ):
        raise node.invalid("the inputs and outputs of the body are not those of the node")
    lists = [ctx.sequences.get(name, (name,) * count) for name in node.inputs]
    if any(len(held) != count for held in lists):
        told = ", ".join(str(len(held)) for held in lists)
        raise node.invalid(f"the sequences have different lengths: {told}")
    names = [value.name for value in body.input]
    shared: dict[str, str] = {}
    results = []
    for row in zip(*lists, strict=True):
        fresh = partial(ctx.renamed, node)
        outputs = [fresh(name) if name else "" for name in node.outputs]
        given = {**shared, **dict(zip(names, row, strict=True))}
        nodes, constants = branch_nodes(body, outputs, fresh, given)
        if constants:
            held = zip(body.initializer, constants, strict=True)
            shared = {tensor.name: copied.name for tensor, copied in held}
        _import_branch(ctx, nodes, constants)
        results.append(outputs)
    for index, name in enumerate(node.outputs):
        if name:
            ctx.sequences[name] = tuple(outputs[index] for outputs in results)
    return True


def _unrolled(ctx: Importer, node: OnnxNode) -> bool:
    """Imports the body of a Loop once for each trip, in its place, where it reads sequences of known length
    and makes a known number of trips: so ONNX writes a SequenceMap without that operator.
    """
    body = node.attr("body") if node.op == "Loop" and not node.domain else None
    if not isinstance(body, GraphProto):
        return False
    lists = [ctx.sequences[name] for name in captured_names(node.proto) if name in ctx.sequences]
    if not lists:
        return False
    count = ctx.constant(node.input(0)) if node.input(0) else None
    going = ctx.constant(node.input(1)) if node.input(1) else np.asarray(True)
    states = [*node.inputs[2:]]
    fits = len(body.input) == 2 + len(states) and len(body.output) > len(states) and all(states)
    if not fits or count is None or count.size != 1 or going is None:
        return False
    if count.item() > max(map(len, lists)):  # nobody writes a body out a million times
        return False
    scans = len(body.output) - 1 > len(states)
    if not (going.all() and _hands_on(ctx, body)) or (scans and count.item() < 1):
        return False
    rows: list[list[str]] = []
    condition = ctx.add_constant(node, "going", True, DType.BOOL)
    for trip in range(int(count.item())):
        fresh = partial(ctx.renamed, node)
        place = ctx.add_constant(node, f"trip {trip}", trip, DType.S64)
        names = [value.name for value in body.input]
        results = ["", *(fresh(value.name) for value in body.output[1:])]
        given = dict(zip(names, [place, condition, *states], strict=True))
        _import_branch(ctx, *branch_nodes(body, results, fresh, given))
        states, made = results[1 : 1 + len(states)], results[1 + len(states) :]
        rows.append(made)
    at = Derived(ctx, node)
    for name, state in zip(node.outputs, states, strict=False):
        if name:
            _import_node(ctx, NodeProto(op_type="Identity", input=[state], output=[name]))
    stacked = zip(*rows, strict=True) if rows else ()
    for name, each in zip(node.outputs[len(states) :], stacked, strict=False):
        if name:
            at.stacked(each, output=name)
    return True


def _hands_on(ctx: Importer, body: GraphProto) -> bool:
    """Whether a trip gives the condition that it is given, or one from outside that always holds."""
    handed, given = body.output[0].name, body.input[1].name
    while handed != given:
        made = [node for node in body.node if handed in node.output]
        if not made and handed not in initializer_names(body):
            outside = ctx.constant(handed)
            return outside is not None and bool(outside.all())
        if len(made) != 1 or made[0].op_type not in ("Identity", "Cast") or made[0].domain:
            return False
        handed = made[0].input[0]
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


def _add_inputs(ctx: Importer, model: onnx.ModelProto) -> None:
    """The inputs; one that an initializer of the same name gives a value is a constant."""
    constants = set(initializer_names(model.graph))
    inputs = [value for value in ctx.source.input if value.name not in constants]
    names: dict[str, str] = {}
    for given in dict.fromkeys(
        d.dim_param for value in inputs for d in value.type.tensor_type.shape.dim if d.dim_param
    ):
        plain = _UNREADABLE.sub("_", given)
        names[given] = _new_size_name(ctx, "_" if plain == dims.UNKNOWN else plain)
    for value in inputs:
        ctx.graph.add_input(value.name, _input_type(ctx, value, names))


def _input_type(ctx: Importer, value: ValueInfoProto, names: Mapping[str, str]) -> TensorType:
    where = f"graph input {value.name[:200]!r}"
    kind = value.type.WhichOneof("value")
    if kind is None:
        raise InvalidModel(
            "the input has no type", where=where, hint="declare its element type and shape"
        )
    if kind != "tensor_type":
        hint = (
            "export the model with the tensors in it as inputs of their own"
            if kind in ("sequence_type", "optional_type")
            else "fqfuse handles dense tensors only: move what reads this input out of the model"
        )
        raise UnsupportedOp(f"the input is no tensor but {kind_told(kind)}", where=where, hint=hint)
    tensor = value.type.tensor_type
    dtype = dtype_of(tensor.elem_type, where)
    if not tensor.HasField("shape"):
        return TensorType(dtype, None)
    return TensorType(dtype, _input_shape(ctx, value.name, tensor.shape.dim, names, where))


def _input_shape(
    ctx: Importer, name: str, sizes: Any, names: Mapping[str, str], where: str
) -> Shape:
    """Sizes; symbolic ones by their name in the model, and new names where it has none (-1 counts
    as none).
    """
    shape: list[int | str] = []
    for axis, size in enumerate(sizes):
        if size.WhichOneof("value") == "dim_value" and size.dim_value != -1:
            if size.dim_value < 0:
                hint = "give it a size, or a name if it is symbolic"
                raise InvalidModel(
                    f"dimension {axis} has the size {size.dim_value}", where=where, hint=hint
                )
            shape.append(size.dim_value)
        elif size.dim_param:
            shape.append(names[size.dim_param])
        else:
            shape.append(_new_size_name(ctx, re.sub(r"\W", "_", f"{name}_{axis}")))
    return tuple(shape)


def _new_size_name(ctx: Importer, base: str) -> str:
    name, number = base, 0
    while name in ctx.size_names:
        number += 1
        name = f"{base}_{number}"
    ctx.size_names.add(name)
    return name


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
