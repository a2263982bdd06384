"""What no quantizer of the model quantizes, and a product with constant weights reads, is quantized
by the range that it has at run time: `compile(..., dynamic=...)`.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial

import numpy as np

from ..ir.block_weights import block_weights
from ..ir.decision import DYNAMIC_FORM, MAY_ROUND, QuantizeFate, Quantizer
from ..ir.graph import Graph
from ..ir.node import Node, subject
from ..ir.ops.blocks import largest_block
from ..ir.ops.product_axes import outputs_axis
from ..ir.ops.spec import Array
from ..ir.rule import Refusal
from ..ir.types import DType, Quantization
from ..plan.accumulator import ACCUMULATOR, less_zero_points
from .base import Contract, Pass, Verdict, decide, settle

DYNAMIC: dict[str, tuple[str, ...]] = {
    "matmul": ("MatMul",),
    "all": ("MatMul", "Conv", "ConvTranspose"),
}
"""Word of the option -> the products whose sources are quantized."""

_WEIGHTS = "weights of a dynamic product, added by fqfuse"
"""The form of the quantizers of weights that it adds."""

_CODES = (DType.S8, DType.U8, DType.S4, DType.U4)

_LARGEST = 127
"""Codes of symmetric weights go from -127 to 127."""


def quantize_at_run_time(graph: Graph, products: str | None = None) -> None:
    """Quantizes the sources of products with constant weights by the ranges that they have at run
    time, and their f32 weights symmetrically to s8, one scale for each output channel.

    Before -> after::

        MatMul(x, w)
        ->  MatMul(RunTimeDequantize(q, s, z), Dequantize(round(w / c)){c along the columns})
            s, z = DynamicRange(x);  q = Quantize{1,0}(round(x / s) + z): u8

    as ONNX Runtime's `quantize_dynamic` writes it; for convolutions likewise, and for
    deconvolutions, which that leaves alone. One quantizer serves all products that read x. It is
    the recipe of oneDNN's guide to attributes: find minimum and maximum, derive the scale,
    quantize.

    In front of weights in blocks each block of a row of x has a scale of its own, and symmetric
    codes of s8::

        MatMul(x, Transpose(DequantizeBlocks(@q, @s)))
        ->  MatMul(DynamicBlocks{block}(x), Transpose(DequantizeBlocks(@q, @s)))

    as ONNX Runtime's MatMulNBits does for accuracy_level=4.

    Legal because: it was asked for: it is an approximation.
    Refuses when: the weights are computed, hold what is no finite number, or are codes that no
    product in int8 takes (of weights in blocks: their zero points are no codes, or the blocks are
    too long); 32 bits might not hold the sums.

    Args:
        products: a word of `DYNAMIC`; None: nothing is quantized.
    """
    if products is None:  # it tells of those whose sources the model lets be rounded
        for node in graph.each(*DYNAMIC["matmul"]):
            decide(graph, QUANTIZE_AT_RUN_TIME.name, node, _not_asked(graph, node))
        return
    decoded: dict[str, str] = {}
    for node in graph.each(*DYNAMIC[products]):
        decide(graph, QUANTIZE_AT_RUN_TIME.name, node, _rewrite(graph, node, decoded))


QUANTIZE_AT_RUN_TIME = Pass(
    "quantize_at_run_time", Contract("approximation", "ties"), quantize_at_run_time
)


def quantizing(products: str | None) -> Pass:
    """The pass for a word of `DYNAMIC`."""
    return replace(QUANTIZE_AT_RUN_TIME, rewrite=partial(quantize_at_run_time, products=products))


def _not_asked(graph: Graph, node: Node) -> Verdict:
    """Why the source of MatMulNBits with accuracy_level=4 stays f32: the level is the least accuracy that the
    model accepts, not a wish for codes, and only `dynamic=` asks for those. None for other products.
    """
    blocks = block_weights(graph, node.inputs[1])
    names = () if blocks is None else blocks[0].quantizer
    if not any(MAY_ROUND in graph.quantizers[name].form for name in names):
        return None
    return Refusal(
        "the model lets the source be rounded to codes, and f32 is nearer to what it computes",
        "dynamic quantization asked for",
        "accuracy_level=4 alone, the least accuracy that the model wants",
        'compile with dynamic="matmul" (--dynamic matmul), where speed is worth it',
    )


def _rewrite(graph: Graph, node: Node, decoded: dict[str, str]) -> Verdict:
    """`decoded`: what is decoded from the codes of a value, for all that are quantized so far."""
    source, types = node.input, [graph.type(value) for value in (*node.inputs[:2], node.output)]
    quantizers = ("Dequantize", "RunTimeDequantize", "DynamicBlocks", "FakeQuantize")
    if graph.producer(source, *quantizers) is not None:
        return None
    if graph.constant(source) is not None or any(type_.dtype is not DType.F32 for type_ in types):
        return None
    if any(type_.shape is None or type_.rank < 2 for type_ in types):
        return Refusal(
            "a factor is no matrix, or of an unknown rank",
            "matrices",
            str(types[1]),
            "export the model with the number of dimensions of each input",
        )
    blocks = block_weights(graph, node.inputs[1])
    if blocks is not None:
        return _in_blocks(graph, node, blocks[0], decoded)
    weights = _weights(graph, node)
    if isinstance(weights, Refusal):
        return weights
    if source not in decoded:
        decoded[source] = _quantized(graph, node)
    graph.set_inputs(node, [decoded[source], weights, *node.inputs[2:]])
    return "its source is quantized by its range"


def _in_blocks(graph: Graph, node: Node, decode: Node, decoded: dict[str, str]) -> Verdict:
    """A product with weights in blocks, which `decode` decodes."""
    bits, block = (decode.attr(name, int) for name in ("bits", "block"))
    zeros = decode.inputs[2] if len(decode.inputs) > 2 else ""
    points = graph.constant(zeros) if zeros else None
    if points is not None and (points.dtype != np.uint8 or int(points.max(initial=0)) >> bits):
        return Refusal(
            "the zero points of the weights are no codes, and codes are multiplied by codes",
            f"zero points from 0 to {(1 << bits) - 1}",
            f"{points.dtype} up to {points.max(initial=0):g}",
            "quantize weights symmetrically, or with codes as zero points",
        )
    if block > largest_block(bits):
        return Refusal(
            "f32 might not hold the sums of a block",
            f"blocks of at most {largest_block(bits)}",
            f"blocks of {block}",
            "quantize weights in smaller blocks",
        )
    source = node.input
    key = f"{source} in blocks of {block}"
    if key not in decoded:
        name = _quantizer(graph, f"{subject(node)}.dynamic", DYNAMIC_FORM, source)
        decoded[key] = graph.add(
            "DynamicBlocks",
            [source],
            {"block": block},
            name=f"{node.name}/blocks",
            origin=node.origin,
            quantizer=[name],
        ).output
    graph.set_inputs(node, [decoded[key], *node.inputs[1:]])
    return f"each block of {block} along a row of its source is quantized by its largest magnitude"


def _weights(graph: Graph, node: Node) -> str | Refusal:
    """The weights decoded from codes: those of the model, or new ones."""
    value = node.inputs[1]
    decode = graph.producer(value, "Dequantize")
    if decode is not None and decode.input in graph.constants:
        return _own_codes(graph, node, decode)
    data = graph.constant(value)
    if data is None:
        hint = "export the weights as a constant (an initializer)"
        maker = graph.producer(value)
        found = value if maker is None else f"what {subject(maker)} computes"
        return Refusal("the second factor is computed", "constant weights", found, hint)
    array = np.asarray(data, np.float64)
    if not array.size:
        return Refusal(
            "the weights have no elements, and a product of them nothing to save",
            "weights",
            str(graph.type(value)),
            "nothing to change",
        )
    if not np.isfinite(array).all():
        return Refusal(
            "the weights hold what is no finite number",
            "finite weights",
            value,
            "train or export again: infinite weights compute nothing",
        )
    outputs = outputs_axis(node.op, array.ndim)
    if _sums_exceed(array.shape, outputs, matrices=node.op == "MatMul"):
        return _too_many(array.shape)
    codes, scales = _symmetric(array, outputs)
    name = _quantizer(graph, f"{subject(node)}.weights", _WEIGHTS, value)
    settle(graph, [name], QuantizeFate.CONSTANT, "the weights are quantized at compile time")
    made = graph.add(
        "Dequantize",
        [graph.add_constant(f"{value}/s8", codes)],
        {"quant": Quantization.of(scales, 0, outputs)},
        name=f"{node.name}/weights",
        origin=node.origin,
        quantizer=[name],
    )
    return made.output


def _own_codes(graph: Graph, node: Node, decode: Node) -> str | Refusal:
    """Weights that the model stores as codes, where products in int8 take them."""
    codes, quant = graph.type(decode.input), decode.quant
    outputs = outputs_axis(node.op, codes.rank)
    if codes.dtype not in _CODES or quant.axis not in (None, outputs) or not quant.integral:
        return Refusal(
            "the model quantizes the weights as no product in int8 has them",
            f"codes of 8 bits or fewer, scales along axis {outputs}",
            f"{codes.dtype.value}, axis {quant.axis}",
            "quantize weights to 8 bits per output channel, or leave them in float32",
        )
    data = graph.constant(decode.input)
    plain = node.op == "MatMul" or (node.op == "Conv" and node.attr("group", int) == 1)
    if (
        not plain
        and data is not None
        and less_zero_points(data, quant.zero_points, quant.axis) is None
    ):
        return Refusal(
            "a deconvolution, or a convolution in groups, takes no zero point on its weights",
            "weights that are s8 codes less it",
            f"{codes.dtype.value}, zero points {min(quant.zero_point):g}..{max(quant.zero_point):g}",
            "quantize weights symmetrically",
        )
    shape = codes.static_shape
    exceeds = _sums_exceed(shape, outputs, matrices=node.op == "MatMul")
    return _too_many(shape) if exceeds else decode.output


def _sums_exceed(shape: tuple[int, ...], outputs: int, *, matrices: bool) -> bool:
    """True where 32 bits might not hold the sums of u8 codes less a zero point times the weights."""
    axes = [*range(len(shape) - 2), outputs] if matrices else [outputs]
    added = math.prod(size for axis, size in enumerate(shape) if axis not in axes)
    return added * 255 * 255 > ACCUMULATOR


def _too_many(shape: tuple[int, ...]) -> Refusal:
    return Refusal(
        "32 bits might not hold the sums",
        f"at most {ACCUMULATOR}",
        f"{list(shape)}",
        "nothing to change: so long a sum stays in f32",
    )


def _symmetric(weights: Array, outputs: int) -> tuple[Array, Array]:
    """Codes from -127 to 127 and scales of weights in f64: the largest magnitude of each output
    channel is 127. As ONNX Runtime has it: the scale is f32, and 1 where all weights are 0.
    """
    axes = tuple(axis for axis in range(weights.ndim) if axis != outputs)
    scales = (np.abs(weights).max(axes, initial=0) / _LARGEST).astype(np.float32)
    scales = np.where(scales < np.finfo(np.float32).tiny, np.float32(1), scales)
    shape = [-1 if axis == outputs else 1 for axis in range(weights.ndim)]
    codes = np.rint(weights.astype(np.float32) / scales.reshape(shape))
    return np.clip(codes, -_LARGEST, _LARGEST).astype(np.int8), scales


def _quantized(graph: Graph, node: Node) -> str:
    """The source of a product, decoded from codes by its range."""
    source = node.input
    name = _quantizer(graph, f"{subject(node)}.dynamic", DYNAMIC_FORM, source)
    ranges = graph.add(
        "DynamicRange",
        [source],
        name=f"{node.name}/range",
        outputs=[graph.fresh(f"{source}/{what}") for what in ("scale", "zero_point")],
        origin=node.origin,
    )
    scale, zero = ranges.outputs
    value = graph.part(node, "Div", [source, scale], "scaled")
    value = graph.part(node, "Round", [value], "rounded")
    shift = graph.part(node, "Cast", [zero], "shift", {"to": DType.F32})
    value = graph.part(node, "Add", [value, shift], "shifted")
    low, high = DType.U8.range
    codes = graph.add(
        "Quantize",
        [value],
        {
            "quant": Quantization.of(1.0),
            "dtype": DType.U8,
            "lo": low,
            "hi": high,
            "order": "round_first",
        },
        name=f"{node.name}/codes",
        origin=node.origin,
        quantizer=[name],
    ).output
    return graph.add(
        "RunTimeDequantize",
        [codes, scale, zero],
        name=f"{node.name}/source",
        origin=node.origin,
        quantizer=[name],
    ).output


def _quantizer(graph: Graph, name: str, form: str, value: str) -> str:
    """Records a quantizer that the model does not have; its name."""
    unique, number = name, 1
    while unique in graph.quantizers:
        number += 1
        unique = f"{name}.{number}"
    graph.quantizers[unique] = Quantizer(unique, form, value)
    return unique
