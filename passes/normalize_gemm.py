"""Gemm -> MatMul, with what is left of it in front and behind; transposes of constant codes are
done at compile time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ..ir.graph import Graph
from ..ir.node import Node
from ..ir.types import Quantization
from .base import Contract, fired, swap

__all__ = ["NormalizeGemm"]


@dataclass(frozen=True)
class NormalizeGemm:
    """Writes Gemm as MatMul, so that one anchor serves both.

    Before -> after::

        Gemm(A, B, C){alpha, beta, transA, transB}  ->  Add(Mul(MatMul(A', B'), alpha), beta*C)
        Transpose(Dequantize(codes))                ->  Dequantize(codes')                        codes constant

    A' and B' are transposed where asked: constants (and constant codes behind a Dequantize) at
    compile time, others by Transpose. Mul and Add are left out where alpha is 1 and C is absent.

    Legal because: it is Gemm's definition. beta*C is formed once, in f64 for a constant C of
    floats. A scale along an axis follows it.
    Refuses when: never.
    """

    name: ClassVar[str] = "normalize_gemm"
    contract: ClassVar[Contract] = Contract("identity", "ulp", 256)

    def run(self, graph: Graph) -> None:
        """Rewrites every Gemm, and every Transpose of constant codes."""
        for node in graph.each("Gemm"):
            self._rewrite(graph, node)
        for node in graph.each("Transpose"):
            turned = _turned(graph, node.inputs[0], _permutation(graph, node))
            if turned is not None:
                fired(graph, self.name, node, "constant codes are transposed at compile time")
                swap(graph, node, turned)

    def _rewrite(self, graph: Graph, node: Node) -> None:
        alpha, beta = node.attr("alpha", float), node.attr("beta", float)
        left = transposed(graph, node, node.inputs[0]) if node.attrs["transA"] else node.inputs[0]
        right = transposed(graph, node, node.inputs[1]) if node.attrs["transB"] else node.inputs[1]
        value = graph.add("MatMul", [left, right], name=node.name, origin=node.origin).output
        if alpha != 1:
            value = graph.add(
                "Mul",
                [value, _factor(graph, node, "alpha", alpha)],
                name=f"{node.name}/scaled",
                origin=node.origin,
            ).output
        if len(node.inputs) > 2 and node.inputs[2] and beta != 0:
            addend = self._addend(graph, node, node.inputs[2], beta)
            value = graph.add(
                "Add", [value, addend], name=f"{node.name}/biased", origin=node.origin
            ).output
        fired(graph, self.name, node, "a matrix product with what is behind it")
        swap(graph, node, value)

    def _addend(self, graph: Graph, node: Node, value: str, beta: float) -> str:
        if beta == 1:
            return value
        data, kind = graph.constant(value), graph.type(value).dtype
        if data is not None and not kind.is_integer:
            return graph.add_constant(
                f"{value}/beta", (np.asarray(data, np.float64) * beta).astype(kind.numpy), kind
            )
        return graph.add(
            "Mul",
            [value, _factor(graph, node, "beta", beta)],
            name=f"{node.name}/addend",
            origin=node.origin,
        ).output


def _factor(graph: Graph, node: Node, role: str, value: float) -> str:
    """A constant of the matrices' own type, which holds it: the row takes no fractions for
    integers.
    """
    kind = graph.type(node.output).dtype
    return graph.add_constant(f"{node.name}/{role}", np.asarray(value).astype(kind.numpy), kind)


def transposed(graph: Graph, node: Node, value: str) -> str:
    """A value that holds the transpose of a matrix; constants, and constant codes behind a
    Dequantize, are turned at compile time.
    """
    data = graph.constant(value)
    if data is not None:
        return graph.add_constant(
            f"{value}/transposed", np.ascontiguousarray(data.T), graph.type(value).dtype
        )
    turned = _turned(graph, value, (1, 0))
    if turned is not None:
        return turned
    return graph.add(
        "Transpose", [value], {"perm": (1, 0)}, name=f"{node.name}/transposed", origin=node.origin
    ).output


def _permutation(graph: Graph, node: Node) -> tuple[int, ...]:
    """The `perm` of a Transpose, by default all axes backwards."""
    perm = node.attrs.get("perm")
    if isinstance(perm, tuple):
        return tuple(axis for axis in perm if isinstance(axis, int))
    return tuple(reversed(range(graph.type(node.inputs[0]).rank)))


def _turned(graph: Graph, value: str, perm: tuple[int, ...]) -> str | None:
    """Constant codes behind a Dequantize with their axes permuted; None for anything else."""
    decode = graph.producer(value)
    if decode is None or decode.op != "Dequantize":
        return None
    codes, quant = graph.constant(decode.inputs[0]), decode.attr("quant", Quantization)
    if codes is None:
        return None
    name = graph.fresh(f"{decode.inputs[0]}/transposed")
    turned = graph.add_constant(
        name, np.ascontiguousarray(codes.transpose(perm)), graph.type(decode.inputs[0]).dtype
    )
    axis = None if quant.axis is None else perm.index(quant.axis)
    return graph.add(
        "Dequantize",
        [turned],
        {"quant": quant.with_axis(axis)},
        name=decode.name,
        origin=decode.origin,
        quantizer=decode.quantizer,
    ).output
