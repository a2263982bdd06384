"""AMD Quark's own operators: ExtendedQuantizeLinear and ExtendedDequantizeLinear, and block floats,
BFPQuantizeDequantize and MXQuantizeDequantize; in com.amd.quark, and under their older names in
com.vai.quantize.

The first two are ONNX's with more types of codes; those of 8 bits fuse. Codes that are bf16 or f16 and
numbers in blocks with an exponent for each (BFP16, MXFP8, MXFP6, MXFP4, MXINT8) run as float arithmetic:
no primitive of oneDNN 3.2 has such codes.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Final

import numpy as np

from ...ir.rule import Refusal
from ...ir.types import DType
from ..importer import Handler, Importer
from ..nodes import OnnxNode
from . import float_codes, quantize_dequantize
from .block_floats import (
    HALVES,
    Floats,
    clipped,
    finite,
    half_away,
    half_even,
    half_up,
    in_blocks,
    largest_of_block,
    power,
    scaled,
    to_floats,
    to_half,
    unknown,
)
from .derived import RULE, Derived
from .forms import Form
from .heads import in_f32

_HINT: Final = (
    "quantize to 8-bit integers (Quark's A8W8 or XINT8) where the model shall run in int8"
)
_ROUNDING: Final = (half_away, half_up, half_even)


def _extended(own: Handler, halves: Handler) -> Handler:
    """One of the two on codes: `own` imports it with integers, `halves` with floats of 16 bits."""

    def handler(ctx: Importer, node: OnnxNode) -> None:
        if len(node.inputs) != 3 or not all(node.inputs):
            raise node.invalid(f"{node.op} needs a tensor, a scale and a zero point")
        node = node.rewritten(axis=node.attr("axis", 0))
        kind = ctx.type(node.input(2)).dtype
        (halves if kind in HALVES else own)(ctx, node)

    handler.__doc__ = (
        "ExtendedQuantizeLinear, ExtendedDequantizeLinear(x, scale, zero_point){axis}: codes are of the zero "
        "point's type, integers of 8, 16 or 32 bits, bf16 or f16; without axis the first one is meant."
    )
    return handler


def _encode(ctx: Importer, node: OnnxNode) -> None:
    names = (ctx.add_quantizer(node, node.op, node.input(0)),)
    float_codes.encode(ctx, node, ctx.type(node.input(2)).dtype, names)


def _decode(ctx: Importer, node: OnnxNode) -> None:
    float_codes.decode(ctx, node, ())


def _quantizer(at: Derived, found: str) -> tuple[str]:
    """The quantizer that a node is; a decision says that its codes, `found`, do not fuse."""
    reason = "no primitive of oneDNN 3.2 has such codes"
    at.ctx.refuse(at.node, RULE, Refusal(reason, "codes u8 or s8", found, _HINT))
    return (at.ctx.add_quantizer(at.node, at.node.op, at.input(0)),)


# -- block floats ----------------------------------------------------------------------------------


def _bfp(at: Derived) -> None:
    """BFPQuantizeDequantize(x){bfp_method, axis, bit_width, block_size, rounding_mode, sub_block_size, sub_block_shift_bits,
    convert_to_bfloat_before_bfp}: integers of bit_width - 8 bits, with an exponent of 8 bits for each block along the axis; of
    to_bfp_prime, the exponent of a sub-block may be smaller by up to 2^sub_block_shift_bits - 1.
    """
    attrs, node = at.node.attrs, at.node
    prime = attrs["bfp_method"] in ("to_bfp_prime", "to_bfp_prime_shared")
    if not prime and attrs["bfp_method"] != "to_bfp":
        raise unknown(node, "bfp_method", "use to_bfp or to_bfp_prime")
    if not 10 <= attrs["bit_width"] <= 32:
        raise unknown(node, "bit_width", "use 10 to 32 bits, the 8 of the exponent among them")
    parts = attrs["sub_block_size"], attrs["sub_block_shift_bits"]
    if prime and (parts[0] < 1 or attrs["block_size"] % parts[0] or not 0 <= parts[1] < 8):
        raise unknown(node, "sub_block_size", "let whole sub-blocks make a block")
    what = f"block floats of {attrs['bit_width']} bits"
    if attrs["convert_to_bfloat_before_bfp"]:
        narrow = to_half(at, at.input(0), DType.BF16)
        at = Derived(at.ctx, node.rewritten(inputs=(narrow,)))
    rounded = _rounding(at)
    digits = attrs["bit_width"] - 9
    largest = 2.0**digits - 1

    def plain(value: str) -> str:
        seen = finite(at, value)
        step = scaled(
            at,
            power(at, _top(at, value, seen, 0), "power", _quantizer(at, what)),
            1 - digits,
            "step",
        )
        made = _integers(at, value, step, rounded, (-largest, largest))
        return at.real("Where", [seen, made, value], role="or as it is")

    def primed(value: str) -> str:
        size, shifts = parts
        top = _top(at, value, finite(at, value), np.inf)
        known = finite(at, top)
        small = at.real(
            "Less", [at.real("Abs", [value], role="magnitude"), at.constant("normal", 2.0**-126)]
        )
        value = at.real("Where", [small, at.constant("zero", 0), value], role="normal numbers")
        least = scaled(at, power(at, top, "power"), 1 - (1 << shifts), "least power")
        rank = at.ctx.rank(at.node, value)
        inner = at.integers("sub-blocks", (*[0] * (rank - 1), -1, size))
        apart = at.real("Reshape", [value, inner], role="apart")
        own = power(at, _top(at, apart, finite(at, apart), 0), "own power", _quantizer(at, what))
        least = at.real("Unsqueeze", [least, at.integers("inner", [-1])], role="of sub-blocks")
        step = scaled(at, at.real("Max", [own, least], role="shared"), 1 - digits, "step")
        made = _integers(at, apart, step, rounded, (-largest, largest))
        joined = at.integers("joined", (*[0] * (rank - 1), attrs["block_size"]))
        made = at.real("Reshape", [made, joined], role="joined blocks")
        return at.real("Where", [known, made, at.constant("nothing", np.nan)], role="or nothing")

    in_blocks(at, attrs["axis"], attrs["block_size"], primed if prime else plain)


def _mx(at: Derived) -> None:
    """MXQuantizeDequantize(x){element_dtype, axis, block_size, rounding_mode}: floats of few bits, or integers of 8, with a power
    of two as the scale of each block along the axis.
    """
    attrs, name = at.node.attrs, at.node.attrs["element_dtype"]
    if name != "int8" and name not in _ELEMENTS:
        raise unknown(at.node, "element_dtype", f"use int8, {', '.join(_ELEMENTS)}")
    what = f"{name} with a power of two for each block"
    rounded = _rounding(at)

    def work(value: str) -> str:
        seen = finite(at, value)
        largest = power(at, _top(at, value, seen, 0), "shared power", _quantizer(at, what))
        if name == "int8":
            step = scaled(at, largest, -_FRACTION, "step")
            made = _integers(at, value, step, rounded, DType.S8.range)
        else:
            floats, above = _ELEMENTS[name]
            shared = scaled(at, largest, -above, "shared scale")
            inner = at.real("Div", [value, shared], role="elements")
            inner = to_floats(at, inner, floats, partial(half_even, at))
            made = at.real("Mul", [inner, shared], role="numbers")
        return at.real("Where", [seen, made, value], role="or as it is")

    in_blocks(at, attrs["axis"], attrs["block_size"], work)


_FRACTION: Final = 6
"""Bits of an int8 of MX behind the point."""

_ELEMENTS: Final = {
    "fp8_e5m2": (Floats(5, 2, 15, 57344), 15),
    "fp8_e4m3": (Floats(4, 3, 7, 448), 8),
    "fp6_e3m2": (Floats(3, 2, 3, 28), 4),
    "fp6_e2m3": (Floats(2, 3, 1, 7.5), 2),
    "fp4_e2m1": (Floats(2, 1, 1, 6), 2),
}
"""Name of a type of elements -> it, and the exponent that the largest number of a block gets."""


def _top(at: Derived, value: str, seen: str, other: float) -> str:
    """The largest magnitude of each block; what is not finite counts as `other`."""
    size = at.real("Abs", [value], role="sizes")
    size = at.real("Where", [seen, size, at.constant("of others", other)], role="finite sizes")
    return largest_of_block(at, size, "largest")


def _integers(
    at: Derived, value: str, step: str, rounded: partial[str], bounds: tuple[float, float]
) -> str:
    codes = rounded(at.real("Div", [value, step], role="in steps"))
    return at.real("Mul", [clipped(at, codes, *bounds), step], role="numbers")


def _rounding(at: Derived) -> partial[str]:
    mode = at.node.attrs["rounding_mode"]
    if not 0 <= mode < len(_ROUNDING):
        raise unknown(
            at.node, "rounding_mode", "use 0 (half away from 0), 1 (half up) or 2 (half to even)"
        )
    return partial(_ROUNDING[mode], at)


_BFP: Final[Mapping[str, Any]] = {
    "bfp_method": "to_bfp",
    "axis": 1,
    "bit_width": 16,
    "block_size": 8,
    "rounding_mode": 0,
    "sub_block_size": 2,
    "sub_block_shift_bits": 1,
    "convert_to_bfloat_before_bfp": 0,
}
_MX: Final[Mapping[str, Any]] = {
    "element_dtype": "int8",
    "axis": 1,
    "block_size": 32,
    "rounding_mode": 0,
}
_FORMS: Final = (
    _extended(quantize_dequantize.import_quantize, _encode),
    _extended(quantize_dequantize.import_dequantize, _decode),
    Form("x", "y", in_f32(_bfp), _BFP, {"use_compiler_version_cpu_kernel": 0}).handler,
    Form("x", "y", in_f32(_mx), _MX, {"scale_dtype": "e8m0"}).handler,
)
_NAMES: Final = {
    "com.amd.quark": (
        "ExtendedQuantizeLinear",
        "ExtendedDequantizeLinear",
        "BFPQuantizeDequantize",
        "MXQuantizeDequantize",
    ),
    "com.vai.quantize": (
        "VitisQuantizeLinear",
        "VitisDequantizeLinear",
        "BFPFixNeuron",
        "MXFixNeuron",
    ),
}

HANDLERS: Final[Mapping[tuple[str, str], Handler]] = {
    (domain, op): handler
    for domain, names in _NAMES.items()
    for op, handler in zip(names, _FORMS, strict=True)
}
