"""A node of the model as plain Python data, checked against what ONNX says of its op: inputs,
outputs, attributes and their kinds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Final

import onnx
from onnx import AttributeProto, NodeProto, helper

from ..errors import InvalidModel
from ..ir.element_types import ELEMENT_TYPES
from ..ir.types import DType

DEFAULT_DOMAIN: Final = ""

_EXPORT: Final = "export the model again; onnx.checker.check_model shows such faults too"
_KINDS: Final[dict[int, str]] = {
    value: name for name, value in AttributeProto.AttributeType.items()
}
_FIELDS: Final[dict[int, str]] = {
    AttributeProto.FLOAT: "f",
    AttributeProto.INT: "i",
    AttributeProto.STRING: "s",
    AttributeProto.TENSOR: "t",
    AttributeProto.GRAPH: "g",
    AttributeProto.SPARSE_TENSOR: "sparse_tensor",
    AttributeProto.TYPE_PROTO: "tp",
    AttributeProto.FLOATS: "floats",
    AttributeProto.INTS: "ints",
    AttributeProto.STRINGS: "strings",
    AttributeProto.TENSORS: "tensors",
    AttributeProto.GRAPHS: "graphs",
    AttributeProto.SPARSE_TENSORS: "sparse_tensors",
    AttributeProto.TYPE_PROTOS: "type_protos",
}


@dataclass(frozen=True)
class OnnxNode:
    """One node of the model.

    Attributes:
        name: its name in the model; without one, its first output's; unique among the nodes.
        origin: the name as the model has it.
        op: op type.
        domain: '' for ONNX's own.
        inputs: value names; '' where an optional one is absent; trailing absent ones cut off.
        outputs: likewise.
        attrs: name -> number, text, tuple of these, or protobuf message (tensor, graph).
        version: opset version that its domain is imported with.
        proto: the node itself.
    """

    name: str
    origin: str
    op: str
    domain: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attrs: Mapping[str, Any]
    version: int
    proto: NodeProto

    @property
    def where(self) -> str:
        """For messages: its op and name."""
        return node_label(self.op, self.domain, self.origin)

    @property
    def since(self) -> int:
        """Version in which the op took the form that it has here; 0 when ONNX has no such op."""
        found = signature(self.op, self.version, self.domain)
        return found.since if found else 0

    def input(self, index: int) -> str:
        """Input `index`, '' when it is absent."""
        return self.inputs[index] if index < len(self.inputs) else ""

    def output(self, index: int) -> str:
        """Output `index`, '' when it is absent."""
        return self.outputs[index] if index < len(self.outputs) else ""

    def attr(self, name: str, default: Any = None) -> Any:
        """An attribute, `default` when the node does not have it."""
        return self.attrs.get(name, default)

    def rewritten(
        self,
        *,
        op: str = "",
        inputs: Sequence[str] | None = None,
        outputs: Sequence[str] | None = None,
        drop: Sequence[str] = (),
        domain: str | None = None,
        version: int = 0,
        **attrs: Any,
    ) -> OnnxNode:
        """The same node with another op type, other wires, without the attributes in `drop`, and
        with those in `attrs`.
        """
        kept = {name: value for name, value in self.attrs.items() if name not in drop}
        return replace(
            self,
            op=op or self.op,
            domain=self.domain if domain is None else domain,
            inputs=self.inputs if inputs is None else _trimmed(inputs),
            outputs=self.outputs if outputs is None else tuple(outputs),
            attrs={**kept, **attrs},
            version=version or self.version,
        )

    def as_proto(self) -> NodeProto:
        """The node as ONNX writes it: attributes that were not rewritten are copied as they are."""
        result = NodeProto(
            op_type=self.op,
            domain=self.domain,
            name=self.origin,
            input=self.inputs,
            output=self.outputs,
        )
        given = {attribute.name: attribute for attribute in self.proto.attribute}
        for name, value in self.attrs.items():
            kind = (
                given[name].type or _kind_by_content(given[name])
                if name in given
                else AttributeProto.UNDEFINED
            )
            if name in given and _value(self, given[name], kind) == value:
                result.attribute.append(given[name])
            else:
                result.attribute.append(
                    helper.make_attribute(
                        name, ELEMENT_TYPES[value] if isinstance(value, DType) else value
                    )
                )
        return result

    def invalid(self, what: str, hint: str = _EXPORT) -> InvalidModel:
        """An error about this node."""
        return InvalidModel(what, where=self.where, hint=hint)


@dataclass(frozen=True)
class Signature:
    """What ONNX says of an op at one opset.

    Attributes:
        since: version in which it took this form.
        deprecated: True when ONNX has withdrawn the op.
        least_inputs, most_inputs, most_outputs: how many it may have.
        required: for each formal input, whether it must be there.
        texts: for each formal input, whether it may hold texts.
        attrs: name -> (kind as in AttributeProto.AttributeType, required).
    """

    since: int
    deprecated: bool
    least_inputs: int
    most_inputs: int
    most_outputs: int
    required: tuple[bool, ...]
    texts: tuple[bool, ...]
    attrs: Mapping[str, tuple[int, bool]]


@cache
def signature(op: str, version: int, domain: str) -> Signature | None:
    """What ONNX says of the op at that opset; None when there is no such op."""
    try:
        schema: Any = onnx.defs.get_schema(op, version, domain)
    except onnx.defs.SchemaError:
        return None
    single = onnx.defs.OpSchema.FormalParameterOption.Single
    return Signature(
        since=schema.since_version,
        deprecated=schema.deprecated,
        least_inputs=schema.min_input,
        most_inputs=schema.max_input,
        most_outputs=schema.max_output,
        required=tuple(parameter.option == single for parameter in schema.inputs),
        texts=tuple(
            any("string" in kind for kind in parameter.types) for parameter in schema.inputs
        ),
        attrs={
            name: (int(attr.type.value), attr.required) for name, attr in schema.attributes.items()
        },
    )


_EARLIER: Final = {"LayerNormalization": 17}
"""Ops that ONNX Runtime has in all opsets, as ONNX has them from this one on: its optimizers write them
into models of any.
"""


def version_of(op: str, domain: str, opsets: Mapping[str, int]) -> int:
    """The opset whose form of the op a node has, given domain -> imported version."""
    earliest = _EARLIER.get(op, 1) if domain == DEFAULT_DOMAIN else 1
    return max(opsets.get(domain, 1), earliest)


def normal_domain(domain: str) -> str:
    """The domain, '' for ONNX's own under either of its two names."""
    return DEFAULT_DOMAIN if domain == "ai.onnx" else domain


