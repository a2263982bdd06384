"""A bias that is computed at run time becomes an addition behind the convolution."""

from __future__ import annotations

import numpy as np

from ..ir.graph import Graph
from ..ir.node import Node
from .base import Contract, NodePass, Verdict, swap


def separate_computed_bias(graph: Graph, node: Node) -> Verdict:
    """Takes a bias that is no constant out of convolutions.

    Before -> after::

        Conv(x, W, b)  ->  Add(Conv(x, W), Reshape(b, [1, -1, 1 ...]))       b computed at run time, or an input of the model

    so that the bias argument of a primitive is a constant, to which factors and shifts can be
    applied at compile time (with output scales it is divided by them); the addition becomes a
    binary post-op.

    Legal because: it is the definition of the bias.
    Refuses when: never; where the rank is unknown the convolution stays as it is, and runs as
    itself.
    """
    bias, shape = node.operand(2), graph.type(node.output).shape
    if not bias or graph.constant(bias) is not None or shape is None:
        return None
    bare = graph.again(node, node.inputs[:2])
    target = np.asarray([1, -1, *[1] * (len(shape) - 2)], np.int64)
    shape_of_bias = graph.add_constant(f"{node.name}/bias_shape", target)
    along = graph.part(node, "Reshape", [bias, shape_of_bias], "bias")
    swap(graph, node, graph.part(node, "Add", [bare.output, along], "biased"))
    return "its bias is computed at run time: an addition behind it"


SEPARATE_COMPUTED_BIAS = NodePass(
    "separate_computed_bias",
    Contract("identity", "ulp", 4),
    separate_computed_bias,
    ("Conv", "ConvTranspose"),
)
