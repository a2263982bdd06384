"""Growing a chain: which operations behind an anchor belong to its primitive, as basic operations.

A chain runs along values that one operation alone reads. Every operation on the way is first written as basic operations
(`operations_of`), then offered to the PostOpsComposer; the longest prefix that the target can store is kept.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from ..ir.graph import Graph
from ..ir.node import Node
from ..ir.ops.spec import Trait
from ..ir.paths import reaches
from ..ir.types import DType, Quantization
from .cost import post_op_cost
from .fake_quantize import compare, keeps_codes
from .formula import Add, BasicOp, BinaryOp, Clip, EltwiseOp, PreluOp, Refusal, Round, ScaleBy, Shift, Store, vec
from .post_ops_composer import Composed, PostOpsComposer
from .residual import branch_refusal

__all__ = ["Chain", "Found", "Link", "decoded", "grow", "operations_of", "overwriting_refusal", "quantizing"]

Claimed = Callable[[Node], bool]


@dataclass(frozen=True)
class Link:
    """One operation of the graph that a chain absorbed.

    Attributes:
        node: the operation.
        decoded: a Dequantize on its other input that went into the step with it, and where to (`sum`, `post_op`), or None.
        cost: passes that the step's post-ops cost more with it, without the bytes of a second tensor.
        post_ops: how many post-ops the step has more with it.
    """

    node: Node
    decoded: Node | None = None
    cost: float = 0.0
    post_ops: int = 0


@dataclass(eq=False)
class Chain:
    """The operations that an anchor absorbed, and the attributes that they became.

    Attributes:
        value: the graph value that the step writes.
        links: absorbed operations, in order, without the anchor.
        composed: their attributes.
        not_summed: operands of residual adds that could not be a sum, and why.
        refusal: why the chain ends where it ends, with the node that was refused; None when the value is read by several or returned.
    """

    value: str
    composed: Composed
    links: list[Link] = field(default_factory=list)
    not_summed: dict[str, str] = field(default_factory=dict)
    refusal: tuple[Node, Refusal] | None = None


def grow(graph: Graph, composer: PostOpsComposer, value: str, anchor: Node, claimed: Claimed) -> Chain | Refusal:
    """The longest chain behind `value` that fits the composer, or why not even the anchor alone can be stored."""
    links: list[Link] = []
    not_summed: dict[str, str] = {}
    legal = Chain(value, composer.result) if composer.result.refusal is None else None
    refusal: tuple[Node, Refusal] | None = None
    current = value
    while (node := _only_reader(graph, current)) is not None and not claimed(node):
        found = operations_of(graph, node, current, composer, anchor)
        if found is None:
            break
        post_ops = composer.result.post_ops
        outcome = found if isinstance(found, Refusal) else composer.append(found[0])
        if outcome is not None:
            refusal = (node, outcome)
            break
        assert not isinstance(found, Refusal)
        more = composer.result.post_ops
        links.append(Link(node, found[1], sum(map(post_op_cost, more)) - sum(map(post_op_cost, post_ops)), len(more) - len(post_ops)))
        not_summed |= {op.operand: op.why_not for op in found[0] if isinstance(op, Add) and op.why_not}
        current = node.output
        if composer.result.refusal is not None:
            refusal = (node, composer.result.refusal) if node.op != "Dequantize" else refusal
        elif node.op != "Dequantize" or not _read_as_codes(graph, current):
            # Codes are decoded inside the step for an operation behind that the step takes too, or that no primitive reads as codes.
            legal, refusal = Chain(current, composer.result, list(links), dict(not_summed)), None
    if legal is None:
        assert composer.result.refusal is not None
        return composer.result.refusal
    legal.refusal = refusal
    return legal


def _only_reader(graph: Graph, value: str) -> Node | None:
    """The one node that reads the value, by one input or by both (`Add(x, x)`), when the graph does not return it; otherwise None."""
    readers = graph.consumers(value)
    return readers[0] if len(readers) == 1 and not graph.is_output(value) else None


_CODE_READERS = frozenset({"Conv", "ConvTranspose", "MatMul", "Concat", "AveragePool", "GlobalAveragePool", "Quantize"})


def _read_as_codes(graph: Graph, value: str) -> bool:
    """True when a reader of decoded values can take the codes instead."""
    return any(node.op in _CODE_READERS or node.has(Trait.ELEMENTWISE) for node in graph.consumers(value))


def decoded(graph: Graph, value: str) -> Node | None:
    """The Dequantize of 8-bit per-tensor codes, computed at run time, that produces a value; else None."""
    node = graph.producer(value)
    if node is None or node.op != "Dequantize" or graph.constant(node.inputs[0]) is not None:
        return None
    quant = node.attr("quant", Quantization)
    return node if quant.per_tensor and graph.type(node.inputs[0]).dtype in (DType.U8, DType.S8) else None


Found = tuple[list[BasicOp | Store], Node | None]


def operations_of(graph: Graph, node: Node, value: str, composer: PostOpsComposer, anchor: Node) -> Found | Refusal | None:
    """What `node` does to `value`, as basic operations, with the Dequantize that it takes in on its other input.

    None: the node is not one that post-ops could ever do (it moves data, is an anchor itself, or changes the shape).
    """
    if node.op == "Quantize":
        return _quantize(graph, node, composer)
    if node.op == "Dequantize":
        return _dequantize(node, composer)
    if node.op == "FakeQuantize":
        compared = compare(graph, node, value, composer.front)
        return compared if isinstance(compared, Refusal) else ([*compared], None)
    if not node.has(Trait.ELEMENTWISE) or graph.type(node.output).dtype is not DType.F32:
        return None
    if graph.type(node.output).shape != graph.type(value).shape:
        return Refusal(
            "the result is larger than the chain: the chain's value is broadcast", f"{graph.type(value)}", f"{graph.type(node.output)}"
        )
    others = [v for i, v in enumerate(node.inputs) if v and v != value]
    if node.op == "Clip":
        return _clip(graph, node)
    if node.op == "PRelu":
        return _prelu(graph, node, composer)
    if node.spec.binary is not None and len(node.inputs) == 2:
        if not others:
            return _with_itself(node)
        return _binary(graph, node, value, others[0], composer, anchor)
    return _eltwise(graph, node) if not others or all(graph.constant(v) is not None for v in others) else None


# -- quantizers inside the chain ---------------------------------------------------------------------------------------------------


def _axis_vectors(quant: Quantization, composer: PostOpsComposer) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]] | Refusal:
    if quant.axis not in (None, composer.front.channel_axis):
        return Refusal(
            "the quantization runs along another axis than the channels", f"axis {composer.front.channel_axis}", f"axis {quant.axis}"
        )
    return vec(quant.scales), vec(quant.zero_points)


def quantizing(node: Node) -> tuple[Quantization, DType, int, int]:
    """What a Quantize node does: parameters, the codes' type, the lowest and the highest code."""
    return node.attr("quant", Quantization), node.attr("dtype", DType), node.attr("lo", int), node.attr("hi", int)


