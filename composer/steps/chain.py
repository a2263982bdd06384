"""Growing a chain: which operations behind an anchor belong to its primitive, as basic operations.

A chain runs along values that one operation alone reads. Every operation on the way is first
written as basic operations (`operations_of`), then offered to the PostOpsComposer; the longest
prefix that the target can store is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import starmap

import numpy as np
import numpy.typing as npt

from ...ir.graph import Graph
from ...ir.node import Node
from ...ir.ops import dims
from ...ir.ops.spec import Trait
from ...ir.paths import keeps_shape
from ...ir.rule import Refusal
from ...ir.types import DType, Quantization, Shape
from ..formula.algebra import is_normal
from ..formula.definitions import rounded_first
from ..formula.formula import (
    BasicOp,
    Clip,
    EltwiseOp,
    PreluOp,
    Round,
    ScaleBy,
    Store,
    decoding,
    vec,
)
from ..mapping.composed import Approximation, Composed, Front
from ..mapping.post_ops_composer import PostOpsComposer
from .builder import StepBuilder
from .fake_quantize import compare, keeps_codes
from .residual import branch_refusal
from .two_operands import (
    End,
    Found,
    as_the_target_compares,
    channel_vector,
    no_post_op,
    two_operands,
)


@dataclass(frozen=True, eq=False)
class Link:
    """One operation of the graph that a chain absorbed.

    Attributes:
        node: the operation.
        found: what it does, and what became of a Dequantize on its other input.
        part: its bit in `Part.of`; what is composed of the chain has been credited with it.
        approximated: what was approximated in front of it when it came.
    """

    node: Node
    found: Found
    part: int
    approximated: tuple[Approximation, ...]


@dataclass(frozen=True, eq=False)
class Chain:
    """The operations that an anchor absorbed, and the attributes that they became.

    Attributes:
        value: the graph value that the step writes.
        composed: the attributes.
        links: absorbed operations, in order, without the anchor.
        refusal: why the chain ends where it ends, with the node that was refused; None when the
            value is read by several or returned.
    """

    value: str
    composed: Composed
    links: tuple[Link, ...] = ()
    refusal: tuple[Node, Refusal] | None = None


def grow(builder: StepBuilder, composer: PostOpsComposer, anchor: Node) -> Chain | Refusal:
    """The longest chain behind `anchor` that fits the composer, or why not even the anchor alone
    can be stored.
    """
    graph = builder.graph
    links: list[Link] = []
    legal: tuple[str, Composed, int] | None = None
    refusal: tuple[Node, Refusal] | None = None
    found: Found | Refusal | None
    last = anchor
    while True:
        result, decodes = composer.result, last.op == "Dequantize" and last is not anchor
        if result.refusal is not None:
            refusal = (last, result.refusal) if links and not decodes else refusal
        elif _is_storable(graph.type(last.output).dtype) and not (
            decodes and _read_as_codes(graph, last)
        ):
            # Codes are decoded inside the step for an operation behind that the step takes too, or
            # that no primitive reads as codes.
            legal, refusal = (last.output, result, len(links)), None
        node = _only_reader(graph, last.output)
        if node is None or builder.is_claimed(node):
            break
        found = branch_refusal(builder, anchor, node, last.output)
        found = found or offered(End(graph, node, last.output, composer, anchor))
        if not isinstance(found, Found):
            refusal = refusal if found is None else (node, found)
            break
        made = composer.result.approximated[len(result.approximated) :]
        links.append(Link(node, found, composer.last, made))
        last = node
    if legal is not None:
        value, composed, taken = legal
        return Chain(value, composed, tuple(links[:taken]), refusal)
    kind = graph.type(anchor.output).dtype
    what = "truth values" if kind is DType.BOOL else "such codes"
    ended = Refusal(
        f"no primitive stores {what}",
        "f32",
        kind.value,
        "compute in float32 here: cast behind this operation",
    )
    return composer.result.refusal or (ended if refusal is None else refusal[1])


def _only_reader(graph: Graph, value: str) -> Node | None:
    """The one node that reads the value, by one input or by both (`Add(x, x)`), when the graph does
    not return it; otherwise None.
    """
    readers = graph.consumers(value)
    return readers[0] if len(readers) == 1 and not graph.is_output(value) else None


def _is_storable(dtype: DType) -> bool:
    """False where a chain must go on: truth values, and 16-bit codes."""
    return dtype is not DType.BOOL and not dtype.is_wide_code


def _read_as_codes(graph: Graph, decode: Node) -> bool:
    """True when a reader of decoded values can take the codes instead."""
    if graph.type(decode.input).dtype.is_wide_code:
        return False
    return any(
        node.has(Trait.READS_CODES, Trait.ELEMENTWISE) for node in graph.consumers(decode.output)
    )


def _larger(graph: Graph, node: Node, value: str) -> Refusal:
    """Why a chain ends where its value is broadcast, or where nobody knows whether it is."""
    small, large = graph.type(value), graph.type(node.output)
    known = small.shape is not None and large.shape is not None
    if not known or not _surely_differ(small.shape or (), large.shape or ()):
        others = [graph.type(other) for other in node.inputs if other and other != value]
        return Refusal(
            "the result may be larger than the chain: the model does not tell whether their sizes are the same",
            f"{small}",
            ", ".join(f"{other}" for other in others if not dims.fits(other.shape, small.shape)),
            "export the model with fixed sizes, or with one name for sizes that are equal",
        )
    return Refusal(
        "the result is larger than the chain: the chain's value is broadcast",
        f"{small}",
        f"{large}",
        "nothing to change in the quantizer: the network broadcasts the smaller value here",
    )


def _surely_differ(a: Shape, b: Shape) -> bool:
    return len(a) != len(b) or any(starmap(dims.differ, zip(a, b, strict=True)))


def offered(end: End) -> Found | Refusal | None:
    """What a node does to the chain, which the composer has taken in; or why it does not, None as
    in `operations_of`.
    """
    found = operations_of(end)
    refusal = end.composer.append(found.ops) if isinstance(found, Found) else None
    return refusal or found


def operations_of(end: End) -> Found | Refusal | None:
    """What a node does to the chain, as basic operations, or why post-ops cannot do it.

    None: it is no elementwise operation of f32: it moves data, is an anchor itself, or gives another
    type.
    """
    graph, node, value = end.graph, end.node, end.value
    found: Found | Refusal
    if node.op in _QUANTIZERS:
        found = _QUANTIZERS[node.op](end)
    elif not node.has(Trait.ELEMENTWISE) or not _is_real(graph, node):
        return None
    elif not keeps_shape(graph, node, value):
        return _larger(graph, node, value)
    elif node.op in _WITH_CONSTANTS:
        found = _WITH_CONSTANTS[node.op](end)
    elif node.spec.binary is not None and len(node.inputs) == 2:
        found = two_operands(end)
    elif all(v == value or not v or graph.constant(v) is not None for v in node.inputs):
        found = _eltwise(end)
    else:  # computed parameters are no post-op
        found = no_post_op(graph, node)
    if isinstance(found, Refusal):
        return found
    for op in found.ops:
        numbers = [op.alpha, op.beta] if isinstance(op, EltwiseOp) else []
        if not np.isfinite(np.array(numbers, np.float32)).all():
            return Refusal(
                "a parameter of an eltwise is finite",
                "numbers that f32 holds",
                f"{numbers[0]:g}",
                "export the operation with finite parameters",
            )
    return found._replace(ops=as_the_target_compares(graph, found.ops, end.composer))


def _is_real(graph: Graph, node: Node) -> bool:
    """True when the operation gives f32; or 0 and 1 as truth values, compared from f32."""
    result = graph.type(node.output).dtype
    if result is DType.BOOL:
        return node.spec.binary is not None and all(
            graph.type(value).dtype is DType.F32 for value in node.inputs
        )
    return result is DType.F32


# -- quantizers inside the chain -------------------------------------------------------------------


def _axis_vectors(
    quant: Quantization, front: Front
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]] | Refusal:
    if quant.axis not in (None, front.channel_axis):
        return Refusal(
            "the quantization runs along another axis than the channels",
            f"axis {front.channel_axis}",
            f"axis {quant.axis}",
            "nothing to change where the network multiplies by a vector along that axis, as a norm does; a quantizer: "
            "along the channels, or per tensor",
        )
    if quant.axis is not None and len(quant.scale) != front.channels:
        return Refusal(
            "the model does not tell the size of the axis that the scales run along",
            f"{len(quant.scale)}",
            "a symbolic size",
            "export the input with a fixed number of channels",
        )
    return vec(quant.scales), vec(quant.zero_points)


def quantizing(node: Node) -> tuple[Quantization, DType, int, int]:
    """What a Quantize node does: parameters, the codes' type, the lowest and the highest code."""
    return (
        node.quant,
        node.attr("dtype", DType),
        node.attr("lo", int),
        node.attr("hi", int),
    )


