"""FakeQuantize -> Quantize + Dequantize."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from ..ir.graph import Graph
from ..ir.node import Node
from ..ir.ops.spec import Attr
from ..ir.types import DType, Quantization
from .base import Contract, fired, refused, swap

__all__ = ["Ranges", "Split", "SplitFakeQuantize", "emit_split", "ranges_of", "split_of", "split_refusal"]

F64 = npt.NDArray[np.float64]

_FARTHEST = 2.0**20
"""Largest distance of a range from zero, in steps: x/s + z is then known to 2^-3 of a step in f32, and a code off by 1 at most."""


@dataclass(frozen=True)
class Ranges:
    """The four ranges of a FakeQuantize as f64 vectors of one length: 1, or the size of `axis`."""

    input_low: F64
    input_high: F64
    output_low: F64
    output_high: F64
    axis: int | None
    levels: int

    @property
    def input_scale(self) -> F64:
        """Real width of one step of the input grid: (ih - il) / (levels - 1)."""
        return (self.input_high - self.input_low) / (self.levels - 1)

    @property
    def output_scale(self) -> F64:
        """Real width of one step of the output grid: (oh - ol) / (levels - 1)."""
        return (self.output_high - self.output_low) / (self.levels - 1)


@dataclass(frozen=True)
class Split:
    """The two halves: how to encode (with the codes' type and range) and how to decode."""

    dtype: DType
    low: int
    high: int
    encode: Quantization
    decode: Quantization


def ranges_of(graph: Graph, node: Node) -> Ranges | str:
    """The ranges of a FakeQuantize node, or the reason why they have no per-tensor or per-axis form."""
    data = [graph.constant(value) for value in node.inputs[1:]]
    if any(array is None for array in data):
        return "a range is not constant"
    rank = graph.type(node.inputs[0]).rank if graph.type(node.inputs[0]).shape is not None else None
    arrays = [np.asarray(array, np.float64) for array in data]
    if rank is None:
        if any(array.size != 1 for array in arrays):
            return "the rank of the input is unknown and the ranges are not scalars"
        rank = 0
    shape = np.broadcast_shapes(*(array.shape for array in arrays))
    long = [i for i, size in enumerate(shape) if size != 1]
    if len(long) > 1:
        return f"the ranges vary along {len(long)} axes"
    levels = node.attr("levels", int)
    axis = None if not long else rank - len(shape) + long[0]
    if axis is not None and axis < 0:
        return "the ranges have more dimensions than the input"
    low, high, out_low, out_high = (np.broadcast_to(array, shape).reshape(-1) for array in arrays)
    if axis is not None and all(np.all(v == v[0]) for v in (low, high, out_low, out_high)):
        axis, low, high, out_low, out_high = None, low[:1], high[:1], out_low[:1], out_high[:1]
    return Ranges(low, high, out_low, out_high, axis, levels)


def split_refusal(ranges: Ranges) -> str | None:
    """Why ranges cannot be written as Quantize + Dequantize; None when they can.

    An inverted input range is not monotone (everything up to the smaller bound gives ol, everything above the larger gives oh, and
    between them codes fall), equal bounds are a threshold, and equal output bounds have no scale.
    """
    if not 2 <= ranges.levels <= 256:
        return f"{ranges.levels} levels do not fit into 8 bits"
    if np.any(~np.isfinite(np.concatenate([ranges.input_low, ranges.input_high, ranges.output_low, ranges.output_high]))):
        return "a range is not finite"
    if np.any(ranges.input_low == ranges.input_high):
        return "input_low equals input_high: a threshold, not a grid"
    if np.any(ranges.input_low > ranges.input_high):
        return "the input range is inverted, which is not monotone"
    if np.any(ranges.output_low == ranges.output_high):
        return "output_low equals output_high: the output is constant"
    scales = np.abs(np.concatenate([ranges.input_scale, ranges.output_scale]))
    if np.any(scales < np.finfo(np.float32).tiny) or np.any(1.0 / scales > np.finfo(np.float32).max):
        return "a scale is below the smallest normal f32"
    if np.any(np.abs(np.concatenate([ranges.input_low / ranges.input_scale, ranges.output_low / ranges.output_scale])) > _FARTHEST):
        return "the range lies so far from zero that f32 cannot tell its steps apart"
    return None


def split_of(ranges: Ranges) -> Split:
    """The codes' type and the two quantizations of ranges that `split_refusal` accepts.

    u8 with codes 0 .. levels-1, or s8 with codes shifted by levels // 2 (128 of 256, 127 of 255) when that brings the output zero
    point to 0: signed symmetric data, weights above all. Source: FakeQuantize's definition with x = il + s * u, u the grid index.
    """
    zero_in = _snap(-ranges.input_low / ranges.input_scale, ranges.levels)
    zero_out = _snap(-ranges.output_low / ranges.output_scale, ranges.levels)
    middle = ranges.levels // 2
    signed = bool(np.all(zero_out == middle))
    shift = middle if signed else 0
    encode = Quantization.of(ranges.input_scale, zero_in - shift, ranges.axis)
    decode = Quantization.of(ranges.output_scale, zero_out - shift, ranges.axis)
    return Split(DType.S8 if signed else DType.U8, -shift, ranges.levels - 1 - shift, encode, decode)


def _snap(zero: F64, levels: int) -> F64:
    """Zero points that are integral within what f32 can tell.

    Ranges are f32: il carries a relative error of 2^-24 and the step one of 2^-23, so the quotient is known to |z| * 2^-22 only. And
    x/s + z, which runs up to levels - 1, is rounded by up to 2^-24 of that: a smaller shift is lost there anyway.
    """
    nearest = np.rint(zero)
    close = np.abs(zero - nearest) <= np.maximum(np.abs(nearest) * 2.0**-22, levels * 2.0**-24)
    result: F64 = np.where(close, nearest, zero)
    return result


@dataclass(frozen=True)
class SplitFakeQuantize:
    """Splits FakeQuantize into its two halves, so that each can move to a home of its own.

    Before -> after::

        y = FakeQuantize(x, il, ih, ol, oh)  ->  q = Quantize(x){s_in, z_in, lo, hi}; y = Dequantize(q){s_out, z_out}

    with s = (high - low) / (levels - 1) and z = -low / s of the input and output ranges; both z shifted by levels // 2 into s8 when
    the output is symmetric.

    Legal because: round((x - il) / s) = round(x / s + z), clipping to the ends of the grid is what the comparisons of the definition
    do, and code * s_out + ol = (code - z_out) * s_out.
    Refuses when: the ranges vary along several axes, are inverted, equal, not finite or too small, or there are more than 256 levels.
    """

    name: ClassVar[str] = "split_fake_quantize"
    contract: ClassVar[Contract] = Contract("identity", "ties")

    def run(self, graph: Graph) -> None:
        """Splits every FakeQuantize that can be split."""
        for node in graph.each("FakeQuantize"):
            self._split(graph, node)

    def _split(self, graph: Graph, node: Node) -> None:
        ranges = ranges_of(graph, node)
        reason = ranges if isinstance(ranges, str) else split_refusal(ranges)
        if reason is not None or isinstance(ranges, str):
            hint = "calibrate it to finite ranges with low < high, equal for the tensor or along one axis, and at most 256 levels"
            refused(
                graph,
                self.name,
                node,
                f"FakeQuantize stays whole: {reason}",
                expected="low < high on a grid of at most 256 levels",
                found=str(reason),
                hint=hint,
            )
            return
        split = split_of(ranges)
        emit_split(graph, node, split)
        fired(graph, self.name, node, f"{split.dtype.value} codes {split.low}..{split.high}")


def emit_split(graph: Graph, node: Node, split: Split) -> None:
    """Replaces a FakeQuantize node by the two halves; they keep its name, origin and quantizer."""
    attrs: dict[str, Attr] = {"quant": split.encode, "dtype": split.dtype, "lo": split.low, "hi": split.high, "order": "zp_first"}
    quantize = graph.add(
        "Quantize",
        [node.inputs[0]],
        attrs,
        name=f"{node.name}/quantize",
        outputs=[graph.fresh(f"{node.output}/codes")],
        origin=node.origin,
        quantizer=node.quantizer,
    )
    dequantize = graph.add(
        "Dequantize",
        [quantize.output],
        {"quant": split.decode},
        name=f"{node.name}/dequantize",
        outputs=[graph.fresh(f"{node.output}/values")],
        origin=node.origin,
        quantizer=node.quantizer,
    )
    swap(graph, node, dequantize.output)
