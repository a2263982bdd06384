"""Weights that s8 does not hold less their zero points become s8 weights and a product with the sum
of what they read.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from ..ir.cleanup import erase_unread
from ..ir.graph import Graph
from ..ir.node import Node
from ..ir.ops.product_axes import outputs_axis
from ..ir.ops.spec import Array
from ..ir.rule import Refusal
from ..ir.types import DType, Quantization, is_static
from ..plan.accumulator import ACCUMULATOR, EXACT_IN_F32, as_s8, less_zero_points
from .base import Contract, NodePass, Verdict, fits_f32, swap
from .constant_parameters import constant_parameters

_FEWEST_PRODUCTS = 64
"""Products that an output adds, below which the tensor of the sums costs what int8 saves. Measured
on oneDNN 3.2, VNNI, one thread: 1.1 to 1.2 of the time of f32 with 16 products, 0.85 with 64, 0.5
with 576, 0.3 with 384 of a matrix product.
"""

_FEWEST_OUTPUTS = 16
"""Output channels, below which the sums, of one channel, take as long: 1.2 with 8 of 72 products."""


def split_weights_zero_point(graph: Graph, node: Node) -> Verdict:
    """Splits the zero points of weights off, as products with the sum of each window of the source.

    Before -> after::

        Conv(x, Dequantize(w){s, z}, b)
        ->  Add(Conv(x, Dequantize(w - t){s, 0}, b), Conv(Conv(x, ones), -s*(z - t): [OC,1,1,1]))
        MatMul(x, Dequantize(w){s, z})
        ->  Add(MatMul(x, Dequantize(w - t){s, 0}), MatMul(MatMul(x, ones), -s*(z - t): [1,N]))

        MatMul(x, RunTimeDequantize(w, s, z))
        ->  Add(MatMul(x, RunTimeDequantize(w - t, s)), Mul(MatMul(x, ones), -s*(z - t)))        likewise

    where the integer t makes w - t codes of s8, and x is decoded from 8-bit codes; z may be no
    integer (-1..1 in 256 levels: 127.5). oneDNN's convolution takes no zero point on its weights,
    and matmul one for all, an integer. The sum of a window has one channel, and is exact in
    integers; its product with the factors is one more f32 tensor of the destination's size, which
    the first product adds.

    Legal because: sum of x*s*(w - z) = sum of x*s*(w - t) - s*(z - t) * (sum of x); padding is 0 in
    both.
    Refuses when: a convolution has groups, an output adds few products, or 32 bits do not hold the
    sums: f32 costs no more, or must do.
    """
    decode = graph.producer(node.inputs[1], "Dequantize", "RunTimeDequantize")
    if decode is None or not _reads_codes(graph, node):
        return None
    codes = graph.constant(decode.input)
    if codes is None or graph.type(decode.input).dtype not in (DType.U8, DType.S8):
        return None
    outputs = outputs_axis(node.op, codes.ndim)
    if decode.op == "RunTimeDequantize":
        return _computed(graph, node, decode, np.asarray(codes), outputs)
    quant = decode.quant
    if quant.axis not in (None, outputs) or codes.ndim < 2:
        return None
    if node.op == "MatMul" and (
        codes.ndim != 2 or (quant.integral and len(set(quant.zero_point)) == 1)
    ):
        return None
    if quant.integral and less_zero_points(codes, quant.zero_points, quant.axis) is not None:
        return None
    refusal = _refusal(graph, node, codes.shape, outputs)
    if refusal is not None:
        return refusal
    return _Split(graph, node, decode, np.asarray(codes), outputs).write()


SPLIT_WEIGHTS_ZERO_POINT = NodePass(
    "split_weights_zero_point",
    Contract("identity", "ulp", 8),
    split_weights_zero_point,
    ("Conv", "MatMul"),
)


def _computed(graph: Graph, node: Node, decode: Node, codes: Array, outputs: int) -> Verdict:
    """The same of zero points that are computed; one for all is left to a matrix product that takes it."""
    along, zeros = decode.attrs["axis"], decode.operand(2)
    if not zeros or codes.ndim < 2 or along not in (None, outputs):
        return None
    if node.op == "MatMul" and (codes.ndim != 2 or along is None):
        return None
    constant, axis = graph.constant(zeros), None if along is None else outputs
    if constant is not None and less_zero_points(codes, constant.reshape(-1), axis) is not None:
        return None
    refusal = _refusal(graph, node, codes.shape, outputs)
    if refusal is not None:
        return refusal
    kind = graph.type(decode.input).dtype
    zeros = graph.part(node, "Cast", [zeros], "zero_points", {"to": DType.F32})
    if kind.beyond_s8:
        less = graph.add_constant(f"{node.name}/less", np.array(kind.beyond_s8, np.float32))
        zeros = graph.part(node, "Sub", [zeros, less], "less")
    scaled = graph.part(node, "Mul", [zeros, decode.inputs[1]], "scaled")
    factors = graph.part(node, "Neg", [scaled], "negated")
    shape = (1, -1) if node.op == "MatMul" else (-1, *[1] * (codes.ndim - 2))
    wanted = graph.add_constant(f"{node.name}/along", np.array(shape, np.int64))
    factors = graph.part(node, "Reshape", [factors, wanted], "factors")
    term = graph.part(node, "Mul", [_sums(graph, node, codes.shape, outputs), factors], "term")
    held = decode.input
    if kind.beyond_s8:
        held = graph.add_constant(f"{held}/s8", as_s8(codes, kind))
    weights = graph.again(decode, [held, decode.inputs[1]])
    product = graph.again(node, [node.input, weights.output, *node.inputs[2:]]).output
    constant_parameters(graph, weights)
    swap(graph, node, graph.part(node, "Add", [product, term], "split"))
    erase_unread(graph, [decode])
    return "their zero points, which are computed, multiply the sum of each window"


def _sums(graph: Graph, node: Node, shape: tuple[int, ...], outputs: int) -> str:
    """The sum of what each output reads: a product with ones, of one output channel."""
    sizes = (1 if axis == outputs else size for axis, size in enumerate(shape))
    ones = graph.add_constant(f"{node.name}/ones", np.ones([*sizes], np.int8))
    quant = {"quant": Quantization.of(1.0)}
    weights = graph.part(node, "Dequantize", [ones], "ones", quant)
    return graph.part(node, node.op, [node.input, weights], "sums", node.attrs)


def _reads_codes(graph: Graph, node: Node) -> bool:
    """True when the source is decoded from computed 8-bit codes by one scale and zero point."""
    decode = graph.producer(node.input, "Dequantize", "RunTimeDequantize")
    if decode is None or decode.input in graph.constants:
        return False
    if graph.type(decode.input).dtype not in (DType.U8, DType.S8):
        return False
    if decode.op == "RunTimeDequantize":
        return decode.attrs.get("axis") is None
    return decode.quant.per_tensor


def _refusal(graph: Graph, node: Node, shape: tuple[int, ...], outputs: int) -> Refusal | None:
    # two depthwise products and their sum: 1.0 to 1.6 of the time of f32, measured as above
    if node.op == "Conv" and node.attr("group", int) != 1:
        return Refusal(
            "a convolution in groups reads few channels for each output: f32 costs no more",
            "one group",
            f"{node.attr('group', int)} groups",
            "quantize weights symmetrically",
        )
    added = math.prod(shape) // max(shape[outputs], 1)
    # what has computed parameters would be decoded for f32 by a step of its own: int8 is never dearer
    static = all(graph.producer(value, "Dequantize") for value in node.inputs[:2])
    # few outputs are left to f32 only where it holds each partial sum exactly
    few = shape[outputs] < _FEWEST_OUTPUTS and added * 255 * 255 <= EXACT_IN_F32
    if static and (added < _FEWEST_PRODUCTS or few):
        return Refusal(
            "the sum of the source would cost what int8 saves",
            f"{_FEWEST_PRODUCTS} products for each of {_FEWEST_OUTPUTS} output channels",
            f"{added} for each of {shape[outputs]}",
            "quantize weights symmetrically",
        )
    if added * 255 * 255 > ACCUMULATOR:
        return Refusal(
            "32 bits do not hold the sum of products",
            f"at most {ACCUMULATOR}",
            f"{added} products",
            "quantize weights symmetrically",
        )
    if not is_static(graph.type(node.inputs[1]).shape) or graph.type(node.output).shape is None:
        return Refusal(
            "how many dimensions the source has is not known",
            "a known rank",
            "?",
            "export the model with the number of dimensions of each input",
        )
    return None


class _Split:
    """One product that is taken apart."""

    def __init__(self, graph: Graph, node: Node, decode: Node, codes: Array, outputs: int) -> None:
        self._graph, self._node, self._decode = graph, node, decode
        self._codes, self._outputs = codes.astype(np.int64), outputs
        channels = codes.shape[outputs]
        self._zeros = np.broadcast_to(decode.quant.zero_points, (channels,))
        self._taken = self._nearest()
        self._rest = self._zeros - self._taken

    def write(self) -> Verdict:
        """Writes the sum of the two products in the place of the one."""
        graph, node = self._graph, self._node
        factors = -self._decode.quant.scales.astype(np.float64) * self._rest
        if not fits_f32(factors[factors != 0]):
            found = f"{np.abs(factors).max():g}"
            return Refusal(
                "f32 does not hold the factors of the sums",
                "a normal f32",
                found,
                "calibrate again: the scales are far too large or too small",
            )
        weights = self._weights()
        term = self._term(
            _sums(graph, node, self._codes.shape, self._outputs), factors.astype(np.float32)
        )
        product = graph.again(node, [node.input, weights, *node.inputs[2:]]).output
        swap(graph, node, graph.part(node, "Add", [product, term], "split"))
        erase_unread(graph, [self._decode])
        low, high = self._rest.min(), self._rest.max()
        told = f"{low:g}" if low == high else f"{low:g}..{high:g}"
        return f"{told} of the zero points of the weights multiplies the sum of each window"

    def _nearest(self) -> npt.NDArray[np.int64]:
        """The integer t of each output channel: as near to its zero point as s8 holds w - t."""
        low, high = DType.S8.range
        axes = tuple(axis for axis in range(self._codes.ndim) if axis != self._outputs)
        least, most = self._codes.max(axes) - high, self._codes.min(axes) - low
        return np.asarray(np.clip(np.rint(self._zeros), least, most), np.int64)

    def _weights(self) -> str:
        """The codes less t, decoded without a zero point."""
        shape = [1] * self._codes.ndim
        shape[self._outputs] = -1
        less = self._codes - self._taken.reshape(shape)
        quant = self._decode.quant
        return self._graph.again(
            self._decode,
            [self._graph.add_constant(f"{self._decode.input}/s8", less.astype(np.int8))],
            {"quant": Quantization.of(quant.scales, 0, quant.axis)},
        ).output

    def _term(self, sums: str, factors: Array) -> str:
        """The sums times a factor for each output channel."""
        graph, node, spatial = self._graph, self._node, self._codes.ndim - 2
        factors = np.broadcast_to(factors, self._zeros.shape)
        shape = (1, -1) if node.op == "MatMul" else (-1, 1, *[1] * spatial)
        kernel = graph.add_constant(f"{node.name}/zero_points", factors.reshape(shape))
        attrs = {} if node.op == "MatMul" else {"kernel_shape": (1,) * spatial}
        return graph.part(node, node.op, [sums, kernel], "zero_points", attrs)
