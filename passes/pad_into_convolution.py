"""Zeros put around what a convolution reads become its own padding."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ..ir.cleanup import erase_unread
from ..ir.graph import Graph
from ..ir.node import Node, subject
from ..ir.ops import OPS
from ..ir.ops.spec import Trait
from ..ir.types import Quantization
from .base import Contract, fired, refused, swap

__all__ = ["PadIntoConvolution"]

Obstacle = tuple[str, str, str]
"""Reason, what is expected, what is found."""


@dataclass(frozen=True)
class PadIntoConvolution:
    """Hands a Pad with zeros to the convolutions that read it.

    Before -> after::

        Conv(Pad(x, p), W){pads=q}           ->  Conv(x, W){pads=p + q}
        Conv(DQ(Q(Pad(x, p))), W){pads=q}    ->  Conv(DQ(Q(x)), W){pads=p + q}        FakeQuantize likewise

    so that no operation stands between what makes x and its quantizer: the exporters of TensorFlow,
    and causal convolutions, pad by an operation of its own.

    Legal because: a convolution pads with zeros, and a quantizer whose zero point is a code of its
    range gives 0 for 0.
    Refuses when: something else than such convolutions reads the padded values, they are no zeros,
    an axis that is no spatial one is padded or one is cropped, what is padded would reach beyond
    the window, a quantizer does not give 0 for 0, or sizes are only known at run time.
    """

    name: ClassVar[str] = "pad_into_convolution"
    contract: ClassVar[Contract] = Contract("identity", "bitwise")

    def run(self, graph: Graph) -> None:
        """Looks at every Pad."""
        for node in graph.each("Pad"):
            obstacle = (
                _no_zeros(graph, node)
                or next(_readers_obstacles(graph, node), None)
                or self._rewrite(graph, node)
            )
            if obstacle is not None:
                reason, expected, found = obstacle
                refused(graph, self.name, node, reason, expected=expected, found=found)

    def _rewrite(self, graph: Graph, node: Node) -> Obstacle | None:
        """Builds each convolution anew on what the Pad reads. Nothing is changed where shapes come
        out in other words.
        """
        widths, readers = _widths(graph, node), list(_readers(graph, node))
        values, made = {node.output: node.inputs[0]}, dict[str, Node]()
        for reader in readers:
            inputs = [values[reader.inputs[0]], *reader.inputs[1:]]
            attrs = dict(reader.attrs)
            if reader.op == "Conv":
                own = _own_pads(graph, reader)
                attrs["pads"] = tuple(own[i] + widths[i] for i in range(len(own)))
            new = graph.add(
                reader.op,
                inputs,
                attrs,
                name=reader.name,
                origin=(*reader.origin, *node.origin) if reader.op == "Conv" else reader.origin,
                quantizer=reader.quantizer,
            )
            values[reader.output] = new.output
            made[reader.name] = new
        convolutions = [reader for reader in readers if reader.op == "Conv"]
        other = next(
            (c for c in convolutions if graph.type(made[c.name].output) != graph.type(c.output)),
            None,
        )
        if other is not None:
            found = f"{graph.type(made[other.name].output)} for {graph.type(other.output)}"
            erase_unread(graph, made.values())
            return "the sizes are known at run time only", "spatial sizes that are numbers", found
        if convolutions:
            fired(
                graph,
                self.name,
                node,
                f"zeros that {', '.join(map(subject, convolutions))} can pad with",
            )
        for reader in convolutions:
            swap(graph, reader, made[reader.name].output)
        erase_unread(graph, [node, *readers])
        return None


def _readers(graph: Graph, node: Node) -> Iterator[Node]:
    """What reads a Pad's values, over quantizers, each before what reads it."""
    waiting, seen = [node.output], set[str]()
    for value in waiting:
        for reader in graph.consumers(value):
            if reader.name not in seen:
                seen.add(reader.name)
                yield reader
                if reader.has(Trait.QUANTIZER):
                    waiting.append(reader.output)


def _readers_obstacles(graph: Graph, node: Node) -> Iterator[Obstacle]:
    """Why what reads the padded values cannot pad itself."""
    readers, widths = list(_readers(graph, node)), _widths(graph, node)
    for value in (
        node.output,
        *(reader.output for reader in readers if reader.has(Trait.QUANTIZER)),
    ):
        if graph.is_output(value):
            yield "the padded values are returned", "convolutions that read them", f"output {value}"
    padded = {node.output, *(reader.output for reader in readers)}
    for reader in readers:
        if not (reader.has(Trait.QUANTIZER) or reader.op == "Conv") or padded & set(
            reader.inputs[1:]
        ):
            yield "something else reads the padded values", "convolutions", subject(reader)
        elif reader.has(Trait.QUANTIZER) and not _keeps_zero(graph, reader):
            yield (
                "a quantizer makes something else of the zeros",
                "a zero point among its codes",
                subject(reader),
            )
        elif reader.op == "Conv":
            yield from _window_obstacles(graph, reader, widths)


