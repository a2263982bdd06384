"""Sums, maxima, minima and means of any number of inputs become operations of two inputs."""

from __future__ import annotations

import numpy as np

from ..ir.graph import Graph
from ..ir.node import Node
from .base import Contract, NodePass, Verdict, swap

_PAIRWISE = {"Sum": "Add", "Mean": "Add", "Max": "Max", "Min": "Min"}


def nest_variadic(graph: Graph, node: Node) -> Verdict:
    """Writes operators of any number of inputs by those of two.

    Before -> after::

        Sum(a, b, c)   ->  Add(Add(a, b), c)            Max and Min likewise, from the third input on
        Mean(a, b, c)  ->  Div(Add(Add(a, b), c), 3)

    so that a sum of branches is a residual add to all that follows: the branch in front takes the
    others as `sum` or `binary` post-ops.

    Legal because: the operators are defined by combining their inputs from left to right, and these
    do so in the same order.
    Refuses when: never; what has one input only stays as it is.
    """
    if len(node.inputs) <= (2 if node.op in ("Max", "Min") else 1):
        return None
    op, total = _PAIRWISE[node.op], node.input
    for number, value in enumerate(node.inputs[1:], 1):
        total = graph.part(node, op, [total, value], f"{op.lower()}{number}")
    if node.op == "Mean":
        count = np.asarray(len(node.inputs), graph.type(total).dtype.numpy)
        divisor = graph.add_constant(f"{node.name}/count", count)
        total = graph.part(node, "Div", [total, divisor], "mean")
    swap(graph, node, total)
    return f"{len(node.inputs)} inputs, combined from left to right"


NEST_VARIADIC = NodePass(
    "nest_variadic", Contract("identity", "bitwise"), nest_variadic, tuple(_PAIRWISE)
)
