"""Ops that no rule touches: kept as they are, and run through the reference evaluator of the onnx
package.

A foreign node is a node `Onnx` with the serialized NodeProto. Its inputs are those of the NodeProto
in order ('' where absent), then the values of the surrounding graph that its subgraphs read
(`captured_names`), in the order of first use; the NodeProto's metadata_props say them too, under
`fqfuse.inputs`, one name a line, and the opsets that its subgraphs import under `fqfuse.opsets`,
lines of `domain version`. If, Loop and Scan have the types of their bodies' inputs where these can be
compiled (`bodies.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from typing import Any, Final

import onnx
from onnx import AttributeProto, GraphProto, NodeProto, TensorProto, ValueInfoProto, helper

from ...errors import FqfuseError, UnsupportedOp
from ...ir.ops import dims
from ...ir.ops.einsum import einsum_shape
from ...ir.ops.foreign_guards import for_inference, onnx_speaking
from ...ir.ops.spec import ShapeError
from ...ir.rule import Refusal
from ...ir.types import DType, Shape, TensorType
from ...plan.foreign import INPUTS_KEY, OPSETS_KEY, declared, known_tensor, shown_problem
from ...plan.types import MOST_DEPTH
from ..apart import is_apart
from ..bodies import LARGE, Known, has_bodies, own_names, settle
from ..element_types import dtype_of
from ..importer import Importer
from ..nodes import OnnxNode, kind_told
from ..structure import captured_names, subgraphs
from .scan import is_forward, turned_forward

_OF_LISTS: Final = Refusal(
    "sequences and optionals run on ONNX's reference evaluator, with all that is computed between them",
    "tensors alone",
    "",
    "join and split tensors in place of lists: Concat, Split and Gather in ONNX, torch.cat and torch.stack in PyTorch",
)
_SCHEMA_TYPES: Final = {
    "tensor(float)": DType.F32,
    "tensor(int64)": DType.S64,
    "tensor(bool)": DType.BOOL,
    "tensor(string)": DType.STRING,
}


def import_foreign(ctx: Importer, node: OnnxNode, *, quantizer: Sequence[str] = ()) -> None:
    """Keeps a node as it is.

    Args:
        ctx: the import.
        node: of ONNX's own domains.
        quantizer: names of quantizers whose halves it is.

    Raises:
        UnsupportedOp: the reference evaluator does not know it, its outputs are no tensors of
            known type, or it is a Scan of opset 8.
        InvalidModel: a constant in it is broken.
    """
    if node.op == "Scan" and node.since == 8:
        raise UnsupportedOp(
            "Scan of opset 8 runs over a batch of sequences",
            where=node.where,
            hint="export the model with opset 9 or newer, whose Scan runs over one sequence",
        )
    if node.op == "Scan" and not is_forward(node):
        turned_forward(ctx, node, import_foreign)
        return
    # the evaluator would take an absent condition for false
    if node.op == "Loop" and not node.input(1):
        always = ctx.add_constant(node, "cond", _true_for(node), DType.BOOL)
        node = node.rewritten(inputs=(node.input(0), always, *node.inputs[2:]))
    proto = _self_contained(ctx, node)
    if has_bodies(node):
        _take_constants_out(ctx, node, proto)
    problem = shown_problem(proto)
    if problem:
        raise node.invalid(problem, "correct the attribute")
    reads = (*node.inputs, *(name for name in captured_names(proto) if name not in node.inputs))
    opsets = {**ctx.opsets, node.domain: node.version}
    types: Sequence[TensorType] | FqfuseError | None = None
    if is_apart(node.proto):
        ctx.refuse(node, "compile_bodies", _OF_LISTS)
    elif has_bodies(node):
        proto, types = _with_bodies(ctx, node, proto, opsets)
    if types is None or isinstance(types, FqfuseError):
        model = _single_node_model(ctx, proto, reads, opsets)
        _check_evaluator(ctx, node, model, types)
        types = _output_types(ctx, node, model)
    _describe(node, proto, reads, opsets)
    attrs = {
        "op_type": node.op,
        "domain": node.domain,
        "opset": opsets[node.domain],
        "proto": proto.SerializeToString(deterministic=True),
    }
    ctx.emit(node, "Onnx", reads, attrs, outputs=node.outputs, quantizer=quantizer, types=types)


def _true_for(node: OnnxNode) -> list[bool] | bool:
    """True, in the shape that the body of a Loop declares for the condition: none, or one element."""
    for body in subgraphs(node.proto):
        if len(body.input) > 1 and len(body.input[1].type.tensor_type.shape.dim) == 1:
            return [True]
    return True


def _self_contained(ctx: Importer, node: OnnxNode) -> NodeProto:
    """The node in its own words, with external data inside."""
    proto = node.as_proto()
    for tensor in _tensors(proto):
        tensor.CopyFrom(ctx.tensors.external_as_raw(tensor, node.where))
    return proto


def _take_constants_out(ctx: Importer, node: OnnxNode, proto: NodeProto) -> None:
    """Makes large constants of the bodies constants of the graph around them, which the bodies read: there
    they are once, and no copy of the node has their data. Those stay whose names mean something else, too.
    """
    bodies = list(_all_bodies(proto))
    named = Counter(name for body in bodies for name in own_names(body))
    for body in bodies:
        returned = {value.name for value in (*body.input, *body.output)}
        kept = []
        for tensor in body.initializer:
            alone = named[tensor.name] == 1 and tensor.name not in returned
            if tensor.ByteSize() < LARGE or not alone or not ctx.is_free(tensor.name):
                kept.append(tensor)
                continue
            where = f"initializer {tensor.name[:200]!r} of {node.where}"
            ctx.graph.add_constant(tensor.name, *ctx.tensors.read(tensor, where))
        if len(kept) < len(body.initializer):
            kept = [TensorProto.FromString(tensor.SerializeToString()) for tensor in kept]
            del body.initializer[:]
            body.initializer.extend(kept)


def _all_bodies(node: NodeProto) -> Iterator[GraphProto]:
    """The bodies of a node, and those in them."""
    for body in subgraphs(node):
        yield body
        for inner in body.node:
            yield from _all_bodies(inner)


def _tensors(node: NodeProto) -> Iterator[TensorProto]:
    for attribute in node.attribute:
        if attribute.type == AttributeProto.TENSOR:
            yield attribute.t
        yield from attribute.tensors
    for body in subgraphs(node):
        yield from body.initializer
        for inner in body.node:
            yield from _tensors(inner)


def _describe(
    node: OnnxNode, proto: NodeProto, reads: Sequence[str], opsets: dict[str, int]
) -> None:
    if not any(True for _ in subgraphs(proto)):
        return
    broken = [name for name in (*reads, *opsets) if "\n" in name]
    if broken:
        raise node.invalid(
            f"the name {broken[0]!r} holds the end of a line",
            "ONNX demands identifiers: rename the value in the model",
        )
    proto.metadata_props.add(key=INPUTS_KEY, value="\n".join(reads))
    proto.metadata_props.add(
        key=OPSETS_KEY,
        value="\n".join(f"{domain} {version}" for domain, version in sorted(opsets.items())),
    )


def _single_node_model(
    ctx: Importer, proto: NodeProto, reads: Sequence[str], opsets: dict[str, int]
) -> onnx.ModelProto:
    """A model of this node alone, whose inputs have the types that the import has found."""
    inputs, constants = [], []
    for name in dict.fromkeys(filter(None, reads)):
        type_ = ctx.type(name)
        # the array of a carried type, bf16 in f32 say, would tell ONNX another one
        known = None if type_.dtype.is_carried else known_tensor(name, ctx.constant(name))
        if known is None:
            inputs.append(declared(name, type_))
        else:
            constants.append(known)
    outputs = [ValueInfoProto(name=name) for name in proto.output if name]
    graph = helper.make_graph([proto], "foreign", inputs, outputs, constants)
    return helper.make_model(
        graph,
        opset_imports=[helper.make_opsetid(domain, version) for domain, version in opsets.items()],
    )


def _known(ctx: Importer, node: OnnxNode, proto: NodeProto) -> Known:
    """What a node and its bodies read."""
    names = filter(None, dict.fromkeys((*node.inputs, *captured_names(proto))))
    return {name: (ctx.type(name), ctx.constant(name)) for name in names}


def _with_bodies(
    ctx: Importer, node: OnnxNode, proto: NodeProto, opsets: dict[str, int]
) -> tuple[NodeProto, Sequence[TensorType] | FqfuseError]:
    """The node with the types of its bodies' inputs, and the types of its outputs; or as it was, and
    why its bodies cannot be compiled.
    """
    known = _known(ctx, node, proto)
    settled = NodeProto()
    settled.CopyFrom(proto)
    try:
        if ctx.depth >= MOST_DEPTH:
            raise UnsupportedOp(
                f"{node.op} lies in more than {MOST_DEPTH} bodies",
                where=node.where,
                hint="nest loops and branches less deeply",
            )
        return settled, settle(node, settled, known, opsets, ctx.import_body)
    except FqfuseError as error:
        hint = error.hint or "export the model again"
        ctx.refuse(
            node,
            "compile_bodies",
            Refusal(error.what, "bodies that can be compiled", error.where, hint),
        )
        return proto, error


def _check_evaluator(
    ctx: Importer, node: OnnxNode, model: onnx.ModelProto, otherwise: FqfuseError | None
) -> None:
    """Raises `otherwise`, where there is that, in the place of what the evaluator says."""
    key = (node.domain, node.op, node.since)
    if key in ctx.runnable:
        return
    from onnx.reference import ReferenceEvaluator  # costs 0.1 s, and most models need none of it

    hint = "replace it with ops that ONNX's reference evaluator has, or keep this part of the model outside"
    with onnx_speaking(
        lambda said: (
            otherwise
            or UnsupportedOp(
                f"{node.op} of opset {node.version} cannot be run: {said}",
                where=node.where,
                hint=hint,
            )
        )
    ):
        ReferenceEvaluator(model)
    if not any(True for _ in subgraphs(model.graph.node[0])):
        ctx.runnable.add(key)


def _output_types(ctx: Importer, node: OnnxNode, model: onnx.ModelProto) -> list[TensorType]:
    if node.op == "Einsum" and not node.domain:
        return [_einsum_type(ctx, node)]
    found: dict[str, Any] = {}
    # What it refuses, the model's own declaration, below, may say; where it does not, that is an
    # error with the place.
    with suppress(UnsupportedOp), onnx_speaking(UnsupportedOp):
        # Without propagation of data, which takes a step for each element that a declared shape
        # promises.
        inferred = onnx.shape_inference.infer_shapes(
            for_inference(model), check_type=False, strict_mode=False, data_prop=False
        )
        found = {value.name: value.type for value in inferred.graph.output}
    # The inference makes up names for sizes that it does not know: one may be that of a size of the
    # graph that this node does not read.
    seen = {
        d for v in model.graph.input for d in ctx.type(v.name).shape or () if isinstance(d, str)
    }
    absent = TensorType(DType.F32, None)
    return [
        _output_type(
            node, name, ((found.get(name), seen), (ctx.declared.get(name), ctx.size_names | seen))
        )
        if name
        else absent
        for name in node.outputs
    ]


def _einsum_type(ctx: Importer, node: OnnxNode) -> TensorType:
    if not node.inputs or not all(node.inputs):
        absent = node.inputs.index("") if node.inputs else 0
        raise node.invalid(f"Einsum needs its input {absent}, which is absent")
    operands = [ctx.type(name) for name in node.inputs]
    try:
        return TensorType(
            operands[0].dtype,
            einsum_shape(node.attr("equation"), [operand.shape for operand in operands]),
        )
    except ShapeError as error:
        raise node.invalid(
            str(error), "correct the equation, or the shapes of what feeds it"
        ) from None


def _output_type(
    node: OnnxNode, name: str, candidates: Sequence[tuple[Any, AbstractSet[str]]]
) -> TensorType:
    for candidate, known in candidates:
        if candidate is None or candidate.WhichOneof("value") is None:
            continue
        kind = candidate.WhichOneof("value")
        if kind != "tensor_type":
            hint = "fqfuse handles dense tensors only: move what makes and what reads this value out of the model"
            raise UnsupportedOp(
                f"the output {name!r} is no tensor but {kind_told(kind)}",
                where=node.where,
                hint=hint,
            )
        tensor = candidate.tensor_type
        if tensor.elem_type:
            return TensorType(dtype_of(tensor.elem_type, node.where), _shape(tensor, known))
    dtype = _declared_by_schema(node, name)
    if dtype is not None:
        return TensorType(dtype, None)
    hint = "run onnx.shape_inference on the model, or declare the value's type in value_info"
    raise UnsupportedOp(
        f"the type of the output {name!r} cannot be told", where=node.where, hint=hint
    )


def _declared_by_schema(node: OnnxNode, name: str) -> DType | None:
    """The element type where the op has one type of output only, as most of ai.onnx.ml have."""
    schema = onnx.defs.get_schema(node.op, node.version, node.domain)
    pairs = zip(schema.outputs[:-1], node.outputs, strict=False)
    words = next((own.type_str for own, made in pairs if made == name), schema.outputs[-1].type_str)
    return _SCHEMA_TYPES.get(words)


def _shape(tensor: Any, known: AbstractSet[str]) -> Shape | None:
    if not tensor.HasField("shape"):
        return None
    return tuple(_dim(d, known) for d in tensor.shape.dim)


def _dim(dim: Any, known: AbstractSet[str]) -> int | str:
    """A size, a name that the node's inputs or the graph's know, or unknown."""
    if dim.WhichOneof("value") == "dim_value":
        return int(dim.dim_value) if dim.dim_value >= 0 else dims.UNKNOWN
    name = str(dim.dim_param)
    return name if name in known else dims.UNKNOWN
