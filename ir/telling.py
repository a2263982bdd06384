"""Who tells a number from those next to it: whether an ulp shows that another order of the same
operations is off.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Iterator

import numpy as np

from .graph import Graph
from .node import Node
from .ops.spec import Trait
from .types import DType, Quantization

_REACH = 16  # nodes that are looked at

FAR = 2.0**6
"""How far from 0 the code 0 may decode to: what is shifted by that is off by 2^-24 of it, 4e-6, which a
function of f32 hardly shows. Masks of attentions are farther: 10^4, or 10^9.
"""

FAR_IN_CODES = 2.0**16
"""The same in steps of codes: 2^-8 of a step."""

_CODE_OF_A_SUM = 16
"""Steps of a sum of products, which has thousands of them, that are as good as one of a code."""


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


def zero_is_far(graph: Graph, node: Node, quant: Quantization) -> bool:
    """True when `quant`, of an operand of the sum, comparison or the like `node`, decodes the code 0
    to so large a number that what is off by its rounding shows: (x - z*s) + q*s keeps of x what is
    left beside z*s, and (q - (z - x/s))*s as little.

    It is compared with the steps of what `node` reads, or of the codes that it is rounded to, where
    these are known.
    """
    readers = graph.consumers(node.output)
    if (
        readers
        and all(each.op == "Quantize" for each in readers)
        and not graph.is_output(node.output)
    ):
        step = min(_scale(each) for each in readers)
    else:
        step = min(_step(graph, value) for value in node.inputs)
    return distance_of_zero(quant) > (FAR_IN_CODES * step or FAR)


def distance_of_zero(quant: Quantization) -> float:
    """How far from 0 the code 0 decodes to, at most."""
    with np.errstate(all="ignore"):  # scales of infinity or NaN are the user's
        distance = np.abs(quant.scales.astype(np.float64) * quant.zero_points)
    return float(distance.max(initial=0.0))


def _step(graph: Graph, value: str) -> float:
    """Of the codes that a value is decoded from, or of a sum of products of codes; 0: there is none."""
    node = graph.producer(value)
    if node is not None and node.op == "Dequantize":
        return _scale(node)
    if node is not None and node.has(Trait.PRODUCT):
        return _CODE_OF_A_SUM * math.prod(_step(graph, each) for each in node.inputs[:2])
    return 0.0


def _scale(node: Node) -> float:
    """The smallest one: a channel's numbers are not lost because those of another are large."""
    return float(np.abs(node.quant.scales).min(initial=np.inf))


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
    while pending and len(seen) <= _REACH:
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
    return node.spec.jumps or (
        isinstance(to, DType) and (to.is_integer or to.is_small_float or to is DType.BOOL)
    )


def _rounds(node: Node) -> bool:
    """True for what makes one code of 0 and the numbers next to it."""
    return node.has(Trait.QUANTIZER) and node.op != "Dequantize"
