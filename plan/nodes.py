"""Steps as records of an ONNX node and back, without onnx: which attribute carries what.

A fused step becomes a node of domain `fqfuse` whose op type is the primitive in camel case
(`Convolution`, `LayerNormalization`). Its inputs are the arguments, then the operands of the
post-ops. Its attributes:

    op                         row of the op table
    roles                      roles of the arguments, in order
    scales.<role>[.mask]       scales of an argument, and their mask
    zero_points.<role>[.mask]
    output_scales[.mask]       onednn-v2
    post_ops                   in the words of the text form; an operand is %i, the number of the node's input
    <parameter>                what the primitive computes; `param.<name>` where the name is one of the above
    primitive                  where the op type does not say it

A step `onnx.<Op>` of a standard op without attributes becomes that standard node. ONNX attributes
know neither bool, None, element
types, empty lists nor f64: the node's metadata `fqfuse.exact` repeats such values in the words of
the text form, and reading takes them from there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np

from ..ir.ops import OPS
from ..ir.ops.spec import Array, Attr, OpSpec
from ..ir.text_read import Reader
from ..ir.text_write import Writer
from ..ir.types import DType
from .attributes import PostOp, PrimitiveAttr, Scale, ZeroPoint
from .metadata import broken
from .seal import DOMAIN
from .types import Step
from .words import post_op_from, post_op_text

__all__ = [
    "ELEMENT_TYPES",
    "Native",
    "NodeRecord",
    "by_number",
    "native",
    "positional",
    "record_of",
    "step_of",
]

_F = TypeVar("_F", Scale, ZeroPoint)
_T = TypeVar("_T")

Native = int | float | str | tuple[int, ...] | tuple[float, ...] | tuple[str, ...] | Array | None
"""What an ONNX attribute can hold; None: the attribute is left out."""

ELEMENT_TYPES: Mapping[DType, int] = {
    DType.F32: 1,
    DType.U8: 2,
    DType.S8: 3,
    DType.U16: 4,
    DType.S16: 5,
    DType.S32: 6,
    DType.S64: 7,
    DType.STRING: 8,
    DType.BOOL: 9,
    DType.F16: 10,
    DType.F64: 11,
    DType.U32: 12,
    DType.U64: 13,
    DType.BF16: 16,
    DType.U4: 21,
    DType.S4: 22,
}
"""Numbers of ONNX's TensorProto.DataType, which are part of the file format."""

_RESERVED = re.compile(
    r"(op|roles|post_ops|primitive|output_scales(\.mask)?|(scales|zero_points|param)\..*)",
    re.DOTALL,
)
_ABSENT: Mapping[tuple[str, str], Attr] = {
    ("Split", "num_outputs"): 0
}  # how a row says that the attribute is absent
_INT64 = range(-(1 << 63), 1 << 63)


@dataclass(frozen=True)
class NodeRecord:
    """An ONNX node in plain values.

    Attributes:
        domain, op_type, name, inputs, outputs: as in NodeProto.
        attributes: exact values; `native` gives what ONNX can hold of each.
        origin: names of the nodes in the user's model.
        tensors: attributes that a standard op holds as a tensor, for other readers; reading takes
            them from `attributes`.
    """

    domain: str
    op_type: str
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Attr]
    origin: tuple[str, ...]
    tensors: Mapping[str, Array] = field(default_factory=dict)

    def native(self, name: str) -> tuple[Native, bool]:
        """What ONNX holds of an attribute, and whether that is all of it."""
        if name in self.tensors:
            return self.tensors[name], False
        value = self.attributes[name]
        if self.domain != DOMAIN and (
            (self.op_type, name) == ("ConstantOfShape", "dtype") or (self.op_type, name) in _ABSENT
        ):
            absent = (self.op_type, name) not in _ABSENT or _ABSENT[self.op_type, name] == value
            return (None, False) if absent else native(value)
        return native(value)


def native(value: Attr) -> tuple[Native, bool]:
    """What an ONNX attribute holds of a value, and whether that is all of it. Anything strange is
    held as its text.
    """
    if value is None or value == () or isinstance(value, bytes):
        return None, False
    if isinstance(value, bool):
        return int(value), False
    if isinstance(value, int) and value in _INT64:
        return value, True
    if isinstance(value, float):
        return _as_f32(value), _is_f32(value)
    if isinstance(value, str):
        return value, True
    if isinstance(value, DType):
        return ELEMENT_TYPES[value], False
    if isinstance(value, tuple):
        return _native_tuple(value)
    return Writer(in_place=True).attr(value), False


