"""The plan file: a plan as one ONNX model that Netron opens and ONNX tools carry.

    ModelProto.domain      `fqfuse`
    opset_import           ONNX's own ops at one fixed version, `fqfuse` at 1, and the domains of foreign ops
    graph                  one node a step (plan_nodes.py), constants as initializers with raw data, types as value_info;
                           `fqfuse.type` in a value's metadata repeats a type that ONNX cannot hold
                           (quantization)
    metadata_props         fqfuse.schema (version of this layout), .name, .target, .options, .quantizers, .fates, .decisions, and, as the
                           last bytes of the file, .digest: SHA-256 of all that is in front of it
                               (plan_seal.py)

The same plan gives the same bytes, in every process. Reading trusts nothing: it checks the digest,
takes every size from a Python integer before it allocates, evaluates nothing, and hands out a plan
only when the plan verifier finds it sound.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from google.protobuf.message import DecodeError, EncodeError
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto

from ..errors import FqfuseError, InvalidInput, PlanError
from ..files import write_atomically
from ..ir.ops.spec import Array, Attr
from ..ir.text_read import Reader
from ..ir.text_write import Writer
from ..ir.types import Dim, DType, TensorType
from .metadata import (
    broken,
    decisions_of,
    demand_text,
    fates_of,
    json_text,
    json_value,
    literal_attrs,
    metadata_of,
    quantizers_of,
    read_at,
    strings_of,
    text_of,
)
from .nodes import ELEMENT_TYPES, Native, NodeRecord, by_number, record_of, step_of
from .seal import DOMAIN, Source, check_structure, content, is_plan, seal, unsealed
from .types import Plan, Step
from .verify import check_plan

__all__ = ["SCHEMA", "is_plan", "plan_bytes", "read_plan", "save_plan"]

SCHEMA = 1
"""Version of the layout."""

_IR_VERSION = 10  # the first with metadata on nodes and values
_STANDARD_OPSET = 26  # the newest that every onnx in the dependency range knows
_LIMIT = (1 << 31) - (1 << 24)  # protobuf ends at 2 GiB; 16 MiB are left for what is not constants
_FROM_ONNX = {number: dtype for dtype, number in ELEMENT_TYPES.items()}


def save_plan(plan: Plan, path: str | os.PathLike[str]) -> None:
    """Writes a plan as one ONNX file, atomically and byte-for-byte deterministically.

    Raises:
        InvalidInput: it is no plan, or the path cannot be written; what was there before is
            untouched.
        PlanError: the plan is not sound, does not fit into one ONNX file (2 GiB), or holds what
            ONNX cannot.
    """
    if not isinstance(plan, Plan):
        raise InvalidInput(
            f"a {type(plan).__name__} is no plan",
            hint="give what fqfuse.compile or fqfuse.load_plan returned",
        )
    write_atomically(path, plan_bytes(plan))


def plan_bytes(plan: Plan) -> bytes:
    """The content of the plan's file.

    Raises:
        PlanError: the plan is not sound, does not fit into one ONNX file (2 GiB), or holds what
            ONNX cannot.
    """
    _check(plan, "")
    size = sum(data.nbytes for data in plan.constants.values())
    if size > _LIMIT:
        raise PlanError(
            f"the plan's constants take {size} bytes, and one ONNX file holds 2 GiB",
            where=plan.name,
            hint="split the model",
        )
    try:
        body = bytes(_model(plan).SerializeToString(deterministic=True))
    except (ValueError, TypeError, EncodeError) as error:  # UnicodeEncodeError is a ValueError
        raise PlanError(
            f"the plan cannot be written as ONNX: {error}",
            where=plan.name,
            hint="mend the names in the model",
        ) from error
    check_structure(body)
    return body + seal(body)


# -- writing ---------------------------------------------------------------------------------------


def _model(plan: Plan) -> ModelProto:
    model = ModelProto(
        ir_version=_IR_VERSION, producer_name="fqfuse", producer_version=str(SCHEMA), domain=DOMAIN
    )
    graph = model.graph
    graph.name = plan.name or "plan"  # ONNX demands a name
    graph.input.extend(_value_info(value, plan.type(value)) for value in plan.inputs)
    graph.output.extend(_value_info(value, plan.type(value)) for value in plan.outputs)
    shown = {*plan.inputs, *plan.outputs}
    graph.value_info.extend(
        _value_info(value, plan.values[value])
        for value in sorted(plan.values)
        if value not in shown
    )
    graph.initializer.extend(_tensor(name, plan.constants[name]) for name in sorted(plan.constants))
    versions = {"": _STANDARD_OPSET, DOMAIN: 1}
    for step in plan.steps:
        node, domain, version = _node(step)
        graph.node.append(node)
        versions[domain] = max(versions.get(domain, 1), version)
    for domain in sorted(versions):
        model.opset_import.add(domain=domain, version=versions[domain])
    _add_metadata(model, {"fqfuse.schema": str(SCHEMA)} | metadata_of(plan))
    return model


def _add_metadata(owner: Any, pairs: Mapping[str, str]) -> None:
    for key, value in pairs.items():
        owner.metadata_props.add(key=key, value=value)


def _value_info(name: str, type_: TensorType) -> ValueInfoProto:
    info = ValueInfoProto(name=name)
    tensor = info.type.tensor_type
    tensor.elem_type = ELEMENT_TYPES[type_.dtype]
    if type_.shape is not None:
        tensor.shape.SetInParent()
        for dim in type_.shape:
            tensor.shape.dim.add(
                **({"dim_value": dim} if isinstance(dim, int) else {"dim_param": dim})
            )
    if type_.quant is not None:
        _add_metadata(info, {"fqfuse.type": Writer().type(type_)})
    return info


def _tensor(name: str, data: Array) -> TensorProto:
    tensor = TensorProto(
        name=name, dims=data.shape, data_type=ELEMENT_TYPES[DType.from_numpy(data.dtype)]
    )
    if data.dtype.kind == "O":
        strings = data.reshape(-1).tolist()
        if not all(isinstance(text, str) for text in strings):
            raise PlanError(
                f"the constant {name} holds objects that are no strings",
                where=name,
                hint="strings in a model are UTF-8 text",
            )
        tensor.string_data.extend(text.encode() for text in strings)
        return tensor
    little = np.ascontiguousarray(data).astype(data.dtype.newbyteorder("<"), copy=False)
    tensor.raw_data = little.tobytes()
    return tensor


def _node(step: Step) -> tuple[NodeProto, str, int]:
    """The node of a step, its domain, and the version of the domain that it needs."""
    foreign = _foreign_node(step)
    if foreign is not None:
        return foreign, foreign.domain, int(str(step.params["opset"]))
    record = record_of(step)
    node = NodeProto(
        op_type=record.op_type,
        domain=record.domain,
        name=record.name,
        input=record.inputs,
        output=record.outputs,
    )
    exact: dict[str, Attr] = {}
    for name in sorted(record.attributes):
        value, whole = record.native(name)
        if value is not None:
            node.attribute.append(_attribute(name, value))
        if not whole:
            exact[name] = record.attributes[name]
    told = {"fqfuse.exact": Writer(in_place=True).attrs(exact)} if exact else {}
    _add_metadata(node, {"fqfuse.origin": json_text(record.origin)} | told)
    return node, record.domain, 1


def _attribute(name: str, value: Native) -> AttributeProto:
    """An attribute of ONNX; an empty list is not met here."""
    if isinstance(value, np.ndarray):
        return AttributeProto(name=name, type=AttributeProto.TENSOR, t=_tensor(name, value))
    if isinstance(value, int):
        return AttributeProto(name=name, type=AttributeProto.INT, i=value)
    if isinstance(value, float):
        return AttributeProto(name=name, type=AttributeProto.FLOAT, f=value)
    if isinstance(value, str):
        return AttributeProto(name=name, type=AttributeProto.STRING, s=value.encode())
    values: Sequence[Any] = value or ()
    if isinstance(values[0], str):
        return AttributeProto(
            name=name, type=AttributeProto.STRINGS, strings=[text.encode() for text in values]
        )
    if isinstance(values[0], float):
        return AttributeProto(name=name, type=AttributeProto.FLOATS, floats=values)
    return AttributeProto(name=name, type=AttributeProto.INTS, ints=values)


def _foreign_node(step: Step) -> NodeProto | None:
    """A foreign op as the node that it was, reading and writing the plan's values; None where that
    would lose something.
    """
    proto, opset = step.params.get("proto"), step.params.get("opset")
    if (
        step.op != "Onnx"
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
    old = {"input": list(node.input), "output": list(node.output), "name": node.name}
    reads, values = _metadata(node).get("fqfuse.inputs", "").split("\n"), by_number(step.args)
    own = len(node.input)
    if values is None or node.domain == DOMAIN or values[own:] != reads[own : len(values)]:
        return None  # a subgraph reads outer values by their names: they must still have them
    del node.input[:], node.output[:]
    node.input.extend(values[:own])
    node.output.extend(step.outputs)
    node.name = step.name
    rest = {
        "captured": values[own:],
        "opset": opset,
        "origin": step.origin,
        "primitive": step.primitive,
    }
    _add_metadata(node, {"fqfuse.foreign": json_text(old | rest)})
    try:
        return node if _foreign_step(node) == step else None
    except FqfuseError:
        return None


# -- reading ---------------------------------------------------------------------------------------


def read_plan(source: Source) -> Plan:
    """Reads a plan that `save_plan` wrote.

    Args:
        source: the path, or the file's content.

    Raises:
        InvalidInput: the file cannot be read.
        PlanError: it is no plan, is cut off or damaged, was written by another version, or is no
            sound plan.
    """
    where = "the given bytes" if isinstance(source, bytes) else str(source)
    plan = read_at(
        where,
        lambda: _plan(_checked_model(source if isinstance(source, bytes) else content(source))),
    )
    _check(plan, where)
    return plan


def _check(plan: Plan, source: str) -> None:
    """Holds a plan to the same before it is written and behind it: what is saved can be loaded."""
    check_plan(plan, source=source)
    if any(step.op == "Onnx" for step in plan.steps):
        from .foreign import check_foreign  # onnx.reference takes 0.1 s to import

        read_at(source or plan.name, lambda: check_foreign(plan))


def _checked_model(data: bytes) -> ModelProto:
    if not is_plan(data):
        raise PlanError(
            "this is no plan file",
            hint="name a file that fqfuse compile wrote; an ordinary model has to be compiled first",
        )
    check_structure(data)
    damaged = PlanError(
        "the plan file is cut off or damaged", hint="copy it again, or compile the model again"
    )
    model = ModelProto()
    try:
        model.ParseFromString(data)
    except DecodeError as error:
        raise damaged from error
    schema = [entry.value for entry in model.metadata_props if entry.key == "fqfuse.schema"]
    other = [value for value in schema if value != str(SCHEMA)]
    if other:
        what = f"the plan file has layout {other[0][:20]!r}, and this fqfuse reads layout {SCHEMA}"
        raise PlanError(what, hint="compile the model again with this version of fqfuse")
    if unsealed(data):
        raise damaged
    if not schema:
        raise broken("it does not say its layout")
    return model


def _plan(model: ModelProto) -> Plan:
    graph = model.graph
    metadata = _metadata(model)
    constants = _constants(graph)
    values: dict[str, TensorType] = {}
    for info in (*graph.input, *graph.output, *graph.value_info):
        demand_text("the name of a value", info.name)
        if info.name not in constants:
            type_ = _type(info)
            if values.setdefault(info.name, type_) != type_:
                raise broken("a value has two types", info.name)
    return Plan(
        name=text_of(metadata, "fqfuse.name"),
        target=text_of(metadata, "fqfuse.target"),
        inputs=tuple(info.name for info in graph.input),
        outputs=tuple(info.name for info in graph.output),
        values=values,
        constants=constants,
        steps=tuple(map(_step, graph.node)),
        quantizers=quantizers_of(metadata),
        fates=fates_of(metadata),
        decisions=decisions_of(metadata),
        options=literal_attrs(text_of(metadata, "fqfuse.options"), "fqfuse.options"),
    )


def _metadata(owner: Any) -> dict[str, str]:
    for entry in owner.metadata_props:
        demand_text("metadata", entry.key, entry.value)
    return {entry.key: entry.value for entry in owner.metadata_props}


def _type(info: ValueInfoProto) -> TensorType:
    tensor = info.type.tensor_type
    if tensor.elem_type not in _FROM_ONNX:
        raise broken(f"element type {tensor.elem_type} is unknown", info.name)
    shape: tuple[Dim, ...] | None = None
    if tensor.HasField("shape"):
        demand_text("a dimension", *(dim.dim_param for dim in tensor.shape.dim))
        shape = tuple(
            dim.dim_value if dim.HasField("dim_value") else dim.dim_param
            for dim in tensor.shape.dim
        )
    plain = TensorType(_FROM_ONNX[tensor.elem_type], shape)
    exact = _metadata(info).get("fqfuse.type")
    if exact is None:
        return plain
    reader = Reader(exact, source=f"type of {info.name}")
    found = reader.type()
    reader.end()
    if found.with_quant(None) != plain:
        raise broken(f"its type is {plain}, and {found}", info.name)
    return found


def _constants(graph: GraphProto) -> dict[str, Array]:
    constants: dict[str, Array] = {}
    for tensor in graph.initializer:
        demand_text("the name of a constant", tensor.name)
        if tensor.name in constants:
            raise broken("two constants have one name", tensor.name)
        constants[tensor.name] = _array(tensor)
    return constants


def _array(tensor: TensorProto) -> Array:
    dtype = _FROM_ONNX.get(tensor.data_type)
    dims = list(tensor.dims)
    if (
        dtype is None
        or DType.from_numpy(dtype.numpy) is not dtype
        or tensor.data_location != TensorProto.DEFAULT
    ):
        raise broken("a constant is of a type, or in a place, that plans do not use", tensor.name)
    if len(dims) > 64 or any(d < 0 for d in dims):
        raise broken(f"no array has the dimensions {dims[:65]}", tensor.name)
    count = math.prod(
        dims
        # a Python integer: nothing of this size is allocated before it is compared with what is
        # there
    )
    if dtype is DType.STRING:
        return _string_array(tensor, dims, count)
    raw = tensor.raw_data
    if len(raw) != count * dtype.numpy.itemsize:
        raise broken(f"a constant of {count} elements has {len(raw)} bytes", tensor.name)
    if dtype is DType.BOOL and raw.strip(b"\0\1"):
        raise broken("a bool constant holds a byte that is neither 0 nor 1", tensor.name)
    data = (
        np.frombuffer(raw, dtype.numpy.newbyteorder("<"))
        .astype(dtype.numpy, copy=False)
        .reshape(dims)
    )
    data.setflags(write=False)
    return data


def _string_array(tensor: TensorProto, dims: list[int], count: int) -> Array:
    if len(tensor.string_data) != count:
        raise broken(f"a constant of {count} strings has {len(tensor.string_data)}", tensor.name)
    data = np.empty(count, object)
    try:
        data[:] = [text.decode() for text in tensor.string_data]
    except UnicodeDecodeError as error:
        raise broken("a string constant is no UTF-8", tensor.name) from error
    data = data.reshape(dims)
    data.setflags(write=False)
    return data


def _step(node: NodeProto) -> Step:
    metadata = _metadata(node)
    where = f"node {node.name}"
    demand_text(
        where,
        node.name,
        node.op_type,
        node.domain,
        *node.input,
        *node.output,
        *(item.name for item in node.attribute),
    )
    if "fqfuse.foreign" in metadata:
        return _foreign_step(node)
    exact = literal_attrs(metadata.get("fqfuse.exact", ""), where)
    attributes = {
        item.name: _attribute_value(item, where)
        for item in node.attribute
        if item.name not in exact
    }
    origin = tuple(strings_of(json_value(metadata.get("fqfuse.origin", "[]"), where), where))
    return step_of(
        NodeRecord(
            node.domain,
            node.op_type,
            node.name,
            tuple(node.input),
            tuple(node.output),
            attributes | exact,
            origin,
        )
    )


def _attribute_value(item: AttributeProto, where: str) -> Attr:
    readers: Mapping[int, Callable[[], Attr]] = {
        AttributeProto.INT: lambda: item.i,
        AttributeProto.FLOAT: lambda: item.f,
        AttributeProto.STRING: item.s.decode,
        AttributeProto.INTS: lambda: tuple(item.ints),
        AttributeProto.FLOATS: lambda: tuple(item.floats),
        AttributeProto.STRINGS: lambda: tuple(text.decode() for text in item.strings),
    }
    if item.type not in readers:
        raise broken(f"its attribute {item.name} is of a kind that plans do not use", where)
    try:
        return readers[item.type]()
    except UnicodeDecodeError as error:
        raise broken(f"its attribute {item.name} is no UTF-8", where) from error


def _foreign_step(node: NodeProto) -> Step:
    """The step of a node that `_foreign_node` wrote; its parameter `proto` is the node as it
    was.
    """
    where = f"node {node.name}"
    rest = json_value(_metadata(node)["fqfuse.foreign"], where)
    if not isinstance(rest, dict) or [
        type(rest.get(key)) for key in ("name", "opset", "primitive")
    ] != [str, int, str]:
        raise broken("its metadata is malformed", where)
    captured, origin, inputs, outputs = (
        strings_of(rest.get(key), where) for key in ("captured", "origin", "input", "output")
    )
    own = NodeProto()
    own.CopyFrom(node)
    own.name = rest["name"]
    del own.input[:], own.output[:]
    own.input.extend(inputs)
    own.output.extend(outputs)
    kept = [entry for entry in own.metadata_props if entry.key != "fqfuse.foreign"]
    del own.metadata_props[:]
    own.metadata_props.extend(kept)
    params: dict[str, Attr] = {
        "op_type": own.op_type,
        "domain": own.domain,
        "opset": rest["opset"],
        "proto": own.SerializeToString(deterministic=True),
    }
    args = tuple(
        (f"x_{index}", value) for index, value in enumerate((*node.input, *captured)) if value
    )
    return Step(
        node.name, rest["primitive"], "Onnx", args, tuple(node.output), params, origin=tuple(origin)
    )