def _quantize(graph: Graph, node: Node, composer: PostOpsComposer) -> Found | Refusal:
    quant, dtype, low, high = quantizing(node)
    if dtype not in (DType.U8, DType.S8):
        return Refusal("no primitive stores such codes", "u8 or s8", dtype.value, "quantize to 8 bits")
    vectors = _axis_vectors(quant, composer)
    if isinstance(vectors, Refusal):
        return vectors
    scale, zero = vectors
    if composer.front.primitive == "pooling" and node.attrs["order"] == "round_first" and (zero % 2).any():
        # round(y/s) + z and round(y/s + z) part at ties, for odd z. Averages of a few codes lie on ties often; sums of products do not.
        return [ScaleBy(1.0 / scale), Round(), Store(dtype, vec(1.0), zero, low, high)], None
    return [Store(dtype, scale, zero, low, high, exact=keeps_codes(graph, node))], None


def _dequantize(node: Node, composer: PostOpsComposer) -> Found | Refusal:
    quant = node.attr("quant", Quantization)
    vectors = _axis_vectors(quant, composer)
    if isinstance(vectors, Refusal):
        return vectors
    return [Shift(-vectors[1]), ScaleBy(vectors[0])], None


# -- one input ---------------------------------------------------------------------------------------------------------------------