def _native_tuple(values: tuple[Attr, ...]) -> tuple[Native, bool]:
    ints = tuple(
        v for v in values if isinstance(v, int) and not isinstance(v, bool) and v in _INT64
    )
    if len(ints) == len(values):
        return ints, True
    floats = tuple(v for v in values if isinstance(v, float))
    if len(floats) == len(values):
        return tuple(map(_as_f32, floats)), all(map(_is_f32, floats))
    strings = tuple(v for v in values if isinstance(v, str))
    if len(strings) == len(values):
        return strings, True
    return Writer(in_place=True).attr(values), False


def _as_f32(value: float) -> float:
    with np.errstate(over="ignore", under="ignore"):
        return float(np.float32(value))


def _is_f32(value: float) -> bool:
    return _as_f32(value) == value  # a NaN is not: its payload may be lost


# -- steps to nodes --------------------------------------------------------------------------------


def record_of(step: Step) -> NodeRecord:
    """The node of a step (foreign ops aside: they are nodes already)."""
    return _standard_record(step) or _fused_record(step)


def _standard_record(step: Step) -> NodeRecord | None:
    """A standard node, where the step is nothing but the standard op."""
    row = OPS.get(step.op)
    if (
        row is None
        or not row.onnx
        or step.primitive != f"onnx.{step.op}"
        or step.attr != PrimitiveAttr()
    ):
        return None
    inputs = positional(row, step.args)
    if inputs is None or _roles(row, inputs) != step.args or not any(step.outputs):
        return None
    return NodeRecord(
        "", step.op, step.name, inputs, step.outputs, step.params, step.origin, _tensors(step)
    )


def _tensors(step: Step) -> Mapping[str, Array]:
    """ConstantOfShape holds a number and an element type in its row, and a tensor of one element in
    ONNX.
    """
    value, dtype = step.params.get("value"), step.params.get("dtype")
    if (
        step.op != "ConstantOfShape"
        or not isinstance(value, int | float)
        or not isinstance(dtype, DType)
    ):
        return {}
    return {"value": np.asarray([value]).astype(dtype.numpy)}


def positional(row: OpSpec, args: Sequence[tuple[str, str]]) -> tuple[str, ...] | None:
    """The values of the arguments by position ('' where absent), or None when a role is not the
    row's.
    """
    fixed = {p.name: i for i, p in enumerate(row.inputs) if not p.variadic}
    last = row.inputs[-1] if row.inputs and row.inputs[-1].variadic else None
    places: dict[int, str] = {}
    for role, value in args:
        stem, _, number = role.rpartition("_")
        if role in fixed:
            places[fixed[role]] = value
        elif last is not None and stem == last.name and re.fullmatch("0|[1-9][0-9]{0,5}", number):
            places[len(fixed) + int(number)] = value
        else:
            return None
    return tuple(places.get(i, "") for i in range(max(places, default=-1) + 1))


def by_number(args: Sequence[tuple[str, str]]) -> list[str] | None:
    """The values of a foreign op's arguments x_0, x_1 ... by number, '' where absent; None for
    other roles.
    """
    places = {
        int(role[2:]): value
        for role, value in args
        if role.startswith("x_") and role[2:].isdecimal() and len(role) < 9
    }
    values = [places.get(i, "") for i in range(max(places, default=-1) + 1)]
    return (
        values if tuple((f"x_{i}", v) for i, v in enumerate(values) if v) == tuple(args) else None
    )


