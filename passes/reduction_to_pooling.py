"""Means and maxima over all spatial axes become global pooling."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ..ir.graph import Graph
from ..ir.node import Node
from .base import Contract, fired, refused, swap

__all__ = ["ReductionToPooling"]

_POOLS = {"ReduceMean": "GlobalAveragePool", "ReduceMax": "GlobalMaxPool"}
_RANKS = range(3, 6)


@dataclass(frozen=True)
class ReductionToPooling:
    """Writes a mean or maximum over exactly the spatial axes of [N, C, spatial...] as global
    pooling.

    Before -> after::

        ReduceMean(x, [2, 3]){keepdims=1}  ->  GlobalAveragePool(x)
        ReduceMax(x, [2, 3]){keepdims=1}   ->  GlobalMaxPool(x)
        ReduceMean(x, [2, 3]){keepdims=0}  ->  Squeeze(GlobalAveragePool(x), [2, 3])        ReduceMax likewise

    for one to three spatial axes. Frameworks export a global average as the former, and oneDNN's
    reduction is a reference implementation in f32, while its pooling takes codes.

    Legal because: it is global pooling's definition. A maximum is the same bits; a mean of n values
    may be summed in another order, and multiplied by 1/n where it was divided by n.
    Refuses when: the axes are computed at run time, absent or others than all from 2 on, or the
    rank is unknown or not 3 to 5.
    """

    name: ClassVar[str] = "reduction_to_pooling"
    contract: ClassVar[Contract] = Contract("identity", "ulp", 64)

    def run(self, graph: Graph) -> None:
        """Looks at every mean and every maximum along axes."""
        for node in graph.each(*_POOLS):
            obstacle = _obstacle(graph, node)
            if obstacle is None:
                self._rewrite(graph, node)
            else:
                reason, expected, found = obstacle
                refused(graph, self.name, node, reason, expected=expected, found=found)

    def _rewrite(self, graph: Graph, node: Node) -> None:
        pool = _POOLS[node.op]
        value = graph.add(pool, [node.inputs[0]], name=node.name, origin=node.origin).output
        if not node.attr("keepdims", int):
            spatial = np.arange(2, graph.type(value).rank, dtype=np.int64)
            axes = graph.add_constant(graph.fresh(f"{node.name}/spatial"), spatial)
            value = graph.add(
                "Squeeze",
                [value, axes],
                name=graph.fresh(f"{node.name}/squeezed"),
                origin=node.origin,
            ).output
        fired(graph, self.name, node, f"{node.op} over all spatial axes is {pool}")
        swap(graph, node, value)


def _obstacle(graph: Graph, node: Node) -> tuple[str, str, str] | None:
    """Why a reduction is no global pooling: reason, what is expected, what is found; None where it
    is.
    """
    shape = graph.type(node.inputs[0]).shape
    if shape is None or len(shape) not in _RANKS:
        found = "unknown" if shape is None else f"rank {len(shape)}"
        return (
            "what is reduced is no batch of channels with spatial axes",
            f"rank {_RANKS.start} to {_RANKS.stop - 1}",
            found,
        )
    rank, given = len(shape), node.inputs[1] if len(node.inputs) > 1 else ""
    axes = graph.constant(given) if given else None
    if axes is None:
        found = "computed at run time" if given else "none"
        return (
            "a reduction over other axes than the spatial ones",
            f"constant axes {list(range(2, rank))}",
            found,
        )
    if sorted(int(axis) % rank for axis in axes.reshape(-1)) != list(range(2, rank)):
        return (
            "a reduction over other axes than the spatial ones",
            f"axes {list(range(2, rank))}",
            str(axes.reshape(-1).tolist()),
        )
    return None
