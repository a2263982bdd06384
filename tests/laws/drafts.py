"""A random graph in the making: what draws from its values, and quantizer parameters that make ties
frequent.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from hypothesis import strategies as st
from laws.build import Net, Value

from fqfuse.ir.types import DType

scales = st.sampled_from([2.0**-7, 2.0**-6, 2.0**-5, 2.0**-4, 0.5, 0.02, 0.0473, 1.5 * 2.0**-6])
"""Most are powers of two: with feeds and weights on such grids, ties are frequent and exact."""

factors = st.sampled_from([0.5, 2.0, -1.0, -0.5, 0.75, 1.0, 3.0, 1.7, -0.3])
shifts = st.sampled_from([0.0, 0.5, -0.5, 1.0, 0.25, -3.0, 0.3, 1e-7])


@dataclass
class Draft:
    """A graph in the making: f32 values [N, C, 4, 4], with what draws from them."""

    draw: st.DrawFn
    net: Net
    values: list[Value] = field(default_factory=list)
    codes: list[Value] = field(default_factory=list)

    def one(self) -> Value:
        """A value; the latest ones are likelier, so that chains come to be."""
        recent = self.values[-3:]
        return self.draw(st.sampled_from(recent if self.draw(st.integers(0, 3)) else self.values))

    def shape(self, value: Value) -> tuple[int | str, ...]:
        shape = self.net.graph.type(value).shape
        assert shape is not None
        return shape

    def channels(self, value: Value) -> int:
        return int(self.shape(value)[1])

    def vector(self, value: Value, entries: st.SearchStrategy[float]) -> np.ndarray:
        """One number, or one for each channel."""
        if self.draw(st.booleans()):
            return np.asarray(self.draw(entries))
        count = self.channels(value)
        return np.asarray(self.draw(st.lists(entries, min_size=count, max_size=count))).reshape(
            1, count, 1, 1
        )

    def partner(self, value: Value) -> Value:
        """A value of the same shape, or one that broadcasts to it; the value itself where there is
        none.
        """
        fitting = [other for other in self.values if self.shape(other) == self.shape(value)]
        return self.draw(st.sampled_from(fitting))

    def parts(self, value: Value) -> tuple[Value, ...]:
        """All outputs of the operation that produces the value."""
        node = self.net.graph.producer(value)
        assert node is not None
        return node.outputs

    def yes(self, chances: int = 2) -> bool:
        """True once in so many draws."""
        return self.draw(st.integers(1, chances)) == chances

    def quantized(self, value: Value) -> Value:
        """The value behind a quantizer of any form: FakeQuantize, or QuantizeLinear and
        DequantizeLinear of u8 or s8.
        """
        scale, zero = self.draw(scales), self.draw(st.sampled_from([0, 128, 128, 3, 255]))
        form = self.draw(st.sampled_from(["fq", "u8", "u8", "s8"]))
        if form == "fq":
            return self.net.fq(value, -zero * scale, (255 - zero) * scale)
        if form == "u8":
            return self.net.qdq(value, scale, zero)
        return self.net.qdq(value, scale, self.draw(st.sampled_from([0, 0, -128, 5])), DType.S8)

    def maybe_quantized(self, value: Value) -> Value:
        """The value, or behind a quantizer."""
        return self.quantized(value) if self.yes() else value

    def convolved(self, value: Value, outputs: int, kernel: int = 1, bias: bool = False) -> Value:
        """A convolution with weights quantized in any form, and with scales for each channel or
        one.
        """
        scale = 2.0**-8 * (np.arange(outputs) % 3 + 1) if self.yes() else 2.0**-8
        style = self.draw(st.sampled_from(["qdq", "qdq", "fq", "float"]))
        offset = self.net.rng.integers(-8, 9, outputs) / 4 if bias else None
        return self.net.conv(value, outputs, kernel, scale=scale, style=style, bias=offset)