def node_label(op: str, domain: str, name: str) -> str:
    """For messages: `Conv node 'conv1'`, `com.acme.Foo node 'f'`."""
    return f"{domain + '.' if domain else ''}{op} node {name[:200]!r}"


def origin_of_proto(proto: NodeProto) -> str:
    """What decisions and origins call a node: its name, that of its first output, or its operator."""
    return proto.name or next(filter(None, proto.output), "") or proto.op_type


def read_node(proto: NodeProto, name: str, opsets: Mapping[str, int]) -> OnnxNode:
    """The node as plain data, checked against its signature where ONNX has one.

    Args:
        proto: the node.
        name: a name that no other node has.
        opsets: domain -> imported version.

    Raises:
        InvalidModel: a wrong number of inputs or outputs; an attribute that is unknown, missing,
            repeated, or of a wrong kind.
    """
    domain = normal_domain(proto.domain)
    version = version_of(proto.op_type, domain, opsets)
    found = signature(proto.op_type, version, domain)
    origin = origin_of_proto(proto)
    inputs, outputs = _trimmed(proto.input), _trimmed(proto.output)
    attrs: dict[str, Any] = {}
    node = OnnxNode(name, origin, proto.op_type, domain, inputs, outputs, attrs, version, proto)
    kinds = _read_attributes(node, attrs)
    if found is not None:
        _check_counts(node, found)
        _check_attributes(node, kinds, found)
    return node


def free_name(base: str, taken: set[str], joint: str) -> str:
    """A name that is not taken, `base`, `base.1`, ... with the joint in the place of the dot; it is taken then."""
    name, number = base, 0
    while name in taken:
        number += 1
        name = f"{base}{joint}{number}"
    taken.add(name)
    return name


