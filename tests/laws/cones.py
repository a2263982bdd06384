"""The part of a model between the values that a step of a plan reads and one that it writes, on
intervals: each operation is granted its f32 roundings, and those alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from laws.boxes import EPS, F64, Box, exactly, hull
from laws.intervals import Run

from fqfuse.ir.graph import Graph
from fqfuse.ir.node import Node
from fqfuse.ir.types import Quantization, TensorType

ULPS = 4.0
"""Roundings that each operation is granted: a plan has one or two more than the model."""

FAR, FAR_IN_CODES = 2.0**6, 2.0**16
"""How far from 0 the code 0 may decode to, as a number and in steps of the codes next to it, before
its zero point has to be taken off first: docs/numerics.md, Zeros.
"""

SMALLEST, LARGEST = 2.0**-126, float(np.finfo(np.float32).max)
"""What is smaller may be 0, what is larger infinity."""

_ABSOLUTE = {"Elu": 2.0**-22, "Log": 2.0**-19}
"""What oneDNN's polynomials may miss where the result is near 0: exp(x) - 1, the logarithm next to
1.
"""

Boxes = Mapping[str, Box]


class Unjudged(Exception):
    """Why a value cannot be judged."""


@dataclass(frozen=True, eq=False)
class Held:
    """A value of the model as a plan holds it: itself, or its codes.

    Attributes:
        name: in the model.
        model: its type there.
        kind: its type in the plan.
        array: what a runtime has there.
    """

    name: str
    model: TensorType
    kind: TensorType
    array: np.ndarray

    @property
    def quant(self) -> Quantization | None:
        """Of the codes."""
        return self.kind.quant if self.kind.dtype.is_integer else None

    @property
    def _plain(self) -> bool:
        return self.quant is None or (
            self.quant == self.model.quant and self.kind.dtype is self.model.dtype
        )

    def limits(self, box: Box) -> Box:
        """What the array must lie in, where the model's value lies in `box`."""
        if self._plain:
            return box.widened(SMALLEST if self.kind.dtype.is_float else 0.0)
        if self.model.dtype.is_float:
            scale, zero = _shaped(self.kind, box.low.ndim)
            codes = hull(box.low / scale + zero, box.high / scale + zero)
            codes = codes.widened(ULPS * EPS * (box.magnitude / np.abs(scale) + np.abs(zero) + 1))
        else:
            codes = _moved(box, self.model, self.kind)
        return Box(
            *(np.clip(np.rint(end), *self.kind.dtype.range) for end in (codes.low, codes.high))
        )

    def given(self, cone: Cone) -> Box:
        """The model's value that the array stands for, in a cone that reads it."""
        box = exactly(self.array)
        if self._plain:
            return box
        if not self.model.dtype.is_float:
            codes = _moved(box, self.kind, self.model)
            return Box(np.rint(codes.low), np.rint(codes.high))
        scale, zero = _shaped(self.kind, self.array.ndim)
        return exactly((box.low - zero) * scale).widened(cone.eps * cone.decoding(box, scale, zero))


def _moved(codes: Box, old: TensorType, new: TensorType) -> Box:
    """Codes of one quantization as codes of another."""
    (scale, zero), (other, place) = (_shaped(kind, codes.low.ndim) for kind in (old, new))
    return hull(*((end - zero) * (scale / other) + place for end in (codes.low, codes.high)))


def _shaped(kind: TensorType, rank: int) -> Iterator[F64]:
    assert kind.quant is not None
    return (part.astype(np.float64) for part in kind.quant.shaped(rank))


def _step(quant: Quantization) -> float:
    return float(np.abs(quant.scales.astype(np.float64)).max(initial=0.0))


