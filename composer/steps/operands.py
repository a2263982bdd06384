"""What an anchor reads: sources and weights as codes where the target can decode them, f32
otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ...ir.graph import Graph
from ...ir.node import Node, subject
from ...ir.ops.blocks import packed
from ...ir.ops.spec import Array, Attr
from ...ir.rule import Refusal
from ...ir.types import Dim, DType, Quantization, Shape, is_static
from ...plan.accumulator import (
    ACCUMULATOR,
    CODE_REACH,
    WEIGHTS_ZERO_POINTS,
    accumulated,
    as_s8,
    less_zero_points,
    reach_of,
)
from ...plan.arguments import SOURCE_AT_RUN_TIME, WEIGHTS_AT_RUN_TIME
from ...plan.targets import Capability
from ..formula.formula import Vec, vec
from .two_operands import decoded

_WHOLE = 32  # codes that kernels look up at once
_LARGEST_ZERO = 255
_BITS = {DType.S4: 4, DType.U4: 4, DType.S8: 8, DType.U8: 8}
_MANY_CODES = 1 << 16


@dataclass(frozen=True)
class Source:
    """One source of a primitive.

    Attributes:
        value: what the step reads: codes, or an f32 value.
        dtype: its element type.
        scale, zero_point: how the codes decode (1 and 0 for f32).
        fraction: what the real zero point has beyond `zero_point`, the nearest integer; the bias
            takes it.
        decode: the Dequantize that is folded in, or None.
        per_channel: scales along the channels of a grouped convolution, which its weights take;
            then `scale` is 1.
        parameters: (role, value) of a scale and a zero point that are computed at run time; then
            `scale` is 1, and `zero_point` 0.
    """

    value: str
    dtype: DType
    scale: float = 1.0
    zero_point: float = 0.0
    decode: Node | None = None
    per_channel: Vec | None = None
    fraction: float = 0.0
    parameters: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, eq=False)
class Weights:
    """Weights as s8 codes.

    Attributes:
        value: a constant of the graph (s8), or codes computed at run time.
        scale: one entry, or one for each output channel.
        zero_point: of all codes.
        decode: the Dequantize that is folded in, or None.
        parameters: (role, value) of scales and a zero point that are computed at run time; then
            `scale` is 1, and `zero_point` 0.
    """

    value: str
    scale: Vec
    zero_point: int
    decode: Node | None = None
    parameters: tuple[tuple[str, str], ...] = ()

    @property
    def is_scaled_at_run_time(self) -> bool:
        """True when the scale is an argument of the step."""
        return any(role == WEIGHTS_AT_RUN_TIME[0] for role, _ in self.parameters)

    @property
    def is_shifted_at_run_time(self) -> bool:
        """True when the zero point is an argument of the step."""
        return any(role == WEIGHTS_AT_RUN_TIME[1] for role, _ in self.parameters)


def source_of(
    graph: Graph,
    value: str,
    capability: Capability,
    *,
    fraction: bool = False,
    groups: int = 1,
    reader: Node | None = None,
) -> Source | Refusal:
    """A source as codes, or why it must be read in f32.

    Scales along the channels of a grouped convolution are legal when each group has one: the sum
    over a group of s[g]*(q - z)*w is s[g] * sum of (q - z)*w, so s[g] multiplies the scale of the
    weights of the group's outputs.

    Args:
        graph, value: what is read.
        capability: of the primitive.
        fraction: the primitive has a place for a fraction of the zero point.
        groups: of a convolution.
        reader: the product that reads it, if one does.
    """
    node = graph.producer(value)
    if node is not None and node.op == "RunTimeDequantize":
        return _source_at_run_time(graph, node, capability)
    if node is None or node.op != "Dequantize":
        return _no_codes(graph, value, node, reader)
    codes, quant = node.input, node.quant
    dtype = graph.type(codes).dtype
    along = groups > 1 and quant.axis == 1 and len(quant.scale) % groups == 0
    if along and dtype in capability.src and graph.constant(codes) is None:
        return _grouped_source(node, dtype, groups, fraction=fraction)
    if decoded(graph, value) is None:
        return Refusal(
            "the source has no per-tensor 8-bit codes",
            "per-tensor u8 or s8",
            f"{dtype.value}, axis {quant.axis}",
            "quantize activations per tensor, to 8 bits",
        )
    if dtype not in capability.src:
        return _other_type(dtype, capability)
    zero, nearest = quant.zero_point[0], round(quant.zero_point[0])
    part = zero - nearest
    if part and not fraction:
        return Refusal(
            "the zero point of the source is not an integer",
            "an integer zero point",
            f"{zero:g}",
            "choose a range in which 0 is exactly one of the codes, so that the zero point is a whole number",
        )
    if zero and not capability.src_zero_point:
        return Refusal(
            "the primitive takes no zero point on its source",
            "zero point 0",
            f"{zero:g}",
            "quantize the input symmetrically, or what comes out of a relu to unsigned codes (QUInt8)",
        )
    return Source(codes, dtype, quant.scale[0], nearest, node, fraction=part)


def _no_codes(graph: Graph, value: str, maker: Node | None, reader: Node | None) -> Refusal:
    if maker is not None and maker.op == "FakeQuantize":
        return Refusal(
            "the quantizer of the source stays an operator of its own",
            "a quantizer of u8 or s8 codes",
            f"FakeQuantize {subject(maker)}",
            "change this quantizer as its own refusal says",
        )
    if maker and reader and maker.origin and maker.origin[:1] == reader.origin[:1]:
        return Refusal(
            "the source is what another part of the same operation computes",
            "per-tensor u8 or s8 codes",
            str(graph.type(value)),
            "nothing to quantize between them: the rule that took the operation apart says why it did",
        )
    return Refusal(
        "the source is not quantized",
        "per-tensor u8 or s8 codes",
        str(graph.type(value)),
        "quantize the input of this operation",
    )


def _other_type(dtype: DType, capability: Capability) -> Refusal:
    return Refusal(
        f"the primitive takes no {dtype.value} source",
        ", ".join(sorted(kind.value for kind in capability.src)),
        dtype.value,
        "quantize the input to one of these types",
    )


def _source_at_run_time(graph: Graph, decode: Node, capability: Capability) -> Source | Refusal:
    codes, dtype = decode.input, graph.type(decode.input).dtype
    if not capability.run_time:
        return Refusal(
            "the scale and zero point of the source are computed at run time",
            "constant ones",
            decode.inputs[1],
            "quantize statically, or compile with --target onednn-v3",
        )
    if dtype not in capability.src:
        return _other_type(dtype, capability)
    if decode.attrs.get("axis") is not None:
        return Refusal(
            "the source has computed scales along an axis",
            "one scale",
            f"axis {decode.attrs['axis']!r}",
            "quantize activations per tensor",
        )
    unknown = unknown_count(graph, decode, 1)
    if unknown is not None:
        return unknown
    parameters = tuple(zip(SOURCE_AT_RUN_TIME, decode.inputs[1:], strict=False))
    return Source(codes, dtype, decode=decode, parameters=parameters)


def unknown_count(graph: Graph, decode: Node, size: Dim) -> Refusal | None:
    """Why computed parameters may be others than `size` numbers; None where the model tells."""
    for value in filter(None, decode.inputs[1:]):
        shape = graph.type(value).shape
        fits = all(dim == 1 for dim in shape or ()) if size == 1 else shape == (size,)
        if shape is None or isinstance(size, str) or not fits:
            return Refusal(
                "the model does not tell how many scales it computes",
                f"{size}",
                str(graph.type(value)),
                "export the inputs with fixed sizes: without dynamic_axes, or by onnxruntime.tools.make_dynamic_shape_fixed",
            )
    return None


def _grouped_source(decode: Node, dtype: DType, groups: int, *, fraction: bool) -> Source | Refusal:
    quant = decode.quant
    zeros = set(quant.zero_point)
    if len(zeros) != 1 or not (fraction or quant.integral):
        return Refusal(
            "the zero points of the source differ between channels",
            "one integer zero point",
            f"{len(zeros)} different ones",
            "quantize the input per tensor, or symmetrically",
        )
    by_group = quant.scales.astype(np.float64).reshape(groups, -1)
    if not (by_group == by_group[:, :1]).all():
        return Refusal(
            "the scales of the source differ within a group",
            "one scale for each group",
            "several",
            "quantize activations per tensor",
        )
    zero = zeros.pop()
    nearest = round(zero)
    return Source(
        decode.input, dtype, 1.0, nearest, decode, by_group[:, 0], fraction=zero - nearest
    )


def weights_of(
    graph: Graph, node: Node, axis: int, capability: Capability, groups: int = 1
) -> Weights | Refusal:
    """The second input of an anchor as s8 codes, or why it must be read in f32.

    `axis` is where output channels run in the weights; of a deconvolution in groups those of one
    group. Constant codes are written less their zero points where they are s8 codes then; other u8
    codes as s8 with 128 less. Neither changes anything.
    """
    value = node.inputs[1]
    decode = graph.producer(value)
    if decode is not None and decode.op == "RunTimeDequantize":
        return _weights_at_run_time(graph, decode, axis, capability, groups)
    if decode is None or decode.op != "Dequantize":
        return Refusal(
            "the weights are not quantized",
            "weights behind a quantizer",
            "f32 weights",
            "quantize the weights of this operation too",
        )
    quant = decode.quant
    codes = decode.input
    data = graph.constant(codes)
    kind = graph.type(codes).dtype
    wrong = _no_weights(graph, decode)
    if wrong is not None:
        return wrong
    scale = _scale_of_outputs(quant, axis, groups, graph.type(codes).shape)
    if isinstance(scale, Refusal):
        return scale
    if data is not None and quant.integral:
        less = less_zero_points(np.asarray(data), quant.zero_points, quant.axis)
        if less is not None:
            if kind is DType.S8 and not quant.zero_points.any():
                return Weights(codes, scale, 0, decode)
            return Weights(graph.add_constant(f"{codes}/s8", less), scale, 0, decode)
    zeros = np.unique(quant.zero_points)
    if zeros.size != 1 or not float(zeros[0]).is_integer():
        return Refusal(
            "the zero points of the weights differ or are no integers",
            "one integer zero point",
            f"{zeros.size} different ones" if zeros.size != 1 else f"{zeros[0]:g}",
            "quantize weights symmetrically",
        )
    zero = int(zeros[0])
    if data is None:
        if kind is not DType.S8:
            return _not_signed(kind)
        return Weights(codes, scale, zero, decode)
    codes, zero = signed(graph, codes, zero)
    return Weights(codes, scale, zero, decode)


def _no_weights(graph: Graph, decode: Node) -> Refusal | None:
    """Why a product cannot read what is decoded as weights; None when it can."""
    codes = graph.type(decode.input)
    if codes.dtype not in (DType.S8, DType.U8, DType.S4, DType.U4):
        return Refusal(
            "the weights have more than 8 bits",
            "8-bit weights",
            codes.dtype.value,
            "quantize weights to 8 bits",
        )
    axis = decode.quant.axis
    if axis is not None and codes.shape is not None and not isinstance(codes.shape[axis], int):
        return Refusal(
            "the scales of the weights tell a size that the codes do not",
            str(graph.type(decode.output)),
            str(codes),
            "export the model with the number of output channels of this input",
        )
    return None


def _weights_at_run_time(
    graph: Graph, decode: Node, axis: int, capability: Capability, groups: int
) -> Weights | Refusal:
    """Weights whose scale or zero point is computed, with what is constant of the two."""
    codes, zeros = decode.input, decode.operand(2)
    kind, along = graph.type(codes).dtype, decode.attrs.get("axis")
    if not capability.run_time:
        return Refusal(
            "scale and zero point of the weights are computed at run time",
            "constant ones",
            decode.inputs[1],
            "quantize statically, or compile with --target onednn-v3",
        )
    shape = graph.type(codes).shape
    unknown = unknown_count(graph, decode, 1 if along is None or shape is None else shape[axis])
    if unknown is not None:
        return unknown
    scale, shift = graph.constant(decode.inputs[1]), graph.constant(zeros) if zeros else None
    data = graph.constant(codes)
    if scale is not None and not np.isfinite(scale).all():
        return Refusal(
            "a scale of the weights is not finite",
            "finite scales",
            f"{scale.reshape(-1)[~np.isfinite(scale.reshape(-1))][0]:g}",
            "calibrate again: these weights decode to infinity or to no number",
        )
    if along == axis and shift is not None and data is not None:
        less = less_zero_points(np.asarray(data), shift.reshape(-1), axis)
        if less is not None:
            codes, zeros, shift = graph.add_constant(f"{codes}/s8", less), "", None
            kind = DType.S8
    if groups > 1 and axis == 1 and along == axis:
        return Refusal(
            "the computed scales of the weights serve the outputs of each group",
            "one scale, or one group",
            f"scales along axis {axis}, {groups} groups",
            "quantize the weights of deconvolutions in groups per tensor",
        )
    if along not in (None, axis) or (along is not None and zeros):
        return Refusal(
            "the computed parameters of the weights run along an axis",
            f"scales along axis {axis} without zero points, or one of each",
            f"axis {along!r}",
            "quantize weights per output channel, symmetrically",
        )
    zero = 0 if shift is None else int(shift.item())
    if kind is not DType.S8 and (graph.constant(codes) is None or (zeros and shift is None)):
        return _not_signed(kind)
    parameters = []
    if scale is None:
        parameters.append((WEIGHTS_AT_RUN_TIME[0], decode.inputs[1]))
    if zeros and shift is None:
        parameters.append((WEIGHTS_AT_RUN_TIME[1], zeros))
    codes, zero = signed(graph, codes, zero)
    return Weights(codes, vec(1.0 if scale is None else scale), zero, decode, tuple(parameters))


def _not_signed(kind: DType) -> Refusal:
    return Refusal(
        "the second operand is computed at run time, and is not s8",
        "s8 codes",
        kind.value,
        "quantize the second operand to signed codes (QInt8), or make it a constant",
    )


def signed(graph: Graph, codes: str, zero: int) -> tuple[str, int]:
    """Constant codes of 8 bits or fewer, and their zero point, as s8: u8 codes less 128."""
    kind, data = graph.type(codes).dtype, graph.constant(codes)
    if kind is DType.S8 or data is None:
        return codes, zero
    made = graph.add_constant(f"{codes}/s8", as_s8(np.asarray(data), kind))
    return made, zero - kind.beyond_s8


@dataclass(frozen=True, eq=False)
class Narrow:
    """Weights of 4 or 8 bits for a product that runs in f32, packed as DequantizeBlocks has them.

    Attributes:
        decode: the Dequantize.
        data: codes [N, bytes], scales and zero points [N, 1]: a row is one block.
        params: of the row MatMulBlocks.
    """

    decode: Node
    data: tuple[Array, Array, Array]
    params: Mapping[str, Attr]


def narrow_weights(graph: Graph, node: Node) -> Narrow | None:
    """The second factor of a product as packed codes, where it is a constant matrix of codes of 4
    bits, or many of 8, with scales of its columns; None for others.
    """
    decode = graph.producer(node.inputs[1], "Dequantize")
    codes = None if decode is None else graph.constant(decode.input)
    if decode is None or codes is None or codes.ndim != 2 or 0 in codes.shape:
        return None
    kind, quant = graph.type(decode.input).dtype, decode.quant
    low = kind.range[0]
    zeros = quant.zero_points - low
    bits = _BITS.get(kind, 0)
    few = bits == 8 and codes.size < _MANY_CODES
    if not bits or few or quant.axis not in (None, 1) or not quant.integral:
        return None
    if zeros.min() < 0 or zeros.max() > _LARGEST_ZERO:
        return None
    size, columns = codes.shape
    block = -(-size // _WHOLE) * _WHOLE
    rows = np.zeros((columns, block), np.uint8)
    rows[:, :size] = (codes.astype(np.int16) - low).T
    scales, points = (
        np.ascontiguousarray(np.broadcast_to(values, (columns,)).reshape(columns, 1))
        for values in (quant.scales, zeros.astype(np.uint8))
    )
    data = packed(rows, bits), scales, points
    return Narrow(decode, data, {"bits": bits, "block": block, "size": size})


def _scale_of_outputs(
    quant: Quantization, axis: int, groups: int, shape: Shape | None
) -> Vec | Refusal:
    """The weights' scale: one entry, or one for each output channel.

    A deconvolution's weights are [IC, OC/g, ...]. Entry j of axis 1 serves output channel j of
    every group. Entries of axis 0 belong to input channels: where they are the same within each
    group (as where it has one), the group's sums, which are all of its output channels, take them.
    """
    scale, grouped = vec(quant.scales), groups > 1 and axis == 1
    if quant.axis is None or len(scale) == 1:  # of equal scales, one is left
        return scale
    if quant.axis == axis:
        return np.tile(scale, groups) if grouped else scale
    outputs = shape[axis] if shape is not None and grouped else "?"
    if quant.axis == 0 and isinstance(outputs, int):
        by_group = scale.reshape(groups, -1)
        if (by_group == by_group[:, :1]).all():
            return np.repeat(by_group[:, 0], outputs)
    return Refusal(
        "the weights are quantized along another axis than the output channels",
        f"axis {axis}, or one scale for each group" if grouped else f"axis {axis}",
        f"axis {quant.axis}",
        "quantize weights along their output channels (ONNX Runtime: QDQOpTypePerChannelSupportToAxis), or per tensor",
    )


def accumulator_refusal(
    graph: Graph, source: Source, weights: Weights, summed: Sequence[int]
) -> Refusal | None:
    """Why 32 bits could not hold sum((src - src_zp) * (weights - weights_zp)) over the axes
    `summed` of the weights, or f32 one product; None when they do."""
    if weights.zero_point not in WEIGHTS_ZERO_POINTS:
        return Refusal(
            "the zero point of the weights is none of their codes",
            "a zero point from -128 to 127, of s8 codes",
            str(weights.zero_point),
            "calibrate the weights to a range that holds 0",
        )
    # a zero point that is computed is a code itself
    low, high = source.dtype.range
    farthest = high - low if source.parameters else reach_of(source.dtype, source.zero_point)
    reach, hint = (
        float(farthest),
        "calibrate the input to a range around 0; very long sums of products stay in f32",
    )
    type_, data = graph.type(weights.value), graph.constant(weights.value)
    zeros = DType.S8.range if weights.is_shifted_at_run_time else (weights.zero_point,)
    bound = (
        max(accumulated(type_.static_shape, data, zero, summed, reach) for zero in zeros)
        if is_static(type_.shape)
        else 0.0
    )
    if bound > ACCUMULATOR:
        return Refusal(
            "32 bits do not hold the sum of products",
            f"at most {ACCUMULATOR}",
            f"up to {bound:.0f}",
            hint,
        )
    if reach > CODE_REACH:
        return Refusal(
            "f32 does not hold a product of codes",
            f"codes at most {CODE_REACH} from their zero point",
            f"{reach:.0f}",
            hint,
        )
    return None


def float_weights(graph: Graph, value: str) -> npt.NDArray[np.float32] | None:
    """Constant weights in f32, decoded when they are codes behind a Dequantize; None when they are
    computed at run time.
    """
    data = graph.constant(value)
    if data is not None:
        return np.asarray(data, np.float32)
    decode = graph.producer(value)
    if decode is None or decode.op != "Dequantize":
        return None
    codes, evaluate = graph.constant(decode.input), decode.spec.evaluate
    if codes is None or evaluate is None:
        return None
    return np.asarray(evaluate([codes], decode.attrs)[0], np.float32)
