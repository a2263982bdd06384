"""Steps as ONNX nodes and back: which attribute carries what.

A fused step becomes a node of domain `fqfuse` whose op type is the primitive in camel case
(`Convolution`, `LayerNormalization`). Its inputs are the arguments, then the operands of the
post-ops. Its attributes:

    op                         row of the op table
    roles                      roles of the arguments, in order
    scales.<role>[.mask]       scales of an argument, and their mask
    zero_points.<role>[.mask]
    output_scales[.mask]       onednn-v2
    rnn_data_qparams[.mask]    of recurrent layers, as rnn_weights_qparams[.mask]
    post_ops                   in the words of the text form; an operand is %i, the number of the node's input
    <parameter>                what the primitive computes; `param.<name>` where the name is one of the above
    primitive                  where the op type does not say it

A step `onnx.<Op>` of a standard op without attributes becomes that standard node, a foreign step
the node that it was; one with bodies a node `If`, `Loop` or `Scan` of domain `fqfuse`, whose graphs
`file.py` writes. ONNX attributes know neither bool, None, element types, empty lists nor f64:
the node's metadata `fqfuse.exact` repeats such values in the words of the text form, and reading
takes them from there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np
from google.protobuf.message import DecodeError
from onnx import AttributeProto, NodeProto, TensorProto, helper

from ..errors import FqfuseError, PlanError
from ..ir.constants import Halves
from ..ir.element_types import ELEMENT_TYPES
from ..ir.lifting import stored_pieces
from ..ir.ops import OPS
from ..ir.ops.spec import Array, Attr
from ..ir.text_read import Reader
from ..ir.text_write import Writer
from ..ir.types import DType
from .arguments import in_order, with_roles
from .attributes import SCALES, PostOp, PrimitiveAttr, Scale, ZeroPoint
from .metadata import (
    add_metadata,
    broken,
    demand_text,
    json_text,
    json_value,
    literal_attrs,
    metadata_of,
    strings_of,
)
from .seal import DOMAIN
from .types import Step
from .words import post_op_from, post_op_text

_F = TypeVar("_F", Scale, ZeroPoint)
_T = TypeVar("_T")

Native = int | float | str | tuple[Attr, ...] | Array | None
"""What an ONNX attribute can hold; None: the attribute is left out."""

_RESERVED = re.compile(
    r"(op|roles|post_ops|primitive|(output_scales|rnn_data_qparams|rnn_weights_qparams)(\.mask)?|(scales|zero_points|param)\..*)",
    re.DOTALL,
)
_INT64 = range(-(1 << 63), 1 << 63)
_FIELDS = {
    AttributeProto.INT: "i",
    AttributeProto.FLOAT: "f",
    AttributeProto.STRING: "s",
    AttributeProto.INTS: "ints",
    AttributeProto.FLOATS: "floats",
    AttributeProto.STRINGS: "strings",
}
"""Where attributes hold their values."""


def tensor_of(name: str, data: Array | Halves, *, apart: bool = False) -> TensorProto:
    """A constant with its data in place.

    Args:
        name: of the constant.
        data: what it holds.
        apart: leave its `raw_data` empty: who writes the file puts the data there.

    Raises:
        PlanError: it holds objects that are no strings.
    """
    tensor = TensorProto(
        name=name, dims=data.shape, data_type=ELEMENT_TYPES[DType.from_numpy(data.dtype)]
    )
    if not isinstance(data, Halves) and data.dtype.kind == "O":
        strings = data.reshape(-1).tolist()
        if not all(isinstance(text, str) for text in strings):
            raise PlanError(
                f"the constant {name} holds objects that are no strings",
                where=name,
                hint="strings in a model are UTF-8 text",
            )
        tensor.string_data.extend(text.encode() for text in strings)
        return tensor
    tensor.raw_data = b"" if apart else b"".join(stored_pieces(data))
    return tensor


def tensor_beside(
    name: str, data: Array | Halves, location: str, place: tuple[int, int]
) -> TensorProto:
    """A constant whose data lies in another file: its name, the first byte there, and their number."""
    tensor = TensorProto(
        name=name, dims=data.shape, data_type=ELEMENT_TYPES[DType.from_numpy(data.dtype)]
    )
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in (("location", location), ("offset", place[0]), ("length", place[1])):
        tensor.external_data.add(key=key, value=str(value))
    return tensor


# -- attributes ------------------------------------------------------------------------------------


def _native(value: Attr) -> tuple[Native, bool]:
    """What an ONNX attribute holds of a value, and whether that is all of it. Anything strange is
    held as its text.
    """
    if value is None or value == () or isinstance(value, bytes):
        return None, False
    if isinstance(value, bool):
        return int(value), False
    if isinstance(value, DType):
        return ELEMENT_TYPES[value], False
    items = value if isinstance(value, tuple) else (value,)
    if all(isinstance(v, str) for v in items) or all(
        isinstance(v, int) and not isinstance(v, bool) and v in _INT64 for v in items
    ):
        return value, True  # type: ignore[return-value]  # by the conditions
    if all(isinstance(v, float) for v in items):
        with np.errstate(over="ignore", under="ignore"):
            near = tuple(np.asarray(items, np.float64).astype(np.float32).tolist())
        # a NaN is not equal: its payload may be lost
        return near if isinstance(value, tuple) else near[0], near == items
    return Writer(in_place=True).attr(value), False


def _attribute_value(item: AttributeProto, where: str) -> Attr:
    if item.type not in _FIELDS:
        raise broken(f"its attribute {item.name} is of a kind that plans do not use", where)
    held = getattr(item, _FIELDS[item.type])
    single = isinstance(held, int | float | bytes)
    try:
        values = tuple(
            v.decode() if isinstance(v, bytes) else v for v in ([held] if single else held)
        )
    except UnicodeDecodeError as error:
        raise broken(f"its attribute {item.name} is no UTF-8", where) from error
    return values[0] if single else values


# -- steps to nodes --------------------------------------------------------------------------------


def node_of(step: Step) -> tuple[NodeProto, int]:
    """The node of a step, and the version of its domain that it needs.

    Raises:
        PlanError: a parameter holds what ONNX cannot.
    """
    foreign = _foreign_node(step)
    if foreign is not None:
        return foreign, int(str(step.params["opset"]))
    node, attributes, shown = _standard_node(step) or _fused_node(step)
    node.name = step.name
    node.output.extend(step.outputs)
    exact: dict[str, Attr] = {}
    for name in sorted(attributes):
        value, whole = (shown[name], False) if name in shown else _native(attributes[name])
        if isinstance(value, np.ndarray):
            value = tensor_of(name, value)
        if value is not None:
            node.attribute.append(helper.make_attribute(name, value))
        if not whole:
            exact[name] = attributes[name]
    told = {"fqfuse.exact": Writer(in_place=True).attrs(exact)} if exact else {}
    add_metadata(node, {"fqfuse.origin": json_text(step.origin)} | told)
    return node, 1


_Parts = tuple[NodeProto, Mapping[str, Attr], Mapping[str, Native]]
"""A node, its attributes, and those of them that ONNX holds in a way of its own."""


def _standard_node(step: Step) -> _Parts | None:
    """A standard node, where the step is nothing but the standard op."""
    row = OPS.get(step.op)
    if (
        row is None
        or not row.onnx
        or step.primitive != f"onnx.{step.op}"
        or step.attr != PrimitiveAttr()
    ):
        return None
    inputs = in_order(row, step.args)
    if inputs is None or not any(step.outputs):
        return None
    return NodeProto(op_type=step.op, domain="", input=inputs), step.params, _shown(step)


def _shown(step: Step) -> Mapping[str, Native]:
    """ConstantOfShape holds a number and an element type in its row, and a tensor of one element in
    ONNX; the row of Split says by a 0 that the attribute is absent.
    """
    if step.op == "Split" and step.params.get("num_outputs") == 0:
        return {"num_outputs": None}
    if step.op != "ConstantOfShape":
        return {}
    value, dtype = step.params.get("value"), step.params.get("dtype")
    if not isinstance(value, int | float) or not isinstance(dtype, DType):
        return {"dtype": None}
    return {"dtype": None, "value": np.asarray([value]).astype(dtype.numpy)}


def _fused_node(step: Step) -> _Parts:
    attributes: dict[str, Attr] = {"op": step.op}
    if step.args:
        attributes["roles"] = tuple(role for role, _ in step.args)
    op_type = "".join(part[:1].upper() + part[1:] for part in step.primitive.split("_"))
    if _primitive(op_type) != step.primitive:
        named = step.op if step.bodies is None else str(step.params.get("op_type"))
        op_type = re.sub("[^A-Za-z0-9_]", "_", named) or "Step"
        attributes["primitive"] = step.primitive
    for label, held in _factors(step.attr):
        attributes |= {label: held.values, f"{label}.mask": held.mask}
    inputs = [value for _, value in step.args]
    if step.attr.post_ops:
        attributes["post_ops"] = tuple([_numbered(op, inputs) for op in step.attr.post_ops])
    for name, value in step.params.items():
        attributes[f"param.{name}" if _RESERVED.fullmatch(name) else name] = value
    return NodeProto(op_type=op_type, domain=DOMAIN, input=inputs), attributes, {}


def _factors(attr: PrimitiveAttr) -> Iterator[tuple[str, Scale | ZeroPoint]]:
    for role, scale in attr.scales.items():
        yield f"scales.{role}", scale
    for role, point in attr.zero_points.items():
        yield f"zero_points.{role}", point
    yield from attr.alone()


def _primitive(op_type: str) -> str:
    """`LayerNormalization` -> `layer_normalization`."""
    return re.sub("(?<=.)(?=[A-Z])", "_", op_type).lower()


def _numbered(op: PostOp, inputs: list[str]) -> str:
    """The text of a post-op, its operands appended to the node's inputs and named by their
    numbers.
    """

    def number(value: str) -> str:
        if not value:
            return "_"
        inputs.append(value)
        return f"%{len(inputs) - 1}"

    return post_op_text(Writer(), op, number)


def _foreign_node(step: Step) -> NodeProto | None:
    """A foreign op as the node that it was, reading and writing the plan's values; None where that
    would lose something.
    """
    proto, opset = step.params.get("proto"), step.params.get("opset")
    if (
        step.op != "Onnx"
        or step.bodies is not None
        or not isinstance(proto, bytes)
        or not isinstance(opset, int)
        or not 0 < opset < 1 << 31
    ):
        return None
    node = NodeProto()
    try:
        node.ParseFromString(proto)
    except DecodeError:
        return None
    reads = metadata_of(node).get("fqfuse.inputs", "").split("\n")
    values, own = in_order(OPS[step.op], step.args), len(node.input)
    if values is None or node.domain == DOMAIN or [*values[own:]] != reads[own : len(values)]:
        return None  # a subgraph reads outer values by their names: they must still have them
    told = {
        "captured": values[own:],
        "input": [*node.input],
        "name": node.name,
        "opset": opset,
        "origin": step.origin,
        "output": [*node.output],
        "primitive": step.primitive,
    }
    _rename(node, step.name, values[:own], step.outputs)
    add_metadata(node, {"fqfuse.foreign": json_text(told)})
    try:
        return node if _foreign_step(node) == step else None
    except FqfuseError:
        return None


def _rename(node: NodeProto, name: str, inputs: Sequence[str], outputs: Sequence[str]) -> None:
    node.name = name
    node.input[:], node.output[:] = inputs, outputs


# -- nodes to steps --------------------------------------------------------------------------------


def step_of(node: NodeProto) -> Step:
    """The step of a node that `node_of` made.

    Raises:
        PlanError: the node is none of those.
        InvalidModel: a post-op or an exact value is in other words than the text form's.
    """
    metadata = metadata_of(node)
    where = f"node {node.name}"
    names = (item.name for item in node.attribute)
    demand_text(where, node.name, node.op_type, node.domain, *node.input, *node.output, *names)
    if "fqfuse.foreign" in metadata:
        return _foreign_step(node)
    exact = literal_attrs(metadata.get("fqfuse.exact", ""), where)
    held = {
        item.name: _attribute_value(item, where)
        for item in node.attribute
        if item.name not in exact
    }
    origin = tuple(strings_of(json_value(metadata.get("fqfuse.origin", "[]"), where), where))
    step = (_fused_step if node.domain else _standard_step)(node, held | exact, where)
    return replace(step, name=node.name, outputs=tuple(node.output), origin=origin)


def _standard_step(node: NodeProto, attributes: Mapping[str, Attr], where: str) -> Step:
    row = OPS.get(node.op_type)
    if row is None or not row.onnx:
        raise broken(f"no step runs the op {node.op_type}", where)
    given = len(node.input)
    if given > len(row.inputs) and not (row.inputs and row.inputs[-1].variadic):
        raise broken(f"{row.name} has {given} inputs, and takes {len(row.inputs)}")
    args = with_roles(row, node.input)
    return Step(node.name, f"onnx.{row.name}", row.name, args, (), attributes)


def _fused_step(node: NodeProto, left: dict[str, Attr], where: str) -> Step:
    """The step of a node of primitives; `left`: its attributes, which are taken out one by one."""

    def text(name: str, default: str | None = None) -> str:
        value = left.pop(name, default)
        if not isinstance(value, str):
            raise broken(f"its attribute {name} is missing or no string", where)
        return value

    def strings(name: str) -> tuple[str, ...]:
        otherwise = f"its attribute {name} is no list of strings"
        return _listed(left.pop(name, ()), str, otherwise, where)

    op, primitive = text("op"), text("primitive", _primitive(node.op_type))
    inputs, roles = tuple(node.input), strings("roles")
    if len(roles) > len(inputs):
        raise broken("it has more roles than inputs", where)
    post_ops = tuple(_post_op(words, inputs, where) for words in strings("post_ops"))
    scales = _by_role(left, "scales.", Scale, where)
    points = _by_role(left, "zero_points.", ZeroPoint, where)
    others = [_factor(left, n, Scale, where) if n in left else None for n in SCALES]
    params = {name.removeprefix("param."): value for name, value in left.items()}
    attr = PrimitiveAttr(scales, points, post_ops, *others)
    args = tuple(zip(roles, inputs, strict=False))
    step = Step(node.name, primitive, op, args, (), params, attr)
    if step.inputs != inputs:
        raise broken("its inputs are not its arguments and the operands of its post-ops", where)
    return step


def _by_role(left: dict[str, Attr], prefix: str, kind: type[_F], where: str) -> dict[str, _F]:
    names = [
        name
        for name in left
        if name.startswith(prefix)
        and not (name.endswith(".mask") and name.removesuffix(".mask") in left)
    ]
    return {name.removeprefix(prefix): _factor(left, name, kind, where) for name in names}


def _factor(left: dict[str, Attr], name: str, kind: type[_F], where: str) -> _F:
    values, mask = left.pop(name), left.pop(f"{name}.mask", None)
    if not isinstance(mask, int):
        raise broken(f"the mask of {name} is missing or no integer", where)
    if kind is Scale:
        return kind(_listed(values, float, "its scales are no list of floats", where), mask)
    if isinstance(values, tuple) and any(isinstance(value, float) for value in values):
        return kind(_listed(values, (int, float), "its zero points are no numbers", where), mask)
    return kind(_listed(values, int, "its zero points are no list of integers", where), mask)


def _listed(
    value: Attr, kind: type[_T] | tuple[type[_T], ...], otherwise: str, where: str
) -> tuple[_T, ...]:
    """The value, where it is a list of that kind.

    Raises:
        PlanError: it is not; the message is `otherwise`.
    """
    found = tuple(v for v in value if isinstance(v, kind)) if isinstance(value, tuple) else ()
    if not isinstance(value, tuple) or len(found) != len(value):
        raise broken(otherwise, where)
    return found


def _post_op(words: str, inputs: Sequence[str], where: str) -> PostOp:
    reader = Reader(words, source=where)

    def operand() -> str:
        sigil, number = reader.reference()
        if sigil == "_":
            return ""
        if not re.fullmatch("[0-9]{1,9}", number) or int(number) >= len(inputs):
            reader.fail_with(f"the node has no input number {number}")
        return inputs[int(number)]

    op = post_op_from(reader, operand)
    reader.end()
    return op


def _foreign_step(node: NodeProto) -> Step:
    """The step of a node that `_foreign_node` wrote; its parameter `proto` is the node as it
    was.
    """
    where = f"node {node.name}"
    told = json_value(metadata_of(node)["fqfuse.foreign"], where)
    if not isinstance(told, dict) or [
        type(told.get(key)) for key in ("name", "opset", "primitive")
    ] != [str, int, str]:
        raise broken("its metadata is malformed", where)
    captured, origin, inputs, outputs = (
        strings_of(told.get(key), where) for key in ("captured", "origin", "input", "output")
    )
    own = NodeProto()
    own.CopyFrom(node)
    _rename(own, told["name"], inputs, outputs)
    kept = [entry for entry in own.metadata_props if entry.key != "fqfuse.foreign"]
    del own.metadata_props[:]
    own.metadata_props.extend(kept)
    params: dict[str, Attr] = {
        "op_type": own.op_type,
        "domain": own.domain,
        "opset": told["opset"],
        "proto": own.SerializeToString(deterministic=True),
    }
    args = with_roles(OPS["Onnx"], [*node.input, *captured])
    return Step(
        node.name, told["primitive"], "Onnx", args, tuple(node.output), params, origin=tuple(origin)
    )