class Cone(Run):
    """The operations of the model between the values that a step reads and one that it writes.

    Args:
        graph: the model.
        known: constants, and what follows from shapes.
        given: what the step reads.
        held: what it writes.
    """

    unseen = 0.0

    def __init__(self, graph: Graph, known: Boxes, given: Mapping[str, Held], held: Held) -> None:
        super().__init__(graph, ULPS, 0.0, 0.0)
        self.boxes, self._held = dict(known), held
        self._nodes = [] if held.name in given else self._between(held.name, given)
        self._steps = {_step(each.quant) for each in given.values() if each.quant}
        self._steps.update(*map(self._steps_of, self._nodes))
        self.boxes |= {name: each.given(self) for name, each in given.items()}
        for node in map(graph.producer, given):
            if node is not None and node.op == "Dequantize" and node.inputs[0] in given:
                self._decoded_again(node)

    def _decoded_again(self, node: Node) -> None:
        """The step reads codes and what they are decoded to: it may do with the codes alone."""
        there = self.boxes[node.output]
        self.node(node)
        again = self.boxes[node.output]
        self.boxes[node.output] = hull(there.low, there.high, again.low, again.high)

    def wanted(self) -> Box:
        """The interval of the value that the step writes."""
        with np.errstate(all="ignore"):
            for node in self._nodes:
                self.node(node)
                box = self.boxes[node.output].widened(_ABSOLUTE.get(node.op, 0.0))
                if not (box.magnitude <= LARGEST).all():
                    raise Unjudged("outgrows f32")
                self.boxes[node.output] = box
        return self.boxes[self._held.name]

    def _steps_of(self, node: Node) -> set[float]:
        """Of the codes of a quantizer."""
        if node.op in ("Quantize", "Dequantize"):
            return {_step(node.attr("quant", Quantization))}
        if node.op != "FakeQuantize" or not set(node.inputs[3:]) <= self.graph.constants.keys():
            return set()
        low, high = (self.graph.constants[end] for end in node.inputs[3:])
        return {float(np.abs(high - low).max()) / (node.attr("levels", int) - 1)}

    def _between(self, value: str, given: Mapping[str, Held]) -> list[Node]:
        """The nodes that make a value, in order.

        Raises:
            Unjudged: it takes an input that is not given.
        """
        found: dict[str, Node] = {}
        pending = [value]
        while pending:
            name = pending.pop()
            if not name or name in self.boxes or (name in given and name != value):
                continue
            node = self.graph.producer(name)
            if node is None:
                raise Unjudged("takes an input that the step does not read")
            if node.name not in found:
                found[node.name] = node
                pending += node.inputs
        return self.graph.in_order(found.values())

    def _shift(self, scale: float, *shifts: npt.ArrayLike) -> F64:
        """The largest of the shifts, in any of which q*s - shift may stand for (q - z)*s even at
        q = z: by docs/numerics.md, Zeros.
        """
        others = max(self._steps - {scale}, default=0.0)
        others = max(others, 16 * others * others)  # a sum of products: of 16 of its steps
        if self._held.quant:
            others = max(others, _step(self._held.quant))
        distances = np.abs(np.stack(np.broadcast_arrays(*shifts)))
        near = distances <= max(FAR, FAR_IN_CODES * others)
        return np.where(near, distances, 0.0).max(0)

    def decoding(self, codes: Box, scale: F64, zero: F64) -> F64:
        ends = hull((codes.low - zero) * scale, (codes.high - zero) * scale).magnitude
        # s8 codes are u8 codes with 128 more
        shifts = [(zero + more) * scale for more in (0, 128, -128)]
        all_of_it = (np.abs(zero) + 128) * np.abs(scale)
        own = float(np.abs(scale).max(initial=0.0))
        return ends + np.where(ends > 0, all_of_it, self._shift(own, *shifts))

    def stretched(self, box: Box, low: F64, high: F64) -> F64:
        ends = np.maximum(np.abs(low), np.abs(high))
        near = self._shift(0.0, low, (low + high) / 2)
        # where the grid has no 0, but almost, a code may stand for 0
        least = np.maximum(near, box.magnitude / self.eps)
        return np.where(box.magnitude > 2 * EPS * ends, np.maximum(ends, box.magnitude), least)

    def grid(self, node: Node) -> F64:
        near = self._shift(0.0, super().grid(node))
        if node.op not in ("Max", "Min"):
            return near
        # max(x, s*q) as s*max(x/s, q): each operand is rounded
        operands = [self.boxes[value].magnitude for value in node.inputs]
        return near + np.max(np.stack(np.broadcast_arrays(*operands)), axis=0)