def _roles(row: OpSpec, inputs: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """The arguments of a standard node: roles are the names of the row's inputs, `name_0`, `name_1`
    ... for a repeated one.
    """
    fixed = [p.name for p in row.inputs if not p.variadic]
    repeated = row.inputs[-1].name if row.inputs and row.inputs[-1].variadic else ""
    pairs = []
    for index, value in enumerate(inputs):
        if index >= len(fixed) and not repeated:
            raise broken(f"{row.name} has {len(inputs)} inputs, and takes {len(fixed)}")
        role = fixed[index] if index < len(fixed) else f"{repeated}_{index - len(fixed)}"
        if value:
            pairs.append((role, value))
    return tuple(pairs)


def _fused_record(step: Step) -> NodeRecord:
    attributes: dict[str, Attr] = {"op": step.op}
    if step.args:
        attributes["roles"] = tuple(role for role, _ in step.args)
    op_type = "".join(part[:1].upper() + part[1:] for part in step.primitive.split("_"))
    if _primitive(op_type) != step.primitive:
        op_type = re.sub("[^A-Za-z0-9_]", "_", step.op) or "Step"
        attributes["primitive"] = step.primitive
    for label, held in _factors(step.attr):
        attributes |= {label: held.values, f"{label}.mask": held.mask}
    inputs = [value for _, value in step.args]
    if step.attr.post_ops:
        attributes["post_ops"] = tuple([_numbered(op, inputs) for op in step.attr.post_ops])
    for name, value in step.params.items():
        attributes[f"param.{name}" if _RESERVED.fullmatch(name) else name] = value
    return NodeRecord(
        DOMAIN, op_type, step.name, tuple(inputs), step.outputs, attributes, step.origin
    )


def _factors(attr: PrimitiveAttr) -> Iterator[tuple[str, Scale | ZeroPoint]]:
    for role, scale in attr.scales.items():
        yield f"scales.{role}", scale
    for role, point in attr.zero_points.items():
        yield f"zero_points.{role}", point
    if attr.output_scales is not None:
        yield "output_scales", attr.output_scales


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


# -- nodes to steps --------------------------------------------------------------------------------


def step_of(record: NodeRecord) -> Step:
    """The step of a node that `record_of` made.

    Raises:
        PlanError: the node is none of those.
        InvalidModel: a post-op is in other words than the text form's.
    """
    if record.domain == "":
        row = OPS.get(record.op_type)
        if row is None or not row.onnx:
            raise broken(f"no step runs the op {record.op_type}", f"node {record.name}")
        args = _roles(row, record.inputs)
        return Step(
            record.name,
            f"onnx.{row.name}",
            row.name,
            args,
            record.outputs,
            dict(record.attributes),
            origin=record.origin,
        )
    return _fused_step(record)


def _fused_step(record: NodeRecord) -> Step:
    left = dict(record.attributes)

    def text(name: str, default: str | None = None) -> str:
        value = left.pop(name, default)
        if not isinstance(value, str):
            raise broken(f"its attribute {name} is missing or no string", f"node {record.name}")
        return value

    op, primitive = text("op"), text("primitive", _primitive(record.op_type))
    roles = _strings(record, left.pop("roles", ()), "roles")
    if len(roles) > len(record.inputs):
        raise broken("it has more roles than inputs", f"node {record.name}")
    post_ops = tuple(
        _post_op(record, words) for words in _strings(record, left.pop("post_ops", ()), "post_ops")
    )
    scales = _by_role(record, left, "scales.", Scale)
    points = _by_role(record, left, "zero_points.", ZeroPoint)
    output = _factor(record, left, "output_scales", Scale) if "output_scales" in left else None
    params = {name.removeprefix("param."): value for name, value in left.items()}
    attr = PrimitiveAttr(scales, points, post_ops, output)
    step = Step(
        record.name,
        primitive,
        op,
        tuple(zip(roles, record.inputs, strict=False)),
        record.outputs,
        params,
        attr,
        record.origin,
    )
    if step.inputs != record.inputs:
        raise broken(
            "its inputs are not its arguments and the operands of its post-ops",
            f"node {record.name}",
        )
    return step


def _by_role(
    record: NodeRecord, left: dict[str, Attr], prefix: str, kind: type[_F]
) -> dict[str, _F]:
    names = [
        name
        for name in left
        if name.startswith(prefix)
        and not (name.endswith(".mask") and name.removesuffix(".mask") in left)
    ]
    return {name.removeprefix(prefix): _factor(record, left, name, kind) for name in names}


def _factor(record: NodeRecord, left: dict[str, Attr], name: str, kind: type[_F]) -> _F:
    values, mask = left.pop(name), left.pop(f"{name}.mask", None)
    if not isinstance(mask, int):
        raise broken(f"the mask of {name} is missing or no integer", f"node {record.name}")
    if kind is Scale:
        return kind(_listed(record, values, float, "its scales are no list of floats"), mask)
    return kind(_listed(record, values, int, "its zero points are no list of integers"), mask)


def _strings(record: NodeRecord, value: Attr, name: str) -> tuple[str, ...]:
    return _listed(record, value, str, f"its attribute {name} is no list of strings")


def _listed(record: NodeRecord, value: Attr, kind: type[_T], otherwise: str) -> tuple[_T, ...]:
    """The value, where it is a list of that kind.

    Raises:
        PlanError: it is not; the message is `otherwise`.
    """
    found = tuple(v for v in value if isinstance(v, kind)) if isinstance(value, tuple) else ()
    if not isinstance(value, tuple) or len(found) != len(value):
        raise broken(otherwise, f"node {record.name}")
    return found


def _post_op(record: NodeRecord, words: str) -> PostOp:
    reader = Reader(words, source=f"node {record.name}")

    def operand() -> str:
        sigil, number = reader.reference()
        if sigil == "_":
            return ""
        if not re.fullmatch("[0-9]{1,9}", number) or int(number) >= len(record.inputs):
            reader.fail_with(f"the node has no input number {number}")
        return record.inputs[int(number)]

    op = post_op_from(reader, operand)
    reader.end()
    return op