def _eltwise(graph: Graph, node: Node) -> Found | Refusal | None:
    """oneDNN's eltwise algorithm with its parameters; `Pow` and `Neg` are written by basic operations."""
    if node.op == "Neg":
        return [ScaleBy(vec(-1.0))], None
    if node.op == "Pow":
        exponent = graph.constant(node.inputs[1])
        if exponent is None or exponent.size != 1 or graph.constant(node.inputs[0]) is not None:
            return None
        power = float(np.asarray(exponent).reshape(()))
        return [EltwiseOp("square") if power == 2 else EltwiseOp("pow", 1.0, power)], None
    algorithm = node.spec.eltwise
    if algorithm is None:
        return None
    if node.op == "Gelu" and node.attrs["approximate"] == "tanh":
        algorithm = "gelu_tanh"
    alpha, beta = _PARAMETERS.get(node.op, _no_parameters)(node)
    return [Round() if algorithm == "round" else EltwiseOp(algorithm, alpha, beta)], None


def _no_parameters(node: Node) -> tuple[float, float]:
    return 0.0, 0.0


_PARAMETERS: dict[str, Callable[[Node], tuple[float, float]]] = {
    "LeakyRelu": lambda node: (node.attr("alpha", float), 0.0),
    "Elu": lambda node: (node.attr("alpha", float), 0.0),
    "HardSigmoid": lambda node: (node.attr("alpha", float), node.attr("beta", float)),
    "HardSwish": lambda node: (1.0 / 6.0, 0.5),
    "Swish": lambda node: (node.attr("alpha", float), 0.0),
    "Softplus": lambda node: (1.0, 0.0),
}
"""Where oneDNN's alpha and beta of an algorithm come from; the others take none."""


def _clip(graph: Graph, node: Node) -> Found | Refusal | None:
    bounds = [-np.inf, np.inf]
    for index in (1, 2):
        if len(node.inputs) > index and node.inputs[index]:
            data = graph.constant(node.inputs[index])
            if data is None:
                return Refusal("a bound of the clip is computed at run time", "constant bounds", "a computed one")
            bounds[index - 1] = float(np.asarray(data).reshape(()))
    low, high = bounds
    return [Clip(vec(min(low, high)), vec(high))], None


def _prelu(graph: Graph, node: Node, composer: PostOpsComposer) -> Found | Refusal | None:
    slopes = graph.constant(node.inputs[1])
    if slopes is None:
        return Refusal("the slopes are computed at run time", "constant slopes", "computed ones")
    if slopes.size == 1:
        return [EltwiseOp("relu", float(np.asarray(slopes).reshape(())))], None
    values = _along_channels(np.asarray(slopes), composer)
    if values is None:
        return Refusal(
            "the slopes vary along another axis than the channels",
            f"[{composer.front.channels}] along the channels",
            str(list(slopes.shape)),
        )
    shape = [1] * composer.front.rank
    shape[composer.front.channel_axis] = -1
    name = graph.add_constant(f"{node.inputs[1]}/slopes", values.astype(np.float32).reshape(shape))
    return [PreluOp(name, 1 << composer.front.channel_axis)], None


def _with_itself(node: Node) -> Found | Refusal | None:
    if node.op == "Add":
        return [ScaleBy(vec(2.0))], None
    return ([EltwiseOp("square")], None) if node.op == "Mul" else None


# -- two inputs --------------------------------------------------------------------------------------------------------------------


def _along_channels(data: npt.NDArray[np.generic], composer: PostOpsComposer) -> npt.NDArray[np.float64] | None:
    """Data that varies along the channel axis only, as a vector (size 1 when it does not vary); None otherwise."""
    front = composer.front
    if data.size == 1:
        return vec(data)
    axis = front.channel_axis - (front.rank - data.ndim)
    if data.ndim <= front.rank and axis >= 0 and data.shape[axis] == data.size == front.channels:
        return vec(data)
    return None


def _binary(graph: Graph, node: Node, value: str, other: str, composer: PostOpsComposer, anchor: Node) -> Found | Refusal | None:
    constant = graph.constant(other)
    first = node.inputs[0] == value
    if constant is not None:
        vector = _along_channels(np.asarray(constant), composer)
        if vector is not None:
            return _with_vector(node.op, vector, first)
    if not first and node.op not in ("Add", "Mul", "Max", "Min"):
        return Refusal(f"{node.op} has the chain as its second operand", "the chain as first operand", "the other order")
    elsewhere = branch_refusal(graph, node, value) if node.op == "Add" else None
    if elsewhere is not None:
        return elsewhere
    algorithm = node.spec.binary
    assert algorithm is not None
    if not _fits(graph, other, value):
        return Refusal("the other operand does not broadcast to the chain", str(graph.type(value)), str(graph.type(other)))
    codes = decoded(graph, other)
    if codes is None:
        return _with_values(graph, node, value, other, algorithm, composer, anchor)
    return _with_codes(graph, node, value, codes, algorithm, anchor)


