"""Sequences and optionals of ONNX: what makes, changes and reads them, as what it does with the tensors that
hold them (`held.py`).

Of a sequence of known length nothing is left in the graph. Where a run tells its length, or the shapes of
its tensors, they lie packed (`packed.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np
from onnx import TypeProto

from ...ir.element_types import ELEMENT_TYPES
from ...ir.ops import dims
from ...ir.ops.spec import Array
from ...ir.types import DType
from ..element_types import dtype_of
from ..held import Held, Maybe, Packed, Rows, Tensors
from ..importer import Handler
from ..nodes import DEFAULT_DOMAIN
from . import packed
from .derived import Derived, written

_ONE_TYPE: Final = "the tensors of a sequence have one element type: cast those of another"


def sequence(at: Derived, name: str) -> Held:
    """The sequence that a value is.

    Raises:
        InvalidModel: it is none.
    """
    found = at.ctx.sequences.get(name)
    if found is None:
        raise at.node.invalid(
            f"{at.node.op} reads {name!r}, which is no sequence", "give it a sequence of tensors"
        )
    return found


def _position(at: Derived, index: int, count: int, *, behind: bool) -> int | None:
    """A place among `count` tensors; None where it is known at run time only. `behind`: the place
    behind the last one is one, too, and where there is none it is that.

    Raises:
        InvalidModel: there is no such place.
    """
    if not at.input(index):
        return count if behind else count - 1
    data = at.ctx.constant(at.input(index))
    if data is None:
        return None
    place = int(data.reshape(-1)[0]) if data.size == 1 else count + 1
    if not -count <= place < count + behind:
        raise at.node.invalid(f"a sequence of {count} has no place {data.tolist()}")
    return place + count if place < 0 else place


def _set(at: Derived, held: Held) -> None:
    at.ctx.sequences[at.node.output(0)] = held


def _empty(at: Derived) -> None:
    element = at.node.attr("dtype", ELEMENT_TYPES[DType.F32])
    _set(at, Tensors((), dtype_of(int(element), at.node.where)))


def _construct(at: Derived) -> None:
    dtypes = [_element_type(at, name) for name in at.node.inputs]
    if len({*dtypes}) > 1:
        told = " and ".join(sorted({dtype.value for dtype in dtypes}))
        raise at.node.invalid(f"a sequence of tensors of {told}", _ONE_TYPE)
    _set(at, Tensors(at.node.inputs))


def _element_type(at: Derived, name: str) -> DType:
    """Of a tensor that comes into a sequence.

    Raises:
        InvalidModel: it is no tensor.
    """
    if name in at.ctx.sequences or name in at.ctx.optionals:
        raise at.node.invalid(
            f"{at.node.op} puts {name!r} into a sequence, which is no tensor but a sequence or an optional",
            "give it tensors: ONNX's operators make no sequences of others",
        )
    return at.ctx.type(name).dtype


def _insert(at: Derived) -> None:
    held, tensor = sequence(at, at.input(0)), at.input(1)
    own, dtype = packed.dtype_of(at, held), _element_type(at, tensor)
    if own is not None and own is not dtype:
        raise at.node.invalid(
            f"a tensor of {dtype.value} comes into a sequence of {own.value}", _ONE_TYPE
        )
    if isinstance(held, Tensors):
        place = _position(at, 2, len(held.tensors), behind=True)
        if place is not None:
            _set(at, Tensors((*held.tensors[:place], tensor, *held.tensors[place:])))
            return
    rows = packed.packed(at, held, dtype)
    _set(at, packed.inserted(at, rows, tensor, at.input(2)))


def _erase(at: Derived) -> None:
    held = sequence(at, at.input(0))
    if isinstance(held, Tensors):
        place = _position(at, 1, len(held.tensors), behind=False)
        if place is not None:
            _set(at, Tensors((*held.tensors[:place], *held.tensors[place + 1 :]), held.dtype))
            return
    _set(at, packed.erased(at, packed.packed(at, held), at.input(1)))


def _at(at: Derived) -> None:
    held, output = sequence(at, at.input(0)), at.node.output(0)
    if isinstance(held, Tensors):
        place = _position(at, 1, len(held.tensors), behind=False)
        if place is not None:
            at.real("Identity", [held.tensors[place]], output=output)
            return
        shapes = [at.ctx.type(value).shape for value in held.tensors]
        if shapes and all(dims.same_shape(shapes[0], shape) for shape in shapes):
            held = Rows(at.stacked(held.tensors))
    if isinstance(held, Rows):
        place_ = packed.scalar(at, at.input(1), "place")
        at.real("Gather", [held.value, place_], {"axis": 0}, output=output)
    else:
        packed.piece(at, packed.packed(at, held), at.input(1), output=output)


def _length(at: Derived) -> None:
    held = sequence(at, at.input(0))
    if isinstance(held, Tensors):
        number = at.integers("length", len(held.tensors))
    elif isinstance(held, Rows):
        shape = at.real("Shape", [held.value], {"start": 0, "end": 1}, role="count")
        number = at.real("Squeeze", [shape], role="number")
    else:
        number = packed.count(at, held)
    at.real("Identity", [number], output=at.node.output(0))


def _concatenated(at: Derived) -> None:
    held = sequence(at, at.input(0))
    axis, stack = int(at.node.attr("axis", 0)), bool(at.node.attr("new_axis", 0))
    if isinstance(held, Tensors):
        if not held.tensors:
            raise at.node.invalid(f"{at.node.op} joins no tensor")
        if stack:
            at.stacked(held.tensors, axis, output=at.node.output(0))
        else:
            at.real("Concat", list(held.tensors), {"axis": axis}, output=at.node.output(0))
    elif isinstance(held, Rows) or stack:
        rows = held.value if isinstance(held, Rows) else packed.rows_of(at, held)
        _joined_rows(at, rows, axis=axis, stack=stack)
    elif axis == 0:
        shape = at.ctx.type(held.sizes).shape
        if shape is not None and shape[0] != 0 and shape[1] == 0:
            raise at.node.invalid(
                "axis 0 is out of range for 0 dimensions", "stack them: new_axis=1"
            )
        packed.end_to_end(at, held, output=at.node.output(0))
    else:
        _joined_one_by_one(at, held, axis)


def _joined_one_by_one(at: Derived, held: Packed, axis: int) -> None:
    """Tensors of which a run tells the number, along an axis that is not the first."""
    names = {
        name: at.ctx.fresh(f"{at.node.name}.{name}")
        for name in ("list", "trip", "before", "place", "next", "after")
    }
    at.ctx.sequences[names["list"]] = held
    first = packed.piece(at, held, at.integers("first", 0))
    others = at.real("Sub", [packed.count(at, held), at.integers("one", 1)], role="others")
    nodes = [
        packed.made("Add", [names["trip"], at.integers("one", 1)], names["place"]),
        packed.made("SequenceAt", [names["list"], names["place"]], names["next"]),
        packed.made("Concat", [names["before"], names["next"]], names["after"], axis=axis),
    ]
    packed.loop(
        at,
        others,
        names["trip"],
        {names["before"]: first},
        nodes,
        {names["after"]: at.node.output(0)},
    )


def _joined_rows(at: Derived, rows: str, *, axis: int, stack: bool) -> None:
    """What a run stacks along the first axis, along another one, or end to end."""
    rank = at.ctx.rank(at.node, rows) - (not stack)
    if not -rank <= axis < rank:
        raise at.node.invalid(f"axis {axis} is out of range for {rank} dimensions")
    place = axis % rank
    shape = at.ctx.type(rows).shape or ()
    order = [*range(1, len(shape))]
    order.insert(place, 0)
    if stack:
        at.real("Transpose", [rows], {"perm": tuple(order)}, output=at.node.output(0))
        return
    turned = at.real("Transpose", [rows], {"perm": tuple(order)}, role="in order")
    at.real(
        "Reshape",
        [turned, _merged_sizes(at, turned, place)],
        {"allowzero": int(not _all_some(shape[1:]))},
        output=at.node.output(0),
    )


def _merged_sizes(at: Derived, value: str, place: int) -> str:
    """The sizes of a value whose dimension at a place is one with that behind it."""
    behind = at.real("Shape", [value], {"start": place + 2}, role="behind")
    shape = at.ctx.type(value).shape or ()
    if _all_some((*shape[:place], *shape[place + 1 :])):
        # in these words the type of the result is known
        front = at.integers("merged", [*[0] * place, -1])
        return at.real("Concat", [front, behind], {"axis": 0}, role="sizes")
    front = at.real("Shape", [value], {"start": 0, "end": place}, role="front")
    merged = at.real("Shape", [value], {"start": place, "end": place + 2}, role="merged")
    length = at.real("ReduceProd", [merged], {"keepdims": 1}, role="length")
    return at.real("Concat", [front, length, behind], {"axis": 0}, role="sizes")


def _all_some(sizes: Sequence[object]) -> bool:
    """Whether none of the sizes is 0 in any run: a Reshape takes that for another one, and cannot infer a size."""
    return all(isinstance(size, int) and size > 0 for size in sizes)


def _split(at: Derived) -> None:
    axis, given = at.node.attr("axis", 0), at.input(1)
    rank = at.ctx.rank(at.node, at.input(0))
    if not -rank <= axis < rank:
        raise at.node.invalid(f"axis {axis} is out of range for {rank} dimensions")
    size = at.sizes(at.input(0), axis % rank)[0]
    data = at.ctx.constant(given) if given else np.asarray(1, np.int64)
    keep = bool(given) or bool(at.node.attr("keepdims", 1))
    if data is None or (data.ndim == 0 and not isinstance(size, int)):
        _split_of_open_size(at, axis % rank, data, keep=keep)
        return
    if data.ndim:
        sizes = [int(n) for n in data]
    else:
        piece = int(data)
        if piece < 1:
            raise at.node.invalid(f"pieces of {piece} elements")
        assert isinstance(size, int)
        whole, rest = divmod(size, piece)
        sizes = [piece] * whole + [rest] * bool(rest)
    pieces = at.pieces(at.input(0), axis, sizes=sizes) if sizes else ()
    if not keep:
        gone = at.integers("gone", [axis])
        pieces = tuple(
            at.real("Squeeze", [piece, gone], role=f"squeezed {i}")
            for i, piece in enumerate(pieces)
        )
    _set(at, Tensors(pieces))


def _split_of_open_size(at: Derived, axis: int, piece: Array | None, *, keep: bool) -> None:
    """Pieces whose sizes or number a run tells: as many as there are sizes, rows of one element, or one by
    one in a loop.
    """
    value = at.input(0)
    given = packed.whole_numbers(at, at.input(1), "sizes") if at.input(1) else ""
    told = at.ctx.type(given).shape if given else ()
    if piece is None and told is not None and len(told) == 1 and isinstance(told[0], int):
        tensors = at.pieces(value, axis, given=given, count=told[0]) if told[0] else ()
        _set(at, Tensors(tensors, at.ctx.type(value).dtype))
        return
    if piece is None or piece.item() != 1:
        _cut_one_by_one(at, axis, given)
        return
    rank = at.ctx.rank(at.node, value)
    order = (axis, *(other for other in range(rank) if other != axis))
    rows = at.real("Transpose", [value], {"perm": order}, role="rows") if axis else value
    if keep:
        rows = at.real("Unsqueeze", [rows, at.integers("kept", [axis + 1])], role="kept rows")
    _set(at, Rows(rows))


def _cut_one_by_one(at: Derived, axis: int, given: str) -> None:
    """Pieces of a number of elements, or of as many as a list of open length says."""
    value = at.input(0)
    names = {
        name: at.ctx.fresh(f"{at.node.name}.{name}")
        for name in ("trip", "before", "after", "start", "end", "piece", "list")
    }
    zero, one = at.integers("zero", 0), at.integers("one", [1])
    length = at.real("Shape", [value], {"start": axis, "end": axis + 1}, role="size")
    if at.ctx.type(given).shape == ():
        step = at.real("Reshape", [given, one], role="size of a piece")
        fits = at.real("Greater", [given, zero], role="is a size")
        step = packed.checked(at, step, fits, "size of a piece, which is at least 1")
        starts = at.real("Range", [zero, _number(at, length), _number(at, step)], role="starts")
        ends = at.real("Add", [starts, step], role="ends")
        ends = at.real("Min", [ends, length], role="ends of pieces")
    else:
        ends = at.real("CumSum", [given, zero], role="ends")
        whole = at.real("ReduceSum", [given], {"keepdims": 1}, role="whole")
        # a size below 0 adds up to less than it does without its sign
        most = at.real("Abs", [given], role="without signs")
        most = at.real("ReduceSum", [most], {"keepdims": 1}, role="whole without signs")
        fits = at.real("Equal", [whole, length], role="add up")
        fits = at.real("And", [fits, at.real("Equal", [whole, most], role="are sizes")])
        fits = _number(at, fits)
        ends = packed.checked(at, ends, fits, "ends of pieces that add up to the size")
        starts = at.real("Sub", [ends, given], role="starts")
    axes = at.integers("axis", [axis])
    nodes = [
        packed.made("Gather", [starts, names["trip"]], f"{names['start']}.0"),
        packed.made("Gather", [ends, names["trip"]], f"{names['end']}.0"),
        # no Unsqueeze: that is another one before opset 13
        packed.made("Reshape", [f"{names['start']}.0", one], names["start"]),
        packed.made("Reshape", [f"{names['end']}.0", one], names["end"]),
        packed.made("Slice", [value, names["start"], names["end"], axes], names["piece"]),
        packed.made("SequenceInsert", [names["before"], names["piece"]], names["after"]),
    ]
    at.ctx.sequences[names["list"]] = Tensors((), at.ctx.type(value).dtype)
    count = at.real("Size", [ends], role="pieces")
    packed.loop(
        at,
        count,
        names["trip"],
        {names["before"]: names["list"]},
        nodes,
        {names["after"]: at.node.output(0)},
    )


def _number(at: Derived, value: str) -> str:
    return at.real("Squeeze", [value], role=f"number {value}")


# -- optionals -----------------------------------------------------------------------------------------


def _optional(at: Derived) -> None:
    told = at.node.attr("type", None)
    if at.input(0) in at.ctx.optionals:
        raise at.node.invalid(
            f"{at.input(0)!r} is an optional itself", "give it the tensor or the sequence in it"
        )
    if not at.input(0) and not isinstance(told, TypeProto):
        raise at.node.invalid("an Optional that holds nothing does not say what it could hold")
    at.ctx.optionals[at.node.output(0)] = Maybe(at.input(0))


def _has_element(at: Derived) -> None:
    found = at.ctx.optionals.get(at.input(0), Maybe(at.input(0)))
    there = found.there or at.ctx.add_constant(at.node, "there", bool(found.held), DType.BOOL)
    at.real("Identity", [there], output=at.node.output(0))


def _element(at: Derived) -> None:
    given, output = at.input(0), at.node.output(0)
    found = at.ctx.optionals.get(given, Maybe(given))
    if not found.held:
        raise at.node.invalid(f"the optional {given!r} holds nothing")
    held = at.ctx.sequences.get(found.held)
    if held is None:
        value = found.held
        if found.there:
            value = packed.checked(at, value, found.there, "what the optional holds")
        at.real("Identity", [value], output=output)
        return
    if found.there:
        rows = packed.packed(at, held)
        sizes = packed.checked(at, rows.sizes, found.there, "what the optional holds")
        held = Packed(rows.data, sizes)
    _set(at, held)


_RUNS: Final[Mapping[str, Callable[[Derived], Any]]] = {
    "SequenceEmpty": _empty,
    "SequenceConstruct": _construct,
    "SequenceInsert": _insert,
    "SequenceErase": _erase,
    "SequenceAt": _at,
    "SequenceLength": _length,
    "ConcatFromSequence": _concatenated,
    "SplitToSequence": _split,
    "Optional": _optional,
    "OptionalHasElement": _has_element,
    "OptionalGetElement": _element,
}

SEQUENCES: Final[Mapping[tuple[str, str], Handler]] = {
    (DEFAULT_DOMAIN, op): written(run) for op, run in _RUNS.items()
}
"""(domain, op) -> handler of what makes, changes and reads sequences and optionals."""
