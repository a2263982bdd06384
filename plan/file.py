"""The plan file: a plan as one ONNX model that Netron opens and ONNX tools carry.

    ModelProto.domain      `fqfuse`
    opset_import           ONNX's own ops at one fixed version, `fqfuse` at 1, and the domains of foreign ops
    graph                  one node a step (`nodes.py`), constants as initializers with raw data,
                           types as value_info; `fqfuse.type` in a value's metadata repeats a type
                           that ONNX cannot hold (quantization)
    metadata_props         fqfuse.schema (version of this layout), .name, .target, .options,
                           .quantizers, .weights, .fates, .decisions (`metadata.py`), and, as the
                           last bytes of the file, .digest: SHA-256 of all that is in front of it (`seal.py`)

Constants of more than 2 GiB lie in a second file (`beside.py`) as ONNX's external data, and `fqfuse.data` is that file's name.

The same plan gives the same bytes, in every process. Reading trusts nothing: it checks the digest,
takes every size from a Python integer before it allocates, evaluates nothing, and hands out a plan
only when the plan verifier finds it sound.
"""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import numpy as np
from google.protobuf.message import DecodeError, EncodeError
from onnx import (
    AttributeProto,
    GraphProto,
    ModelProto,
    NodeProto,
    TensorProto,
    ValueInfoProto,
    helper,
)

from ..errors import InvalidInput, PlanError
from ..files import checked_path, write_atomically
from ..ir.constants import Halves, as_held
from ..ir.element_types import DTYPES, ELEMENT_TYPES
from ..ir.lifting import LARGE, Lifted, restored
from ..ir.ops.spec import Array
from ..ir.text_read import Reader
from ..ir.text_write import Writer
from ..ir.types import Dim, DType, TensorType
from .beside import ALIGNED, DATA, Beside, data_of, mapped, replacing, write_beside
from .foreign import check_foreign
from .metadata import (
    add_metadata,
    broken,
    decisions_of,
    demand_text,
    fates_of,
    json_text,
    json_value,
    literal_attrs,
    metadata_of,
    plan_metadata,
    quantizers_of,
    read_at,
    text_of,
)
from .nodes import node_of, step_of, tensor_beside, tensor_of
from .seal import (
    DOMAIN,
    STRUCTURE_LIMIT,
    Source,
    check_structure,
    content,
    is_at,
    is_plan,
    opened,
    sealing,
)
from .types import MOST_DEPTH, Bodies, Plan, Step
from .verify import check_plan

SCHEMA = 1
"""Version of the layout."""

_IR_VERSION = 10  # the first with metadata on nodes and values
_STANDARD_OPSET = 26  # the newest that every onnx in the dependency range knows
_CONSTANTS = "fqfuse.constants"  # of a body: its constants -> initializers of the model
_BODIES = "fqfuse.bodies"  # of a node: how many states, and how many scanned values
_LIMIT = (1 << 31) - (1 << 24)  # protobuf ends at 2 GiB; 16 MiB are left for what is not constants


def save_plan(plan: Plan, path: str | os.PathLike[str], limit: int = _LIMIT) -> None:
    """Writes a plan as one ONNX file, atomically and byte-for-byte deterministically.

    Args:
        plan: the plan.
        path: of the file.
        limit: bytes of constants that one file holds; the large ones of a larger plan lie in a second
            file beside it, `<name>.<digest>.data`, which the plan names and sessions map: with a limit
            of 0 the plan's own constants take no private memory.

    Raises:
        InvalidInput: it is no plan, the limit no size, or the path cannot be written; what was there before is
            untouched.
        PlanError: the plan is not sound, or holds what ONNX cannot.
    """
    if not isinstance(plan, Plan):
        raise InvalidInput(
            f"a {type(plan).__name__} is no plan",
            hint="give what fqfuse.compile or fqfuse.load_plan returned",
        )
    _check_limit(limit)
    _check(plan, "")
    beside = None
    with replacing(path):
        if _size(plan) > limit:
            stored, _ = _stored(plan)
            large = {name: data for name, data in sorted(stored.items()) if _is_large(data)}
            beside = write_beside(path, large) if large else None
        write_atomically(path, _content(plan, beside))


def _check_limit(limit: object) -> None:
    if not isinstance(limit, int) or limit < 0:
        raise InvalidInput(f"a limit of {limit!r} bytes", hint="give a whole number from 0 on")


def files_of(path: str | os.PathLike[str]) -> tuple[Path, ...]:
    """What was saved: the file of a plan or model, and the one beside it if there is one."""
    target = checked_path(path)
    location = data_of(target)
    if not location:
        return (target,)
    # a link leads to the folder where both lie
    held = Path(os.path.realpath(target)) if target.is_symlink() else target
    return target, held.with_name(location)


