"""Inputs and outputs of a model that are sequences or optionals (`ir.ports`)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Final

from onnx import NodeProto, TypeProto, ValueInfoProto

from ...errors import UnsupportedOp
from ...ir.ports import LIST, PACKED, ROWS, TENSOR, Port
from ...ir.types import Dim, DType, TensorType
from ..held import Maybe, Packed, Rows, Tensors
from ..importer import Importer
from ..nodes import kind_told, origin_of_proto, read_node
from .borders import declared_form, form_of, is_held, parts
from .derived import Derived

_INSIDE: Final = "fqfuse handles dense tensors, sequences and optionals of them: move what reads this out of the model"

TypeOf = Callable[[str, TypeProto], TensorType]
"""(name, type of a tensor in the file) -> its type in the graph; sizes without a name get one after it."""


def tensor_of(type_: TypeProto) -> TypeProto.Tensor:
    """The type of the tensors in what an input is."""
    if type_.HasField("optional_type"):
        type_ = type_.optional_type.elem_type
    if type_.HasField("sequence_type"):
        type_ = type_.sequence_type.elem_type
    return type_.tensor_type


def add_input(ctx: Importer, value: ValueInfoProto, type_of: TypeOf) -> Port:
    """The inputs of the graph that hold a sequence or an optional.

    Args:
        ctx: the import.
        value: the input of the model.
        type_of: of the tensors in it.

    Raises:
        UnsupportedOp: it is neither.
    """
    form = declared_form(value.type)
    if form is None:
        told = kind_told(value.type.WhichOneof("value") or "")
        raise UnsupportedOp(
            f"the input is no tensor but {told}",
            where=f"graph input {value.name[:200]!r}",
            hint=_INSIDE,
        )
    inner = TypeProto(tensor_type=tensor_of(value.type))
    there = ""
    if form.optional:
        there = ctx.graph.add_input(ctx.fresh(f"{value.name}.there"), TensorType(DType.BOOL, ()))
    if form.holds == TENSOR:
        # what stands for nothing has sizes that are no other input's
        for size in inner.tensor_type.shape.dim:
            size.ClearField("dim_param")
        held = ctx.fresh(f"{value.name}.value")
        ctx.graph.add_input(held, type_of(held, inner))
        ctx.optionals[value.name] = Maybe(held, there)
        return Port(value.name, TENSOR, (held,), there)
    sequence = _sequence(ctx, value.name, type_of(f"{value.name}.tensor", inner))
    if there:
        name = ctx.fresh(f"{value.name}.sequence")
        ctx.optionals[value.name] = Maybe(name, there)
    else:
        name = value.name
    ctx.sequences[name] = sequence
    if isinstance(sequence, Rows):
        return Port(value.name, ROWS, (sequence.value,), there)
    return Port(value.name, PACKED, (sequence.data, sequence.sizes), there)


def _sequence(ctx: Importer, name: str, element: TensorType) -> Rows | Packed:
    """Rows, where the model says the shape of the tensors."""
    shape = element.shape
    count = ctx.size_name(f"{name}_length")
    if shape is not None and all(isinstance(dim, int) for dim in shape):
        rows = ctx.graph.add_input(
            ctx.fresh(f"{name}.rows"), TensorType(element.dtype, (count, *shape))
        )
        return Rows(rows)
    rank: Dim = ctx.size_name(f"{name}_rank") if shape is None else len(shape)
    elements = TensorType(element.dtype, (ctx.size_name(f"{name}_elements"),))
    return Packed(
        ctx.graph.add_input(ctx.fresh(f"{name}.data"), elements),
        ctx.graph.add_input(ctx.fresh(f"{name}.sizes"), TensorType(DType.S64, (count, rank))),
    )


def output_port(ctx: Importer, value: ValueInfoProto, taken: Collection[str]) -> Port:
    """The values of the graph that hold an output of the model.

    Args:
        ctx: the import.
        value: the output of the model.
        taken: what the graph returns already: it returns a value once.
    """
    name = value.name
    if not is_held(ctx, name):
        return Port(name, TENSOR, (name,))
    index = ctx.wiring.producer.get(name)
    maker = NodeProto(op_type="Identity", name=name) if index is None else ctx.proto(index)
    proto = NodeProto(op_type="Identity", name=origin_of_proto(maker), input=[name], output=[name])
    at = Derived(ctx, read_node(proto, ctx.node_name(proto), ctx.opsets))
    held = ctx.sequences.get(name)
    if isinstance(held, Tensors) and held.tensors:
        return Port(name, LIST, _once(at, held.tensors, taken))
    if isinstance(held, Rows):
        return Port(name, ROWS, _once(at, [held.value], taken))
    form = form_of(at, name, value.type)
    values = _once(at, parts(at, name, form), taken)
    if form.optional:
        return Port(name, form.holds, values[1:], values[0])
    return Port(name, form.holds, values)


def _once(at: Derived, values: Iterable[str], taken: Collection[str]) -> tuple[str, ...]:
    """The values, with copies of those that are returned already."""
    found: list[str] = []
    for value in values:
        again = value in taken or value in found
        found.append(at.real("Identity", [value], role="again") if again else value)
    return tuple(found)