def _quantize(end: End) -> Found | Refusal:
    graph, node = end.graph, end.node
    quant, dtype, low, high = quantizing(node)
    if not dtype.is_code and not is_decoded_at_once(graph, node):
        return Refusal(
            "no primitive stores such codes", "u8 or s8", dtype.value, "quantize to 8 bits"
        )
    vectors = _axis_vectors(quant, end.front)
    if isinstance(vectors, Refusal):
        return vectors
    if dtype.is_wide_code:
        return Found([*steps_from_zero(node, *vectors)])
    store = Store(dtype, *vectors, low, high, exact=keeps_codes(graph, node))
    if end.front.primitive == "pooling" and node.attrs["order"] == "round_first":
        return Found(rounded_first(store))  # averages of a few codes lie on ties often
    return Found([store])


def is_decoded_at_once(graph: Graph, node: Node) -> bool:
    """True of a Quantize to 16-bit codes that one Dequantize alone reads: post-ops round the
    values, and no code is ever stored.
    """
    reader = _only_reader(graph, node.output)
    quant = node.quant
    wide = (
        node.attr("dtype", DType).is_wide_code and quant.integral and is_normal(vec(quant.scales))
    )
    return wide and reader is not None and reader.op == "Dequantize"


def steps_from_zero(
    node: Node, scale: npt.NDArray[np.float64], zero: npt.NDArray[np.float64]
) -> list[BasicOp]:
    """clip(round(x/s) + z, lo, hi) - z: what decoding multiplies. A zero point of 32768 would cost
    f32 the last bits of x/s.
    """
    low, high = node.attr("lo", int) - zero, node.attr("hi", int) - zero
    return [ScaleBy(vec(1.0 / scale)), Round(), Clip(vec(low), vec(high))]


