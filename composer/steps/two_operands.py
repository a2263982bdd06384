"""Operations of two operands behind an anchor, as basic operations: arithmetic, maximum, minimum
and comparisons.

The chain is one operand. The other is a constant, an f32 value, or 8-bit codes that the step
decodes itself: codes enter a binary post-op as plain numbers, so the chain in front of it is
brought to their grid and taken back behind it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ...ir.graph import Graph
from ...ir.node import Node, subject
from ...ir.ops import dims
from ...ir.paths import RESHAPES, first_view, reaches, same_bytes
from ...ir.rule import Refusal
from ...ir.telling import FAR, distance_of_zero, is_told_behind, jumps_behind, zero_is_far
from ...ir.types import DType, Quantization
from ..formula.definitions import with_constant, with_itself, with_tensor
from ..formula.formula import (
    Add,
    BasicOp,
    BinaryOp,
    ChainOp,
    Clip,
    CodesOp,
    EltwiseOp,
    ScaleBy,
    Shift,
    Store,
    Vec,
    vec,
)
from ..mapping.compared_codes import DIFFERENCE, MIRRORED, codes_differ
from ..mapping.composed import Front
from ..mapping.post_ops_composer import PostOpsComposer


class Found(NamedTuple):
    """What an operation does to a chain.

    Attributes:
        ops: in basic operations.
        decoded: the Dequantize on its other operand that goes into the step with it.
        apart: the Dequantize that stays a step in front of it, and why.
    """

    ops: list[ChainOp]
    decoded: Node | None = None
    apart: tuple[Node, Refusal] | None = None


@dataclass(frozen=True, eq=False)
class End:
    """The end of a chain, and a node of the graph that reads it.

    Attributes:
        graph, node: the graph, and what reads.
        value: what is read.
        composer: has the chain so far.
        anchor: what the chain begins with.
    """

    graph: Graph
    node: Node
    value: str
    composer: PostOpsComposer
    anchor: Node

    @property
    def front(self) -> Front:
        """What stands in front of the chain."""
        return self.composer.front


def two_operands(end: End) -> Found | Refusal:
    """What a node does to the chain, or why post-ops cannot do it."""
    graph, node, front = end.graph, end.node, end.front
    algorithm = node.spec.binary
    assert algorithm is not None
    if node.input == node.inputs[1]:
        same = with_itself(algorithm)
        return no_post_op(graph, node) if same is None else Found([*same])
    first = node.input == end.value
    other = node.inputs[1] if first else node.input
    if algorithm in ("gt", "ge", "lt", "le") and not first:
        algorithm = MIRRORED[algorithm]
    data = graph.constant(other)
    vector = None if data is None else channel_vector(np.asarray(data), front)
    if vector is not None:
        infinite_bound = node.op in ("Max", "Min") and not np.isnan(vector).any()
        if not (np.isfinite(vector).all() or infinite_bound):
            reason = f"no basic operation for {node.op} by this constant"
            return Refusal(
                reason,
                "finite numbers",
                "infinity or NaN",
                "make the constant finite, such as -10000 in place of -inf",
            )
        filed = front.along_channels(vector)
        operand = partial(graph.add_constant, f"{node.output}/operand", filed)
        return Found([*with_constant(algorithm, vector, operand, first=first)])
    if data is not None and data.ndim < front.rank:  # as post-ops want it
        shape = (1,) * (front.rank - data.ndim) + data.shape
        other = graph.add_constant(f"{other}/rank{front.rank}", data.reshape(shape))
    if not _fits(graph, other, end.value):
        return Refusal(
            "the other operand does not broadcast to the chain",
            str(graph.type(end.value)),
            str(graph.type(other)),
            "expand the other operand to the shape of this one",
        )
    decode, apart = decoding_of(graph, other), None
    if decode is not None:
        in_codes = _with_codes if decode.quant.per_tensor else _with_codes_of_channels
        codes = in_codes(end, decode, algorithm, first=first)
        if not isinstance(codes, Refusal):
            return Found(codes, decode)
        apart = decode, codes
    if graph.type(other).dtype is not DType.F32:
        return Refusal(
            "the other operand is neither f32 nor 8-bit codes",
            "f32, or per-tensor u8 or s8",
            graph.type(other).dtype.value,
            "quantize the other operand per tensor to 8 bits, or leave it in float32",
        )
    found = with_tensor(algorithm, _tensor(end, Add(other, DType.F32), other), first=first)
    assert not isinstance(found, Refusal)  # f32 values have no zero point
    return Found([*found], apart=apart)


def no_post_op(graph: Graph, node: Node) -> Refusal:
    """Post-ops have no form for what a node computes."""
    return Refusal(
        f"no post-op computes {node.op}",
        "an eltwise or binary algorithm of oneDNN, or operations that it is made of",
        f"{node.op} of {graph.type(node.input)}",
        "nothing to change in the quantizer: in the network, an activation that oneDNN has (Relu, Elu, HardSwish ...) would be taken in",
    )


def decoding_of(graph: Graph, value: str) -> Node | None:
    """The Dequantize of 8-bit codes, computed at run time, that produces a value; else None."""
    node = graph.producer(value, "Dequantize")
    if node is None or graph.constant(node.input) is not None:
        return None
    return node if graph.type(node.input).dtype.is_code else None


def decoded(graph: Graph, value: str) -> Node | None:
    """The same of codes with one scale and zero point."""
    node = decoding_of(graph, value)
    return node if node is not None and node.quant.per_tensor else None


# -- a constant ------------------------------------------------------------------------------------


def channel_vector(data: npt.NDArray[np.generic], front: Front) -> Vec | None:
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


def as_the_target_compares(
    graph: Graph, ops: Sequence[ChainOp], composer: PostOpsComposer
) -> list[ChainOp]:
    """The operations, by `DIFFERENCE` where the target compares with a single number only and the
    operand is no such.
    """
    front = composer.front
    if front.channels % composer.target.comparison_lanes == 0:
        return list(ops)
    zero = np.zeros((1,) * front.rank, np.float32)
    result: list[ChainOp] = []
    for op in ops:
        found = None
        if isinstance(op, BinaryOp | CodesOp) and not _is_single(graph, op.operand):
            nothing = partial(graph.add_constant, f"{op.operand}/zero", zero)
            found = DIFFERENCE.apply(op, nothing)
        result += found if isinstance(found, tuple) else (op,)
    return result


def _is_single(graph: Graph, value: str) -> bool:
    shape = graph.type(value).shape
    return shape is not None and all(size == 1 for size in shape)


# -- another value ---------------------------------------------------------------------------------


def _fits(graph: Graph, other: str, value: str) -> bool:
    """True when `other` has the chain's rank and each dimension is 1 or the chain's."""
    a, b = graph.type(other).shape, graph.type(value).shape
    return a is not None and b is not None and len(a) == len(b) and dims.fits(a, b)


def _tensor(end: End, stored: Add, read: str) -> Add:
    """What is stored, and read as `read`, with what is known of its buffer and shape."""
    why_not = _overwriting_refusal(end, stored.operand, read)
    shape, axis = end.graph.type(stored.operand).shape or (), end.front.channel_axis
    channels = len(shape) > axis and shape[axis] == end.front.channels
    return replace(stored, in_place=not why_not, why_not=why_not, channels=channels)


def far_zero(graph: Graph, node: Node, quant: Quantization) -> Refusal | None:
    """Why a sum or comparison reads decoded values instead of codes: the zero point lies too far from 0."""
    if node.spec.binary in (None, "mul", "div") or not zero_is_far(graph, node, quant):
        return None
    return Refusal(
        "its zero point lies so far from 0 that codes would lose the other operand beside it",
        f"a zero point times scale of {FAR:g} at most",
        f"{distance_of_zero(quant):g}",
        "calibrate that quantizer to a range near 0; export a mask with -100 for what is masked",
    )


_TOLD = Refusal(
    "something behind tells a number from those next to it, and codes are decoded to the last bit for it",
    "no comparison, rounding or division by zero behind",
    "one",
    "nothing to change: the network compares or rounds what is computed here",
)


def _with_codes(end: End, decode: Node, algorithm: str, *, first: bool) -> list[ChainOp] | Refusal:
    """The operation with s*(q - z), q the codes; or why no attributes decode the operand, so
    that a step of its own must: what is added to codes whose 0 decodes far from 0 would be lost on
    their grid, x/s + z.

    Comparisons, maximum and minimum see `compared_codes.py`, the others `definitions.py`. On the
    grid of the codes, c/s is what was c, and c/s*s misses it; so does one shift for two zero points
    where the operand has a scale: where that is told, they are decoded apart.
    """
    far = far_zero(end.graph, end.node, decode.quant)
    if far is not None:
        return far
    zero_point = decode.quant.zero_point[0]
    one_shift = algorithm in ("add", "sub") and end.composer.target.operand_scale and zero_point
    if (one_shift or not _keeps_zero(end.front, end.composer.chain)) and (
        end.node.spec.jumps or jumps_behind(end.graph, end.node)
    ):
        return _TOLD
    quant, codes = decode.quant, decode.input
    numbers = end.graph.type(codes).dtype, quant.scale[0], quant.zero_point[0]
    if algorithm in MIRRORED:
        op = CodesOp(algorithm, codes, *numbers)
        told = is_told_behind(end.graph, end.node)
        return _TOLD if codes_differ(end.front, end.composer.chain, op, told=told) else [op]
    tensor = _tensor(end, Add(codes, *numbers), decode.output)
    found = with_tensor(algorithm, tensor, first=first)
    return found if isinstance(found, Refusal) else [*found]


def _with_codes_of_channels(
    end: End, decode: Node, algorithm: str, *, first: bool
) -> list[ChainOp] | Refusal:
    """The operation with s*(q - z), one s for each channel; or why no attributes decode the operand.
    Codes whose z is 0 multiply and divide on every target; they are added where the target scales the
    operand.
    """
    graph, front = end.graph, end.front
    codes, quant = decode.input, decode.quant
    if quant.axis != front.channel_axis or len(quant.scale) != front.channels:
        return Refusal(
            "the scales of the other operand do not run along the channels of the chain",
            f"one scale, or {front.channels} along axis {front.channel_axis}",
            f"{len(quant.scale)} along axis {quant.axis}",
            "quantize the other operand per tensor",
        )
    if end.node.spec.jumps or jumps_behind(graph, end.node):
        return _TOLD  # as decoded, to the last bit
    scale = vec(quant.scales)
    if algorithm in ("mul", "div") and quant.symmetric:
        turned: list[BasicOp] = [] if algorithm == "mul" or first else [EltwiseOp("pow", 1.0, -1.0)]
        factor = scale if algorithm == "mul" or turned else vec(1.0 / scale)
        product = BinaryOp("mul" if turned else algorithm, codes)
        return [*turned, ScaleBy(factor), product]
    far = far_zero(graph, end.node, quant)
    if far is None and algorithm in ("add", "sub") and end.composer.target.operand_scale:
        negated: list[BasicOp] = [ScaleBy(vec(-1.0))] if algorithm == "sub" and not first else []
        factor = vec(-scale) if algorithm == "sub" and first else scale
        shift = vec(-factor * vec(quant.zero_points))
        moved = [Shift(shift)] if shift.any() else []
        return [*negated, *moved, BinaryOp("add", codes).scaled(factor)]
    return far or Refusal(
        "post-ops decode an operand with one scale for each channel in products alone, and with zero point 0",
        "one scale for the tensor",
        f"{len(quant.scale)} scales, zero point {quant.zero_point[0]:g}",
        "quantize the other operand per tensor",
    )


def _keeps_zero(front: Front, chain: Sequence[ChainOp]) -> bool:
    """True when a chain behind codes gives 0 where these are 0; or starts from what no codes are."""
    stores = [place for place, op in enumerate(chain) if isinstance(op, Store)]
    behind = chain[stores[-1] + 1 :] if stores else chain
    if not stores and not (front.primitive == "binary" and front.src.is_integer):
        return True
    decodes = bool(stores) or front.scale is None
    if decodes and len(behind) > 1 and isinstance(behind[0], Shift):
        behind = behind[2:]
    return all(map(_is_zero_at_zero, behind))


def _is_zero_at_zero(op: ChainOp) -> bool:
    if isinstance(op, Add):
        return op.dtype.is_integer  # codes that are 0 there, too
    if isinstance(op, Clip):
        return bool((op.low <= 0).all() and (op.high >= 0).all())
    if isinstance(op, BinaryOp):
        return op.algorithm in ("mul", "div")
    return isinstance(op, ScaleBy | CodesOp) or op in (EltwiseOp("relu"), EltwiseOp("abs"))


_MANY_READERS = (
    64  # each is looked for in front of the anchor; a buffer that so many read dies late, if at all
)


def _overwriting_refusal(end: End, stored: str, read: str) -> str:
    """Why the step may not write over the buffer of `stored`, which the node reads as `read`; ''
    when it may, or adds nothing.

    It may when the buffer dies there: the shapes agree, the graph does not own it, and every other
    reader has run before the anchor.
    """
    graph, value, node, anchor = end.graph, end.value, end.node, end.anchor
    if node.spec.binary not in ("add", "sub"):
        return ""
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
            return f"the skip is read later, by {subject(reader)}"
    return ""