def _with_vector(op: str, vector: npt.NDArray[np.float64], first: bool) -> Found | Refusal | None:
    found: list[BasicOp | Store] | None = None
    finite = bool(np.isfinite(vector).all())
    if np.isnan(vector).any() or not (finite or op in ("Max", "Min")):
        found = None
    elif op == "Add":
        found = [Shift(vector)]
    elif op == "Sub":
        found = [Shift(-vector)] if first else [ScaleBy(vec(-1.0)), Shift(vector)]
    elif op == "Mul":
        found = [ScaleBy(vector)] if bool(vector.all()) else None
    elif op == "Div" and first:
        found = [ScaleBy(1.0 / vector)] if bool(vector.all()) else None
    elif op == "Max":
        found = [Clip(vector, vec(np.inf))]
    elif op == "Min":
        found = [Clip(vec(-np.inf), vector)]
    if found is None:
        return Refusal(f"no basic operation for {op} by this constant", "finite numbers, and no factor 0, as second operand", "another")
    return found, None


def _fits(graph: Graph, other: str, value: str) -> bool:
    """True when `other` has the chain's rank and each dimension is 1 or the chain's."""
    a, b = graph.type(other).shape, graph.type(value).shape
    return a is not None and b is not None and len(a) == len(b) and all(x in (1, y) for x, y in zip(a, b, strict=True))


def _with_values(
    graph: Graph, node: Node, value: str, other: str, algorithm: str, composer: PostOpsComposer, anchor: Node
) -> Found | Refusal:
    if graph.type(other).dtype is not DType.F32:
        return Refusal("the other operand is neither f32 nor 8-bit codes", "f32, or per-tensor u8 or s8", graph.type(other).dtype.value)
    if node.op == "Add":
        why_not = overwriting_refusal(graph, other, other, value, node, anchor)
        return [Add(other, DType.F32, in_place=not why_not, why_not=why_not)], None
    return [BinaryOp(algorithm, other)], None


def _with_codes(graph: Graph, node: Node, value: str, decode: Node, algorithm: str, anchor: Node) -> Found | Refusal:
    quant = decode.attr("quant", Quantization)
    codes, scale, zero = decode.inputs[0], quant.scale[0], quant.zero_point[0]
    dtype = graph.type(codes).dtype
    if node.op in ("Add", "Sub"):
        factor = scale if node.op == "Add" else -scale
        why_not = overwriting_refusal(graph, codes, decode.output, value, node, anchor)
        return [Add(codes, dtype, factor, zero, not why_not, why_not)], decode
    if node.op == "Mul" and zero == 0:
        return [ScaleBy(vec(scale)), BinaryOp("mul", codes)], decode
    return [BinaryOp(algorithm, decode.output)], None  # no attribute decodes this operand: it is decoded by a step of its own


def overwriting_refusal(graph: Graph, stored: str, read: str, value: str, node: Node, anchor: Node) -> str:
    """Why the step may not write over the buffer of `stored`, which `node` reads as `read`; '' when it may.

    It may when the buffer dies there: the shapes agree, the graph does not own it, and every other reader has run before the anchor.
    """
    if graph.type(stored).shape != graph.type(value).shape:
        return f"the skip has another shape: {graph.type(stored)} against {graph.type(value)}"
    if stored in graph.inputs or graph.constant(stored) is not None:
        return "the skip is an input or constant of the model"
    if graph.is_output(stored) or graph.is_output(read):
        return "the skip is returned by the model"
    readers: list[Node] = []
    for reader in graph.consumers(stored):
        readers += graph.consumers(reader.output) if reader.op == "Dequantize" else [reader]
        if reader.op == "Dequantize" and graph.is_output(reader.output):
            return "the skip is returned by the model"
    for reader in readers:
        if reader.name == anchor.name:
            return "the skip is the anchor's own source"
        if reader.name != node.name and not reaches(graph, reader.name, anchor.name):
            return f"the skip is read later, by {reader.name}"
    return ""
