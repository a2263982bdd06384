"""Other numbers for a graph: inputs of any magnitude, quantizers to fit them with zero points
anywhere in their codes, constants to match. Some quantizers are as wide as a mask's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from fqfuse.ir.graph import Graph
from fqfuse.ir.interpret import run_node
from fqfuse.ir.node import Node
from fqfuse.ir.types import DType, Quantization

WIDEST = 6.0
"""Inputs are of magnitudes from 10^-6 to 10^6."""

Array = np.ndarray


def widened(
    graph: Graph, feeds: Mapping[str, Array], rng: np.random.Generator
) -> tuple[Graph, dict[str, Array]]:
    """The same operations on other numbers, and feeds for them."""
    return Widening(graph, feeds, rng).run()


class Widening:
    """A graph that is made anew, node by node, and run on the way: what a quantizer fits is known.

    Attributes:
        old: the graph.
        made: the new one; values have the same names, but changed constants.
        live: its values, by name.
    """

    def __init__(self, graph: Graph, feeds: Mapping[str, Array], rng: np.random.Generator) -> None:
        self.old, self.rng, self.made = graph, rng, Graph(graph.name)
        self.live: dict[str, Array] = dict(graph.constants)
        for name in graph.inputs:
            self.made.add_input(name, graph.type(name))
            wide = feeds[name].dtype == np.float32
            self.live[name] = self.scaled(feeds[name]) if wide else feeds[name]
        for name, data in graph.constants.items():
            self.made.add_constant(name, data, graph.type(name).dtype, graph.type(name).quant)

    def run(self) -> tuple[Graph, dict[str, Array]]:
        for node in self.old.nodes():
            with np.errstate(all="ignore"):
                self.node(node)
        self.made.quantizers |= self.old.quantizers
        self.made.set_outputs(self.old.outputs)
        return self.made, {name: self.live[name] for name in self.old.inputs}

    def scaled(self, data: Array) -> Array:
        """An input of another magnitude; some of it is 0, whose codes are zero points."""
        zeros = self.rng.random(data.shape) < self.rng.choice([0.0, 0.3])
        return np.where(zeros, np.float32(0), data * self.factor(WIDEST))

    def factor(self, decades: float) -> np.float32:
        """A number from 10^-decades to 10^decades."""
        return np.float32(10 ** self.rng.uniform(-decades, decades))

    def room(self) -> np.float32:
        """How much larger than its numbers a quantizer's range is; that of a mask is far larger."""
        mask = self.rng.random() < 0.15
        return self.factor(0.7) * np.float32(10 ** self.rng.uniform(1, 8) if mask else 1)

    def node(self, node: Node) -> None:
        inputs, attrs = list(node.inputs), dict(node.attrs)
        if node.op == "Quantize":
            attrs["quant"] = self.fitting(attrs["quant"], attrs["dtype"], inputs[0])
        elif node.op == "Dequantize":
            attrs["quant"] = self.decoding(attrs["quant"], inputs[0])
        elif node.op == "FakeQuantize":
            inputs[1:] = self.ranges(inputs)
        elif (
            node.op in ("Add", "Sub", "Max", "Min", "Clip", "Mul", "Div")
            and self.rng.random() < 0.7
        ):
            inputs = self.operands(node.op, inputs)
        given = {"name": node.name, "outputs": node.outputs, "origin": node.origin}
        made = self.made.add(
            node.op, inputs, attrs, **given, quantizer=node.quantizer, after_all=True
        )
        arrays = [self.live[value] if value else None for value in inputs]
        self.live |= zip(made.outputs, run_node(made, arrays), strict=False)

    def reach(self, value: str) -> float:
        """The largest magnitude of a value; 1 where it is 0 or none."""
        largest = float(np.abs(self.live[value].astype(np.float64)).max(initial=0.0))
        return largest if 0 < largest < 1e30 else 1.0

    def fitting(self, quant: Quantization, dtype: DType, value: str) -> Quantization:
        """Scales for most of a value's numbers, and sometimes any zero point."""
        codes = np.abs(np.asarray(dtype.range, np.float64)).max()
        wide = self.reach(value) / codes * self.room()
        scales = quant.scales / np.abs(quant.scales).max() * wide
        zero = quant.zero_points
        if self.rng.random() < 0.5:
            zero = self.rng.integers(dtype.range[0], dtype.range[1] + 1, zero.shape)
        return Quantization.of(scales.astype(np.float32), zero, quant.axis)

    def decoding(self, quant: Quantization, codes: str) -> Quantization:
        """As the codes were made; constants are scaled."""
        made = self.made.type(codes).quant
        if made is not None and quant == self.old.type(codes).quant:
            return made
        if codes not in self.old.constants:
            return quant
        return replace(quant, scale=tuple((quant.scales * self.factor(1)).tolist()))

    def ranges(self, inputs: Sequence[str]) -> list[str]:
        """Constant ranges, fitted to the value; others are what they are."""
        if not all(value in self.old.constants for value in inputs[1:]):
            return list(inputs[1:])
        ends = [self.live[value] for value in inputs[1:]]
        widest = max(float(np.abs(end).max()) for end in ends[:2]) or 1.0
        factor = np.float32(self.reach(inputs[0]) / widest) * self.room()
        same = all(np.array_equal(*pair) for pair in zip(ends[:2], ends[2:], strict=True))
        behind = factor if same else factor * self.factor(2)
        factors = (factor, factor, behind, behind)
        return [
            self.constant(value, end * by)
            for value, end, by in zip(inputs[1:], ends, factors, strict=True)
        ]

    def operands(self, op: str, inputs: Sequence[str]) -> list[str]:
        """Constants as large as the other operand is, roughly; factors of any size."""
        constants = [
            value in self.old.constants and self.live[value].dtype == np.float32 for value in inputs
        ]
        if all(constants) or not any(constants):
            return list(inputs)
        factor = self.factor(2)
        if op not in ("Mul", "Div"):
            rest = [value for value, fixed in zip(inputs, constants, strict=True) if not fixed]
            # a mask's -10000 stays
            largest = max(
                self.reach(v) for v, fixed in zip(inputs, constants, strict=True) if fixed
            )
            factor *= np.float32(self.reach(rest[0]) / largest) if largest < 1e3 else 1
        return [
            self.constant(value, self.live[value] * factor) if fixed else value
            for value, fixed in zip(inputs, constants, strict=True)
        ]

    def constant(self, value: str, data: Array) -> str:
        name = self.made.add_constant(value, data.astype(np.float32))
        self.live[name] = data.astype(np.float32)
        return name
