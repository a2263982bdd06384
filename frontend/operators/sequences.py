"""Sequences and optionals of ONNX, where their lengths are known at compile time: the tensors in them.

Nothing is left of them in the graph: what makes and changes a sequence is done while importing, what
reads one reads its tensors. A sequence whose length only a run tells, or that is an input or output of
the model, is refused, but for one that a loop grows (`grown.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np

from ...errors import UnsupportedOp
from ...ir.ops import dims
from ...ir.ops.spec import Array
from ...ir.types import DType
from ..importer import Handler
from ..nodes import DEFAULT_DOMAIN
from .derived import Derived, written

_LENGTH: Final = "give the model sequences of known length, or the tensors in them"


def _refused(at: Derived, what: str) -> UnsupportedOp:
    return UnsupportedOp(what, where=at.node.where, hint=_LENGTH)


def _tensors(at: Derived, index: int = 0) -> tuple[str, ...]:
    """The tensors in the sequence that an input is.

    Raises:
        UnsupportedOp: it is none whose length is known.
    """
    found = at.ctx.sequences.get(at.input(index))
    if found is None:
        raise _refused(
            at, f"{at.node.op} reads {at.input(index)!r}, of which the length is not known"
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


def _known_position(at: Derived, index: int, count: int, *, behind: bool) -> int:
    place = _position(at, index, count, behind=behind)
    if place is None:
        raise _refused(
            at, f"the place at which {at.node.op} changes a sequence is known at run time only"
        )
    return place


def _set(at: Derived, tensors: tuple[str, ...]) -> None:
    at.ctx.sequences[at.node.output(0)] = tensors


def _empty(at: Derived) -> None:
    _set(at, ())


def _construct(at: Derived) -> None:
    _set(at, at.node.inputs)


def _insert(at: Derived) -> None:
    held = _tensors(at)
    place = _known_position(at, 2, len(held), behind=True)
    _set(at, (*held[:place], at.input(1), *held[place:]))


def _erase(at: Derived) -> None:
    held = _tensors(at)
    place = _known_position(at, 1, len(held), behind=False)
    _set(at, (*held[:place], *held[place + 1 :]))


def _at(at: Derived) -> None:
    if at.input(0) in at.ctx.stacked:
        _row(at, at.ctx.stacked[at.input(0)])
        return
    held = _tensors(at)
    place = _position(at, 1, len(held), behind=False)
    if place is not None:
        at.real("Identity", [held[place]], output=at.node.output(0))
        return
    shapes = [at.ctx.type(value).shape for value in held]
    if not shapes or any(not dims.same_shape(shapes[0], shape) for shape in shapes):
        raise _refused(
            at, "the place that is read is known at run time only, and the tensors differ in shape"
        )
    _row(at, at.stacked(held))


def _row(at: Derived, rows: str) -> None:
    """The row that a place says, which may be a list of one."""
    place = at.input(1)
    if at.ctx.type(place).shape != ():
        place = at.real("Squeeze", [place], role="place")
    at.real("Gather", [rows, place], {"axis": 0}, output=at.node.output(0))


def _length(at: Derived) -> None:
    if at.input(0) in at.ctx.stacked:
        rows = at.ctx.stacked[at.input(0)]
        count = at.real("Shape", [rows], {"start": 0, "end": 1}, role="count")
        at.real("Squeeze", [count], output=at.node.output(0))
        return
    count = at.integers("length", len(_tensors(at)))
    at.real("Identity", [count], output=at.node.output(0))


def _concatenated(at: Derived) -> None:
    axis, stack = at.node.attr("axis", 0), bool(at.node.attr("new_axis", 0))
    if at.input(0) in at.ctx.stacked:
        _joined_rows(at, at.ctx.stacked[at.input(0)], axis=axis, stack=stack)
        return
    held = _tensors(at)
    if not held:
        raise at.node.invalid(f"{at.node.op} joins no tensor")
    if stack:
        at.stacked(held, axis, output=at.node.output(0))
    else:
        at.real("Concat", list(held), {"axis": axis}, output=at.node.output(0))


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
    front = at.integers("merged", [*[0] * place, -1])
    behind = at.real("Shape", [turned], {"start": place + 2}, role="behind")
    sizes = at.real("Concat", [front, behind], {"axis": 0}, role="sizes")
    at.real("Reshape", [turned, sizes], output=at.node.output(0))


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
    _set(at, pieces)


def _split_of_open_size(at: Derived, axis: int, piece: Array | None, *, keep: bool) -> None:
    """Pieces whose sizes or number a run tells: as many as there are sizes, or rows of one element."""
    value, given = at.input(0), at.input(1)
    told = at.ctx.type(given).shape if given else ()
    if piece is None and told is not None and len(told) == 1 and isinstance(told[0], int):
        _set(at, at.pieces(value, axis, given=given, count=told[0]) if told[0] else ())
        return
    if piece is None or piece.item() != 1:
        raise UnsupportedOp(
            f"into how many pieces {at.node.op} cuts is known at run time only",
            where=at.node.where,
            hint=f"give {value!r} a fixed size in dimension {axis}, cut it by Split, or read rows of it by Gather",
        )
    rank = at.ctx.rank(at.node, value)
    order = (axis, *(other for other in range(rank) if other != axis))
    rows = at.real("Transpose", [value], {"perm": order}, role="rows") if axis else value
    if keep:
        rows = at.real("Unsqueeze", [rows, at.integers("kept", [axis + 1])], role="kept rows")
    at.ctx.stacked[at.node.output(0)] = rows


def _optional(at: Derived) -> None:
    held = at.input(0)
    at.ctx.optionals[at.node.output(0)] = held
    if held in at.ctx.sequences:
        _set(at, at.ctx.sequences[held])


def _has_element(at: Derived) -> None:
    given = at.input(0)
    there = bool(at.ctx.optionals.get(given, given))
    constant = at.ctx.add_constant(at.node, "there", there, DType.BOOL)
    at.real("Identity", [constant], output=at.node.output(0))


def _element(at: Derived) -> None:
    given = at.input(0)
    held = at.ctx.optionals.get(given, given)
    if not held:
        raise at.node.invalid(f"the optional {given!r} holds nothing")
    if held in at.ctx.sequences:
        _set(at, at.ctx.sequences[held])
    else:
        at.real("Identity", [held], output=at.node.output(0))


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