def plan_bytes(plan: Plan) -> bytes:
    """The content of the plan's file.

    Raises:
        PlanError: the plan is not sound, does not fit into one ONNX file (2 GiB), or holds what
            ONNX cannot.
    """
    _check(plan, "")
    size = _size(plan)
    if size > _LIMIT:
        raise PlanError(
            f"the plan's constants take {size} bytes, and one ONNX file holds 2 GiB",
            where=plan.name,
            hint="save it with fqfuse.save_plan, and pass the path on",
        )
    return b"".join(_content(plan, None))


def plan_digest(plan: Plan) -> str:
    """The SHA-256 of the plan as one file, whatever its size: equal plans have equal ones.

    Raises:
        PlanError: the plan is not sound, or holds what ONNX cannot.
    """
    _check(plan, "")
    digest = hashlib.sha256()
    for piece in _content(plan, None):
        digest.update(piece)
    return digest.hexdigest()


def _size(plan: Plan) -> int:
    return sum(data.nbytes for data in _stored(plan)[0].values())


def _stored(plan: Plan) -> tuple[dict[str, Array | Halves], list[dict[str, str]]]:
    """All constants by their names in the file, and for the plan of each body, in the order of
    `within`, under which names its own lie there.
    """
    constants, places = dict(as_held(plan.constants)), []
    for number, (_, body) in enumerate(plan.within):
        names = {}
        for own in sorted(body.constants):
            name = f"body{number}/{own}"
            while name in constants or name in plan.values:
                name += "'"
            constants[name] = as_held(body.constants)[own]
            names[own] = name
        places.append(names)
    return constants, places


def _is_large(data: Array | Halves) -> bool:
    return data.nbytes >= LARGE and data.dtype.kind != "O"


def _content(plan: Plan, beside: Beside | None) -> Iterator[memoryview]:
    """The content of the plan's file, in pieces: its constants lie in memory once."""
    stored, names = _stored(plan)
    placed = {} if beside is None else beside.places
    apart = {
        number: stored[name]
        for number, name in enumerate(sorted(stored))
        if name not in placed and _is_large(stored[name])
    }
    try:
        model = _model(plan, beside, stored, names).SerializeToString(deterministic=True)
    except (ValueError, TypeError, EncodeError) as error:  # UnicodeEncodeError is a ValueError
        raise PlanError(
            f"the plan cannot be written as ONNX: {error}",
            where=plan.name,
            hint="mend the names in the model",
        ) from error
    # in the file a length takes up to 9 bytes more than here
    check_structure(model, STRUCTURE_LIMIT - 16 * len(stored))
    return _sealed(restored(model, apart))


def _sealed(pieces: Iterator[memoryview]) -> Iterator[memoryview]:
    """These pieces, and behind them what says that they are complete."""
    digest = hashlib.sha256()
    for piece in pieces:
        digest.update(piece)
        yield piece
    yield memoryview(sealing(digest.hexdigest()))


# -- writing ---------------------------------------------------------------------------------------


def _model(
    plan: Plan,
    beside: Beside | None,
    stored: Mapping[str, Array | Halves],
    names: Sequence[dict[str, str]],
) -> ModelProto:
    """The model, without the data of large constants.

    Args:
        plan: the plan.
        beside: where these lie; None: in the same file.
        stored: all constants by their names in the file.
        names: for the plan of each body, where its constants lie.
    """
    model = ModelProto(
        ir_version=_IR_VERSION, producer_name="fqfuse", producer_version=str(SCHEMA), domain=DOMAIN
    )
    versions = {"": _STANDARD_OPSET, DOMAIN: 1}
    _fill(model.graph, plan, versions, iter(names))
    graph = model.graph
    places = beside.places if beside is not None else {}
    for name in sorted(stored):
        data = stored[name]
        if beside is None or name not in places:
            graph.initializer.append(tensor_of(name, data, apart=_is_large(data)))
        else:
            graph.initializer.append(tensor_beside(name, data, beside.location, places[name]))
    for domain in sorted(versions):
        model.opset_import.add(domain=domain, version=versions[domain])
    told = plan_metadata(plan) | ({} if beside is None else {DATA: beside.location})
    add_metadata(model, {"fqfuse.schema": str(SCHEMA)} | told)
    return model


