"""Quantizers that a model writes out as arithmetic, with a scale that a run computes, as torchao exports dynamic
activations.

What counts is the formula, not how it is spelled: whole numbers w that are clipped to the range of codes, moved between
types that hold these, and decoded::

    (Cast(clip(w, low, high)) - z) * s   ->  RunTimeDequantize(Quantize{1,0}(w), s, z)

Both give the same numbers, where there is no NaN, which codes do not hold: codes and zero points are integers of 8 bits,
and their difference is exact.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from ...ir.decision import WRITTEN_OUT
from ...ir.node import Node
from ...ir.ops.spec import Attr
from ...ir.types import DType, Quantization, Shape
from ..importer import Importer
from ..nodes import OnnxNode

_MOST: Final = 24
"""Operations that are looked through; exporters write a handful."""

_ROUNDING: Final = ("Round", "Floor", "Ceil")
_ARITHMETIC: Final = ("Add", "Sub", "Mul", "Max", "Min", "Neg", "Abs")
_MOVES: Final = ("Reshape", "Transpose", "Unsqueeze", "Squeeze", "Expand", "Identity")
_FLOATS: Final = (DType.F32, DType.F64, DType.F16, DType.BF16)


@dataclass(frozen=True)
class _Codes:
    """Whole numbers, clipped.

    Attributes:
        whole: the numbers in front of the clip.
        dtype: the type of codes that holds them.
        low, high: the bounds.
        nodes: the clip and what stands behind it.
    """

    whole: str
    dtype: DType
    low: int
    high: int
    nodes: tuple[Node, ...]


def import_written_out(ctx: Importer, node: OnnxNode) -> bool:
    """Imports a Mul that decodes codes by a computed scale; False, with nothing imported, for any other node."""
    if node.op != "Mul" or not all(node.inputs) or ctx.type(node.input(0)).dtype is not DType.F32:
        return False
    return any(
        _decoded(ctx, node, value, scale)
        for value, scale in (node.inputs, reversed(node.inputs))
        if ctx.constant(scale) is None
    )


def _decoded(ctx: Importer, node: OnnxNode, value: str, scale: str) -> bool:
    shift = ctx.graph.producer(value, "Sub")
    codes = _codes(ctx, shift.input if shift else value)
    if codes is None:
        return False
    zero = shift.inputs[1] if shift else ""
    shape = ctx.type(value).shape
    axes = {_axis(ctx.type(each).shape, shape) for each in (scale, zero) if each}
    axis = axes.pop()
    if axes or axis is None:
        return False
    if shift:
        zero = _as_codes(ctx, node, zero, codes.dtype)
        if not zero:
            return False
    key = ("codes of", codes.nodes[0].output)
    if key not in ctx.decoded:
        ctx.decoded[key] = _encoded(ctx, node, codes)
    stored = ctx.decoded[key]
    inputs = [stored, *(_along(ctx, node, each, axis) for each in (scale, zero) if each)]
    attrs: dict[str, Attr] = {} if axis == _ONE else {"axis": axis}
    between = (*codes.nodes, *([shift] if shift else []))
    ctx.emit(
        node,
        "RunTimeDequantize",
        inputs,
        attrs,
        outputs=node.outputs[:1],
        quantizer=ctx.codes[stored],
        absorbed=[name for each in between for name in each.origin],
    )
    return True


def _encoded(ctx: Importer, node: OnnxNode, codes: _Codes) -> str:
    names = (ctx.add_quantizer(node, WRITTEN_OUT, codes.whole),)
    attrs: dict[str, Attr] = {
        "quant": Quantization.of(1.0),
        "dtype": codes.dtype,
        "lo": codes.low,
        "hi": codes.high,
        "order": "round_first",
    }
    made = ctx.emit(node, "Quantize", (codes.whole,), attrs, role="codes", quantizer=names)
    ctx.codes[made] = names
    return made


# -- what the values are ---------------------------------------------------------------------------


def _behind(ctx: Importer, value: str, *ops: str) -> Iterator[Node]:
    """The nodes of such operations that a value comes through, the last one first."""
    for _ in range(_MOST):
        node = ctx.graph.producer(value, *ops)
        if node is None:
            return
        yield node
        value = node.input


def _codes(ctx: Importer, value: str) -> _Codes | None:
    """The codes that a value holds, maybe in another type; None where they may be no codes."""
    casts = tuple(_behind(ctx, value, "Cast"))
    clip = ctx.graph.producer(casts[-1].input if casts else value, "Clip")
    bounds = None if clip is None else _bounds(ctx, clip)
    if clip is None or bounds is None or ctx.type(clip.input).dtype is not DType.F32:
        return None
    low, high = bounds
    dtype = DType.S8 if low < 0 else DType.U8
    types = [ctx.type(cast.output).dtype for cast in casts]
    if not all(kind in _FLOATS or _holds(kind, low, high) for kind in (dtype, *types)):
        return None
    if ctx.constant(clip.input) is not None or not _is_whole(ctx, clip.input):
        return None
    return _Codes(clip.input, dtype, low, high, (clip, *casts))


def _holds(kind: DType, low: int, high: int) -> bool:
    return kind.is_integer and kind.range[0] <= low and high <= kind.range[1]


def _bounds(ctx: Importer, clip: Node) -> tuple[int, int] | None:
    """The bounds of a Clip, where both are constant integers."""
    found = []
    for value in (*clip.inputs[1:3], "", "")[:2]:
        data = ctx.constant(value) if value else None
        if data is None or data.size != 1 or not float(data.item()).is_integer():
            return None
        found.append(int(data.item()))
    return (found[0], found[1]) if found[0] <= found[1] else None


def _is_whole(ctx: Importer, value: str) -> bool:
    """True of integers, whatever their type, or of what is no number."""
    waiting, seen = [value], {value}
    while waiting:
        value = waiting.pop()
        data, node = ctx.constant(value), ctx.graph.producer(value)
        if ctx.type(value).dtype.is_integer:
            continue
        if data is not None:
            if not (np.isfinite(data) & (data == np.rint(data))).all():
                return False
            continue
        if node is None or len(seen) > _MOST:
            return False
        if node.op in _ROUNDING:
            continue
        moved = node.op in ("Cast", *_MOVES) or (node.op == "Clip" and _bounds(ctx, node))
        if not moved and node.op not in _ARITHMETIC:
            return False
        found = [each for each in (node.inputs[:1] if moved else node.inputs) if each not in seen]
        seen.update(found)
        waiting += found
    return True


def _as_codes(ctx: Importer, node: OnnxNode, value: str, dtype: DType) -> str:
    """Zero points as values of a type of codes; '' where they may not be integers in its range."""
    for cast in _behind(ctx, value, "Cast"):
        if ctx.type(cast.input).dtype is dtype:
            return cast.input
    data, (low, high) = ctx.constant(value), dtype.range
    if not _is_whole(ctx, value):
        return ""
    if data is not None:
        numbers = np.asarray(data, np.float64)
        fits = bool(((numbers >= low) & (numbers <= high)).all())
    else:
        moves = tuple(_behind(ctx, value, "Cast", *_MOVES))
        clip = ctx.graph.producer(moves[-1].input if moves else value, "Clip")
        bounds = None if clip is None else _bounds(ctx, clip)
        fits = bounds is not None and _holds(dtype, *bounds)
    return ctx.cast(node, value, dtype, "zero") if fits else ""


# -- parameters ------------------------------------------------------------------------------------

_ONE: Final = -1


def _axis(given: Shape | None, shape: Shape | None) -> int | None:
    """The axis of a shape that parameters run along, `_ONE` of one number; None where there is no such axis."""
    if given is None or shape is None or len(given) > len(shape):
        return None
    long = [axis for axis, size in enumerate(given) if size != 1]
    if not long:
        return _ONE
    axis = long[0] + len(shape) - len(given)
    return axis if len(long) == 1 and given[long[0]] == shape[axis] != "?" else None


def _along(ctx: Importer, node: OnnxNode, value: str, axis: int) -> str:
    """Parameters as one number, or a vector."""
    shape = ctx.type(value).shape or ()
    if len(shape) <= (axis != _ONE):
        return value
    axes = [i for i, size in enumerate(shape) if axis == _ONE or size == 1]
    others = ctx.add_constant(node, "others", np.asarray(axes), DType.S64)
    return ctx.emit(node, "Squeeze", (value, others), role="parameter")
