"""FakeQuantize -> Quantize + Dequantize."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..ir.graph import Graph
from ..ir.node import Node
from ..ir.ops.spec import Attr
from ..ir.ranges import Ranges, makes_codes, ranges_of
from ..ir.rule import Refusal
from ..ir.types import DType, Quantization
from .base import Contract, NodePass, Verdict, swap

F64 = npt.NDArray[np.float64]

_FARTHEST = 2.0**20
"""Largest distance of a range from zero, in steps: x/s + z is then known to 2^-3 of a step in f32,
and a code off by 1 at most.
"""


@dataclass(frozen=True)
class Split:
    """The two halves: how to encode (with the codes' range) and how to decode.

    `grid`: the codes of output_low and output_high for each channel, with their number of levels
    and the channels' axis, where only the definition's comparisons encode; then `encode` keeps the numbers as they are.
    """

    low: int
    high: int
    encode: Quantization
    decode: Quantization
    grid: tuple[F64, F64, int, int | None] | None = None

    @property
    def dtype(self) -> DType:
        """The type of the codes."""
        return DType.S8 if self.low < 0 else DType.U8


def needs_comparison(ranges: Ranges) -> bool:
    """True when no scale and zero point encode: an inverted input range, equal bounds, or two
    values without an integer zero point, or with a threshold that f32 tells from others where it does
    not tell the steps.
    """
    if np.any(ranges.input_low >= ranges.input_high) or np.any(
        ranges.output_low == ranges.output_high
    ):
        return True
    if ranges.levels != 2:
        return False
    zero = snapped(-ranges.output_low / ranges.output_scale, ranges.levels)
    return (
        bool(np.any(zero != np.rint(zero)))
        or _too_small(ranges.input_scale)
        or _too_far(ranges.input_low / ranges.input_scale)
    )


def _too_small(scales: F64) -> bool:
    sizes = np.abs(scales)
    return bool(
        np.any(sizes < np.finfo(np.float32).tiny) or np.any(1 / sizes > np.finfo(np.float32).max)
    )


def _too_far(zero_points: F64) -> bool:
    return bool(np.any(np.abs(zero_points) > _FARTHEST))


def split_refusal(ranges: Ranges) -> str | None:
    """Why ranges cannot be written as codes and Dequantize; None when they can."""
    if not ranges.finite:
        return "a range is not finite"
    two = _two_valued(ranges)
    if not 2 <= ranges.levels <= 256 and not two:
        return f"{ranges.levels} levels do not fit into 8 bits"
    constant = ranges.output_low == ranges.output_high
    outputs = np.where(
        constant,
        np.where(ranges.output_low == 0, 1.0, ranges.output_low),
        ranges.output_high - ranges.output_low,
    )
    widths = np.where(
        two | constant | (ranges.input_low == ranges.input_high), 1.0, ranges.input_scale
    )
    if _too_small(np.concatenate([widths, outputs / (1 if two else ranges.levels - 1)])):
        return "a scale is below the smallest normal f32"
    starts = np.where(widths == 1.0, 0.0, ranges.input_low / widths)
    ends = np.where(constant, 0.0, ranges.output_low * (1 if two else ranges.levels - 1) / outputs)
    if _too_far(np.concatenate([starts, ends])):
        return "the range lies so far from zero that f32 cannot tell its steps apart"
    return None


def split_of(ranges: Ranges) -> Split:
    """The codes' type and the two quantizations of ranges that `split_refusal` accepts.

    u8 with codes 0 .. levels-1, or s8 with codes shifted by levels // 2 (128 of 256, 127 of 255)
    when that brings the output zero
    point to 0: signed symmetric data, weights above all. Source: FakeQuantize's definition with x =
    il + s * u, u the grid index.
    """
    if needs_comparison(ranges):
        return _two_codes(ranges) if _two_valued(ranges) else _compared(ranges)
    zero_in = snapped(-ranges.input_low / ranges.input_scale, ranges.levels)
    zero_out = snapped(-ranges.output_low / ranges.output_scale, ranges.levels)
    middle = ranges.levels // 2
    shift = middle if np.all(zero_out == middle) else 0
    encode = (
        Quantization.of(ranges.input_scale, zero_in - shift, ranges.axis)
        if ranges.tells_size
        else _quantization(ranges.input_scale, zero_in - shift, ranges.axis)
    )
    decode = _quantization(ranges.output_scale, zero_out - shift, ranges.axis)
    return Split(-shift, ranges.levels - 1 - shift, encode, decode)


def _quantization(scale: F64, zero: F64, axis: int | None) -> Quantization:
    """The parameters, for the tensor where all channels have the same."""
    alike = bool((scale == scale[0]).all() and (zero == zero[0]).all())
    return Quantization.of(scale[:1], zero[:1]) if alike else Quantization.of(scale, zero, axis)


_AS_IT_IS = Quantization((1.0,), (0.0,))


def _two_valued(ranges: Ranges) -> bool:
    """True when only output_low and output_high can come: thresholds, constants, and two levels
    over a range that is not inverted.
    """
    constant = ranges.output_low == ranges.output_high
    ordered = ranges.input_low < ranges.input_high
    return bool(
        np.all(
            constant
            | (ranges.input_low == ranges.input_high)
            | (ordered if ranges.levels == 2 else False)
        )
    )


def _two_codes(ranges: Ranges) -> Split:
    """Codes of a two-valued output with zero point 0 where small integers have the ratio of the
    values; else 0 and 1.
    """
    found = [
        _code_pair(low, high)
        for low, high in zip(ranges.output_low.tolist(), ranges.output_high.tolist(), strict=True)
    ]
    low, high, scale, zero = (np.asarray(column, np.float64) for column in zip(*found, strict=True))
    least, most = int(min(low.min(), high.min())), int(max(low.max(), high.max()))
    decode = _quantization(scale, zero, ranges.axis)
    return Split(least, most, _AS_IT_IS, decode, (low, high, 2, ranges.axis))


def _code_pair(low: float, high: float) -> tuple[int, int, float, float]:
    """(code of low, code of high, scale, zero point) with (code - zero point) * scale the value."""
    larger = high if abs(high) >= abs(low) else low
    if larger == 0:
        return 0, 0, 1.0, 0.0
    ratio = (low if larger == high else high) / larger
    for size in range(1, 128):
        code = round(ratio * size)
        # as exact as f32 states the two values
        if abs(ratio * size - code) <= 2.0**-23 * abs(code):
            sign = 1 if larger > 0 else -1
            pair = (code * sign, size * sign) if larger == high else (size * sign, code * sign)
            return *pair, abs(larger) / size, 0.0
    return 0, 1, high - low, -low / (high - low)


def _compared(ranges: Ranges) -> Split:
    """The codes 0 .. levels-1, or shifted into s8; a channel whose output is constant gets one code
    and a scale of its own.
    """
    constant = ranges.output_low == ranges.output_high
    scale = np.where(constant, 1.0, ranges.output_scale)
    zero = np.where(constant, 0.0, snapped(-ranges.output_low / scale, ranges.levels))
    common = np.unique(zero[~constant])
    middle = ranges.levels // 2
    shift = middle if common.size == 1 and common[0] == middle else 0
    inside = common.size == 1 and float(common[0]).is_integer() and 0 <= common[0] < ranges.levels
    rest = float(common[0]) if inside else 0.0
    beside = rest + 1 if rest + 1 < ranges.levels else rest - 1
    code = np.where(ranges.output_low == 0, rest, beside)
    scale = np.where(
        constant & (ranges.output_low != 0), ranges.output_low / (beside - rest), scale
    )
    zero = np.where(constant, rest, zero)
    low = np.where(constant, code, 0.0) - shift
    high = np.where(constant, code, ranges.levels - 1.0) - shift
    decode = _quantization(scale, zero - shift, ranges.axis)
    grid = (low, high, ranges.levels, ranges.axis)
    return Split(-shift, ranges.levels - 1 - shift, _AS_IT_IS, decode, grid)


def snapped(zero: F64, levels: int) -> F64:
    """Zero points that are integral within what f32 can tell.

    Ranges are f32: il carries a relative error of 2^-24 and the step one of 2^-23, so the quotient
    is known to |z| * 2^-22 only. And x/s + z, which runs up to levels - 1, is rounded by up to
    2^-24 of that: a smaller shift is lost there anyway.
    """
    nearest = np.rint(zero)
    close = np.abs(zero - nearest) <= np.maximum(np.abs(nearest) * 2.0**-22, levels * 2.0**-24)
    result: F64 = np.where(close, nearest, zero)
    return result


def split_fake_quantize(graph: Graph, node: Node) -> Verdict:
    """Splits FakeQuantize into its two halves, so that each can move to a home of its own.

    Before -> after::

        y = FakeQuantize(x, il, ih, ol, oh)  ->  q = Quantize(x){s_in, z_in, lo, hi}; y = Dequantize(q){s_out, z_out}

    with s = (high - low) / (levels - 1) and z = -low / s of the input and output ranges; both z
    shifted by levels // 2 into s8 when the output is symmetric. Where no scale and zero point
    encode, because the input range is inverted, its bounds are equal (a threshold), or the output
    is constant, the definition itself makes the codes c0 and c1 of ol and oh, and what is between::

        c = FakeQuantize(x, il, ih, c0, c1);  q = Quantize(c){1, 0, lo, hi};  y = Dequantize(q){s_out, z_out}

    The composer writes such a FakeQuantize as post-ops, see `fake_quantize_operations`. Two values
    without an integer zero point get
    codes in their ratio: -1 and 1 for a sign.

    Legal because: round((x - il) / s) = round(x / s + z), clipping to the ends of the grid is what
    the comparisons of the definition do, and code * s_out + ol = (code - z_out) * s_out.
    Refuses when: the ranges vary along several axes, are computed at run time, not finite, too
    small or too far from zero, or there are more than 256 levels.
    """
    if makes_codes(graph, node):
        return None
    ranges = ranges_of(graph, node)
    reason = ranges if isinstance(ranges, str) else split_refusal(ranges)
    if reason is not None or isinstance(ranges, str):
        return Refusal(
            f"FakeQuantize stays whole: {reason}",
            "finite ranges on a grid of at most 256 levels",
            str(reason),
            "calibrate it to finite ranges, equal for the tensor or along one axis, and at most 256 levels",
        )
    split = split_of(ranges)
    emit_split(graph, node, split)
    how = ", made by comparisons" if split.grid is not None else ""
    return f"{split.dtype.value} codes {split.low}..{split.high}{how}"


SPLIT_FAKE_QUANTIZE = NodePass(
    "split_fake_quantize", Contract("identity", "ties"), split_fake_quantize, ("FakeQuantize",)
)


def emit_split(graph: Graph, node: Node, split: Split) -> None:
    """Replaces a FakeQuantize node by the two halves; they keep its name, origin and quantizer."""
    encode: dict[str, Attr] = {
        "quant": split.encode,
        "dtype": split.dtype,
        "lo": split.low,
        "hi": split.high,
        "order": "zp_first",
    }
    value = node.input if split.grid is None else _emit_grid(graph, node, *split.grid)
    for op, attrs, what in (
        ("Quantize", encode, "codes"),
        ("Dequantize", {"quant": split.decode}, "values"),
    ):
        value = graph.add(
            op,
            [value],
            attrs,
            name=f"{node.name}/{op.lower()}",
            outputs=[graph.fresh(f"{node.output}/{what}")],
            origin=node.origin,
            quantizer=node.quantizer,
        ).output
    swap(graph, node, value)


def _emit_grid(graph: Graph, node: Node, low: F64, high: F64, levels: int, axis: int | None) -> str:
    """The FakeQuantize whose output is the codes, as numbers."""
    rank = graph.type(node.input).rank if axis is not None else 0
    shape = [low.size if i == axis else 1 for i in range(rank)]
    ends = [
        graph.add_constant(f"{node.output}/{name}", v.astype(np.float32).reshape(shape))
        for name, v in (("low", low), ("high", high))
    ]
    return graph.add(
        "FakeQuantize",
        [*node.inputs[:3], *ends],
        {**node.attrs, "levels": levels},
        name=f"{node.name}/grid",
        outputs=[graph.fresh(f"{node.output}/grid")],
        origin=node.origin,
    ).output
