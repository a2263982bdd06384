"""A bias that is computed at run time becomes an addition behind the convolution."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ..ir.graph import Graph
from ..ir.node import Node
from .base import Contract, fired, swap

__all__ = ["SeparateComputedBias"]


@dataclass(frozen=True)
class SeparateComputedBias:
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

    name: ClassVar[str] = "separate_computed_bias"
    contract: ClassVar[Contract] = Contract("identity", "ulp", 4)

    def run(self, graph: Graph) -> None:
        """Rewrites every Conv and ConvTranspose with such a bias."""
        for node in graph.each("Conv", "ConvTranspose"):
            bias = node.inputs[2] if len(node.inputs) > 2 else ""
            if bias and graph.constant(bias) is None and graph.type(node.output).shape is not None:
                self._rewrite(graph, node)

    def _rewrite(self, graph: Graph, node: Node) -> None:
        rank = graph.type(node.output).rank
        bare = graph.add(node.op, node.inputs[:2], node.attrs, name=node.name, origin=node.origin)
        shape = graph.add_constant(
            f"{node.name}/bias_shape", np.asarray([1, -1, *[1] * (rank - 2)], np.int64)
        )
        along = graph.add(
            "Reshape", [node.inputs[2], shape], name=f"{node.name}/bias", origin=node.origin
        )
        total = graph.add(
            "Add", [bare.output, along.output], name=f"{node.name}/biased", origin=node.origin
        )
        fired(graph, self.name, node, "its bias is computed at run time: an addition behind it")
        swap(graph, node, total.output)
