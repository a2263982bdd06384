"""A constant mask over values that cannot reach certain bounds becomes a minimum and a maximum,
which are post-ops.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from ..ir.graph import Graph
from ..ir.node import Node
from ..ir.ops.spec import Trait
from ..ir.rule import Refusal
from ..ir.types import DType
from .base import Contract, NodePass, Verdict, swap

_LARGEST = 1e30
"""Bounds from here on prove nothing: sums and products of such values may overflow."""

_DEEPEST = 32
"""Operations between codes and a mask."""


def mask_to_bounds(graph: Graph, node: Node) -> Verdict:
    """Writes a choice between values and constants, by a constant mask, as bounds of the values.

    Before -> after::

        Where(mask, c, x)  ->  Min(x, where(mask, c, B))                             for c <= -B: what hides scores of attention
        Where(mask, c, x)  ->  Max(x, where(mask, c, -B))                            for c >= B
        Where(mask, c, x)  ->  Max(Min(x, where(mask, c, B)), where(mask, c, -B))    else

    and `Where(mask, x, c)` likewise, where |x| < B in all that the model can compute. The masks of
    exporters have c = -inf, -3.4e38 or -10000, for the upper triangle.

    Legal because: where the mask chooses c, both bounds are c; elsewhere they lie beyond x and let
    it pass. x must be bounded, for a NaN would pass where the mask hides it; it is where products,
    sums and data movement compute it from codes and constants.
    Refuses when: the mask is computed at run time, neither or both choices are constant, or nothing
    is known of x.
    """
    refusal = _choice_refusal(graph, node)
    if refusal is not None:
        return refusal
    mask, *choices = (graph.constant(value) for value in node.inputs)
    fixed = 0 if choices[0] is not None else 1
    chosen = np.asarray(choices[fixed], np.float32)
    x = node.inputs[2 - fixed]
    bound = _Magnitudes(graph).of(x)
    if bound is None or not bound < _LARGEST or np.isnan(chosen).any():
        reason = "the values might be anything, and what bounds let through might be a NaN"
        return Refusal(
            reason,
            "codes, and what is computed from them",
            x,
            "quantize the values that are masked",
        )
    limit = np.float32(2.0 ** np.ceil(np.log2(max(bound, 1.0)) + 1))
    where = np.asarray(mask, np.bool_) if fixed == 0 else ~np.asarray(mask, np.bool_)
    bounds = [
        (op, np.where(where, chosen, beyond).astype(np.float32))
        for op, beyond, needed in (
            ("Min", limit, np.any(chosen < limit)),
            ("Max", -limit, np.any(chosen > -limit)),
        )
        if needed
    ]
    _bound(graph, node, x, bounds)
    return f"the mask is constant and |{x}| stays below {limit:g}: {' and '.join(op for op, _ in bounds)}"


MASK_TO_BOUNDS = NodePass(
    "mask_to_bounds", Contract("identity", "bitwise"), mask_to_bounds, ("Where",)
)


def _choice_refusal(graph: Graph, node: Node) -> Refusal | None:
    """Why the node does not choose f32 values and constants by a constant mask."""
    mask, *choices = (graph.constant(value) for value in node.inputs)
    fixed = [choice for choice in choices if choice is not None]
    kind = graph.type(node.output).dtype
    if kind is not DType.F32:
        return Refusal(
            "what is chosen is no f32",
            "f32",
            str(kind.value),
            "nothing to change: a choice between other types runs as ONNX's own operator",
        )
    if mask is None:
        reason = "which elements are hidden is known at run time only"
        return Refusal(
            reason,
            "a constant mask",
            "one that is computed",
            "nothing to change: a mask that is computed is chosen by at run time",
        )
    if len(fixed) != 1:
        found = f"{len(fixed)} constants"
        return Refusal(
            "a choice between two values",
            "values and a constant",
            found,
            "nothing to change: a choice between two tensors runs as ONNX's own operator",
        )
    return None


def _bound(
    graph: Graph, node: Node, value: str, bounds: list[tuple[str, npt.NDArray[np.float32]]]
) -> None:
    """Writes the choice as bounds of a value, one after the other."""
    for op, ends in bounds:
        operand = graph.add_constant(f"{node.name}/{op.lower()}", ends)
        value = graph.part(node, op, [value, operand], f"{op.lower()}imum")
    swap(graph, node, value)


@dataclass
class _Magnitudes:
    """Numbers that no absolute value of an element exceeds by more than rounding.

    Attributes:
        graph: the graph.
        known: value -> the number; None where there is none, or a NaN is possible.
    """

    graph: Graph
    known: dict[str, float | None] = field(default_factory=dict)

    def of(self, value: str, depth: int = 0) -> float | None:
        """The number for a value; nothing is known of what more than `_DEEPEST` operations compute
        from codes.
        """
        if value not in self.known:
            self.known[value] = self._found(value, depth) if depth < _DEEPEST else None
        return self.known[value]

    def _found(self, value: str, depth: int) -> float | None:
        data, node = self.graph.constant(value), self.graph.producer(value)
        if data is not None:
            found = float(np.abs(data.astype(np.float64)).max(initial=0.0))
            return found if np.isfinite(found) else None
        if node is None:
            return None
        if node.op == "Dequantize":
            return self._decoded(node)
        if node.op in ("Add", "Sub", "Mul", "MatMul", "Min", "Max"):
            return self._of_two(node, depth)
        if node.op == "Div":
            return self._quotient(node, depth)
        if not (node.has(Trait.LAYOUT_ONLY, Trait.SELECTS) or node.op in ("Relu", "Neg")):
            return None
        return self.of(node.input, depth + 1)

    def _decoded(self, node: Node) -> float:
        low, high = self.graph.type(node.input).dtype.range
        scale, zero = (np.asarray(v, np.float64) for v in (node.quant.scale, node.quant.zero_point))
        return max(float(np.abs((end - zero) * scale).max()) for end in (low, high))

    def _of_two(self, node: Node, depth: int) -> float | None:
        one, other = (self.of(value, depth + 1) for value in node.inputs)
        if one is None or other is None:
            return None
        if node.op in ("Add", "Sub"):
            return one + other
        if node.op in ("Min", "Max"):
            return max(one, other)
        shape = self.graph.type(node.input).shape
        length = 1 if node.op == "Mul" else shape[-1] if shape else None
        return one * other * length if isinstance(length, int) else None

    def _quotient(self, node: Node, depth: int) -> float | None:
        dividend, divisor = self.of(node.input, depth + 1), self.graph.constant(node.inputs[1])
        least = (
            0.0
            if divisor is None
            else float(np.abs(divisor.astype(np.float64)).min(initial=np.inf))
        )
        return dividend / least if dividend is not None and 0 < least < np.inf else None
