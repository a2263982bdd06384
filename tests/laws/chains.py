"""A Hypothesis strategy for single chains: dequantize -> convolution, deconvolution, matmul or gemm
-> bias -> operations -> quantize.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st
from laws.build import Net, Value
from laws.drafts import scales
from laws.links import DIVISOR, LINKS, ChainDraft, rational_scales
from laws.registry import feeds_for

from fqfuse.ir.graph import Graph
from fqfuse.ir.types import DType, Quantization

ANCHORS = ("Conv", "ConvTranspose", "MatMul", "Gemm")


@dataclass(frozen=True)
class DrawnChain:
    """A graph that is one chain.

    Attributes:
        graph: its source, and the other operands of binary operations, are inputs.
        expansion: how many post-ops the operations behind the anchor are, each written out by
            itself: an upper bound of what it needs.
        skips: how many residuals a primitive of their own computes.
    """

    graph: Graph
    expansion: int
    skips: int

    def feeds(self) -> dict[str, np.ndarray]:
        """Feeds on which ties are frequent; what is divided by lies away from 0."""
        feeds = feeds_for(self.graph)
        return {
            name: _away_from_zero(array) if name.startswith(DIVISOR) else array
            for name, array in feeds.items()
        }


def _away_from_zero(array: np.ndarray) -> np.ndarray:
    if array.dtype.kind == "f":
        return array + np.where(array < 0, np.float32(-0.5), np.float32(0.5))
    return np.where(array == 0, 1, array).astype(array.dtype)


def _bias(draw: st.DrawFn, net: Net, channels: int) -> list[np.ndarray]:
    return [net.rng.integers(-8, 9, channels) / 4] if draw(st.booleans()) else []


def _product(
    draw: st.DrawFn, net: Net, op: str, source: Quantization, dtype: DType, each: np.ndarray | float
) -> tuple[Value, int, int]:
    """A matrix product: of vectors or batched, with transposed weights and factors where the
    operation has them; the axis of its channels; how many post-ops it needs."""
    channels = np.size(each)
    if op == "MatMul":
        shape, matrices = draw(
            st.sampled_from(
                [(("N", 5), ()), (("N", 3, 5), ()), (("N", 2, 3, 5), (2,)), (("N", 2, 3, 5), ())]
            )
        )
        x = net.dq(net.input(shape, dtype=dtype, quant=source))
        y = net.op("MatMul", x, net.weights((*matrices, 5, channels), each, len(matrices) + 1))
        between = draw(st.integers(0, 3)) == 0
        if between:  # as ONNX Runtime writes it: a quantizer between the product and its bias
            y = net.qdq(y, draw(rational_scales), draw(st.sampled_from([0, 7, 128])), DType.U8)
        for bias in _bias(draw, net, channels):
            y = net.op("Add", y, bias)
        return y, len(shape) - 1, 6 * between
    x = net.dq(net.input(("N", 5), dtype=dtype, quant=source))
    transposed = draw(st.booleans())
    weights = (
        net.weights((channels, 5), each, 0) if transposed else net.weights((5, channels), each, 1)
    )
    attrs = {
        "alpha": draw(st.sampled_from([1.0, 0.5, -2.0])),
        "beta": draw(st.sampled_from([1.0, 0.5])),
        "transB": int(transposed),
    }
    return net.op("Gemm", x, weights, *_bias(draw, net, channels), **attrs), 1, 0


def _window(
    draw: st.DrawFn, net: Net, op: str, source: Quantization, dtype: DType, each: np.ndarray | float
) -> tuple[Value, int, int]:
    """A convolution or deconvolution in one, two or three dimensions, dense, grouped or
    depthwise.
    """
    channels = np.size(each)
    spatial = draw(st.sampled_from([(5,), (4, 4), (4, 4), (4, 4), (2, 3, 3)]))
    rank = len(spatial)
    group = draw(st.sampled_from([1, 1, 1, 2 if channels % 2 == 0 else 1, channels]))
    inner = channels if group > 1 else 2
    x = net.dq(net.input(("N", inner, *spatial), dtype=dtype, quant=source))
    bias = _bias(draw, net, channels)
    if op == "Conv":
        kernel = (draw(st.sampled_from([1, 3])),) * rank
        strides = (draw(st.sampled_from([1, 1, 2])),) * rank
        return (
            net.conv(
                x,
                channels,
                kernel,
                scale=each,
                bias=bias[0] if bias else None,
                group=group,
                strides=strides,
            ),
            1,
            0,
        )
    kernel = (draw(st.sampled_from([2, 3])),) * rank
    weights = net.weights(
        (inner, channels // group, *kernel), each if group == 1 else float(np.ravel(each)[0]), 1
    )
    return (
        net.op(
            "ConvTranspose",
            x,
            weights,
            *bias,
            kernel_shape=kernel,
            strides=(2,) * rank,
            group=group,
        ),
        1,
        0,
    )


@st.composite
def chains(draw: st.DrawFn, anchors: tuple[str, ...] = ANCHORS, most: int = 7) -> DrawnChain:
    """A chain of up to `most` links behind one of the anchors; with a quantizer at its end, or
    none.
    """
    net = Net("chain", seed=draw(st.integers(0, 7)))
    op = draw(st.sampled_from(anchors))
    dtype = draw(st.sampled_from([DType.U8, DType.S8]))
    source = Quantization.of(draw(scales), draw(st.sampled_from([0, 0, 7, 100])))
    channels, scale = (
        draw(st.sampled_from([3, 3, 4, 16, 17])),
        draw(st.sampled_from([2.0**-8, 2.0**-7, 0.003])),
    )
    each = scale * (np.arange(channels) % 3 + 1 if draw(st.booleans()) else np.ones(channels))
    anchor = (_product if op in ("MatMul", "Gemm") else _window)(draw, net, op, source, dtype, each)
    chain = ChainDraft(draw, net, *anchor)
    for _ in range(draw(st.integers(0, most))):
        draw(st.sampled_from(LINKS))(chain)
    if draw(st.integers(0, 3)):
        _quantize(chain)
    return DrawnChain(net.done(chain.value), chain.expansion, chain.skips)


def _quantize(c: ChainDraft) -> None:
    """A QuantizeLinear: per tensor or per channel, of all codes or a part of them."""
    dtype = c.draw(st.sampled_from([DType.U8, DType.S8]))
    low, high = dtype.range
    narrow = (
        {}
        if c.draw(st.integers(0, 3))
        else {"low": low + 1, "high": high - c.draw(st.integers(0, 50))}
    )
    zero = c.draw(st.sampled_from([0, 0, (low + high + 1) // 2, 3, 117 + low]))
    scale = c.draw(rational_scales)
    c.expansion += bool(narrow)
    if c.coin(8):
        per_channel = np.resize([scale, 2 * scale, scale / 2], c.channels)
        c.value = c.net.q(c.value, per_channel, zero, dtype, c.axis, **narrow)
        c.expansion += 2
    else:
        c.value = c.net.q(c.value, scale, zero, dtype, **narrow)
