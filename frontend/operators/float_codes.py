"""QuantizeLinear and DequantizeLinear whose codes are floats of 8 or 4 bits.

oneDNN 3.2 has no primitive for such codes, so that they become what ONNX defines them as, in f32::

    QuantizeLinear(x, s)    ->  Cast{to: f8, saturate}(Div(x, s))       f8: codes carried in f32
    DequantizeLinear(q, s)  ->  Mul(Cast{to: f32}(q), s)

A zero point other than 0 is added in front of the rounding, and taken off behind it. Scales run
along one axis, there is one for each block (MXFP8, MXFP4, NVFP4), or they are one number; they may
be computed. Weights are decoded at compile time.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from onnx import TensorProto

from ...errors import UnsupportedOp
from ...ir.element_types import ELEMENT_TYPES
from ...ir.ops import dims
from ...ir.ops.spec import Attr
from ...ir.rule import Refusal
from ...ir.types import DType, dimensions
from ..element_types import dtype_of, type_name
from ..importer import Importer
from ..nodes import OnnxNode
from .block_floats import HALVES, to_half
from .derived import RULE, Derived

_HINT: Final = "quantize to int8 where the model shall be fast on CPUs"
_AXIS_HINT: Final = "set axis to the dimension that the scales run along"


def encode(ctx: Importer, node: OnnxNode, dtype: DType, names: tuple[str, ...]) -> None:
    """Imports a QuantizeLinear to floats of 8 or 4 bits, or of 16, whose range it keeps.

    Raises:
        InvalidModel: shapes that do not fit.
        UnsupportedOp: scales in blocks along an axis of unknown size.
    """
    _tell(ctx, node, dtype)
    scale, zero = _along(ctx, node, node.input(1), "scale"), _zero(ctx, node)
    x = ctx.cast(node, node.input(0), DType.F32, "f32")
    value = ctx.emit(node, "Div", (x, scale), role="scaled")
    if zero:
        value = ctx.emit(node, "Add", (value, zero), role="shifted")
    if dtype in HALVES:  # a Cast alone would be dropped, since they are computed with in f32
        value = to_half(Derived(ctx, node), value, dtype, names)
    attrs = (
        {"to": dtype, "saturate": node.attr("saturate", 1)}
        if dtype.is_small_float
        else {"to": dtype}
    )
    own = names if dtype.is_small_float else ()  # of others the exponents are codes
    ctx.emit(node, "Cast", (value,), attrs, outputs=node.outputs[:1], quantizer=own)
    ctx.codes[node.output(0)] = names


def decode(ctx: Importer, node: OnnxNode, names: tuple[str, ...]) -> None:
    """Imports a DequantizeLinear of such floats; raises like `encode`."""
    _tell(ctx, node, ctx.type(node.input(0)).dtype)
    wanted = node.attr("output_dtype", TensorProto.UNDEFINED)
    result = dtype_of(wanted, node.where) if wanted else ctx.type(node.input(1)).dtype
    scale, zero = _along(ctx, node, node.input(1), "scale"), _zero(ctx, node)
    attrs = {"to": DType.F32}
    value = ctx.emit(node, "Cast", (node.input(0),), attrs, role="codes", quantizer=names)
    if zero:
        value = ctx.emit(node, "Sub", (value, zero), role="shifted")
    if result is DType.F32:
        ctx.emit(node, "Mul", (value, scale), outputs=node.outputs[:1])
    else:
        real = ctx.emit(node, "Mul", (value, scale), role="real")
        ctx.cast(node, real, result, "cast", output=node.output(0))


def rounded(
    ctx: Importer,
    node: OnnxNode,
    value: str,
    dtype: DType,
    names: tuple[str, ...],
    *,
    saturate: bool,
) -> str:
    """A value of a node that quantizes and dequantizes, rounded to floats of 8 or 4 bits."""
    _tell(ctx, node, dtype)
    attrs: dict[str, Attr] = {"to": dtype, "saturate": int(saturate)}
    codes = ctx.emit(node, "Cast", (value,), attrs, role="codes", quantizer=names)
    ctx.codes[codes] = names
    return ctx.emit(node, "Cast", (codes,), {"to": DType.F32}, role="decoded", quantizer=names)


def _tell(ctx: Importer, node: OnnxNode, codes: DType) -> None:
    name = type_name(ELEMENT_TYPES[codes])
    reason = "no primitive of oneDNN 3.2 has such codes"
    ctx.refuse(node, RULE, Refusal(reason, "codes u8 or s8", name, _HINT))


def _zero(ctx: Importer, node: OnnxNode) -> str:
    """The zero point in f32; '' where it is surely 0."""
    known = ctx.constant(node.input(2)) if node.input(2) else np.zeros(1)
    return "" if known is not None and not known.any() else _along(ctx, node, node.input(2), "zero")


def _along(ctx: Importer, node: OnnxNode, value: str, role: str) -> str:
    """A parameter in f32, in the form that broadcasting needs: with dimensions of length 1 behind
    it, and a scale of a block as often as the block is long.
    """
    x, kind = ctx.type(node.input(0)).shape, ctx.type(value).shape
    value = ctx.cast(node, value, DType.F32, role)
    block = node.attr("block_size", 0)
    if kind is None or (kind in ((), (1,)) and not block):
        return value
    if x is None or len(kind) != (len(x) if block else 1):
        hint = "make scale and zero point scalars, or 1-D of one length; in blocks of the rank of x"
        raise node.invalid(f"the {role} has the shape {list(kind)}", hint)
    axis = node.attr("axis", 1) if len(x) > 1 else 0
    if not -len(x) <= axis < len(x):
        raise node.invalid(f"axis {axis} is out of range for {dimensions(len(x))}", _AXIS_HINT)
    axis %= len(x)
    if block:
        return _in_blocks(ctx, node, value, axis, role)
    if dims.differ(x[axis], kind[0]):
        what = f"{kind[0]} scales do not fit dimension {axis} of size {x[axis]}"
        raise node.invalid(what, _AXIS_HINT)
    behind = len(x) - 1 - axis
    if not behind:
        return value
    axes = ctx.add_constant(node, f"{role}.axes", np.arange(1, behind + 1), DType.S64)
    return ctx.emit(node, "Unsqueeze", (value, axes), role=f"{role}.along")


def _in_blocks(ctx: Importer, node: OnnxNode, value: str, axis: int, role: str) -> str:
    """Parameters of blocks along an axis, one for each element of it.

    Raises:
        InvalidModel: there is not one for each block.
        UnsupportedOp: only a run tells how many elements there are.
    """
    x, kind, block = (
        ctx.type(node.input(0)).shape,
        ctx.type(value).shape,
        node.attr("block_size", 0),
    )
    assert x is not None
    assert kind is not None
    size = x[axis]
    if not isinstance(size, int):
        what = f"scales in blocks along dimension {axis}, whose size is known at run time only"
        raise UnsupportedOp(what, where=node.where, hint="give that dimension a size")
    wanted = [-(-size // max(block, 1)) if i == axis else other for i, other in enumerate(x)]
    if block < 0 or any(map(dims.differ, kind, wanted)):
        what = f"the {role} has the shape {list(kind)}, and blocks of {block} along dimension {axis} need {wanted}"
        raise node.invalid(what, "give each block one scale")
    places = ctx.add_constant(node, f"{role}.blocks", np.arange(size) // block, DType.S64)
    return ctx.emit(node, "Gather", (value, places), {"axis": axis}, role=f"{role}.of each")
