"""The part of a model between the values that a step of a plan reads and one that it writes, on
intervals: each operation is granted its f32 roundings, and those alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from laws.boxes import EPS, F64, Box, exactly, hull
from laws.intervals import Run

from fqfuse.ir.graph import Graph
from fqfuse.ir.node import Node
from fqfuse.ir.ops.spec import Trait
from fqfuse.ir.types import Quantization, TensorType

ULPS = 4.0
"""Roundings that each operation is granted: a plan has one or two more than the model."""

FAR, FAR_IN_CODES = 2.0**6, 2.0**16
"""How far from 0 the code 0 may decode to, as a number and in steps of the codes next to it, before
its zero point has to be taken off first: docs/contributing/numerics.md, Zeros.
"""

SMALLEST, LARGEST = 2.0**-126, float(np.finfo(np.float32).max)
"""What is smaller may be 0, what is larger infinity."""

_ABSOLUTE = {"Elu": 2.0**-22, "Log": 2.0**-19}
"""What oneDNN's polynomials may miss where the result is near 0: exp(x) - 1, the logarithm next to
1.
"""

_SELECTING = frozenset({"Relu", "Clip", "Max", "Min"})

_OF_A_TENSOR = 2.0**8
"""What a tensor that multiplies codes counts as."""

_OF_A_SUM = 16
"""Steps of a sum of products that count as one of a code."""

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
        return exactly((box.low - zero) * scale).widened(
            cone.eps * cone.decoding(self.name, box, scale, zero)
        )


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
        self._misses: dict[str, float] = {}
        self._given = given
        self._steps = {self._step_of(v) for v in (*given, *(n.output for n in self._nodes))}
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
                box = box.widened(self._missed_behind(node))
                if not (np.maximum(box.magnitude, self._added(node)) <= LARGEST).all():
                    raise Unjudged("outgrows f32")
                self.boxes[node.output] = box
        return self.boxes[self._held.name]

    def _missed_behind(self, node: Node) -> float:
        """What is missed where codes are selected, q*s - z*s computed behind that: max(x, 0) hides
        nothing, nor do the codes of 0 that a Pad puts beside others.
        """
        passes = node.op != "Pad" and node.has(Trait.LAYOUT_ONLY, Trait.SELECTS)
        if not passes and node.op not in (*_SELECTING, "Pad"):
            return 0.0
        miss = max((self._misses.get(value, 0.0) for value in node.inputs), default=0.0)
        self._misses[node.output] = max(miss, self._misses.get(node.output, 0.0))
        return 0.0 if passes else miss

    def _added(self, node: Node) -> float:
        """What a mean adds up before it divides, at most: where that is no f32, ONNX Runtime has
        infinity, too.
        """
        if not node.has(Trait.AVERAGES):
            return 0.0
        box = self.operand(node, 0)
        return float(box.magnitude.max(initial=0.0)) * box.low.size

    def _step_of(self, value: str) -> float:
        """Of the codes of a value, or of a sum of products of such; 0: there are none."""
        held = self._given.get(value)
        if held is not None and held.quant:
            return _step(held.quant)
        node = self.graph.producer(value)
        if node is not None and (node.op == "Pad" or node.has(Trait.LAYOUT_ONLY, Trait.SELECTS)):
            return self._step_of(node.inputs[0])
        if node is None:
            return 0.0
        if node.op in ("Quantize", "Dequantize"):
            return _step(node.attr("quant", Quantization))
        if node.has(Trait.PRODUCT):
            return _OF_A_SUM * math.prod(map(self._step_of, node.inputs[:2]))
        if node.op != "FakeQuantize" or not set(node.inputs[3:]) <= self.graph.constants.keys():
            return 0.0
        low, high = (self.graph.constants[end] for end in node.inputs[3:])
        return float(np.abs(high - low).max()) / (node.attr("levels", int) - 1)

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

    def _shift(self, values: Iterable[str], scale: float, *shifts: npt.ArrayLike) -> F64:
        """The largest of the shifts, in any of which q*s - shift may stand for (q - z)*s even at
        q = z: by docs/contributing/numerics.md, Zeros. The misses of `values` are as large.
        """
        others = max(self._steps - {scale}, default=0.0)
        if self._held.quant:
            others = max(others, _step(self._held.quant))
        distances = np.abs(np.stack(np.broadcast_arrays(*shifts)))
        gain = max(map(self._gain, values), default=1.0)
        near = distances * gain <= max(FAR, FAR_IN_CODES * others)
        found = np.where(near, distances, 0.0).max(0)
        self._misses.update(dict.fromkeys(values, self.eps * float(found.max(initial=0.0))))
        return found

    def _gain(self, value: str) -> float:
        """What constant factors make of a value on its way through the cone: q*s - z*s may be
        computed behind them, as q*(s*a) - z*s*a. 1 where they make it larger.
        """
        gains = [
            self._factor(node) * self._gain(node.output)
            for node in self._nodes
            if value in node.inputs
        ]
        return min(1.0, max(gains, default=1.0))

    def _factor(self, node: Node) -> float:
        """The largest that a node multiplies by."""
        if node.op not in ("Mul", "Div"):
            return 1.0
        constants = [v for v in node.inputs[node.op == "Div" :] if v in self.graph.constants]
        if not constants:
            return _OF_A_TENSOR
        factors = np.abs(self.graph.constants[constants[0]].astype(np.float64))
        return float((factors if node.op == "Mul" else 1 / factors).max(initial=0.0))

    def decoding(self, value: str, codes: Box, scale: F64, zero: F64) -> F64:
        ends = hull((codes.low - zero) * scale, (codes.high - zero) * scale).magnitude
        # s8 codes are u8 codes with 128 more
        shifts = [(zero + more) * scale for more in (0, 128, -128)]
        all_of_it = (np.abs(zero) + 128) * np.abs(scale)
        own = float(np.abs(scale).max(initial=0.0))
        return ends + np.where(ends > 0, all_of_it, self._shift([value], own, *shifts))

    def stretched(self, value: str, box: Box, low: F64, high: F64) -> F64:
        ends = np.maximum(np.abs(low), np.abs(high))
        near = self._shift([value], 0.0, low, (low + high) / 2)
        # where the grid has no 0, but almost, a code may stand for 0
        least = np.maximum(near, box.magnitude / self.eps)
        return np.where(box.magnitude > 2 * EPS * ends, np.maximum(ends, box.magnitude), least)

    def grid(self, node: Node) -> F64:
        near = self._shift(node.outputs, 0.0, super().grid(node))
        if node.op not in ("Max", "Min"):
            return near
        # max(x, s*q) as s*max(x/s, q): each operand is rounded
        operands = [self.boxes[value].magnitude for value in node.inputs]
        return near + np.max(np.stack(np.broadcast_arrays(*operands)), axis=0)
