"""Means and maxima over all spatial axes become global pooling."""

from __future__ import annotations

import numpy as np

from ..ir.graph import Graph
from ..ir.node import Node
from ..ir.rule import Refusal
from .base import Contract, NodePass, Verdict, swap
from .reshaping import known_shape

_POOLS = {"ReduceMean": "GlobalAveragePool", "ReduceMax": "GlobalMaxPool"}
_RANKS = range(3, 6)


def reduction_to_pooling(graph: Graph, node: Node) -> Verdict:
    """Writes a mean or maximum over exactly the spatial axes of [N, C, spatial...], or of
    [N, spatial..., C], as global pooling.

    Before -> after::

        ReduceMean(x, [2, 3]){keepdims=1}  ->  GlobalAveragePool(x)
        ReduceMax(x, [2, 3]){keepdims=1}   ->  GlobalMaxPool(x)
        ReduceMean(x, [2, 3]){keepdims=0}  ->  Squeeze(GlobalAveragePool(x), [2, 3])        ReduceMax likewise
        ReduceMean(x, [1, 2]){keepdims=0}  ->  Squeeze(GlobalAveragePool(Transpose(x)), [2, 3])
        ReduceMean(x, [1, 2]){keepdims=1}  ->  Transpose(GlobalAveragePool(Transpose(x)))

    for one to three spatial axes. Frameworks export a global average as the former, and oneDNN's
    reduction takes f32 with the spatial axes last in memory, while its pooling takes codes that lie
    channels last. What has its channels last in the model lies as pooling likes it: the transposes move
    nothing.

    Legal because: it is global pooling's definition. A maximum is the same bits; a mean of n values
    may be summed in another order, and multiplied by 1/n where it was divided by n.
    Refuses when: the axes are computed at run time, absent or others than all but the first two, or all but the first and last, or the
    rank is unknown or not 3 to 5.
    """
    refusal = _refusal(graph, node)
    if refusal is not None:
        return refusal
    pool, value, last = _POOLS[node.op], node.input, _axes(graph, node)[0] == 1
    rank = len(known_shape(graph, value))
    spatial = list(range(2, rank))
    if last:
        value = graph.part(
            node, "Transpose", [value], "moved", {"perm": (0, rank - 1, *range(1, rank - 1))}
        )
    value = graph.add(pool, [value], name=node.name, origin=node.origin).output
    if not node.attr("keepdims", int):
        axes = graph.add_constant(f"{node.name}/spatial", np.asarray(spatial, np.int64))
        value = graph.part(node, "Squeeze", [value, axes], "squeezed")
    elif last:
        value = graph.part(node, "Transpose", [value], "back", {"perm": (0, *spatial, 1)})
    swap(graph, node, value)
    return f"{node.op} over all spatial axes is {pool}"


REDUCTION_TO_POOLING = NodePass(
    "reduction_to_pooling", Contract("identity", "ulp", 64), reduction_to_pooling, tuple(_POOLS)
)


def _refusal(graph: Graph, node: Node) -> Refusal | None:
    """Why a reduction is no global pooling; None where it is."""
    shape = graph.type(node.input).shape
    if shape is None or len(shape) not in _RANKS:
        found = "unknown" if shape is None else f"rank {len(shape)}"
        expected = f"rank {_RANKS.start} to {_RANKS.stop - 1}"
        reason = "what is reduced is no batch of channels with spatial axes"
        return Refusal(
            reason, expected, found, "nothing to change: such a reduction is a step of its own"
        )
    spatial, axes = list(range(2, len(shape))), graph.constant(node.operand(1))
    between = list(range(1, len(shape) - 1))
    reason = "a reduction over other axes than the spatial ones"
    if axes is None:
        found = "computed at run time" if node.operand(1) else "none"
        return Refusal(reason, f"constant axes {spatial}", found, "make the axes a constant")
    if _axes(graph, node) not in (spatial, between):
        return Refusal(
            reason,
            f"axes {spatial} or {between}",
            str(axes.reshape(-1).tolist()),
            "nothing to change: a reduction over these axes is a step of its own",
        )
    return None


def _axes(graph: Graph, node: Node) -> list[int]:
    """The constant axes of a reduction, from the front."""
    rank, axes = len(known_shape(graph, node.input)), graph.constant(node.operand(1))
    assert axes is not None
    return sorted(int(axis) % rank for axis in axes.reshape(-1))
