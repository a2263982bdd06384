"""FakeQuantize that only quantizes: its output is the integer grid itself."""

from __future__ import annotations

import numpy as np

from ..ir.graph import Graph
from ..ir.node import Node
from ..ir.ranges import Ranges, ranges_of
from ..ir.types import DType, Quantization
from .base import Contract, NodePass, Verdict
from .split_fake_quantize import Split, emit_split, needs_comparison, split_of, split_refusal


def detect_quantize_only(graph: Graph, node: Node) -> Verdict:
    """Recognizes FakeQuantize whose output scale is 1 and whose output low is an integer of u8 or
    s8.

    Before -> after::

        y = FakeQuantize(x, il, ih, ol, oh)   with (oh - ol) / (levels - 1) == 1 and integer ol
        ->  q = Quantize(x){s_in, z_in + ol, lo=ol, hi=oh};  y = Dequantize(q){s=1, z=0}

    `move_dequantize` then joins the Dequantize with a multiply and subtract by constants that
    follow.

    Legal because: code * 1 - 0 is the code; round(x / s + z) + ol = round(x / s + (z + ol)) for
    integer ol, ties going to the even neighbour of the sum where ol is odd (contract `ties`).
    Refuses when: never; a FakeQuantize with another output range is left to `split_fake_quantize`.
    """
    ranges = ranges_of(graph, node)
    if isinstance(ranges, str) or split_refusal(ranges) or needs_comparison(ranges):
        return None
    split = quantize_only(ranges)
    if split is None:
        return None
    emit_split(graph, node, split)
    codes = f"{split.dtype.value} codes {split.low}..{split.high}"
    return f"output scale 1, integer output low: {codes}"


DETECT_QUANTIZE_ONLY = NodePass(
    "detect_quantize_only", Contract("identity", "ties"), detect_quantize_only, ("FakeQuantize",)
)


def quantize_only(ranges: Ranges) -> Split | None:
    """The split of a quantize-only FakeQuantize, or None when the output is not the integer grid of
    u8 or s8.
    """
    low, high = ranges.output_low, ranges.output_high
    if ranges.axis is not None and not (np.all(low == low[0]) and np.all(high == high[0])):
        return None
    if high[0] - low[0] != ranges.levels - 1 or not float(low[0]).is_integer():
        return None
    least, most = int(low[0]), int(high[0])
    smallest, largest = (DType.S8 if least < 0 else DType.U8).range
    if least < smallest or most > largest:
        return None
    plain = split_of(ranges)
    # split_of counts codes from its own lowest; here they start at ol.
    encode = Quantization.of(
        ranges.input_scale,
        plain.encode.zero_points.astype(np.float64) - plain.low + low[0],
        ranges.axis,
    )
    return Split(least, most, encode, Quantization((1.0,), (0.0,)))
