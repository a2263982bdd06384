"""The order of a scale and a shift where 0 must come out as 0.

Scales in front of shifts are the normal form of a chain, and one linear post-op. Rounding makes it
miss 0 by a little, which hardly any operation shows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from ...ir.algorithms import BINARY, ELTWISE
from ...ir.graph import Graph
from ...ir.node import Node
from ...ir.ops.spec import Trait
from ...ir.rule import Refusal, Rule
from ...ir.types import DType
from .formula import BasicOp, BinaryOp, EltwiseOp, Round, ScaleBy, Shift, vec

__all__ = ["EXACT_ZERO", "exact_zeros", "is_told", "is_told_behind", "tells", "zero_sensitive"]

_FAR = 16  # nodes that are looked at


def zero_sensitive(graph: Graph, node: Node, *, rounded: bool = False) -> bool:
    """True when 0 and the numbers next to it are not the same to who reads what `node` computes, be
    it moved and scaled on the way.

    That is an operation that tells them apart, or whoever reads an output of the model.

    Args:
        graph: the graph.
        node: the node.
        rounded: look behind roundings, too, which make them the same: for a step that may hold
            these and what follows.
    """
    return is_told_behind(graph, node, rounded=rounded) or any(
        map(graph.is_output, _keeping(graph, node, rounded=rounded))
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


def _keeping(graph: Graph, node: Node, *, rounded: bool) -> Iterator[str]:
    """What `node` computes, and values that are 0 where that is."""
    pending, seen = [node], {node.name}
    while pending and len(seen) <= _FAR:
        value = pending.pop().output
        yield value
        for reader in graph.consumers(value):
            if (
                reader.name not in seen
                and _passes_zeros(reader)
                and (rounded or not _rounds(reader))
            ):
                seen.add(reader.name)
                pending.append(reader)


def is_told(node: Node) -> bool:
    """True for an operation that tells 0 from the numbers next to it."""
    return node.spec.tells_zero or (node.op == "Cast" and node.attrs.get("to") is DType.BOOL)


def _passes_zeros(node: Node) -> bool:
    return node.has(Trait.KEEPS_ZERO, Trait.ELEMENTWISE, Trait.LAYOUT_ONLY, Trait.SELECTS)


def _rounds(node: Node) -> bool:
    """True for what makes one code of 0 and the numbers next to it."""
    return node.has(Trait.QUANTIZER) and node.op != "Dequantize"


def tells(op: BasicOp) -> bool:
    """True for a basic operation that tells 0 from the numbers next to it."""
    if isinstance(op, EltwiseOp):
        return ELTWISE[op.algorithm].tells_zero
    return isinstance(op, BinaryOp) and BINARY[op.algorithm].tells_zero


def _exact_zero(a: BasicOp, b: BasicOp) -> tuple[BasicOp, ...] | Refusal | None:
    """A shift behind a factor goes in front of it, where it is the zero point of codes.

    Legal because: (x - z)*A = x*A - z*A. Codes decode so: (q - z)*A is 0 at q = z, while q*A - z*A
    rounds to either side of it, where a root is NaN.
    Refuses when: z = -B/A is no number of 24 bits, 16 of them behind the point, which x - z could
    round.
    """
    if not (isinstance(a, ScaleBy) and isinstance(b, Shift)):
        return None
    zero = np.asarray(b.values / a.values)
    nearest = np.rint(zero * 2.0**16) * 2.0**-16
    if bool((np.abs(zero) < 256).all()) and bool(
        (np.abs(zero - nearest) <= 2.0**-45 * np.abs(zero)).all()
    ):
        return Shift(vec(nearest)), a
    return Refusal(
        "x*A - z*A = (x - z)*A needs a z of 24 bits",
        "a multiple of 2^-16 below 256",
        f"{-zero[0]:g}",
    )


EXACT_ZERO = Rule("x*A - z*A = (x - z)*A, z of 24 bits", _exact_zero)


def exact_zeros(ops: Sequence[BasicOp], *, told: bool = False) -> list[BasicOp]:
    """The chain with `EXACT_ZERO` applied where something behind tells 0 from what is next to it.

    `told`: something behind the step does. In front of a rounding nothing is told: it makes whole
    numbers of what is next to them.
    """
    result = list(ops)
    for place in range(len(result) - 1, 0, -1):
        told = tells(result[place]) or (told and not isinstance(result[place], Round))
        found = EXACT_ZERO.apply(result[place - 1], result[place]) if told else None
        if isinstance(found, tuple):
            result[place - 1 : place + 1] = found
    return result