def _dequantize(end: End) -> Found | Refusal:
    graph, node = end.graph, end.node
    quant = node.quant
    vectors = _axis_vectors(quant, end.front)
    if isinstance(vectors, Refusal):
        return vectors
    scale, zero = vectors
    encode = graph.producer(node.input)
    if encode is not None and encode.op == "Quantize" and is_decoded_at_once(graph, encode):
        zero = vec(zero - vec(encode.quant.zero_points))
        if not zero.any():
            return Found([ScaleBy(scale)])
    return Found([*decoding(scale, zero)])


def _fake_quantize(end: End) -> Found | Refusal:
    found = compare(end.graph, end.node, end.value, end.front)
    return found if isinstance(found, Refusal) else Found([*found])


# -- one input -------------------------------------------------------------------------------------


def _eltwise(end: End) -> Found | Refusal:
    """oneDNN's eltwise algorithm with its parameters, where it has one of the same definition; -x =
    x*(-1), x^2 = square(x), x^p = pow(x, 1, p).
    """
    graph, node = end.graph, end.node
    if node.op == "Neg":
        return Found([ScaleBy(vec(-1.0))])
    if node.op == "Pow":
        exponent = graph.constant(node.inputs[1])
        if exponent is None or exponent.size != 1 or graph.constant(node.input) is not None:
            return no_post_op(graph, node)
        power = float(np.asarray(exponent).reshape(()))
        return Found([EltwiseOp("square") if power == 2 else EltwiseOp("pow", 1.0, power)])
    algorithm = node.spec.eltwise
    if algorithm is None:
        return no_post_op(graph, node)
    if node.op == "Gelu" and node.attrs["approximate"] == "tanh":
        algorithm = "gelu_tanh"
    alpha, beta, *_ = (
        *(node.attr(p, float) if isinstance(p, str) else p for p in node.spec.parameters),
        0.0,
        0.0,
    )
    return Found(
        [Round(to_codes=False) if algorithm == "round" else EltwiseOp(algorithm, alpha, beta)]
    )


def _clip(end: End) -> Found | Refusal:
    """min(max(x, l), h) = clip(x, min(l, h), h): with bounds in the wrong order, the upper one."""
    graph, node = end.graph, end.node
    bounds = [-np.inf, np.inf]
    for index in (1, 2):
        if len(node.inputs) > index and node.inputs[index]:
            data = graph.constant(node.inputs[index])
            if data is None:
                return Refusal(
                    "a bound of the clip is computed at run time",
                    "constant bounds",
                    "a computed one",
                    "export the bounds of the clip as constants",
                )
            bounds[index - 1] = float(np.asarray(data).reshape(()))
    low, high = bounds
    if not (low < np.inf and high > -np.inf):
        reason = "a clip whose bound is no number, or infinite on the other side, is no clip"
        return Refusal(
            reason,
            "numbers",
            f"{low:g} and {high:g}",
            "export the clip with finite bounds, the lower one first",
        )
    return Found([Clip(vec(min(low, high)), vec(high))])


def _prelu(end: End) -> Found | Refusal:
    """A leaky relu for one slope."""
    graph, node, front = end.graph, end.node, end.front
    slopes = graph.constant(node.inputs[1])
    if slopes is None:
        return Refusal(
            "the slopes are computed at run time",
            "constant slopes",
            "computed ones",
            "export the slopes as a constant (an initializer)",
        )
    values = channel_vector(np.asarray(slopes), front)
    if values is None:
        return Refusal(
            "the slopes vary along another axis than the channels",
            f"[{front.channels}] along the channels",
            str(list(slopes.shape)),
            "give the PRelu one slope, or one for each channel",
        )
    if values.size == 1:
        return Found([EltwiseOp("relu", float(values[0]))])
    operand = graph.add_constant(f"{node.inputs[1]}/slopes", front.along_channels(values))
    return Found([PreluOp(operand, 1 << front.channel_axis)])


def _cast(end: End) -> Found | Refusal:
    """Of a comparison: post-ops give 0 and 1 in f32."""
    compared = end.graph.type(end.value).dtype is DType.BOOL
    return Found([]) if compared else no_post_op(end.graph, end.node)


_QUANTIZERS: Mapping[str, Callable[[End], Found | Refusal]] = {
    "Quantize": _quantize,
    "Dequantize": _dequantize,
    "FakeQuantize": _fake_quantize,
}

_WITH_CONSTANTS: Mapping[str, Callable[[End], Found | Refusal]] = {
    "Clip": _clip,
    "PRelu": _prelu,
    "Cast": _cast,
}
