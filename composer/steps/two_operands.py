"""Operations of two operands behind an anchor, as basic operations: arithmetic, maximum, minimum
and comparisons.

The chain is one operand. The other is a constant, an f32 value, or 8-bit codes that the step
decodes itself: codes enter a binary post-op as plain numbers, so the chain in front of it is
brought to their grid and taken back behind it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
import numpy.typing as npt

from ...ir.graph import Graph
from ...ir.node import Node
from ...ir.ops import dims
from ...ir.paths import RESHAPES, first_view, reaches, same_bytes
from ...ir.rule import Refusal
from ...ir.types import DType, Quantization
from ..formula.definitions import with_constant, with_itself, with_tensor
from ..formula.exact_zeros import is_told_behind
from ..formula.formula import Add, BinaryOp, ChainOp, CodesOp, Vec, vec
from ..mapping.compared_codes import DIFFERENCE, MIRRORED, codes_differ
from ..mapping.post_ops_composer import Front, PostOpsComposer
from ..mapping.residual import branch_refusal

__all__ = [
    "Found",
    "along_channels",
    "comparable",
    "decoded",
    "overwriting_refusal",
    "two_operands",
]

Found = tuple[list[ChainOp], Node | None]
"""What an operation does, and the Dequantize on its other operand that goes into the step with it.
"""


def two_operands(
    graph: Graph, node: Node, value: str, composer: PostOpsComposer, anchor: Node
) -> Found | Refusal | None:
    """What `node` does to the chain at `value`, or why post-ops cannot do it; None when the node
    reads nothing but the chain otherwise.
    """
    algorithm = node.spec.binary
    assert algorithm is not None
    if node.inputs[0] == node.inputs[1]:
        same = with_itself(algorithm)
        return None if same is None else ([*same], None)
    first = node.inputs[0] == value
    other = node.inputs[1] if first else node.inputs[0]
    if algorithm in ("gt", "ge", "lt", "le") and not first:
        algorithm = MIRRORED[algorithm]
    constant = graph.constant(other)
    if constant is not None:
        vector = along_channels(np.asarray(constant), composer.front)
        if vector is not None:
            return _with_vector(graph, node, vector, algorithm, composer.front, first=first)
        other = _in_rank(graph, other, composer.front.rank)
    elsewhere = branch_refusal(graph, node, value) if node.op == "Add" else None
    if elsewhere is not None:
        return elsewhere
    if not _fits(graph, other, value):
        return Refusal(
            "the other operand does not broadcast to the chain",
            str(graph.type(value)),
            str(graph.type(other)),
        )
    codes = decoded(graph, other)
    found = (
        None
        if codes is None
        else _with_codes(graph, node, value, codes, algorithm, anchor, composer, first=first)
    )
    return found or _with_values(graph, node, value, other, algorithm, anchor, first=first)


def decoded(graph: Graph, value: str) -> Node | None:
    """The Dequantize of 8-bit per-tensor codes, computed at run time, that produces a value; else
    None.
    """
    node = graph.producer(value)
    if node is None or node.op != "Dequantize" or graph.constant(node.inputs[0]) is not None:
        return None
    quant = node.attr("quant", Quantization)
    return (
        node
        if quant.per_tensor and graph.type(node.inputs[0]).dtype in (DType.U8, DType.S8)
        else None
    )


# -- a constant ------------------------------------------------------------------------------------


def along_channels(data: npt.NDArray[np.generic], front: Front) -> Vec | None:
    """Data that varies along the channel axis only, as a vector (size 1 when it does not vary);
    None otherwise, and of no channels.
    """
    if data.size == 1:
        return vec(data)
    axis = front.channel_axis - (front.rank - data.ndim)
    if (
        data.ndim <= front.rank
        and axis >= 0
        and 0 < data.shape[axis] == data.size == front.channels
    ):
        return vec(data)
    return None


def _in_rank(graph: Graph, constant: str, rank: int) -> str:
    """A constant with dimensions of 1 in front, as broadcasting reads it: post-ops want the
    destination's rank.
    """
    data = graph.constant(constant)
    if data is None or data.ndim >= rank:
        return constant
    return graph.add_constant(
        f"{constant}/rank{rank}", data.reshape((1,) * (rank - data.ndim) + data.shape)
    )


def _with_vector(
    graph: Graph, node: Node, vector: Vec, algorithm: str, front: Front, *, first: bool
) -> Found | Refusal:
    if np.isnan(vector).any() or not (np.isfinite(vector).all() or node.op in ("Max", "Min")):
        return Refusal(
            f"no basic operation for {node.op} by this constant",
            "finite numbers",
            "infinity or NaN",
        )
    filed = front.along_channels(vector)
    operand = partial(graph.add_constant, f"{node.output}/operand", filed)
    return [*with_constant(algorithm, vector, operand, first=first)], None


def comparable(graph: Graph, ops: Sequence[ChainOp], composer: PostOpsComposer) -> list[ChainOp]:
    """The operations, by `DIFFERENCE` where the target compares with a single number only and the
    operand is no such.
    """
    front = composer.front
    if front.channels % composer.target.comparison_lanes == 0:
        return list(ops)
    result: list[ChainOp] = []
    for op in ops:
        found = None
        if isinstance(op, BinaryOp | CodesOp) and not _is_single(graph, op.operand):
            found = DIFFERENCE.apply(op, partial(_nothing, graph, op.operand, front.rank))
        result += found if isinstance(found, tuple) else (op,)
    return result


def _nothing(graph: Graph, beside: str, rank: int) -> str:
    """Files a 0 of the destination's rank."""
    return graph.add_constant(f"{beside}/zero", np.zeros((1,) * rank, np.float32))