def _window_obstacles(graph: Graph, node: Node, widths: tuple[int, ...]) -> Iterator[Obstacle]:
    kernel, rank = graph.type(node.inputs[1]).shape, len(widths) // 2
    if node.attrs["auto_pad"] != "NOTSET" or kernel is None or len(kernel) != rank + 2:
        yield (
            "its padding follows from sizes that are known at run time",
            "explicit pads",
            str(node.attrs["auto_pad"]),
        )
        return
    dilations = node.attr("dilations", tuple) or (1,) * rank
    own = _own_pads(graph, node)
    for axis in range(rank):
        size = kernel[axis + 2]
        reach = (size - 1) * dilations[axis] if isinstance(size, int) else 0
        if any(own[side] + widths[side] > reach for side in (axis, axis + rank)):
            yield (
                "padding would reach beyond the window",
                f"at most {reach} at axis {axis + 2}",
                str(list(widths)),
            )


def _own_pads(graph: Graph, node: Node) -> tuple[int, ...]:
    return node.attr("pads", tuple) or (0,) * (2 * (graph.type(node.output).rank - 2))


def _no_zeros(graph: Graph, node: Node) -> Obstacle | None:
    """Why a Pad is not zeros around spatial axes."""
    shape, pads = graph.type(node.inputs[0]).shape, graph.constant(node.inputs[1])
    given = [graph.constant(value) if value else None for value in (*node.inputs[2:], "", "")[:2]]
    computed = [
        value
        for value, data in zip(node.inputs[2:4], given, strict=False)
        if value and data is None
    ]
    if shape is None or pads is None or computed:
        return (
            "how it pads is computed at run time",
            "constant pads, value and axes",
            ", ".join(computed) or node.inputs[1],
        )
    if node.attrs["mode"] != "constant" or (given[0] is not None and given[0].any()):
        found = str(node.attrs["mode"]) if given[0] is None else str(given[0].reshape(-1).tolist())
        return "it does not pad with zeros", "mode constant, value 0", found
    before, after = _by_axis(graph, node)
    if len(shape) < 3 or min(*before, *after) < 0 or any((*before[:2], *after[:2])):
        return (
            "it pads or crops more than spatial axes",
            "no negative pads, none for batch and channels",
            str(pads.reshape(-1).tolist()),
        )
    return None


def _by_axis(graph: Graph, node: Node) -> tuple[list[int], list[int]]:
    """What a Pad with constant inputs puts before and after each axis."""
    rank, pads = graph.type(node.inputs[0]).rank, graph.constant(node.inputs[1])
    axes = (
        graph.constant(node.inputs[3])
        if len(node.inputs) > 3 and node.inputs[3]
        else np.arange(rank)
    )
    assert pads is not None
    assert axes is not None
    before, after = [0] * rank, [0] * rank
    for place, axis in enumerate(axes.reshape(-1)):
        before[int(axis) % rank] = int(pads[place])
        after[int(axis) % rank] = int(pads[place + axes.size])
    return before, after


def _widths(graph: Graph, node: Node) -> tuple[int, ...]:
    """The same as a convolution's pads: before each spatial axis, then after each."""
    before, after = _by_axis(graph, node)
    return (*before[2:], *after[2:])


def _keeps_zero(graph: Graph, node: Node) -> bool:
    """True when a quantizer gives 0 for 0, or the code of 0 for it, and back."""
    if node.op == "FakeQuantize":
        ranges = [graph.constant(value) for value in node.inputs[1:5]]
        known = [data for data in ranges if data is not None]
        evaluate = OPS["FakeQuantize"].evaluate
        if len(known) < len(ranges) or evaluate is None:
            return False
        zeros = np.zeros(np.broadcast_shapes((1,), *(data.shape for data in known)), np.float32)
        return not np.any(evaluate([zeros, *known], node.attrs)[0])
    quant = node.attr("quant", Quantization)
    if not quant.integral:
        return False
    if node.op == "Dequantize":
        front = graph.producer(node.inputs[0])
        zeros_code = (
            front.attr("quant", Quantization).zero_point
            if front is not None and front.op == "Quantize"
            else (0.0,)
        )
        return set(zeros_code) == set(quant.zero_point) and (
            len(set(zeros_code)) == 1 or zeros_code == quant.zero_point
        )
    low, high = node.attr("lo", int), node.attr("hi", int)
    return all(low <= zero <= high for zero in quant.zero_point)
