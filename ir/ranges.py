"""The ranges of a FakeQuantize as vectors, which passes and the composer both read."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .graph import Graph
from .node import Node

F64 = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Ranges:
    """The four ranges of a FakeQuantize as f64 vectors of one length: 1, or the size of `axis`.

    `tells_size`: the input does not say how long `axis` is, so that the ranges alone tell.
    """

    input_low: F64
    input_high: F64
    output_low: F64
    output_high: F64
    axis: int | None
    levels: int
    tells_size: bool = False

    @property
    def input_scale(self) -> F64:
        """Real width of one step of the input grid: (ih - il) / (levels - 1); negative where the
        range is inverted, 0 for a threshold.
        """
        return (self.input_high - self.input_low) / (self.levels - 1)

    @property
    def output_scale(self) -> F64:
        """Real width of one step of the output grid: (oh - ol) / (levels - 1); 0 where the output
        is constant.
        """
        return (self.output_high - self.output_low) / (self.levels - 1)

    @property
    def finite(self) -> bool:
        """True when no bound is NaN or infinite."""
        return bool(
            np.isfinite(
                np.concatenate([self.input_low, self.input_high, self.output_low, self.output_high])
            ).all()
        )


def ranges_of(graph: Graph, node: Node) -> Ranges | str:
    """The ranges of a FakeQuantize node, or the reason why they have no per-tensor or per-axis
    form.
    """
    data = [graph.constant(value) for value in node.inputs[1:]]
    if any(array is None for array in data):
        return "a range is not constant"
    known = graph.type(node.input).shape
    arrays = [np.asarray(array, np.float64) for array in data]
    if known is None and any(array.size != 1 for array in arrays):
        return "the rank of the input is unknown and the ranges are not scalars"
    shape = np.broadcast_shapes(*(array.shape for array in arrays))
    long = [i for i, size in enumerate(shape) if size != 1]
    if len(long) > 1:
        return f"the ranges vary along {len(long)} axes"
    axis = len(known or ()) - len(shape) + long[0] if long else None
    if axis is not None and axis < 0:
        return "the ranges have more dimensions than the input"
    vectors = [np.broadcast_to(array, shape).reshape(-1) for array in arrays]
    tells_size = axis is not None and known is not None and known[axis] != len(vectors[0])
    if axis is not None and not tells_size and all(np.all(v == v[0]) for v in vectors):
        axis, vectors = None, [v[:1] for v in vectors]
    low, high, out_low, out_high = vectors
    levels = node.attr("levels", int)
    return Ranges(low, high, out_low, out_high, axis, levels, tells_size)


def makes_codes(graph: Graph, node: Node) -> bool:
    """True of the FakeQuantize that `split_fake_quantize` leaves in front of a Quantize: its output
    is codes, as numbers.

    It belongs to no quantizer itself; the Quantize and Dequantize behind it do.
    """
    readers = graph.consumers(node.output)
    return (
        node.op == "FakeQuantize"
        and not node.quantizer
        and bool(readers)
        and all(reader.op == "Quantize" for reader in readers)
    )


def decodes_floats(graph: Graph, node: Node) -> bool:
    """True of a Cast that decodes codes which are floats of 8 or 4 bits."""
    return node.op == "Cast" and graph.type(node.input).dtype.is_small_float
