"""Gemm -> MatMul, with what is left of it in front and behind; vectors -> matrices; transposes of
constant codes are done at compile time.
"""

from __future__ import annotations

import numpy as np

from ..ir.graph import Graph
from ..ir.node import Node
from ..ir.ops import dims
from ..ir.rule import Refusal
from .base import Contract, Pass, decide, swap


def normalize_gemm(graph: Graph) -> None:
    """Writes each matrix product as one of matrices, MatMul or MatMulInteger, which one anchor serves.

    Before -> after::

        Gemm(A, B, C){alpha, beta, transA, transB}  ->  Add(Mul(MatMul(A', B'), alpha), beta*C)
        MatMul(a: [K], B)                           ->  Squeeze(MatMul(Unsqueeze(a){0}, B)){-2}
        MatMul(A, b: [K])                           ->  Squeeze(MatMul(A, Unsqueeze(b){1})){-1}
        Transpose(Dequantize(codes))                ->  Dequantize(codes')                        codes constant

    A' and B' are transposed where asked: constants (and constant codes behind a Dequantize) at
    compile time, others by Transpose. Mul and Add are left out where alpha is 1 and C is absent.

    Legal because: it is the definition of Gemm, and of a product with a vector. beta*C is formed
    once, in f64 for a constant C of floats. A scale along an axis follows it.
    Refuses when: C may have more columns or rows than the product, which only a run can tell.
    """
    for node in graph.each("Gemm"):
        decide(graph, NORMALIZE_GEMM.name, node, _product(graph, node))
    for node in graph.each("MatMul", "MatMulInteger"):
        vectors = _vectors(graph, node)
        if vectors:
            decide(graph, NORMALIZE_GEMM.name, node, _matrices(graph, node, vectors))
    for node in graph.each("Transpose"):
        turned = _turned(graph, node.input, _permutation(node))
        if turned is not None:
            verdict = "constant codes are transposed at compile time"
            decide(graph, NORMALIZE_GEMM.name, node, verdict)
            swap(graph, node, turned)


NORMALIZE_GEMM = Pass("normalize_gemm", Contract("identity", "ulp", 256), normalize_gemm)


def _product(graph: Graph, node: Node) -> str | Refusal:
    third = node.operand(2)
    if third and not dims.fits(graph.type(third).shape, graph.type(node.output).shape):
        return Refusal(
            "the third operand may be larger than the product",
            f"{graph.type(node.output)}, or what broadcasts to it",
            str(graph.type(third)),
            "export the model with the sizes of this operand",
        )
    left, right = (
        transposed(graph, node, value) if node.attrs[flag] else value
        for value, flag in zip(node.inputs, ("transA", "transB"), strict=False)
    )
    value = graph.add("MatMul", [left, right], name=node.name, origin=node.origin).output
    value = _times(graph, node, value, "alpha", "scaled")
    if node.operand(2) and node.attr("beta", float) != 0:
        addend = _times(graph, node, node.inputs[2], "beta", "addend")
        value = graph.part(node, "Add", [value, addend], "biased")
    swap(graph, node, value)
    return "a matrix product with what is behind it"


def _vectors(graph: Graph, node: Node) -> tuple[int, ...]:
    """Which factors of a product are vectors."""
    shapes = [graph.type(value).shape for value in node.inputs[:2]]
    return tuple(i for i, shape in enumerate(shapes) if shape is not None and len(shape) == 1)


def _matrices(graph: Graph, node: Node, vectors: tuple[int, ...]) -> str:
    """Writes a product with vectors as one of matrices: the first has one row, the second one
    column, which the product drops.
    """
    inputs = list(node.inputs)
    for index in vectors:
        inputs[index] = _with_axis(graph, node, inputs[index], index)
    product = graph.part(node, node.op, inputs, "matrix", node.attrs)
    axes = graph.add_constant(f"{node.name}/dropped", np.array(vectors) - 2)
    swap(graph, node, graph.part(node, "Squeeze", [product, axes], "vector"))
    return "a product of matrices of one row or column"


def _with_axis(graph: Graph, node: Node, vector: str, axis: int) -> str:
    """A vector with an axis of one element, 0 or 1; constants, and constant codes behind a
    Dequantize, get it at compile time.
    """
    decode = graph.producer(vector, "Dequantize")
    codes = vector if decode is None else decode.input
    data = graph.constant(codes)
    if data is None:
        axes = graph.add_constant(f"{node.name}/axis{axis}", np.array([axis]))
        return graph.part(node, "Unsqueeze", [vector, axes], f"matrix{axis}")
    made = graph.add_constant(
        f"{codes}/matrix", np.expand_dims(data, axis), graph.type(codes).dtype
    )
    if decode is None:
        return made
    along = None if decode.quant.axis is None else 1 - axis
    return graph.again(decode, [made], {"quant": decode.quant.with_axis(along)}).output


def _times(graph: Graph, node: Node, value: str, role: str, name: str) -> str:
    """A value times an attribute of the Gemm: formed at once for a constant of floats."""
    factor, data, kind = node.attr(role, float), graph.constant(value), graph.type(value).dtype
    if factor == 1:
        return value
    if data is not None and not kind.is_integer:
        product = (np.asarray(data, np.float64) * factor).astype(kind.numpy)
        return graph.add_constant(f"{value}/{role}", product, kind)
    # of the matrices' own type; of integer matrices, the row Gemm has refused factors that are no integers
    kind = graph.type(node.output).dtype
    constant = graph.add_constant(
        f"{node.name}/{role}", np.asarray(factor).astype(kind.numpy), kind
    )
    return graph.part(node, "Mul", [value, constant], name)


def transposed(graph: Graph, node: Node, value: str) -> str:
    """A value that holds the transpose of a matrix; constants, and constant codes behind a
    Dequantize, are turned at compile time.
    """
    data = graph.constant(value)
    if data is not None:
        return graph.add_constant(f"{value}/transposed", data.T, graph.type(value).dtype)
    turned = _turned(graph, value, (1, 0))
    if turned is not None:
        return turned
    return graph.part(node, "Transpose", [value], "transposed", {"perm": (1, 0)})


def _permutation(node: Node) -> tuple[int, ...]:
    """The `perm` of a Transpose; empty where it has none."""
    perm = node.attrs["perm"]
    return tuple(axis for axis in perm if isinstance(axis, int)) if isinstance(perm, tuple) else ()


def _turned(graph: Graph, value: str, perm: tuple[int, ...]) -> str | None:
    """Constant codes behind a Dequantize with their axes permuted, all of them backwards without
    `perm`; None for anything else.
    """
    decode = graph.producer(value, "Dequantize")
    codes = None if decode is None else graph.constant(decode.input)
    if decode is None or codes is None:
        return None
    perm = perm or tuple(reversed(range(codes.ndim)))
    turned = graph.add_constant(
        f"{decode.input}/transposed",
        np.ascontiguousarray(codes.transpose(perm)),
        graph.type(decode.input).dtype,
    )
    axis = None if decode.quant.axis is None else perm.index(decode.quant.axis)
    return graph.again(decode, [turned], {"quant": decode.quant.with_axis(axis)}).output
