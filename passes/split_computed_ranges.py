"""FakeQuantize whose ranges are computed at run time -> codes made and decoded by computed numbers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..ir.graph import Graph
from ..ir.node import Node
from ..ir.ops.computed_ranges import BEYOND, BLOWN_UP, GRID, QUARTER, last_code
from ..ir.ops.spec import Attr
from ..ir.rule import Refusal
from ..ir.types import DType, Quantization, is_static
from .base import Contract, NodePass, Verdict, swap


def split_computed_ranges(graph: Graph, node: Node) -> Verdict:
    """Splits a FakeQuantize whose ranges are computed, or fed, into the two halves of a quantizer.

    Before -> after::

        y = FakeQuantize(x, il, ih, ol, oh)
        ->  f, o, r, l, h, s, z, c = FakeQuantizeGrid(il, ih, ol, oh)
            u = Min(Max(blown_up((x*f - o)*r), l), h)                   the index on the grid
            u = L - fold(L - fold(u))
            q = Quantize{1,0}(u): u8;  y = RunTimeDequantize(q, s, z) + c            L: levels - 1

    Legal because: u is (x - il)/(ih - il)*L, and rounding and clipping it is the definition where il
    < ih. The difference x - il is rounded once, so that ranges far from 0 lose nothing. An inverted
    range jumps to the other end at either bound: what lies beyond a bound is folded, by a relu with
    a large negative slope, to a quarter of a step inside of the other end; of others nothing lies
    there, for l and h are 0 and L. A zero point that is no integer, inverted outputs and constant ones are decoded by
    z, an integer, and c, which is what z lacks: y = (q - z)*s + c.
    Constant ranges that vary along several axes, and of which one is inverted or a threshold, have
    the same form; others have a shorter one.
    Refuses when: there are more than 256 levels, the input is constant, or the model does not tell
    the number of dimensions, or of ranges.
    """
    ranges = node.inputs[1:]
    if not graph.computed(ranges) and not _jump_along_axes(graph, node):
        return None
    refusal = _refusal(graph, node, ranges)
    if refusal is not None:
        return refusal
    levels = node.attr("levels", int)
    grid = graph.add(
        GRID,
        ranges,
        {"levels": levels, "rank": graph.type(node.input).rank},
        name=f"{node.name}/grid",
        outputs=[graph.fresh(f"{node.output}/{what}") for what in _PARAMETERS],
        origin=node.origin,
    )
    codes = _codes(graph, node, grid.outputs[:5], levels)
    swap(graph, node, _decoded(graph, node, codes, grid.outputs[5:]))
    when = "in each run" if graph.computed(ranges) else "for each element"
    return f"u8 codes 0..{last_code(levels)}, made and decoded by what the ranges are {when}"


SPLIT_COMPUTED_RANGES = NodePass(
    "split_computed_ranges", Contract("identity", "ties"), split_computed_ranges, ("FakeQuantize",)
)

_PARAMETERS = ("factor", "offset", "rate", "low", "high", "scale", "zero_point", "rest")


def _jump_along_axes(graph: Graph, node: Node) -> bool:
    """True of constant ranges along several axes of which one is inverted, or a threshold."""
    data = [np.asarray(graph.constant(value)) for value in node.inputs[1:]]
    common = np.broadcast_shapes(*(array.shape for array in data))
    several = sum(size != 1 for size in common) > 1 and len(common) <= len(
        graph.type(node.input).shape or ()
    )
    low, high = data[:2]
    finite = all(np.isfinite(array).all() for array in data)
    computed = graph.constant(node.input) is None and node.attr("levels", int) <= 256
    return several and finite and computed and bool((low >= high).any())


def _refusal(graph: Graph, node: Node, ranges: Sequence[str]) -> Refusal | None:
    """Why a FakeQuantize with computed ranges stays whole."""
    x, levels = graph.type(node.input), node.attr("levels", int)
    types = [graph.type(value) for value in ranges]
    ranks = [type_.rank for type_ in types if type_.shape is not None]
    if levels > 256:
        return Refusal(
            "codes of so many levels do not fit into 8 bits",
            "at most 256 levels",
            str(levels),
            "quantize to 256 levels or fewer",
        )
    if graph.constant(node.input) is not None:
        return Refusal(
            "a constant is quantized by ranges that are computed in each run",
            "constant ranges",
            ranges[0],
            "export the ranges of weights as constants",
        )
    if not x.shape or len(ranks) < len(types) or max(ranks) > x.rank:
        return Refusal(
            "the model does not tell how many dimensions the input or the ranges have",
            "an input of known rank, ranges of the same or a lower one",
            f"{x}; {', '.join(map(str, types))}",
            "export the model with the number of dimensions of each input",
        )
    if not all(is_static(type_.shape) for type_ in types):
        return Refusal(
            "the model does not tell how many ranges it computes",
            "ranges of fixed sizes",
            ", ".join(map(str, types)),
            "export the ranges with fixed sizes, one number or one for each channel",
        )
    return None


def _codes(graph: Graph, node: Node, operands: Sequence[str], levels: int) -> str:
    """The chain of `ir/ops/computed_ranges.py`, and the store of its codes."""
    factor, offset, rate, low, high = operands
    steps, inside = levels - 1.0, levels - 1.0 - QUARTER
    value = node.input

    def then(op: str, what: str, *more: str | float, **attrs: Attr) -> None:
        nonlocal value
        values = [v if isinstance(v, str) else _number(graph, node, what, v) for v in more]
        value = graph.part(node, op, [value, *values], what, attrs)

    then("Mul", "factor", factor)
    then("Sub", "offset", offset)
    then("Mul", "rate", rate)
    then("LeakyRelu", "blown_up", alpha=BLOWN_UP)
    then("Max", "low", low)
    then("Min", "high", high)
    then("LeakyRelu", "fold", alpha=-inside / BEYOND)
    value = graph.part(node, "Sub", [_number(graph, node, "last", steps), value], "from_high")
    then("LeakyRelu", "fold_high", alpha=-steps * 2.0**24)
    then("Clip", "inside", 0.0, inside)
    value = graph.part(node, "Sub", [_number(graph, node, "last", steps), value], "index")
    if levels == 2:
        then("Round", "rounded")
        then("Mul", "two_codes", float(last_code(levels)))
    attrs: dict[str, Attr] = {
        "quant": Quantization.of(1.0),
        "dtype": DType.U8,
        "lo": 0,
        "hi": last_code(levels),
        "order": "round_first",
    }
    return _half(graph, node, "Quantize", [value], "codes", attrs)


def _number(graph: Graph, node: Node, what: str, value: float) -> str:
    return graph.add_constant(f"{node.output}/{what}", np.asarray(value, np.float32))


def _decoded(graph: Graph, node: Node, codes: str, parameters: Sequence[str]) -> str:
    """(code - zero point)*scale + rest; as real numbers where the ranges vary along several axes."""
    scale, zero, rest = parameters
    common = graph.type(rest).static_shape
    long = [axis for axis, size in enumerate(common) if size != 1]
    if len(long) < 2:
        attrs: dict[str, Attr] = {"axis": long[0]} if long else {}
        value = _half(graph, node, "RunTimeDequantize", [codes, scale, zero], "dequantize", attrs)
        return graph.part(node, "Add", [value, rest], "values")
    unit: dict[str, Attr] = {"quant": Quantization.of(1.0)}
    value = _half(graph, node, "Dequantize", [codes], "dequantize", unit)
    shift = graph.part(node, "Cast", [zero], "zero_point", {"to": DType.F32})
    value = graph.part(node, "Sub", [value, shift], "shifted")
    value = graph.part(node, "Mul", [value, scale], "scaled")
    return graph.part(node, "Add", [value, rest], "values")


def _half(
    graph: Graph, node: Node, op: str, inputs: Sequence[str], what: str, attrs: dict[str, Attr]
) -> str:
    """A half of the quantizer."""
    name, outputs = f"{node.name}/{what}", [graph.fresh(f"{node.output}/{what}")]
    return graph.add(
        op,
        inputs,
        attrs,
        name=name,
        outputs=outputs,
        origin=node.origin,
        quantizer=node.quantizer,
    ).output