def kind_told(kind: str) -> str:
    """What a value is, by the field of its type in the file: `optional_type` is 'an optional'."""
    noun = kind.removesuffix("_type").replace("_", " ")
    return f"{'an' if noun[0] in 'aeiou' else 'a'} {noun}"


def _trimmed(names: Sequence[str]) -> tuple[str, ...]:
    count = len(names)
    while count and not names[count - 1]:
        count -= 1
    return tuple(names[:count])


def _read_attributes(node: OnnxNode, values: dict[str, Any]) -> dict[str, int]:
    """Fills in the values; gives the kinds."""
    kinds: dict[str, int] = {}
    for attribute in node.proto.attribute:
        name = attribute.name
        if attribute.ref_attr_name:
            raise node.invalid(
                f"the attribute {name!r} refers to a function's attribute outside of a function"
            )
        if name in kinds:
            raise node.invalid(f"the attribute {name!r} is there twice")
        kind = attribute.type or _kind_by_content(attribute)
        if kind not in _FIELDS:
            raise node.invalid(f"the attribute {name!r} has no known kind")
        kinds[name] = kind
        values[name] = _value(node, attribute, kind)
    return kinds


def _kind_by_content(attribute: AttributeProto) -> int:
    """Files of IR version 1 do not say the kind."""
    return next(
        (kind for kind, name in _FIELDS.items() if _present(attribute, name)),
        AttributeProto.UNDEFINED,
    )


def _present(attribute: AttributeProto, field: str) -> bool:
    return (
        len(getattr(attribute, field)) > 0
        if field.endswith("s") and field != "s"
        else attribute.HasField(field)
    )


def _value(node: OnnxNode, attribute: AttributeProto, kind: int) -> Any:
    value = getattr(attribute, _FIELDS[kind])
    try:
        if kind == AttributeProto.STRING:
            return value.decode("utf-8")
        if kind == AttributeProto.STRINGS:
            return tuple(text.decode("utf-8") for text in value)
    except UnicodeDecodeError:
        raise node.invalid(f"the attribute {attribute.name!r} is no UTF-8 text") from None
    return tuple(value) if kind in {AttributeProto.FLOATS, AttributeProto.INTS} else value


def _check_counts(node: OnnxNode, found: Signature) -> None:
    if len(node.proto.input) < found.least_inputs or len(node.inputs) > found.most_inputs:
        span = _span(found.least_inputs, found.most_inputs)
        raise node.invalid(
            f"{node.op} of opset {node.version} takes {span} inputs, not {len(node.inputs)}"
        )
    missing = [i for i, needed in enumerate(found.required) if needed and not node.input(i)]
    if missing:
        raise node.invalid(
            f"{node.op} of opset {node.version} needs its input {missing[0]}, which is absent"
        )
    if len(node.outputs) > found.most_outputs:
        raise node.invalid(
            f"{node.op} of opset {node.version} has at most {found.most_outputs} outputs, not {len(node.outputs)}"
        )
    if not any(node.outputs):
        raise node.invalid(f"{node.op} has no output")


def _span(least: int, most: int) -> str:
    return (
        str(least)
        if least == most
        else f"{least} to {most}"
        if most < 1 << 30
        else f"at least {least}"
    )


def _check_attributes(node: OnnxNode, kinds: Mapping[str, int], found: Signature) -> None:
    for name, kind in kinds.items():
        if name.startswith("__"):  # ONNX lets tools keep notes under such names
            continue
        expected = found.attrs.get(name)
        if expected is None:
            raise node.invalid(
                f"{node.op} of opset {node.version} has no attribute {name!r}",
                "remove it, or import the opset that has it",
            )
        if kind != expected[0]:
            raise node.invalid(
                f"the attribute {name!r} of {node.op} is of kind {_KINDS[expected[0]]}, not {_KINDS[kind]}"
            )
    missing = [
        name for name, (_, required) in found.attrs.items() if required and name not in kinds
    ]
    if missing:
        raise node.invalid(f"{node.op} of opset {node.version} needs the attribute {missing[0]!r}")
