"""Which of two anchors that meet in an add absorbs it: the one that makes the other branch's result
cheap to write and to read. Whether the other one would is found out by composing it.
"""

from __future__ import annotations

from typing import Protocol

from ...ir.graph import Graph
from ...ir.node import Node, subject
from ...ir.ops import dims
from ...ir.ops.spec import Trait
from ...ir.paths import keeps_shape
from ...ir.rule import Refusal
from ...ir.types import TensorType
from ..mapping.cost import WRITE_ALLOCATE, Home, operand_cost
from ..mapping.homes import chosen_first


class Steps(Protocol):
    """What `StepBuilder` has: claims, dry runs, and what was decided of adds."""

    graph: Graph
    branches: dict[str, tuple[Node, tuple[Home, ...]]]

    def is_claimed(self, node: Node) -> bool:
        """As `StepBuilder.is_claimed`."""

    def would_take(self, anchor: Node, node: Node) -> str | None:
        """As `StepBuilder.would_take`."""


_REACH = 256  # operations that are looked at: no primitive takes as many post-ops


def branch_refusal(builder: Steps, anchor: Node, node: Node, value: str) -> Refusal | None:
    """Why the chain of `anchor`, which ends at `value`, leaves an add to the other branch; None when it
    may take it.
    """
    product = node.op == "Add" and anchor.has(Trait.PRODUCT)
    if not product or not keeps_shape(builder.graph, node, value):
        return None
    if node.name not in builder.branches and (rival := _rival(builder, node, value)):
        other, dst = rival
        builder.branches[node.name] = _weighed(builder.graph, node, (anchor, value), other, dst)
    taker, homes = builder.branches.get(node.name, (anchor, ()))
    if taker.name == anchor.name or builder.is_claimed(taker):
        return None
    best, mine = homes
    return Refusal(
        "the other branch takes this add",
        f"less than the {best.cost:.4g} passes for which {best.name} takes it",
        mine.why_not or f"{mine.cost:.4g} passes",
        "nothing to change: one of the two branches absorbs the addition",
    )


def _rival(builder: Steps, node: Node, value: str) -> tuple[Node, TensorType] | None:
    """The anchor whose chain would take the add by its other operand, and what its step would store."""
    graph = builder.graph
    pending = [other for other in node.inputs if other != value]
    for _ in range(_REACH):
        maker = graph.producer(pending[0]) if pending else None
        if maker is None or graph.sole_consumer(pending.pop(0)) is None:
            continue
        if maker.has(Trait.PRODUCT):
            stored = builder.would_take(maker, node)
            if stored is not None:
                return maker, graph.type(stored)
        elif maker.has(Trait.ELEMENTWISE):
            pending += graph.computed(maker.inputs)
    return None


def _weighed(
    graph: Graph, node: Node, mine: tuple[Node, str], rival: Node, dst: TensorType
) -> tuple[Node, tuple[Home, ...]]:
    """The anchor that absorbs an add, and the homes of both, the chosen one first.

    Nothing else reads the two branches, so neither depends on the other. The other branch's result is
    written once and read once; a result of the destination's size is summed in place, any other is a
    binary operand. Of equal costs the one whose peer is quantized absorbs the add, else the one
    that runs later.
    """
    anchor, value = mine
    (other,) = (each for each in node.inputs if each != value)
    place = graph.places()
    ends = [(rival, other, value), (anchor, value, other)]
    ends.sort(key=lambda end: (graph.producer(end[2], "Dequantize") is None, -place[end[0].name]))
    made = [_home(graph, node, *end, dst) for end in ends]
    homes = chosen_first(made)
    return ends[made.index(homes[0])][0], homes


def _home(graph: Graph, node: Node, anchor: Node, value: str, other: str, dst: TensorType) -> Home:
    name = subject(anchor)
    if not keeps_shape(graph, node, value):
        return Home(name, 0.0, f"its result is broadcast: {graph.type(value)} to {dst.shape}")
    producer = graph.producer(other, "Dequantize")
    stored = graph.type(other if producer is None else producer.input)
    moved = 2.0 * operand_cost(stored, dst)  # written by the other branch, read by this one
    fills = (
        dims.same_shape(stored.shape, dst.shape)
        and stored.dtype.numpy.itemsize == dst.dtype.numpy.itemsize
    )
    return Home(name, moved + (0.0 if fills else WRITE_ALLOCATE))
