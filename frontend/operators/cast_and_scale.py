"""Constant codes that the model decodes by arithmetic: Cast -> (Sub) -> Mul, OpenVINO's compressed
form of weights and that of exporters which avoid DequantizeLinear.

Each operation of the three rounds once in f32, as those of Dequantize do, so that both give the
same bits. Codes that are computed at run time are left alone: there the model may mean anything by
a Cast.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from ...ir.ops.spec import Array
from ...ir.rule import Refusal
from ...ir.types import DType, Quantization
from ..importer import Importer
from ..nodes import OnnxNode
from .blocked import decode_grouped
from .derived import RULE

_CODES: Final = frozenset({DType.S8, DType.U8, DType.S4, DType.U4})


@dataclass(frozen=True)
class _Decoding:
    """What a Mul may be the end of.

    Attributes:
        codes: constant, or computed from constants alone.
        result: the type that the arithmetic is done in.
        zero, scale: constants.
        absorbed: names of the nodes in front of the Mul.
    """

    codes: str
    result: DType
    zero: Array
    scale: Array
    absorbed: tuple[str, ...]


def import_decoded(ctx: Importer, node: OnnxNode) -> bool:
    """Imports a Mul that ends Cast -> (Sub) -> Mul on constant codes, as their Dequantize.

    Returns:
        False, with nothing imported, for any other node; for such a Mul that Dequantize cannot
        express, too, with a decision that says why.
    """
    if node.op != "Mul":
        return False
    found = _decoding(ctx, *node.inputs) or _decoding(ctx, *reversed(node.inputs))
    if found is None:
        return False
    quant = _quantization(ctx, found)
    form = "Cast and Mul on a constant"
    if isinstance(quant, Refusal):
        if _in_blocks(ctx, node, found, form):
            return True
        ctx.refuse(node, RULE, quant)
        return False
    plain = found.result is DType.F32
    real = ctx.emit(
        node,
        "Dequantize",
        (found.codes,),
        {"quant": quant},
        outputs=node.outputs[:1] if plain else None,
        quantizer=(ctx.add_quantizer(node, form, found.codes),),
        absorbed=found.absorbed,
    )
    if not plain:
        ctx.cast(node, real, found.result, "cast", output=node.output(0))
    return True


def _in_blocks(ctx: Importer, node: OnnxNode, found: _Decoding, form: str) -> bool:
    """Imports a Mul whose scales are those of blocks; False where they are not."""
    zero, scale = (np.asarray(p, np.float32) for p in (found.zero, found.scale))
    if found.result is not DType.F32 or scale.ndim != 3 or zero.ndim not in (0, 3):
        return False
    return decode_grouped(ctx, node, found.codes, zero, scale, form, found.absorbed)


def _decoding(ctx: Importer, value: str, factor: str) -> _Decoding | None:
    """The decoding that `value * factor` is, or None."""
    graph = ctx.graph
    shift = graph.producer(value, "Sub")
    cast = graph.producer(shift.input if shift else value, "Cast")
    if cast is None or ctx.type(cast.input).dtype not in _CODES:
        return None
    parameters = [ctx.constant(shift.inputs[1]) if shift else np.zeros((), np.float32)]
    parameters.append(ctx.constant(factor))
    zero, scale = parameters
    if zero is None or scale is None or ctx.constant(cast.input) is None:
        return None
    # A product of a constant with fewer numbers, cast or not, is a matter of its other operand.
    shape = ctx.type(cast.input).static_shape
    if not (_fits(zero.shape, shape) and _fits(scale.shape, shape)):
        return None
    absorbed = (*cast.origin, *(shift.origin if shift else ()))
    return _Decoding(cast.input, ctx.type(cast.output).dtype, zero, scale, absorbed)


def _fits(parameter: tuple[int, ...], shape: tuple[int, ...]) -> bool:
    """True when a parameter broadcasts to the codes, and does not make them more."""
    sizes = shape[len(shape) - len(parameter) :]
    return len(parameter) <= len(shape) and all(
        p in (1, n) for p, n in zip(parameter, sizes, strict=True)
    )


def _quantization(ctx: Importer, found: _Decoding) -> Quantization | Refusal:
    """Scale, zero point and axis; or why Dequantize does not compute these numbers."""
    if found.result is DType.F64:
        return Refusal(
            f"the codes are decoded in {found.result.value}, whose products are rounded",
            "Cast, Sub and Mul in f32",
            found.result.value,
            "export the weights' scales in f32",
        )
    rank = ctx.type(found.codes).rank
    scale, zero = (
        np.asarray(p, np.float32).reshape((1,) * (rank - p.ndim) + p.shape)
        for p in (found.scale, found.zero)
    )
    if not (np.isfinite(scale).all() and scale.all() and np.isfinite(zero).all()):
        return Refusal(
            "a scale is zero or not finite, or a zero point is not finite",
            "finite scales other than 0",
            "others",
            "quantize the weights again",
        )
    axes = [axis for axis in range(rank) if max(scale.shape[axis], zero.shape[axis]) > 1]
    if len(axes) > 1 or not (scale.size and zero.size):
        return Refusal(
            "the scales are not those of the tensor, or of the entries of one axis",
            "per-tensor or per-axis scales",
            f"shapes {list(found.scale.shape)} and {list(found.zero.shape)}",
            "quantize per tensor or per channel where int8 arithmetic is wanted",
        )
    return Quantization.of(scale.ravel(), zero.ravel(), axes[0] if axes else None)