def _fill(
    graph: GraphProto, plan: Plan, versions: dict[str, int], names: Iterator[dict[str, str]]
) -> None:
    """Writes the values and steps of a plan, and the plans of its bodies, into a graph.

    Args:
        graph: is filled.
        plan: the plan.
        versions: domain -> the opset that its nodes need; is completed.
        names: for the plan of each body, in order, where its constants lie.
    """
    graph.name = plan.name or "plan"  # ONNX demands a name
    graph.input.extend(_value_info(value, plan.type(value)) for value in plan.inputs)
    graph.output.extend(_value_info(value, plan.type(value)) for value in plan.outputs)
    shown = {*plan.inputs, *plan.outputs}
    graph.value_info.extend(
        _value_info(value, plan.values[value])
        for value in sorted(plan.values)
        if value not in shown
    )
    for step in plan.steps:
        node, version = node_of(step)
        for number, body in enumerate(step.bodies.plans if step.bodies is not None else ()):
            held = node.attribute.add(name=f"body{number}", type=AttributeProto.GRAPH)
            add_metadata(held.g, plan_metadata(body) | {_CONSTANTS: json_text(next(names))})
            _fill(held.g, body, versions, names)
        if step.bodies is not None:
            add_metadata(node, {_BODIES: json_text([step.bodies.states, step.bodies.scanned])})
        graph.node.append(node)
        versions[node.domain] = max(versions.get(node.domain, 1), version)


def _value_info(name: str, type_: TensorType) -> ValueInfoProto:
    info = helper.make_tensor_value_info(name, ELEMENT_TYPES[type_.dtype], type_.shape)
    if type_.quant is not None:
        add_metadata(info, {"fqfuse.type": Writer().type(type_)})
    return info


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
    plan = read_at(where, lambda: _read(source))
    _check(plan, where)
    return plan


def _read(source: Source) -> Plan:
    """Reads again a plan that another has replaced meanwhile: the data of the former one may be gone."""
    while not isinstance(source, bytes):
        with opened(source) as file:
            try:
                return _read_once(source)
            except PlanError:
                if is_at(file, source):
                    raise
    return _read_once(source)


def _read_once(source: Source) -> Plan:
    data, apart, sealed = content(source)
    model = _checked_model(data, sealed=sealed)
    location = metadata_of(model).get(DATA)
    if location is None:
        return _plan(model, apart, None)
    if isinstance(source, bytes):
        raise PlanError(
            "the constants of this plan lie in a second file",
            hint="give the path of the plan file, with that file beside it",
        )
    return _plan(model, apart, mapped(source, location))


def _check(plan: Plan, source: str) -> None:
    """Holds a plan to the same before it is written and behind it: what is saved can be loaded."""
    check_plan(plan, source=source)
    for part in (plan, *(body for _, body in plan.within)):
        if any(step.op == "Onnx" for step in part.steps):
            read_at(source or plan.name, partial(check_foreign, part))


def _checked_model(data: bytes, *, sealed: bool) -> ModelProto:
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
    if not sealed:
        raise damaged
    if not schema:
        raise broken("it does not say its layout")
    return model


def _plan(model: ModelProto, apart: Lifted, beside: memoryview | None) -> Plan:
    stored = _Stored(_constants(model.graph, apart, beside))
    plan = _plan_of(model.graph, metadata_of(model), stored.constants, stored, 0)
    left = {name: data for name, data in stored.constants.items() if name not in stored.taken}
    return replace(plan, constants=left)


@dataclass(frozen=True)
class _Stored:
    """The constants of a file, and the names of those that lie in bodies, as far as these were read."""

    constants: Mapping[str, Array]
    taken: set[str] = field(default_factory=set)


def _plan_of(
    graph: GraphProto,
    metadata: Mapping[str, str],
    constants: Mapping[str, Array],
    stored: _Stored,
    depth: int,
) -> Plan:
    """The plan of a graph, which may be that of a body in so many others.

    Args:
        graph: the graph.
        metadata: of the plan.
        constants: its own.
        stored: those of the file.
        depth: in how many bodies the graph lies.
    """
    values: dict[str, TensorType] = {}
    for info in (*graph.input, *graph.output, *graph.value_info):
        _demand_name("a value", info.name)
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
        steps=tuple(_step(node, stored, depth) for node in graph.node),
        quantizers=quantizers_of(metadata),
        fate_records=fates_of(metadata),
        decision_records=decisions_of(metadata),
        options=literal_attrs(text_of(metadata, "fqfuse.options"), "fqfuse.options"),
    )


