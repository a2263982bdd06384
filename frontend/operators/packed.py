"""Sequences whose lengths, or the shapes of whose tensors, only a run tells: the elements of all tensors
one behind the other, and their shapes (`held.Packed`), with what reads and changes them in ONNX's own
operators.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import numpy as np
from onnx import GraphProto, NodeProto, TensorProto, helper

from ...errors import UnsupportedOp
from ...ir.types import DType
from ..held import Held, Packed, Rows, Tensors
from .derived import Derived

_LAST: Final = (1 << 63) - 1  # ONNX's end of a slice that goes to the last one


def packed(at: Derived, held: Held, dtype: DType | None = None) -> Packed:
    """A sequence in this form.

    Args:
        at: the node that needs it.
        held: the sequence.
        dtype: of its elements, where it is empty and does not say it.

    Raises:
        UnsupportedOp: its tensors have different ranks.
    """
    if isinstance(held, Packed):
        return held
    if isinstance(held, Rows):
        return _of_rows(at, held.value)
    if not held.tensors:
        return empty(at, held.dtype or dtype or DType.F32, 0)
    ranks = {
        shape and len(shape)
        for value in held.tensors
        if (shape := at.ctx.type(value).shape) is not None
    }
    if len(ranks) > 1:
        raise UnsupportedOp(
            f"{at.node.op} takes a sequence whose tensors have different ranks",
            where=at.node.where,
            hint="give its tensors one rank, or the tensors themselves",
        )
    parts = [_flat(at, value, f"elements of {i}") for i, value in enumerate(held.tensors)]
    rows = [_shape_row(at, value, f"shape of {i}") for i, value in enumerate(held.tensors)]
    return Packed(
        at.real("Concat", parts, {"axis": 0}, role="elements"),
        at.real("Concat", rows, {"axis": 0}, role="shapes"),
    )


def dtype_of(at: Derived, held: Held) -> DType | None:
    """The element type of a sequence; None for an empty one of which nothing says it."""
    if isinstance(held, Tensors):
        return at.ctx.type(held.tensors[0]).dtype if held.tensors else held.dtype
    return at.ctx.type(held.value if isinstance(held, Rows) else held.data).dtype


def empty(at: Derived, dtype: DType, rank: int) -> Packed:
    """No tensor of this rank."""
    data = at.ctx.add_constant(at.node, "no elements", np.empty(0, dtype.numpy), dtype)
    return Packed(data, at.integers("no shapes", np.empty((0, rank), np.int64)))


def _of_rows(at: Derived, value: str) -> Packed:
    shape = at.real("Shape", [value], {"start": 1}, role="shape of a row")
    row = at.real("Unsqueeze", [shape, at.integers("in front", [0])], role="a row of shapes")
    count = at.real("Shape", [value], {"start": 0, "end": 1}, role="number of rows")
    rank = at.real("Shape", [shape], role="rank of a row")
    table = at.real("Concat", [count, rank], {"axis": 0}, role="size of shapes")
    return Packed(_flat(at, value, "elements"), at.real("Expand", [row, table], role="shapes"))


def _flat(at: Derived, value: str, role: str) -> str:
    if at.ctx.type(value).shape is not None and len(at.ctx.type(value).shape or ()) == 1:
        return value
    return at.real("Reshape", [value, at.integers("flat", [-1])], role=role)


def _shape_row(at: Derived, value: str, role: str) -> str:
    shape = at.real("Shape", [value], role=role)
    return at.real("Unsqueeze", [shape, at.integers("in front", [0])], role=f"{role}, a row")


# -- reading -------------------------------------------------------------------------------------------


def count(at: Derived, held: Packed) -> str:
    """How many tensors there are, s64[]."""
    number = at.real("Shape", [held.sizes], {"start": 0, "end": 1}, role="count")
    return at.real("Squeeze", [number], role="number")


def scalar(at: Derived, value: str, role: str) -> str:
    """A whole number that may be a list of one, s64[]."""
    value = whole_numbers(at, value, role)
    return value if at.ctx.type(value).shape == () else at.real("Squeeze", [value], role=role)


def whole_numbers(at: Derived, value: str, role: str) -> str:
    """Whole numbers as s64: ONNX takes s32, too."""
    if at.ctx.type(value).dtype is DType.S64:
        return value
    return at.real("Cast", [value], {"to": TensorProto.INT64}, role=f"{role}, in 64 bits")


def piece(at: Derived, held: Packed, place: str, *, output: str = "") -> str:
    """The tensor at a place, which counts from the end where it is negative; a place that there is not
    ends the run.
    """
    place = scalar(at, place, "place")
    start, end = _borders(at, held, place)
    part = at.real("Slice", [held.data, start, end], role="elements of it")
    shape = at.real("Gather", [held.sizes, place], {"axis": 0}, role="shape of it")
    return _reshaped(at, part, shape, role="" if output else "it", output=output)


def _reshaped(at: Derived, value: str, shape: str, *, role: str, output: str = "") -> str:
    return at.real("Reshape", [value, shape], {"allowzero": 1}, role=role, output=output)


def _borders(at: Derived, held: Packed, place: str) -> tuple[str, str]:
    """Where the elements of a tensor begin and end, s64[1] each."""
    counts = _counts(at, held)
    ends = at.real("CumSum", [counts, at.integers("along", 0)], role="ends")
    end = at.real("Gather", [ends, place], {"axis": 0}, role="end")
    own = at.real("Gather", [counts, place], {"axis": 0}, role="elements")
    start = at.real("Sub", [end, own], role="start")
    return _listed(at, start, "start, a list"), _listed(at, end, "end, a list")


def _counts(at: Derived, held: Packed) -> str:
    """The number of elements of each tensor."""
    inputs = [held.sizes, at.integers("sizes", [1])]
    return at.real("ReduceProd", inputs, {"keepdims": 0}, role="counts")


def _listed(at: Derived, value: str, role: str) -> str:
    return at.real("Unsqueeze", [value, at.integers("in front", [0])], role=role)


def checked(at: Derived, value: str, holds: str, role: str) -> str:
    """The value where `holds`, a bool, is true; the run ends where it is not."""
    places = [at.integers("it is there", 0), at.integers("it is not there", 1)]
    place = at.real("Where", [holds, *places], role=f"place of {role}")
    return at.real("Gather", [_listed(at, value, f"{role}, if any"), place], {"axis": 0}, role=role)


# -- changing ------------------------------------------------------------------------------------------


def inserted(at: Derived, held: Packed, tensor: str, place: str) -> Packed:
    """The sequence with a tensor in front of a place, or, where that is '', at its end."""
    data, rows = _of_rank(at, held, tensor)
    sizes = _shape_row(at, tensor, "its shape")
    if not place:
        return Packed(
            at.real("Concat", [held.data, data], {"axis": 0}, role="elements"),
            at.real("Concat", [rows, sizes], {"axis": 0}, role="shapes"),
        )
    index = _counted(at, held, scalar(at, place, "place"), behind=True)
    none = at.integers("none", [0])
    ends = at.real("CumSum", [_counts(at, held), at.integers("along", 0)], role="ends")
    ends = at.real("Concat", [none, ends], {"axis": 0}, role="places")
    cut = _listed(at, at.real("Gather", [ends, index], {"axis": 0}, role="cut"), "cut, a list")
    row = _listed(at, index, "row")
    return Packed(
        _between(at, held.data, cut, cut, data, "elements"),
        _between(at, rows, row, row, sizes, "shapes"),
    )


def erased(at: Derived, held: Packed, place: str) -> Packed:
    """The sequence without the tensor at a place."""
    place = scalar(at, place, "place") if place else at.integers("last", -1)
    place = _counted(at, held, place, behind=False)
    start, end = _borders(at, held, place)
    row = _listed(at, place, "row")
    after = at.real("Add", [row, at.integers("one", [1])], role="row behind")
    return Packed(
        _between(at, held.data, start, end, "", "elements"),
        _between(at, held.sizes, row, after, "", "shapes"),
    )


def _counted(at: Derived, held: Packed, place: str, *, behind: bool) -> str:
    """A place, counted from the first tensor; one that there is not ends the run, whatever of the sequence is
    read. `behind`: the place behind the last one is one, too.
    """
    number = count(at, held)
    back = at.real("Less", [place, at.integers("first", 0)], role="counts back")
    there = at.real("Add", [place, number], role="counted from the end")
    index = at.real("Where", [back, there, place], role="counted")
    late = at.real("Less", [at.integers("in front of all", -1), index], role="is no place before")
    last = at.real("Sub", [index, at.integers("places behind", int(behind))], role="last")
    early = at.real("Less", [last, number], role="is no place behind")
    return checked(at, index, at.real("And", [late, early], role="is a place"), "place of it")


def _between(at: Derived, value: str, start: str, end: str, new: str, role: str) -> str:
    """What is in front of a place of a value, something new, and what is behind another place."""
    first, last = at.integers("first", [0]), at.integers("last", [_LAST])
    axis = at.integers("rows", [0])
    front = at.real("Slice", [value, first, start, axis], role=f"{role} in front")
    behind = at.real("Slice", [value, end, last, axis], role=f"{role} behind")
    return at.real("Concat", [front, *filter(None, [new]), behind], {"axis": 0}, role=f"all {role}")


def _of_rank(at: Derived, held: Packed, tensor: str) -> tuple[str, str]:
    """The elements of a tensor that comes into a sequence, and the shapes in it as rows as long as that of the
    tensor: an empty sequence has the rank of the first tensor that comes into it. Where there are tensors of
    another rank the run ends, whichever of the two is read.
    """
    shape, own = at.ctx.type(held.sizes).shape, at.ctx.type(tensor).shape
    elements = _flat(at, tensor, "its elements")
    if shape is not None and own is not None and shape[1] == len(own):
        return elements, held.sizes
    number = at.real("Shape", [held.sizes], {"start": 0, "end": 1}, role="rows")
    rank = at.real("Shape", [at.real("Shape", [tensor], role="its sizes")], role="its rank")
    sizes = held.sizes
    if shape is None or shape[0] != 0:
        # the Reshape would not tell: any number of rows of no size can be taken for no row of another size
        before = at.real("Shape", [held.sizes], {"start": 1, "end": 2}, role="rank so far")
        other = at.real("Mul", [number, at.real("Sub", [before, rank], role="more")], role="other")
        other = at.real("Squeeze", [other], role="other sizes")
        fits = at.real("Equal", [other, at.integers("no other", 0)], role="is of that rank")
        sizes = checked(at, sizes, fits, "shapes of one rank")
        elements = checked(at, elements, fits, "elements of that rank")
    table = at.real("Concat", [number, rank], {"axis": 0}, role="size of shapes")
    return elements, _reshaped(at, sizes, table, role="shapes of its rank")


# -- joining -------------------------------------------------------------------------------------------


def rows_of(at: Derived, held: Packed) -> str:
    """The tensors along a new first axis; where they differ in shape the run ends."""
    first = at.real("Gather", [held.sizes, at.integers("first", 0)], {"axis": 0}, role="shape")
    first = checked(at, first, _alike(at, held.sizes, first), "shape of all")
    number = at.real("Shape", [held.sizes], {"start": 0, "end": 1}, role="count")
    sizes = at.real("Concat", [number, first], {"axis": 0}, role="sizes")
    return _reshaped(at, held.data, sizes, role="rows")


def end_to_end(at: Derived, held: Packed, *, output: str) -> None:
    """The tensors one behind the other along their first axis; where they differ in another size the
    run ends.
    """
    axis, one = at.integers("of sizes", [1]), at.integers("one", [1])
    behind = at.real("Slice", [held.sizes, one, at.integers("last", [_LAST]), axis], role="behind")
    lengths = at.real("Gather", [held.sizes, at.integers("length", 0)], {"axis": 1}, role="lengths")
    rest = at.real("Gather", [behind, at.integers("first", 0)], {"axis": 0}, role="other sizes")
    rest = checked(at, rest, _alike(at, behind, rest), "other sizes of all")
    whole = at.real("ReduceSum", [lengths], {"keepdims": 1}, role="length")
    sizes = at.real("Concat", [whole, rest], {"axis": 0}, role="sizes")
    _reshaped(at, held.data, sizes, role="", output=output)


def _alike(at: Derived, table: str, row: str) -> str:
    """Whether all rows of a table are this one."""
    differs = at.real("Sub", [table, row], role="differences")
    most = at.real(
        "ReduceSum", [at.real("Abs", [differs], role="distances")], {"keepdims": 0}, role="distance"
    )
    return at.real("Equal", [most, at.integers("none at all", 0)], role="alike")


# -- loops ---------------------------------------------------------------------------------------------


def loop(
    at: Derived,
    trips: str,
    trip: str,
    states: Mapping[str, str],
    nodes: Iterable[NodeProto],
    results: Mapping[str, str],
) -> None:
    """Imports a Loop that makes a number of trips in the node's place.

    Args:
        at: the node.
        trips: how many.
        trip: what the body calls the number of its trip.
        states: state as the body has it -> what it begins with.
        nodes: of the body; what they read besides is of the graph around it.
        results: state as the body returns it -> what it is called behind the Loop, in the order of `states`.
    """
    true = at.ctx.add_constant(at.node, "going", True, DType.BOOL)
    going, goes_on = (at.ctx.fresh(f"{at.node.name}.{name}") for name in ("goes", "goes on"))
    body = GraphProto(name="trips", node=[*nodes, made("Identity", [going], goes_on)])
    for name in (trip, going, *states):
        body.input.add(name=name)
    for name in (goes_on, *results):
        body.output.add(name=name)
    inputs = [trips, true, *states.values()]
    proto = NodeProto(op_type="Loop", name=f"{at.node.name}.trips", input=inputs)
    proto.output.extend(results.values())
    proto.attribute.append(helper.make_attribute("body", body))
    at.ctx.import_node(at.ctx, proto)


def made(op: str, inputs: list[str], output: str, **attrs: Any) -> NodeProto:
    """A node of ONNX's own for the body of a loop."""
    return helper.make_node(op, inputs, [output], name=output, **attrs)
