"""Reshape, Transpose and Reshape that shuffle channels become one operation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ..ir.graph import Graph
from ..ir.node import Node, origin_of
from ..ir.ops import dims
from ..ir.types import Shape
from .base import Contract, fired, refused, swap
from .reshaping import is_reshape

__all__ = ["RecognizeShuffle"]


@dataclass(frozen=True)
class RecognizeShuffle:
    """Recognizes channel shuffles.

    Before -> after::

        Reshape(Transpose(Reshape(x, [N, g, C/g, H, W]), [0, 2, 1, 3, 4]), [N, C, H, W])   ->   Shuffle(x){axis=1, group_size=C/g}

    for any axis of x, whatever the two reshapes make of the other axes in front of it and behind
    it. One group, or groups of one channel, are x itself. As three operations the two reshapes
    would bring their operand into row-major order, and back.

    Legal because: both say that element (j, i) of g groups of C/g comes to place i*g + j; the
    elements around them stay. oneDNN's group_size is the size of a group, [N, g, C/g], and not
    their number.
    Refuses when: others read what is in between, or the transposition moves other axes, too.
    """

    name: ClassVar[str] = "recognize_shuffle"
    contract: ClassVar[Contract] = Contract("identity", "bitwise")

    def run(self, graph: Graph) -> None:
        """Looks at every Transpose between two reshapes to the same shape."""
        for node in graph.each("Transpose"):
            first = graph.producer(node.inputs[0])
            last = graph.sole_consumer(node.output)
            if (
                first is not None
                and last is not None
                and is_reshape(graph, first)
                and is_reshape(graph, last)
            ):
                self._rewrite(graph, first, node, last)

    def _rewrite(self, graph: Graph, first: Node, node: Node, last: Node) -> None:
        value = first.inputs[0]
        shape, split, after = (
            graph.type(found).shape for found in (value, first.output, last.output)
        )
        assert shape is not None
        assert split is not None
        if after is None or not dims.same_shape(shape, after):
            return
        perm = _swapped(node, len(split))
        if perm is None:
            refused(
                graph,
                self.name,
                node,
                "more than two neighbouring axes move",
                expected="two axes swapped",
                found=str(_perm(node)),
            )
            return
        found = _axis(shape, split, perm)
        if found is None:
            return
        if graph.sole_consumer(first.output) is None:
            refused(
                graph,
                self.name,
                node,
                "others read the groups, too",
                expected="one consumer",
                found=first.output,
            )
            return
        axis, size = found
        groups = split[perm]
        if 1 in (groups, size) and graph.type(value) == graph.type(last.output):
            fired(
                graph, self.name, node, "one group, or groups of one element, stay where they are"
            )
            swap(graph, last, value)
        else:
            attrs = {"axis": axis, "group_size": size}
            name = graph.fresh(f"{last.output}/shuffled")
            made = graph.add(
                "Shuffle",
                [value],
                attrs,
                name=node.name,
                outputs=[name],
                origin=origin_of(first, node, last),
            )
            if graph.type(made.output) != graph.type(
                last.output
            ):  # of codes with a scale for each element along an axis
                graph.erase(made)
                return
            fired(graph, self.name, node, f"{groups} groups of {size} along axis {axis}")
            swap(graph, last, made.output)
        graph.erase(graph.node(node.name))
        graph.erase(graph.node(first.name))


def _perm(node: Node) -> list[int]:
    perm = node.attrs["perm"]
    return [axis for axis in perm if isinstance(axis, int)] if isinstance(perm, tuple) else []


def _swapped(node: Node, rank: int) -> int | None:
    """The first of two neighbouring axes that a Transpose swaps, where it moves no others."""
    perm = _perm(node) or list(range(rank))[::-1]
    moved = [place for place, axis in enumerate(perm) if place != axis]
    return moved[0] if len(moved) == 2 and moved[1] == moved[0] + 1 else None


def _axis(shape: Shape, split: Shape, at: int) -> tuple[int, int] | None:
    """The axis of `shape` that axes `at` and `at + 1` of `split` are, and the size of its groups;
    None where they are none or not known.
    """
    groups, size = split[at], split[at + 1]
    if not isinstance(groups, int) or not isinstance(size, int):
        return None
    front, behind = dims.product(split[:at]), dims.product(split[at + 2 :])
    for axis, length in enumerate(shape):
        around = dims.same(dims.product(shape[:axis]), front) and dims.same(
            dims.product(shape[axis + 1 :]), behind
        )
        if around and length == groups * size:
            return axis, size
    return None
