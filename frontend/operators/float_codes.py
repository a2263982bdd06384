"""QuantizeLinear and DequantizeLinear whose codes are floats of 8 or 4 bits.

oneDNN 3.2 has no primitive for such codes, so that they become what ONNX defines them as, in f32::

    QuantizeLinear(x, s)    ->  Cast{to: f8, saturate}(Div(x, s))       f8: codes carried in f32
    DequantizeLinear(q, s)  ->  Mul(Cast{to: f32}(q), s)

A zero point other than 0 is added in front of the rounding, and taken off behind it. Scales run
along one axis, or are one number; they may be computed. Weights are decoded at compile time. Codes
in blocks stay ONNX's own op (`quantize_dequantize`).
"""

from __future__ import annotations

from typing import Final

import numpy as np
from onnx import TensorProto

from ...ir.element_types import ELEMENT_TYPES
from ...ir.rule import Refusal
from ...ir.types import DType, dimensions
from ..element_types import dtype_of, type_name
from ..importer import Importer
from ..nodes import OnnxNode
from .derived import RULE

_HINT: Final = "quantize to int8 where the model shall be fast on CPUs"
_AXIS_HINT: Final = "set axis to the dimension that the scales run along"


def encode(ctx: Importer, node: OnnxNode, dtype: DType, names: tuple[str, ...]) -> None:
    """Imports a QuantizeLinear to floats of 8 or 4 bits.

    Raises:
        InvalidModel: shapes that do not fit.
    """
    _tell(ctx, node, dtype)
    scale, zero = _along(ctx, node, node.input(1), "scale"), _zero(ctx, node)
    x = ctx.cast(node, node.input(0), DType.F32, "f32")
    value = ctx.emit(node, "Div", (x, scale), role="scaled")
    if zero:
        value = ctx.emit(node, "Add", (value, zero), role="shifted")
    attrs = {"to": dtype, "saturate": node.attr("saturate", 1)}
    ctx.emit(node, "Cast", (value,), attrs, outputs=node.outputs[:1], quantizer=names)
    ctx.codes[node.output(0)] = names


def decode(ctx: Importer, node: OnnxNode, names: tuple[str, ...]) -> None:
    """Imports a DequantizeLinear of floats of 8 or 4 bits; raises like `encode`."""
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


def _tell(ctx: Importer, node: OnnxNode, codes: DType) -> None:
    name = type_name(ELEMENT_TYPES[codes])
    reason = "no primitive of oneDNN 3.2 has such codes"
    ctx.refuse(node, RULE, Refusal(reason, "codes u8 or s8", name, _HINT))


def _zero(ctx: Importer, node: OnnxNode) -> str:
    """The zero point in f32; '' where it is surely 0."""
    known = ctx.constant(node.input(2)) if node.input(2) else np.zeros(1)
    return "" if known is not None and not known.any() else _along(ctx, node, node.input(2), "zero")


def _along(ctx: Importer, node: OnnxNode, value: str, role: str) -> str:
    """A parameter in f32, with the dimensions of length 1 behind it that broadcasting needs."""
    x, kind = ctx.type(node.input(0)).shape, ctx.type(value).shape
    value = ctx.cast(node, value, DType.F32, role)
    if kind is None or kind in ((), (1,)):
        return value
    if len(kind) != 1 or x is None:
        hint = "make scale and zero point scalars, or 1-D of one length"
        raise node.invalid(f"the {role} has the shape {list(kind)}", hint)
    axis = node.attr("axis", 1) if len(x) > 1 else 0
    if not -len(x) <= axis < len(x):
        raise node.invalid(f"axis {axis} is out of range for {dimensions(len(x))}", _AXIS_HINT)
    axis %= len(x)
    if isinstance(x[axis], int) and isinstance(kind[0], int) and x[axis] != kind[0]:
        what = f"{kind[0]} scales do not fit dimension {axis} of size {x[axis]}"
        raise node.invalid(what, _AXIS_HINT)
    behind = len(x) - 1 - axis
    if not behind:
        return value
    axes = ctx.add_constant(node, f"{role}.axes", np.arange(1, behind + 1), DType.S64)
    return ctx.emit(node, "Unsqueeze", (value, axes), role=f"{role}.along")
