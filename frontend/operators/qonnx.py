"""QONNX, as Brevitas writes it: Quant (IntQuant), FloatQuant, BipolarQuant and Trunc, in the domain
qonnx.custom_op.general and its older names.

Quant with constant parameters, round to even, along at most one axis becomes Quantize and
Dequantize: both add the zero point before they round, and clipping to integers commutes with
rounding. BipolarQuant is a FakeQuantize with two levels whose threshold is the f32 next below 0.
The other rounding modes, parameters in other shapes, and Trunc are written out in floating point,
and a Decision says why. FloatQuant to ONNX's float8 and float4 becomes what QuantizeLinear to them
does; other floats of few bits are written out.
Source: the operator descriptions of the QONNX project (IntQuant-1, FloatQuant-1, BipolarQuant-1,
Trunc-1 and Trunc-2).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from ...errors import UnsupportedOp
from ...ir.ops.spec import Attr
from ...ir.rule import Refusal
from ...ir.types import DType, Quantization
from ..importer import Handler
from ..nodes import OnnxNode
from . import float_codes
from .block_floats import Floats, clipped, to_floats
from .derived import Derived, written

_RULE: Final = "import_qonnx"
_ROUNDING: Final = ("ROUND", "CEIL", "FLOOR", "UP", "DOWN", "HALF_UP", "HALF_DOWN")
_HINT: Final = "export again with Brevitas' export_qonnx, or in the QCDQ form (export_onnx_qcdq)"
_NEXT_BELOW_ZERO: Final = -float(np.finfo(np.float32).smallest_subnormal)


def _quant(at: Derived) -> None:
    """Quant(x, scale, zeropt, bitwidth){signed, narrow, rounding_mode}."""
    ctx, node = at.ctx, at.node
    x, scale, zero, _ = _inputs(node, 4)
    mode = _rounding(node, "ROUND")
    bits = _bits(at, at.input(3))
    signed, narrow = bool(node.attr("signed", 1)), bool(node.attr("narrow", 0))
    if bits == 1 and signed:
        _one_bit(at)
        return
    low, high = _range(bits, signed, narrow)
    quant = _quantization(at, scale, zero)
    dtype = _code_type(low, high)
    if quant is None or dtype is None or mode != "ROUND":
        _refuse(at, mode, dtype)
        codes = _rounded(at, clipped(at, _shifted(at, x, scale, zero), low, high), mode)
        _restored(at, codes, scale, zero)
        return
    quantizer = (ctx.add_quantizer(node, node.op, x),)
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


def _bipolar(at: Derived) -> None:
    """BipolarQuant(x, scale): scale where x >= 0, -scale elsewhere."""
    x, scale = _inputs(at.node, 2)
    _two_levels(at, x, scale)


def _one_bit(at: Derived) -> None:
    """Quant with one signed bit, which QONNX takes for bipolar."""
    x, scale, zero, _ = _inputs(at.node, 4)
    scales, zeros = at.floats(scale, "scale"), at.data(zero, "zero point")
    if np.any(zeros) or np.any(scales <= 0):
        raise UnsupportedOp(
            "Quant with one bit and a zero point, or a scale that is not positive",
            where=at.node.where,
            hint=_HINT,
        )
    _two_levels(at, x, scale)


def _two_levels(at: Derived, x: str, scale: str) -> None:
    ctx, node = at.ctx, at.node
    high = at.floats(scale, "scale")
    threshold = at.constant("threshold", _NEXT_BELOW_ZERO)
    lower, upper = (
        at.constant("low", -high),
        at.constant("high", high),
    )
    quantizer = (ctx.add_quantizer(node, node.op, x),)
    inputs = (x, threshold, threshold, lower, upper)
    ctx.emit(
        node, "FakeQuantize", inputs, {"levels": 2}, outputs=node.outputs[:1], quantizer=quantizer
    )


def _float_quant(at: Derived) -> None:
    """FloatQuant(x, scale, exponent_bitwidth, mantissa_bitwidth, exponent_bias, max_val){has_inf, has_nan, has_subnormal,
    rounding_mode, saturation}: x / scale as one of so few floats, times scale.
    """
    ctx, node = at.ctx, at.node
    x, scale, *numbers = _inputs(node, 6)
    mode, saturate = _rounding(node, "ROUND"), bool(node.attr("saturation", 1))
    floats = _floats(at, numbers)
    value = at.real("Div", [x, scale], role="scale")
    if floats.dtype and mode == "ROUND":
        names = (ctx.add_quantizer(node, node.op, x),)
        value = float_codes.rounded(ctx, node, value, floats.dtype, names, saturate=saturate)
    elif saturate:
        _refuse(at, mode, None, f"{node.op} of {floats}")
        names = (ctx.add_quantizer(node, node.op, x),)
        value = to_floats(at, value, floats, lambda steps: _rounded(at, steps, mode), names)
    else:
        raise UnsupportedOp(
            f"{node.op} of {floats} without saturation",
            where=node.where,
            hint="quantize with saturation",
        )
    at.real("Mul", [value, scale], output=node.output(0))


def _floats(at: Derived, inputs: Sequence[str]) -> Floats:
    """The format that bits of exponent and mantissa, a bias and a largest number say."""
    roles = ("exponent's bit width", "mantissa's bit width", "exponent's bias", "largest number")
    given = [_number(at, value, role) for value, role in zip(inputs, roles, strict=True)]
    exponent, mantissa, bias = map(int, given[:3])
    whole = [exponent, mantissa, bias] == given[:3]
    if not (
        whole and 1 <= exponent <= 8 and 0 <= mantissa <= 10 and abs(bias) < 128 and given[3] > 0
    ):
        raise at.node.invalid(
            f"no floats have such numbers of bits, bias and largest number: {given}", _HINT
        )
    highest = (2 - 2.0**-mantissa) * 2.0 ** (2**exponent - 1 - bias)
    largest = min(highest, given[3])
    if math.ldexp(math.frexp(largest)[0], mantissa + 1) % 1:
        raise at.node.invalid(
            f"{largest} is none of the floats with {mantissa} bits of mantissa", _HINT
        )
    return Floats(exponent, mantissa, bias, largest)


def _trunc(at: Derived) -> None:
    """Trunc-1(x, scale, zeropt, in_bits, out_bits); Trunc-2(x, scale, zeropt, in_bits, out_scale,
    [out_zeropt,] out_bits).

    Drops low bits of round(x/scale + zeropt): divides by a power of two and rounds (FLOOR by
    default).
    """
    node = at.node
    count = len(node.inputs)
    if count not in {5, 6, 7}:
        raise node.invalid(f"Trunc has 5 to 7 inputs, not {count}", _HINT)
    x, scale, zero = _inputs(node, 3, at_least=True)
    mode = _rounding(node, "FLOOR")
    _refuse(at, mode, DType.S8)
    steps = at.real("Round", [_shifted(at, x, scale, zero)], role="steps")
    out_bits = _bits(at, at.input(count - 1))
    if count == 5:
        divisor = np.float32(2.0) ** np.float32(_bits(at, at.input(3)) - out_bits)
        codes = _rounded(at, _divided(at, steps, divisor), mode)
        _restored(at, codes, scale, zero)
        return
    out_scale = at.floats(at.input(4), "output scale")
    in_scale = at.floats(scale, "scale")
    ratio = out_scale / in_scale
    if not (np.isfinite(ratio).all() and (ratio > 0).all()):
        raise node.invalid("the scales of Trunc must be positive", _HINT)
    divisor = np.exp2(np.rint(np.log2(ratio)))
    low, high = _range(out_bits, bool(node.attr("signed", 1)), bool(node.attr("narrow", 0)))
    codes = _rounded(at, clipped(at, _divided(at, steps, divisor), low, high), mode)
    shift = at.floats(zero, "zero point") / divisor
    _restored(at, codes, at.input(4), at.constant("out_zero_point", shift))


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


def _number(at: Derived, value: str, role: str) -> float:
    data = np.asarray(at.data(value, role))
    if data.size < 1 or data.min() != data.max():
        raise UnsupportedOp(
            f"{role}s that differ from channel to channel",
            where=at.node.where,
            hint=f"use one {role} for each tensor",
        )
    return float(data.flat[0])


def _bits(at: Derived, value: str) -> int:
    bits = _number(at, value, "bit width")
    if not bits.is_integer() or not 1 <= bits <= 64:
        raise at.node.invalid(
            f"the bit width is {bits}, and must be an integer from 1 to 64", _HINT
        )
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


def _quantization(at: Derived, scale: str, zero: str) -> Quantization | None:
    """Scale and zero point along at most one axis of x; None when they have no such form."""
    scales, zeros = at.ctx.constant(scale), at.ctx.constant(zero)
    if scales is None or zeros is None:
        return None
    s, z = np.asarray(scales, np.float32), np.asarray(zeros, np.float32)
    if not np.isfinite(s).all() or not np.isfinite(z).all() or not s.all():
        return None
    if s.size == z.size == 1:
        return Quantization.of(s.reshape(-1), z.reshape(-1))
    shape = at.ctx.type(at.input(0)).shape
    if shape is None or max(s.ndim, z.ndim) > len(shape):
        return None
    try:
        s, z = np.broadcast_arrays(s, z)
    except ValueError:
        raise at.node.invalid(
            f"scale and zero point have the shapes {list(s.shape)} and {list(z.shape)}", _HINT
        ) from None
    long = [axis for axis, size in enumerate(s.shape) if size > 1]
    return (
        Quantization.of(s.reshape(-1), z.reshape(-1), long[0] + len(shape) - s.ndim)
        if len(long) == 1
        else None
    )


def _refuse(at: Derived, mode: str, dtype: DType | None, found: str = "") -> None:
    expected = "Quant that rounds to even, of 32 bits at most, with constant scale and zero point along one axis"
    if found:
        pass
    elif at.node.op == "Trunc":
        found = "Trunc, which drops bits"
    elif mode != "ROUND":
        found = f"rounding mode {mode}"
    else:
        found = "more than 32 bits" if dtype is None else "scale or zero point in another form"
    reason = "no Quantize rounds like this; it runs as float arithmetic"
    at.ctx.refuse(at.node, _RULE, Refusal(reason, expected, found, _HINT))


# -- written out -----------------------------------------------------------------------------------


def _shifted(at: Derived, x: str, scale: str, zero: str) -> str:
    """x / scale + zero."""
    return at.real("Add", [at.real("Div", [x, scale], role="scale"), zero], role="shift")


def _divided(at: Derived, value: str, divisor: npt.ArrayLike) -> str:
    return at.real(
        "Div",
        [value, at.constant("divisor", divisor)],
        role="drop",
    )


def _rounded(at: Derived, value: str, mode: str) -> str:
    """The integer that the mode picks; HALF_UP and HALF_DOWN away from and towards zero."""
    plain = {"ROUND": "Round", "CEIL": "Ceil", "FLOOR": "Floor"}.get(mode)
    if plain is not None:
        return at.real(plain, [value], role="round")
    size = at.real("Abs", [value], role="size")
    if mode.startswith("HALF"):
        half = at.constant("half", 0.5 if mode == "HALF_UP" else -0.5)
        size = at.real("Add", [size, half], role="half")
    whole = at.real("Floor" if mode in {"DOWN", "HALF_UP"} else "Ceil", [size], role="round")
    return at.real("Mul", [whole, at.real("Sign", [value], role="sign")], role="signed")


def _restored(at: Derived, codes: str, scale: str, zero: str) -> None:
    """(codes - zero) * scale, as the node's output."""
    at.real(
        "Mul",
        [at.real("Sub", [codes, zero], role="unshift"), scale],
        output=at.node.output(0),
    )


_DOMAINS: Final = ("qonnx.custom_op.general", "finn.custom_op.general", "onnx.brevitas")

HANDLERS: Final[Mapping[tuple[str, str], Handler]] = {
    (domain, op): written(run)
    for domain in _DOMAINS
    for op, run in (
        ("Quant", _quant),
        ("IntQuant", _quant),
        ("FloatQuant", _float_quant),
        ("BipolarQuant", _bipolar),
        ("Trunc", _trunc),
    )
}
