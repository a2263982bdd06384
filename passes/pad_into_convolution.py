"""Zeros put around what a convolution reads become its own padding."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ..ir.cleanup import erase_unread
from ..ir.graph import Graph
from ..ir.node import Node, subject
from ..ir.ops import OPS
from ..ir.ops.slicing import pad_widths
from ..ir.ops.spec import Trait
from ..ir.rule import Refusal
from .base import Contract, NodePass, Verdict, swap


def pad_into_convolution(graph: Graph, node: Node) -> Verdict:
    """Hands a Pad with zeros to the convolutions that read it.

    Before -> after::

        Conv(Pad(x, p), W){pads=q}           ->  Conv(x, W){pads=p + q}
        Conv(DQ(Q(Pad(x, p))), W){pads=q}    ->  Conv(DQ(Q(x)), W){pads=p + q}        FakeQuantize likewise
        Pad(x, 0)                            ->  x                                    no width, in any mode

    so that no operation stands between what makes x and its quantizer: the exporters of TensorFlow,
    and causal convolutions, pad by an operation of its own.

    Legal because: a convolution pads with zeros, and a quantizer whose zero point is a code of its
    range gives 0 for 0.
    Refuses when: something else than such convolutions reads the padded values, they are no zeros,
    an axis that is no spatial one is padded or one is cropped, what is padded would reach beyond
    the window, a quantizer does not give 0 for 0, or sizes are only known at run time.
    """
    # Builds each convolution anew on what the Pad reads. Nothing is changed where shapes come
    # out in other words.
    if _pads_nothing(graph, node):
        swap(graph, node, node.input)
        return "no widths but 0"
    refusal = _no_zeros(graph, node) or next(_refusals(graph, node), None)
    if refusal is not None:
        return refusal
    widths, readers = _widths(graph, node), list(_readers(graph, node))
    values = {node.output: node.input}
    made: list[tuple[Node, Node]] = []
    for reader in readers:
        inputs = [values[reader.input], *reader.inputs[1:]]
        attrs, origin = dict(reader.attrs), reader.origin
        if reader.op == "Conv":
            own = _own_pads(graph, reader)
            attrs["pads"] = tuple(a + b for a, b in zip(own, widths, strict=True))
            origin += node.origin
        new = graph.again(reader, inputs, attrs, origin=origin)
        values[reader.output] = new.output
        made.append((reader, new))
    for old, new in made:
        if old.op == "Conv" and graph.type(new.output) != graph.type(old.output):
            found = f"{graph.type(new.output)} for {graph.type(old.output)}"
            erase_unread(graph, [new for _, new in made])
            reason = "the sizes are known at run time only"
            return Refusal(
                reason,
                "spatial sizes that are numbers",
                found,
                "export with a fixed height and width of the input",
            )
    convolutions = [(old, new) for old, new in made if old.op == "Conv"]
    for old, new in convolutions:
        swap(graph, old, new.output)
    erase_unread(graph, [node, *readers])
    takers = ", ".join(subject(old) for old, _ in convolutions)
    return f"zeros that {takers} can pad with" if takers else None


PAD_INTO_CONVOLUTION = NodePass(
    "pad_into_convolution", Contract("identity", "bitwise"), pad_into_convolution, ("Pad",)
)


def _pads_nothing(graph: Graph, node: Node) -> bool:
    """True where all widths are constant zeros: networks that pad to whole windows, whose maps need
    none.
    """
    pads = graph.constant(node.inputs[1])
    return pads is not None and pads.size > 0 and not pads.any()


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


def _refusals(graph: Graph, node: Node) -> Iterator[Refusal]:
    """Why what reads the padded values cannot pad itself."""
    readers, widths = list(_readers(graph, node)), _widths(graph, node)
    quantizers = [reader for reader in readers if reader.has(Trait.QUANTIZER)]
    for value in (node.output, *(reader.output for reader in quantizers)):
        if graph.is_output(value):
            expected, found = "convolutions that read them", f"output {value}"
            yield Refusal(
                "the padded values are returned",
                expected,
                found,
                "return the values in front of the padding",
            )
    padded = {node.output, *(reader.output for reader in readers)}
    for reader in readers:
        if not (reader in quantizers or reader.op == "Conv") or padded & set(reader.inputs[1:]):
            reason = "something else reads the padded values"
            yield Refusal(
                reason,
                "convolutions",
                subject(reader),
                "nothing to change: what else reads the padded values needs them written",
            )
        elif reader.op == "Conv":
            yield from _window_refusals(graph, reader, widths)
        elif not _keeps_zero(graph, reader):
            reason = "a quantizer makes something else of the zeros"
            yield Refusal(
                reason,
                "a zero point among its codes",
                subject(reader),
                "calibrate to a range that holds 0",
            )


def _window_refusals(graph: Graph, node: Node, widths: tuple[int, ...]) -> Iterator[Refusal]:
    kernel, rank = graph.type(node.inputs[1]).shape, len(widths) // 2
    if node.attrs["auto_pad"] != "NOTSET" or kernel is None or len(kernel) != rank + 2:
        reason = "its padding follows from sizes that are known at run time"
        yield Refusal(
            reason,
            "explicit pads",
            str(node.attrs["auto_pad"]),
            "export the convolution with explicit pads",
        )
        return
    dilations = node.attr("dilations", tuple) or (1,) * rank
    own = _own_pads(graph, node)
    for axis in range(rank):
        size = kernel[axis + 2]
        reach = (size - 1) * dilations[axis] if isinstance(size, int) else 0
        if any(own[side] + widths[side] > reach for side in (axis, axis + rank)):
            expected, found = f"at most {reach} at axis {axis + 2}", str(list(widths))
            yield Refusal(
                "padding would reach beyond the window",
                expected,
                found,
                "nothing to change: so much padding is a step of its own",
            )


def _own_pads(graph: Graph, node: Node) -> tuple[int, ...]:
    return node.attr("pads", tuple) or (0,) * (2 * (graph.type(node.output).rank - 2))


def _no_zeros(graph: Graph, node: Node) -> Refusal | None:
    """Why a Pad is not zeros around spatial axes."""
    shape, pads = graph.type(node.input).shape, graph.constant(node.inputs[1])
    fill, computed = graph.constant(node.operand(2)), graph.computed(node.inputs[2:])
    if shape is None or pads is None or computed:
        expected, found = "constant pads, value and axes", ", ".join(computed) or node.inputs[1]
        return Refusal(
            "how it pads is computed at run time",
            expected,
            found,
            "make pads, value and axes constants",
        )
    if node.attrs["mode"] != "constant" or (fill is not None and fill.any()):
        found = str(node.attrs["mode"]) if fill is None else str(fill.reshape(-1).tolist())
        return Refusal(
            "it does not pad with zeros",
            "mode constant, value 0",
            found,
            "nothing to change: a convolution pads with zeros only",
        )
    widths = _by_axis(graph, node)
    if len(shape) < 3 or min(map(min, widths)) < 0 or any(map(any, widths[:2])):
        reason = "it pads or crops more than spatial axes"
        expected = "no negative pads, none for batch and channels"
        return Refusal(
            reason,
            expected,
            str(pads.reshape(-1).tolist()),
            "nothing to change: a convolution pads spatial axes only",
        )
    return None


def _by_axis(graph: Graph, node: Node) -> list[tuple[int, int]]:
    """What a Pad with constant inputs puts before and after each axis."""
    pads = graph.constant(node.inputs[1])
    assert pads is not None
    return pad_widths(pads, graph.constant(node.operand(3)), graph.type(node.input).rank)


def _widths(graph: Graph, node: Node) -> tuple[int, ...]:
    """The same as a convolution's pads: before each spatial axis, then after each."""
    before, after = zip(*_by_axis(graph, node)[2:], strict=True)
    return (*before, *after)


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
    quant = node.quant
    if not quant.integral:
        return False
    if node.op == "Dequantize":
        front = graph.producer(node.input, "Quantize")
        code = front.quant.zero_point if front is not None else (0.0,)
        return set(code) == set(quant.zero_point) and (
            len(set(code)) == 1 or code == quant.zero_point
        )
    low, high = node.attr("lo", int), node.attr("hi", int)
    return all(low <= zero <= high for zero in quant.zero_point)