def _is_single(graph: Graph, value: str) -> bool:
    shape = graph.type(value).shape
    return shape is not None and all(size == 1 for size in shape)


# -- another value ---------------------------------------------------------------------------------


def _fits(graph: Graph, other: str, value: str) -> bool:
    """True when `other` has the chain's rank and each dimension is 1 or the chain's."""
    a, b = graph.type(other).shape, graph.type(value).shape
    return a is not None and b is not None and len(a) == len(b) and dims.fits(a, b)


def _with_values(
    graph: Graph, node: Node, value: str, other: str, algorithm: str, anchor: Node, *, first: bool
) -> Found | Refusal:
    if graph.type(other).dtype is not DType.F32:
        return Refusal(
            "the other operand is neither f32 nor 8-bit codes",
            "f32, or per-tensor u8 or s8",
            graph.type(other).dtype.value,
        )
    why_not = (
        overwriting_refusal(graph, other, other, value, node, anchor)
        if algorithm in ("add", "sub")
        else ""
    )
    tensor = Add(other, DType.F32, in_place=not why_not, why_not=why_not)
    found = with_tensor(algorithm, tensor, first=first)
    assert not isinstance(found, Refusal)  # f32 values have no zero point
    return [*found], None


def _with_codes(
    graph: Graph,
    node: Node,
    value: str,
    decode: Node,
    algorithm: str,
    anchor: Node,
    composer: PostOpsComposer,
    *,
    first: bool,
) -> Found | None:
    """The operation with s*(q - z), q the codes; None when no attributes decode the operand, so
    that a step of its own must.

    Comparisons, maximum and minimum see `compared_codes.py`, the others `definitions.py`.
    """
    quant = decode.attr("quant", Quantization)
    codes, scale, zero = decode.inputs[0], quant.scale[0], quant.zero_point[0]
    if algorithm in MIRRORED:
        op = CodesOp(algorithm, codes, graph.type(codes).dtype, scale, zero)
        differ = codes_differ(composer.front, composer.chain, op, told=is_told_behind(graph, node))
        return None if differ else ([op], decode)
    why_not = (
        overwriting_refusal(graph, codes, decode.output, value, node, anchor)
        if algorithm in ("add", "sub")
        else ""
    )
    tensor = Add(codes, graph.type(codes).dtype, scale, zero, not why_not, why_not)
    found = with_tensor(algorithm, tensor, first=first)
    return None if isinstance(found, Refusal) else ([*found], decode)


_MANY_READERS = (
    64  # each is looked for in front of the anchor; a buffer that so many read dies late, if at all
)


def overwriting_refusal(
    graph: Graph, stored: str, read: str, value: str, node: Node, anchor: Node
) -> str:
    """Why the step may not write over the buffer of `stored`, which `node` reads as `read`; '' when
    it may.

    It may when the buffer dies there: the shapes agree, the graph does not own it, and every other
    reader has run before the anchor.
    """
    if not dims.same_shape(graph.type(stored).shape, graph.type(value).shape):
        return f"the skip has another shape: {graph.type(stored)} against {graph.type(value)}"
    if graph.producer(first := first_view(graph, stored)) is None:
        return "the skip is an input or constant of the model"
    if graph.read_count(first) > _MANY_READERS:
        return f"the skip is read by {graph.read_count(first)} operations"
    views = same_bytes(graph, stored)
    if any(map(graph.is_output, (*views, read))):
        return "the skip is returned by the model"
    readers: list[Node] = []
    for reader in [
        reader for view in views for reader in graph.consumers(view) if reader.op not in RESHAPES
    ]:
        readers += graph.consumers(reader.output) if reader.op == "Dequantize" else [reader]
        if reader.op == "Dequantize" and graph.is_output(reader.output):
            return "the skip is returned by the model"
    if any(reader.name == anchor.name for reader in readers):
        return "the skip is the anchor's own source"
    for reader in readers:
        if reader.name != node.name and not reaches(graph, reader.name, anchor.name):
            return f"the skip is read later, by {reader.name}"
    return ""
