"""Reshape, Transpose and Reshape that shuffle channels become one operation."""

from __future__ import annotations

from ..ir.cleanup import erase_unread
from ..ir.graph import Graph
from ..ir.node import Node, origin_of
from ..ir.ops import dims
from ..ir.rule import Refusal
from ..ir.types import Shape
from .base import Contract, NodePass, Verdict, decide, swap
from .reshaping import is_reshape, known_shape


def recognize_shuffle(graph: Graph, node: Node) -> Verdict:
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
    first, last = graph.producer(node.input), graph.sole_consumer(node.output)
    if first is None or last is None or not is_reshape(graph, first) or not is_reshape(graph, last):
        return None
    value = first.input
    shape, split = known_shape(graph, value), known_shape(graph, first.output)
    if not dims.same_shape(shape, graph.type(last.output).shape):
        return None
    perm = _swapped(node, len(split))
    if perm is None:
        reason = "more than two neighbouring axes move"
        return Refusal(
            reason,
            "two axes swapped",
            str(_perm(node)),
            "nothing to change: another transposition is a step of its own",
        )
    found = _axis(shape, split, perm)
    if found is None:
        return None
    if graph.sole_consumer(first.output) is None:
        return Refusal(
            "others read the groups, too",
            "one consumer",
            first.output,
            "nothing to change in the quantizer: in the network, let the other readers use what stands in front of the groups",
        )
    axis, size = found
    groups = split[perm]
    if 1 in (groups, size) and graph.type(value) == graph.type(last.output):
        verdict = "one group, or groups of one element, stay where they are"
        for each in (first, last):
            decide(graph, RECOGNIZE_SHUFFLE.name, each, verdict)
    else:
        made = _shuffle(graph, (first, node, last), axis, size)
        if not made:
            return None
        verdict, value = f"{groups} groups of {size} along axis {axis}", made
    swap(graph, last, value)
    erase_unread(graph, [first, node])
    return verdict


RECOGNIZE_SHUFFLE = NodePass(
    "recognize_shuffle", Contract("identity", "bitwise"), recognize_shuffle, ("Transpose",)
)


def _shuffle(graph: Graph, nodes: tuple[Node, Node, Node], axis: int, size: int) -> str:
    """The shuffle in the place of three operations; '' where its type would be another one, as of
    codes with a scale for each element along an axis.
    """
    first, turn, last = nodes
    made = graph.add(
        "Shuffle",
        [first.input],
        {"axis": axis, "group_size": size},
        name=turn.name,
        outputs=[graph.fresh(f"{last.output}/shuffled")],
        origin=origin_of(*nodes),
    )
    if graph.type(made.output) == graph.type(last.output):
        return made.output
    graph.erase(made)
    return ""


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
