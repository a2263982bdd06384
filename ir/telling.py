"""Who tells a number from those next to it: whether an ulp shows that another order of the same
operations is off.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator

from .graph import Graph
from .node import Node
from .ops.spec import Trait
from .types import DType

_FAR = 16  # nodes that are looked at


class Told(enum.IntEnum):
    """Which numbers are told from those next to them by what stands behind."""

    NOTHING = 0
    ZERO = 1
    """0: by a root, a quotient, who reads the output."""
    ANY = 2
    """0 or others, by what jumps there: a rounding, a comparison."""


def zero_sensitive(graph: Graph, node: Node) -> bool:
    """True when 0 and the numbers next to it are not the same to who reads what `node` computes, be
    it moved and scaled on the way; in front of a rounding to codes they are.

    That is an operation that tells them apart, or whoever reads an output of the model.
    """
    return told_behind(graph, node, rounded=False) is not Told.NOTHING


def told_behind(graph: Graph, node: Node, *, rounded: bool = True) -> Told:
    """What is told behind `node`, by operations or by whoever reads an output of the model.

    Args:
        graph: the graph.
        node: the node.
        rounded: look behind roundings, too, which make one code of numbers next to each other: for
            a step that may hold these and what follows.
    """
    if jumps_behind(graph, node, rounded=rounded):
        return Told.ANY
    told = is_told_behind(graph, node, rounded=rounded) or any(
        map(graph.is_output, _keeping(graph, node, rounded=rounded))
    )
    return Told.ZERO if told else Told.NOTHING


def jumps_behind(graph: Graph, node: Node, *, rounded: bool = False) -> bool:
    """True when an operation that jumps reads what `node` computes, by elementwise operations and
    moves alone: sums of several elements come in another order than the model's anyway.

    `rounded`: as in `told_behind`.
    """
    return any(
        _jumps(reader)
        for value in _keeping(graph, node, rounded=rounded, through=_BY_ELEMENT)
        for reader in graph.consumers(value)
    )


def is_told_behind(graph: Graph, node: Node, *, rounded: bool = True) -> bool:
    """True when an operation that tells 0 from the numbers next to it reads what `node` computes,
    be it moved and scaled on the way.
    """
    return any(
        is_told(reader)
        for value in _keeping(graph, node, rounded=rounded)
        for reader in graph.consumers(value)
    )


_BY_ELEMENT = frozenset({Trait.ELEMENTWISE, Trait.LAYOUT_ONLY, Trait.SELECTS, Trait.JOINS})
_PASSING_ZEROS = frozenset({Trait.KEEPS_ZERO, Trait.ELEMENTWISE, Trait.LAYOUT_ONLY, Trait.SELECTS})


def _keeping(
    graph: Graph, node: Node, *, rounded: bool, through: frozenset[Trait] = _PASSING_ZEROS
) -> Iterator[str]:
    """What `node` computes, and what operations with one of the traits make of it: by those of the
    default, values that are 0 where that is.
    """
    pending, seen = [node], {node.name}
    while pending and len(seen) <= _FAR:
        value = pending.pop().output
        yield value
        for reader in graph.consumers(value):
            if (
                reader.name not in seen
                and reader.has(*through)
                and (rounded or not _rounds(reader))
            ):
                seen.add(reader.name)
                pending.append(reader)


def is_told(node: Node) -> bool:
    """True for an operation that tells 0 from the numbers next to it."""
    return node.spec.tells_zero or (node.op == "Cast" and node.attrs.get("to") is DType.BOOL)


def _jumps(node: Node) -> bool:
    """True for an operation that tells some number from those next to it."""
    to = node.attrs.get("to") if node.op == "Cast" else None
    return node.spec.jumps or (isinstance(to, DType) and (to.is_integer or to is DType.BOOL))


def _rounds(node: Node) -> bool:
    """True for what makes one code of 0 and the numbers next to it."""
    return node.has(Trait.QUANTIZER) and node.op != "Dequantize"