def _step(node: NodeProto, stored: _Stored, depth: int) -> Step:
    """The step of a node, with the plans of its bodies."""
    told = metadata_of(node).get(_BODIES)
    if told is None:
        return step_of(node)
    where = f"node {node.name}"
    if depth >= MOST_DEPTH:
        raise broken(f"more than {MOST_DEPTH} bodies lie in each other", where)
    counts = json_value(told, where)
    if not isinstance(counts, list) or [type(count) for count in counts] != [int, int]:
        raise broken("its metadata is malformed", where)
    graphs = [item.g for item in node.attribute if item.type == AttributeProto.GRAPH]
    left = NodeProto()
    left.CopyFrom(node)
    del left.attribute[:]
    left.attribute.extend(item for item in node.attribute if item.type != AttributeProto.GRAPH)
    plans = tuple(_body(graph, stored, depth + 1, where) for graph in graphs)
    return replace(step_of(left), bodies=Bodies(plans, *counts))


def _body(graph: GraphProto, stored: _Stored, depth: int, where: str) -> Plan:
    metadata = metadata_of(graph)
    names = json_value(metadata.get(_CONSTANTS, "{}"), where)
    if graph.initializer or not isinstance(names, dict):
        raise broken("the constants of its body lie where no plan has them", where)
    for own, name in names.items():
        _demand_name("a constant", own)
        if not isinstance(name, str) or name not in stored.constants:
            raise broken("a constant of its body is not there", f"{where}: {own[:200]}")
        stored.taken.add(name)
    constants = {own: stored.constants[name] for own, name in names.items()}
    return _plan_of(graph, metadata, constants, stored, depth)


def _type(info: ValueInfoProto) -> TensorType:
    tensor = info.type.tensor_type
    if tensor.elem_type not in DTYPES:
        raise broken(f"element type {tensor.elem_type} is unknown", info.name)
    shape: tuple[Dim, ...] | None = None
    if tensor.HasField("shape"):
        demand_text("a dimension", *(dim.dim_param for dim in tensor.shape.dim))
        shape = tuple(
            dim.dim_value if dim.HasField("dim_value") else dim.dim_param
            for dim in tensor.shape.dim
        )
    plain = TensorType(DTYPES[tensor.elem_type], shape)
    exact = metadata_of(info).get("fqfuse.type")
    if exact is None:
        return plain
    reader = Reader(exact, source=f"type of {info.name}")
    found = reader.type()
    reader.end()
    if found.with_quant(None) != plain:
        raise broken(f"its type is {plain}, and {found}", info.name)
    return found


def _constants(graph: GraphProto, apart: Lifted, beside: memoryview | None) -> dict[str, Array]:
    constants: dict[str, Array] = {}
    for number, tensor in enumerate(graph.initializer):
        _demand_name("a constant", tensor.name)
        if tensor.name in constants:
            raise broken("two constants have one name", tensor.name)
        large = apart.get(number)
        if large is not None and tensor.raw_data:
            raise broken("a constant has its data twice", tensor.name)
        raw = tensor.raw_data if large is None else large.data
        if tensor.data_location == TensorProto.EXTERNAL and beside is not None and not raw:
            raw = _placed(tensor, beside)
        elif tensor.data_location != TensorProto.DEFAULT:
            raise broken("the data of a constant is in a place that plans do not use", tensor.name)
        constants[tensor.name] = _array(tensor, raw)
    return constants


def _placed(tensor: TensorProto, beside: memoryview) -> memoryview:
    """The data of a constant in the file beside the plan; all constants are in that one."""
    told = {entry.key: entry.value for entry in tensor.external_data}
    numbers = [told.get(key, "") for key in ("offset", "length")]
    if not all(text.isascii() and text.isdecimal() and len(text) < 20 for text in numbers):
        raise broken("a constant does not say where it lies", tensor.name)
    start, size = map(int, numbers)
    if start % ALIGNED or start + size > len(beside):
        raise broken("a constant lies where no plan has one", tensor.name)
    return beside[start : start + size]


def _demand_name(what: str, name: str) -> None:
    """The empty name stands for an argument that is left out."""
    demand_text(f"the name of {what}", name)
    if not name:
        raise broken(f"{what} has no name")


def _array(tensor: TensorProto, raw: bytes | memoryview) -> Array:
    dtype = DTYPES.get(tensor.data_type)
    dims = list(tensor.dims)
    if dtype is None or DType.from_numpy(dtype.numpy) is not dtype:
        raise broken("a constant is of a type that plans do not use", tensor.name)
    if len(dims) > 64 or any(d < 0 for d in dims):
        raise broken(f"no array has the dimensions {dims[:65]}", tensor.name)
    count = math.prod(
        dims
        # a Python integer: nothing of this size is allocated before it is compared with what is
        # there
    )
    if dtype is DType.STRING:
        return _string_array(tensor, dims, count)
    if len(raw) != count * dtype.numpy.itemsize:
        raise broken(f"a constant of {count} elements has {len(raw)} bytes", tensor.name)
    if dtype is DType.BOOL and bytes(raw).strip(b"\0\1"):
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
