"""QONNX, as Brevitas writes it: Quant (IntQuant), BipolarQuant and Trunc, in the domain
qonnx.custom_op.general and its older names.

Quant with constant parameters, round to even, along at most one axis becomes Quantize and
Dequantize: both add the zero point before they round, and clipping to integers commutes with
rounding. BipolarQuant is a FakeQuantize with two levels whose threshold is the f32 next below 0.
The other rounding modes, parameters in other shapes, and Trunc are written out in floating point,
and a Decision says why.
Source: the operator descriptions of the QONNX project (IntQuant-1, BipolarQuant-1, Trunc-1 and
Trunc-2).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
import numpy.typing as npt

from ..errors import UnsupportedOp
from ..ir.ops.spec import Attr
from ..ir.types import DType, Quantization
from .derived import constant, real
from .importer import Handler, Importer
from .nodes import OnnxNode

__all__ = ["HANDLERS"]

_RULE: Final = "import_qonnx"
_ROUNDING: Final = ("ROUND", "CEIL", "FLOOR", "UP", "DOWN", "HALF_UP", "HALF_DOWN")
_HINT: Final = "export again with Brevitas' export_qonnx, or in the QCDQ form (export_onnx_qcdq)"
_NEXT_BELOW_ZERO: Final = -float(np.finfo(np.float32).smallest_subnormal)


def _quant(ctx: Importer, node: OnnxNode) -> None:
    """Quant(x, scale, zeropt, bitwidth){signed, narrow, rounding_mode}."""
    x, scale, zero, _ = _inputs(node, 4)
    mode = _rounding(node, "ROUND")
    bits = _bits(ctx, node, node.input(3))
    signed, narrow = bool(node.attr("signed", 1)), bool(node.attr("narrow", 0))
    if bits == 1 and signed:
        _one_bit(ctx, node)
        return
    low, high = _range(bits, signed, narrow)
    quant = _quantization(ctx, node, scale, zero)
    dtype = _code_type(low, high)
    if quant is None or dtype is None or mode != "ROUND":
        _refuse(ctx, node, mode, dtype)
        codes = _rounded(
            ctx, node, _clipped(ctx, node, _shifted(ctx, node, x, scale, zero), low, high), mode
        )
        _restored(ctx, node, codes, scale, zero)
        return
    quantizer = (ctx.add_quantizer(node.name, node.op, x),)
    attrs: dict[str, Attr] = {
        "quant": quant,
        "dtype": dtype,
        "lo": low,
        "hi": high,
        "order": "zp_first",
    }
    value = ctx.emit(node, "Quantize", (x,), attrs, role="quantize", quantizer=quantizer)
    ctx.codes[value] = quantizer
    ctx.emit(
        node,
        "Dequantize",
        (value,),
        {"quant": quant},
        outputs=node.outputs[:1],
        quantizer=quantizer,
    )


def _bipolar(ctx: Importer, node: OnnxNode) -> None:
    """BipolarQuant(x, scale): scale where x >= 0, -scale elsewhere."""
    x, scale = _inputs(node, 2)
    _two_levels(ctx, node, x, scale)


def _one_bit(ctx: Importer, node: OnnxNode) -> None:
    """Quant with one signed bit, which QONNX takes for bipolar."""
    x, scale, zero, _ = _inputs(node, 4)
    scales, zeros = constant(ctx, node, scale, "scale"), constant(ctx, node, zero, "zero point")
    if np.any(zeros) or np.any(np.asarray(scales, np.float32) <= 0):
        raise UnsupportedOp(
            "Quant with one bit and a zero point, or a scale that is not positive",
            where=node.where,
            hint=_HINT,
        )
    _two_levels(ctx, node, x, scale)


def _two_levels(ctx: Importer, node: OnnxNode, x: str, scale: str) -> None:
    high = np.asarray(constant(ctx, node, scale, "scale"), np.float32)
    threshold = ctx.add_constant(node, "threshold", _NEXT_BELOW_ZERO, DType.F32)
    lower, upper = (
        ctx.add_constant(node, "low", -high, DType.F32),
        ctx.add_constant(node, "high", high, DType.F32),
    )
    quantizer = (ctx.add_quantizer(node.name, node.op, x),)
    inputs = (x, threshold, threshold, lower, upper)
    ctx.emit(
        node, "FakeQuantize", inputs, {"levels": 2}, outputs=node.outputs[:1], quantizer=quantizer
    )


def _trunc(ctx: Importer, node: OnnxNode) -> None:
    """Trunc-1(x, scale, zeropt, in_bits, out_bits); Trunc-2(x, scale, zeropt, in_bits, out_scale,
    [out_zeropt,] out_bits).

    Drops low bits of round(x/scale + zeropt): divides by a power of two and rounds (FLOOR by
    default).
    """
    count = len(node.inputs)
    if count not in {5, 6, 7}:
        raise node.invalid(f"Trunc has 5 to 7 inputs, not {count}", _HINT)
    x, scale, zero = _inputs(node, 3, at_least=True)
    mode = _rounding(node, "FLOOR")
    _refuse(ctx, node, mode, DType.S8)
    steps = real(ctx, node, "Round", [_shifted(ctx, node, x, scale, zero)], role="steps")
    out_bits = _bits(ctx, node, node.input(count - 1))
    if count == 5:
        divisor = np.float32(2.0) ** np.float32(_bits(ctx, node, node.input(3)) - out_bits)
        codes = _rounded(ctx, node, _divided(ctx, node, steps, divisor), mode)
        _restored(ctx, node, codes, scale, zero)
        return
    out_scale = np.asarray(constant(ctx, node, node.input(4), "output scale"), np.float32)
    in_scale = np.asarray(constant(ctx, node, scale, "scale"), np.float32)
    ratio = out_scale / in_scale
    if not (np.isfinite(ratio).all() and (ratio > 0).all()):
        raise node.invalid("the scales of Trunc must be positive", _HINT)
    divisor = np.exp2(np.rint(np.log2(ratio)))
    low, high = _range(out_bits, bool(node.attr("signed", 1)), bool(node.attr("narrow", 0)))
    codes = _rounded(
        ctx, node, _clipped(ctx, node, _divided(ctx, node, steps, divisor), low, high), mode
    )
    shift = np.asarray(constant(ctx, node, zero, "zero point"), np.float32) / divisor
    _restored(
        ctx, node, codes, node.input(4), ctx.add_constant(node, "out_zero_point", shift, DType.F32)
    )


# -- parameters ------------------------------------------------------------------------------------


def _inputs(node: OnnxNode, count: int, *, at_least: bool = False) -> tuple[str, ...]:
    if (
        len(node.inputs) < count
        or not all(node.inputs[:count])
        or (len(node.inputs) > count and not at_least)
        or not node.output(0)
    ):
        raise node.invalid(f"{node.op} needs {count} inputs and one output", _HINT)
    return node.inputs[:count]


def _rounding(node: OnnxNode, default: str) -> str:
    mode = str(node.attr("rounding_mode", default)).upper()
    mode = "ROUND" if mode == "HALF_EVEN" else mode
    if mode not in _ROUNDING:
        raise node.invalid(
            f"the rounding mode {mode!r} is unknown, and may be {', '.join(_ROUNDING)}", _HINT
        )
    return mode


def _bits(ctx: Importer, node: OnnxNode, value: str) -> int:
    data = np.asarray(constant(ctx, node, value, "bit width"))
    if data.size < 1 or data.min() != data.max():
        raise UnsupportedOp(
            "bit widths that differ from channel to channel",
            where=node.where,
            hint="use one bit width for each tensor",
        )
    bits = float(data.flat[0])
    if not bits.is_integer() or not 1 <= bits <= 64:
        raise node.invalid(f"the bit width is {bits}, and must be an integer from 1 to 64", _HINT)
    return int(bits)


def _range(bits: int, signed: bool, narrow: bool) -> tuple[int, int]:
    """Smallest and largest code: narrow takes one off the bottom of signed codes, and off the top
    of unsigned ones.
    """
    if signed:
        return -(1 << (bits - 1)) + narrow, (1 << (bits - 1)) - 1
    return 0, (1 << bits) - 1 - narrow


def _code_type(low: int, high: int) -> DType | None:
    candidates = (DType.S8, DType.S16, DType.S32) if low < 0 else (DType.U8, DType.U16, DType.U32)
    return next(
        (dtype for dtype in candidates if dtype.range[0] <= low and high <= dtype.range[1]), None
    )


def _quantization(ctx: Importer, node: OnnxNode, scale: str, zero: str) -> Quantization | None:
    """Scale and zero point along at most one axis of x; None when they have no such form."""
    scales, zeros = ctx.constant(scale), ctx.constant(zero)
    if scales is None or zeros is None:
        return None
    s, z = np.asarray(scales, np.float32), np.asarray(zeros, np.float32)
    if not np.isfinite(s).all() or not np.isfinite(z).all() or not s.all():
        return None
    if s.size == z.size == 1:
        return Quantization.of(s.reshape(-1), z.reshape(-1))
    shape = ctx.type(node.input(0)).shape
    if shape is None or max(s.ndim, z.ndim) > len(shape):
        return None
    try:
        s, z = np.broadcast_arrays(s, z)
    except ValueError:
        raise node.invalid(
            f"scale and zero point have the shapes {list(s.shape)} and {list(z.shape)}", _HINT
        ) from None
    long = [axis for axis, size in enumerate(s.shape) if size > 1]
    return (
        Quantization.of(s.reshape(-1), z.reshape(-1), long[0] + len(shape) - s.ndim)
        if len(long) == 1
        else None
    )


def _refuse(ctx: Importer, node: OnnxNode, mode: str, dtype: DType | None) -> None:
    expected = "Quant that rounds to even, of 32 bits at most, with constant scale and zero point along one axis"
    if node.op == "Trunc":
        found = "Trunc, which drops bits"
    elif mode != "ROUND":
        found = f"rounding mode {mode}"
    else:
        found = "more than 32 bits" if dtype is None else "scale or zero point in another form"
    ctx.refuse(
        node,
        _RULE,
        "no Quantize rounds like this; it runs as float arithmetic",
        expected=expected,
        found=found,
        hint=_HINT,
    )


# -- written out -----------------------------------------------------------------------------------


def _shifted(ctx: Importer, node: OnnxNode, x: str, scale: str, zero: str) -> str:
    """x / scale + zero."""
    return real(
        ctx, node, "Add", [real(ctx, node, "Div", [x, scale], role="scale"), zero], role="shift"
    )


def _divided(ctx: Importer, node: OnnxNode, value: str, divisor: npt.ArrayLike) -> str:
    return real(
        ctx,
        node,
        "Div",
        [value, ctx.add_constant(node, "divisor", divisor, DType.F32)],
        role="drop",
    )


def _clipped(ctx: Importer, node: OnnxNode, value: str, low: int, high: int) -> str:
    bounds = [
        ctx.add_constant(node, role, bound, DType.F32)
        for role, bound in (("lowest", low), ("highest", high))
    ]
    return real(ctx, node, "Clip", [value, *bounds], role="clip")


def _rounded(ctx: Importer, node: OnnxNode, value: str, mode: str) -> str:
    """The integer that the mode picks; HALF_UP and HALF_DOWN away from and towards zero."""
    plain = {"ROUND": "Round", "CEIL": "Ceil", "FLOOR": "Floor"}.get(mode)
    if plain is not None:
        return real(ctx, node, plain, [value], role="round")
    size = real(ctx, node, "Abs", [value], role="size")
    if mode.startswith("HALF"):
        half = ctx.add_constant(node, "half", 0.5 if mode == "HALF_UP" else -0.5, DType.F32)
        size = real(ctx, node, "Add", [size, half], role="half")
    whole = real(
        ctx, node, "Floor" if mode in {"DOWN", "HALF_UP"} else "Ceil", [size], role="round"
    )
    return real(
        ctx, node, "Mul", [whole, real(ctx, node, "Sign", [value], role="sign")], role="signed"
    )


def _restored(ctx: Importer, node: OnnxNode, codes: str, scale: str, zero: str) -> None:
    """(codes - zero) * scale, as the node's output."""
    real(
        ctx,
        node,
        "Mul",
        [real(ctx, node, "Sub", [codes, zero], role="unshift"), scale],
        output=node.output(0),
    )


_DOMAINS: Final = ("qonnx.custom_op.general", "finn.custom_op.general", "onnx.brevitas")

HANDLERS: Final[Mapping[tuple[str, str], Handler]] = {
    (domain, op): handler
    for domain in _DOMAINS
    for op, handler in (
        ("Quant", _quant),
        ("IntQuant", _quant),
        ("BipolarQuant", _bipolar),
        ("Trunc", _trunc),
    )
}
