"""The scales behind a product of integers become those of its operands."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ..ir.cleanup import erase_unread
from ..ir.graph import Graph
from ..ir.node import Node, subject
from ..ir.rule import Refusal
from .base import Contract, NodePass, Verdict, decide, fits_f32, rescaled, swap

A = npt.NDArray[Any]


def scale_into_product(graph: Graph, node: Node) -> Verdict:
    """Writes a product of integers times scales as the product of what the integers stand for.

    Before -> after::

        Mul(MatMul(RunTimeDequantize(q, 1, z), Dequantize(w){1, zw}), s * c)
        ->  MatMul(RunTimeDequantize(q, s, z), Dequantize(w){c, zw})            s: one number computed at run time, c: constants

    so that one step takes the scale of its source as an argument, and that of its weights as
    attributes; likewise for convolutions. Without s, c alone moves; without constants, s alone.

    Legal because: products are linear in both factors; s is one number, and c runs along the output
    channels.
    Refuses when: the factor varies along something else, or a constant is no normal f32.
    """
    product, decode = _product_of_integers(graph, node)
    if product is None or decode is None:
        return None
    other = node.inputs[1] if node.inputs[0] == product.output else node.inputs[0]
    ours, theirs = graph.type(product.output).shape, graph.type(other).shape
    if ours is None or theirs is None or len(theirs) > len(ours):
        return None
    factors = _factors(graph, other)
    if factors is None:
        return Refusal(
            "a factor computed at run time is not one number",
            "one number",
            str(graph.type(other)),
            "use one scale for the tensor, or quantize statically (quantize_static, nncf.quantize)",
        )
    singles, constants = factors
    right = _scaled_weights(graph, product, constants)
    if right is None:
        return Refusal(
            "a constant factor does not run along the output channels",
            "one for each output channel, or one for all",
            ", ".join(str(list(data.shape)) for data in constants),
            "scale along the output channels, or behind the product by one number",
        )
    scale = decode.inputs[1]
    if singles:
        scale = singles[0]
        for more in singles[1:]:
            scale = graph.part(node, "Mul", [scale, more], "scale")
    left = graph.again(decode, [decode.inputs[0], scale, *decode.inputs[2:]])
    made = graph.again(
        product,
        [left.output, right, *product.inputs[2:]],
        origin=(*product.origin, *node.origin),
    )
    swap(graph, node, made.output)
    taken = graph.producer(other, "Mul")
    if taken is not None and not graph.is_read(other):
        decide(graph, SCALE_INTO_PRODUCT.name, taken, f"{subject(product)} has its scales")
    erase_unread(graph, [decode, *(p for p in [graph.producer(product.inputs[1])] if p), product])
    return "scales of the operands"


SCALE_INTO_PRODUCT = NodePass(
    "scale_into_product", Contract("identity", "ulp", 8), scale_into_product, ("Mul",)
)


def _product_of_integers(graph: Graph, node: Node) -> tuple[Node | None, Node | None]:
    """The product that a Mul alone reads, without a bias, and the RunTimeDequantize by 1 in front of
    it.
    """
    for value in node.inputs:
        product = graph.producer(value, "MatMul", "Conv")
        if product is None or graph.sole_consumer(value) is not node or product.operand(2):
            continue
        decode = graph.producer(product.inputs[0], "RunTimeDequantize")
        one = None if decode is None else graph.constant(decode.inputs[1])
        weights = graph.producer(product.inputs[1], "Dequantize", "RunTimeDequantize")
        if one is not None and (one == 1).all() and weights is not None:
            return product, decode
    return None, None


def _factors(graph: Graph, value: str) -> tuple[list[str], list[A]] | None:
    """What a factor is the product of: numbers computed at run time, and constants; None: something
    else.
    """
    maker = graph.producer(value, "Mul")
    apart = maker is not None and (
        not _is_number(graph, value) or len(graph.computed(maker.inputs)) < len(maker.inputs)
    )
    parts = [*maker.inputs] if maker is not None and apart else [value]
    singles, constants = [], []
    for part in parts:
        data = graph.constant(part)
        if data is not None:
            constants.append(np.asarray(data))
        elif _is_number(graph, part):
            singles.append(part)
        else:
            return None
    return singles, constants


def _is_number(graph: Graph, value: str) -> bool:
    shape = graph.type(value).shape
    return shape is not None and all(size == 1 for size in shape)


def _scaled_weights(graph: Graph, product: Node, constants: list[A]) -> str | None:
    """The weights of a product with their scales multiplied; None where a constant has no place
    there.
    """
    decode = graph.producer(product.inputs[1], "Dequantize", "RunTimeDequantize")
    assert decode is not None
    if not constants:
        return decode.output
    if decode.op == "RunTimeDequantize":
        return _scaled_by_one(graph, decode, constants)
    shape, rank = graph.type(decode.output).shape, graph.type(product.output).rank
    if shape is None:
        return None
    matrix = product.op == "MatMul"
    axis = len(shape) - 1 if matrix else 0
    back = 1 if matrix else rank - 1  # the output channels' axis, counted from the end
    factor = np.ones(1)
    for data in constants:
        along = data.shape[-back] if data.ndim >= back else 1
        if data.size != along or (along > 1 and along != shape[axis]) or data.ndim > rank:
            return None
        factor = factor * data.reshape(-1).astype(np.float64)
    if decode.quant.axis not in (None, axis) or (factor.size > 1 and len(shape) < 2):
        return None
    quant = rescaled(decode.quant, factor, axis)
    if quant is None:
        return None
    return graph.again(decode, [decode.input], {"quant": quant}).output


def _scaled_by_one(graph: Graph, decode: Node, constants: list[A]) -> str | None:
    """Weights by a computed zero point with their constant scale multiplied by numbers."""
    scale = graph.constant(decode.inputs[1])
    if scale is None or any(data.size != 1 for data in constants):
        return None
    product = np.asarray(np.prod([float(np.asarray(data).item()) for data in (scale, *constants)]))
    if not fits_f32(product):
        return None
    value = graph.add_constant(decode.inputs[1], product.astype(np.float32))
    return graph.again(decode, [decode.input, value, *decode.inputs[2:]]).output
