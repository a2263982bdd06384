"""Anchors with weights: convolution, deconvolution and matrix product, in int8 or f32, with the
chain behind them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from ...ir.block_weights import block_weights
from ...ir.decision import DequantizeFate, QuantizeFate
from ...ir.node import Node
from ...ir.ops.product_axes import outputs_axis
from ...ir.ops.spec import Attr
from ...ir.rule import Refusal
from ...ir.types import DType, TensorType
from ...plan.arguments import AT_RUN_TIME, BLOCKS_OF_WEIGHTS, PACKED, SOURCE_BITS
from ...plan.attributes import PrimitiveAttr
from ..formula.algebra import is_normal
from ..formula.formula import LARGEST, SMALLEST_NORMAL, BinaryOp, ChainOp, Shift, Vec, vec
from ..mapping.composed import Composed, Front
from .build import (
    Roles,
    attributes_of,
    build_step,
    front_of,
    grown,
    is_padded,
    of_rank,
    row_in_front,
    scale_of,
    size_along,
)
from .builder import StepBuilder
from .chain import Chain
from .operands import (
    Source,
    Weights,
    accumulator_refusal,
    float_weights,
    narrow_weights,
    source_of,
    weights_of,
)
from .primitives import plain

PRIMITIVES = {"Conv": "convolution", "ConvTranspose": "deconvolution", "MatMul": "matmul"}
"""The primitive of each operation with weights."""

_APART = 2.0**64


def anchor(builder: StepBuilder, node: Node) -> None:
    """An operation with weights: in int8 when source and weights are codes (of a matrix product,
    the second operand s8), in f32 otherwise.
    """
    ranks = [builder.graph.type(value).rank for value in node.inputs[:2]]
    if min(ranks) < 2:
        plain(builder, node)  # a matrix product of vectors
    else:
        _Anchor(builder, node, PRIMITIVES[node.op], ranks[1]).build()


class _Anchor:
    """Builds the step of one anchor with weights.

    Attributes:
        builder, graph, target, v2: what is being compiled, and for which attributes.
        node, primitive: the anchor.
        groups: of a convolution.
        weights_axis: where output channels run in the weights; `mask` selects their scales'
            dimensions.
        axis, channels: where they run in the destination, and how many they are; 0: unknown.
        bias: the constant bias as a vector (zero without one); None when it is computed at run
            time.
    """

    def __init__(self, builder: StepBuilder, node: Node, primitive: str, rank: int) -> None:
        self.builder, self.graph, self.node, self.primitive = (
            builder,
            builder.graph,
            node,
            primitive,
        )
        self.target = builder.target
        self.v2 = builder.target.scales == "output"
        self.weights_axis = outputs_axis(node.op, rank)
        self.groups, self.axis = 1, 1
        if primitive == "matmul":
            self.axis = self.graph.type(node.output).rank - 1
            self.mask = 1 << self.weights_axis
        else:
            self.groups = node.attr("group", int)
            self.mask = 1 if self.groups == 1 else 3
        self.channels = size_along(builder, node.output, self.axis)
        self.bias_value = node.inputs[2] if len(node.inputs) > 2 else ""
        data = float_weights(self.graph, self.bias_value) if self.bias_value else vec(0.0)
        self.bias = None if data is None else vec(data)

    def build(self) -> None:
        """Adds the step, in int8 when nothing refuses."""
        blocks = block_weights(self.graph, self.node.inputs[1])
        if blocks is not None:
            self._blocks(blocks)
            return
        capability = self.target.capability(self.primitive)
        source = source_of(
            self.graph,
            self.node.input,
            capability,
            fraction=self._takes_fraction(),
            groups=self.groups if self.primitive == "convolution" else 1,
            reader=self.node,
        )
        weights = weights_of(self.graph, self.node, self.weights_axis, capability, self.groups)
        if isinstance(source, Refusal):
            refusal: Refusal | None = source
        elif isinstance(weights, Refusal):
            refusal = weights
        else:
            refusal = self._refusal(source, weights)
            if refusal is None:
                self._int8(source, weights)
                return
        assert refusal is not None
        self.builder.refuse(f"{self.primitive} in int8", self.node, refusal)
        narrow = None if self.primitive != "matmul" else narrow_weights(self.graph, self.node)
        if narrow is None:
            self._f32(refusal.reason)
            return
        values = [
            self.builder.file_constant(f"{self.node.inputs[1]}/{what}", data)
            for what, data in zip(("codes", "scales", "zero_points"), narrow.data, strict=True)
        ]
        self._packed(narrow.decode, values, narrow.params)

    def _refusal(self, source: Source, weights: Weights) -> Refusal | None:
        """Why codes of both operands are not multiplied."""
        if self.primitive == "deconvolution" and self.graph.constant(weights.value) is None:
            return Refusal(
                f"{self.primitive} packs its weights beforehand",
                "constant weights",
                "weights that are computed at run time",
                "export the weights as a constant (an initializer)",
            )
        computed = weights.is_scaled_at_run_time or bool(source.parameters)
        ranks = [
            self.graph.type(value).rank for _, value in (*source.parameters, *weights.parameters)
        ]
        if computed and self.v2 and max(ranks) > 1:
            return Refusal(
                "a computed scale has several dimensions",
                "one number, or a vector",
                str(ranks),
                "give the DequantizeLinear a scale that is one number or a vector",
            )
        if computed and self.v2 and self.bias is None:
            return Refusal(
                "the bias and the scales are computed at run time",
                "a constant bias",
                self.bias_value,
                "export the bias as a constant (an initializer)",
            )
        if source.per_channel is not None and weights.is_scaled_at_run_time:
            return Refusal(
                "the scales of the weights are computed at run time, and the source has one for each channel",
                "constant ones of either",
                weights.parameters[0][1],
                "make the scales of the weights constants, or quantize the source per tensor",
            )
        shifted = bool(weights.zero_point) or weights.is_shifted_at_run_time
        if shifted and self.primitive != "matmul":
            return Refusal(
                f"{self.primitive} takes no zero point on its weights",
                "zero point 0",
                str(weights.zero_point or "a computed one"),
                "quantize weights symmetrically",
            )
        rank = self.graph.type(weights.value).rank
        summed = {rank - 2} if self.primitive == "matmul" else {*range(rank)} - {self.weights_axis}
        return accumulator_refusal(self.graph, source, weights, sorted(summed))

    def _takes_fraction(self) -> bool:
        """True when a fraction of the source's zero point may go into the bias, which is constant
        as the weights are.

        sum of (q - z)*w = sum of (q - k)*w - (z - k) * sum of w, k the integer nearest to z, over
        the weights that an output reads.
        """
        decode = self.graph.producer(self.node.input)
        fractional = decode is not None and decode.op == "Dequantize" and not decode.quant.integral
        if not fractional:
            return False
        constant = float_weights(self.graph, self.node.inputs[1])
        plain_rank = constant is not None and (self.primitive != "matmul" or constant.ndim == 2)
        return plain_rank and self.bias is not None

    def _by_position(self) -> bool:
        """True when outputs read different weights: padding is the real 0, and at the edges of a
        deconvolution some weights read nothing.

        The step then has the real zero point, and runtimes a bias for each position. Measured with
        oneDNN 3.2 (AVX-512 VNNI, one thread): 1 to 11 % of an int8 convolution, of a depthwise one
        up to 35 %. In f32, without the step that decodes the source, dense ones take 1.2 to 3.6
        times as long, depthwise ones 0.8 to 1.3.
        """
        return self.primitive == "deconvolution" or is_padded(self.node)

    def _grow(self, front: Front, start: Sequence[ChainOp] = ()) -> Chain:
        found = grown(self.builder, self.node, front, start)
        assert isinstance(found, Chain)  # every anchor with weights can store f32
        return found

    def _front(self, src: DType, scale: Vec | None) -> Front:
        per_channel = self.channels > 0
        return front_of(
            self.builder,
            self.node,
            self.primitive,
            src,
            self.axis,
            scale,
            self.bias,
            per_channel=per_channel,
        )

    # -- int8 --------------------------------------------------------------------------------------

    def _int8(self, source: Source, weights: Weights) -> None:
        scale: Vec | None = weights.scale * source.scale if self.v2 else weights.scale
        how = f"scale and zero point of {self.primitive}'s source"
        if source.parameters:
            how += ", computed at run time"
        if source.per_channel is not None:
            scale = vec(weights.scale * self._of_groups(source))
            how = f"its scales along the channels multiply those of {self.primitive}'s weights"
        if weights.is_scaled_at_run_time and not self.v2:
            scale = None
        front, zero = self._front(source.dtype, scale), float(source.zero_point)
        if source.fraction and self._by_position():
            zero += source.fraction
            how += f"; what {zero:g} has beyond {source.zero_point:g} is in its bias, position by position, for padding is the real 0"
        elif source.fraction and front.bias is not None:
            factor = source.scale * weights.scale * self._of_groups(source)
            lost = source.fraction * factor * self._weight_sums(weights)
            front = replace(front, bias=vec(front.bias - lost))
        parameters = [*source.parameters, *weights.parameters]
        computed = self._computed_factors(parameters) if self.v2 else []
        if computed:
            parameters = [arg for arg in parameters if AT_RUN_TIME[arg[0]][0] != "scales"]
        chain = self._grown(front, computed)
        factors = chain.composed.scale
        assert source.decode is not None
        assert weights.decode is not None
        divisor = factors if self.v2 and factors is not None else vec(1.0)
        bias = self._bias_args(chain.composed, divisor)
        build_step(
            self.builder,
            self.node,
            self.primitive,
            [
                ("src", source.value),
                ("weights", weights.value),
                *bias,
                *parameters,
            ],
            chain,
            self._attributes(chain.composed, source, {"src": zero, "weights": weights.zero_point}),
            inside=(source.decode, weights.decode),
            decoded=[
                (source.decode, DequantizeFate.SOURCE_SCALE, how),
                (
                    weights.decode,
                    DequantizeFate.WEIGHTS_SCALE,
                    f"scale of {self.primitive}'s weights",
                ),
            ],
        )

    def _attributes(
        self, composed: Composed, source: Source, zero_points: Mapping[str, float]
    ) -> PrimitiveAttr:
        """Scales of the arguments, or the output scales that `onednn-v2` has for them."""
        factors = composed.scale
        if self.v2:
            output_scales = None if factors is None else scale_of(factors, 1 << self.axis)
            return attributes_of(composed, {}, zero_points, output_scales)
        scales = {} if source.parameters else {"src": scale_of(source.scale)}
        if factors is not None:
            scales["weights"] = scale_of(factors, self.mask)
        return attributes_of(composed, scales, zero_points)

    def _grown(self, front: Front, computed: list[str]) -> Chain:
        """The chain, on `onednn-v2` behind computed factors; constant ones that no output scales can be
        are factors of its own, too.
        """
        start = self._factors(computed, front, computed=True) if computed else []
        chain = self._grow(replace(front, bias=vec(0.0)) if computed else front, start)
        if not self.v2 or _has_output_scales(chain.composed, len(computed)):
            return chain
        constant = self._constant_factors(front, computed=bool(computed))
        start = self._factors([*computed, *constant], front, computed=bool(computed))
        return self._grow(replace(front, scale=None, bias=vec(0.0)), start)

    def _computed_factors(self, parameters: Roles) -> list[str]:
        """Computed scales for `onednn-v2`, as operands of post-ops.

        oneDNN 2.6 takes output scales at execution for no convolution, and leaves its fast matmul
        for them (by experiment); zero points it takes.
        """
        return [
            of_rank(self.builder, self.node, value, self.axis, role)
            for role, value in parameters
            if AT_RUN_TIME[role][0] == "scales"
        ]

    def _constant_factors(self, front: Front, *, computed: bool) -> list[str]:
        """The same of constants: none of 1; those of two arguments are two where f32 has few bits for
        their product.
        """
        scale = front.scale
        assert scale is not None
        parts = {} if (scale == 1).all() else {"scales": scale}
        if not computed and not is_normal(scale):
            half = np.exp2(np.frexp(scale)[1] // 2)
            parts = {"scales": scale / half, "scales/apart": half}
        return [
            self.graph.add_constant(f"{self.node.name}/{what}", front.along_channels(values))
            for what, values in parts.items()
        ]

    def _factors(self, operands: list[str], front: Front, *, computed: bool) -> list[ChainOp]:
        """Factors as the first post-ops of a step, with the bias behind. Of two of which one is computed the
        smaller one is first: so f32 holds what a sum becomes on the way to a result that it holds.
        """
        if len(operands) > 1 and computed:
            operands = [self._of_both(op, operands) for op in ("Min", "Max")]
        chain: list[ChainOp] = [BinaryOp("mul", operand) for operand in operands]
        if front.bias is not None and front.bias.any():
            chain.append(Shift(front.bias))
        return chain

    def _of_both(self, op: str, operands: list[str]) -> str:
        """Two operands of the output's rank as one, in front of the step."""
        shapes = [self.builder.type(operand).static_shape for operand in operands]
        kind = TensorType(DType.F32, np.broadcast_shapes(*shapes))
        name = f"{self.node.name}/{op.lower()}"
        return row_in_front(self.builder, self.node, op, name, operands, kind)

    def _of_groups(self, source: Source) -> Vec:
        """The source's scale for each output channel, where each group has one; else 1."""
        if source.per_channel is None:
            return vec(1.0)
        return vec(np.repeat(source.per_channel, self.channels // source.per_channel.size))

    def _weight_sums(self, weights: Weights) -> Vec:
        """The sum of the codes that each output channel reads, less their zero point."""
        data = self.graph.constant(weights.value)
        assert data is not None
        axes = (0,) if self.primitive == "matmul" else tuple(range(1, data.ndim))
        return np.asarray((data.astype(np.int64) - weights.zero_point).sum(axes), np.float64)

    def _bias_args(self, composed: Composed, divisor: Vec) -> list[tuple[str, str]]:
        """The bias argument: computed, or a constant in the real domain, or divided by the output
        scale into the accumulator's.
        """
        if composed.bias is None:
            return [("bias", self.bias_value)]
        bias = composed.bias / divisor
        if not bias.any():
            return []
        values = np.broadcast_to(bias, (self.channels or bias.size,)).astype(np.float32)
        return [("bias", self.builder.file_constant(f"{self.node.name}/bias", values))]

    # -- weights in blocks ---------------------------------------------------------------------

    def _blocks(self, nodes: Sequence[Node]) -> None:
        decode = nodes[0]
        rounding = self.graph.producer(self.node.input, "DynamicBlocks")
        if rounding is not None and rounding.attrs["block"] != decode.attrs["block"]:
            rounding = None
        self._packed(decode, decode.inputs, decode.attrs, nodes, rounding)

    def _packed(
        self,
        decode: Node,
        values: Sequence[str],
        params: Mapping[str, Attr],
        inside: Sequence[Node] = (),
        rounding: Node | None = None,
    ) -> None:
        """A product with weights that stay packed. In f32 they are decoded in front of it, a few
        columns at a time; where each block of the source becomes codes, codes are multiplied.

        Args:
            decode: what decodes the weights in the graph.
            values: codes, scales and zero points, of which there may be none.
            params: of the row MatMulBlocks.
            inside: nodes that the step stands for.
            rounding: makes codes of the source in each run; None: it stays f32.
        """
        chain = self._grow(self._front(DType.F32, None))
        roles = ("weights", *BLOCKS_OF_WEIGHTS)
        source, decoded = self.node.input, list[tuple[Node | None, DequantizeFate, str]]()
        how = f"{params['bits']!r}-bit codes in blocks of {params['block']!r} stay packed, and are "
        if rounding is None:
            how += "decoded in front of an f32 product"
        else:
            source, params = rounding.input, {**params, SOURCE_BITS: 8}
            how += "multiplied by codes of the source; their scale is a factor of each block's sum"
            factor = "its scale is a factor of the sum of each block"
            decoded.append((rounding, DequantizeFate.SOURCE_SCALE, factor))
        build_step(
            self.builder,
            self.node,
            self.primitive,
            [
                ("src", source),
                *((role, value) for role, value in zip(roles, values, strict=False) if value),
                *self._bias_args(chain.composed, vec(1.0)),
            ],
            chain,
            attributes_of(chain.composed),
            op=PACKED,
            params=params,
            inside=inside,
            decoded=[*decoded, (decode, DequantizeFate.WEIGHTS_SCALE, how)],
        )
        if rounding is not None and self.graph.consumers(rounding.output)[0] == self.node:
            made = "the step makes s8 codes of each block of a row in each run, by its largest magnitude"
            self.builder.encoded(rounding, QuantizeFate.SOURCE, made, self.node.name)

    # -- f32 ---------------------------------------------------------------------------------------

    def _f32(self, reason: str) -> None:
        weights = self.node.inputs[1]
        data = float_weights(self.graph, weights)
        if data is None and self.primitive == "deconvolution":
            plain(self.builder, self.node)  # weights computed at run time cannot be turned
            return
        front = self._front(DType.F32, None if data is None else vec(1.0))
        if data is not None:
            ends = data.max(initial=0.0), -data.min(initial=0.0)  # abs would copy them
            front = replace(front, largest=float(np.maximum(*ends)))
        chain = self._grow(front)
        composed = chain.composed
        decode = self.graph.producer(weights)
        if data is not None:
            assert composed.scale is not None
            if (composed.scale != 1).any():
                data = self._scaled(data, composed.scale)
            if (composed.scale != 1).any() or self.graph.constant(weights) is None:
                weights = self.builder.file_constant(f"{self.node.name}/weights", data)
        folded = data is not None and decode is not None and decode.op == "Dequantize"
        how = f"decoded at compile time, the step runs in f32: {reason}"
        build_step(
            self.builder,
            self.node,
            self.primitive,
            [
                ("src", self.node.input),
                ("weights", weights),
                *self._bias_args(composed, vec(1.0)),
            ],
            chain,
            attributes_of(composed),
            decoded=[(decode, DequantizeFate.CONSTANT, how)] if folded else (),
        )

    def _scaled(self, data: npt.NDArray[np.float32], scale: Vec) -> npt.NDArray[np.float32]:
        """f32 weights with each output channel multiplied by its factor."""
        if scale.size > 1 and self.primitive != "matmul":
            # entry j of axis 1 of a deconvolution's weights serves channel j of each group
            groups = self.groups if self.primitive == "deconvolution" else 1
            blocks = data.reshape(groups, data.shape[0] // groups, *data.shape[1:])
            shape = (1, -1, 1) if groups == 1 and self.weights_axis == 0 else (groups, 1, -1)
            scale = scale.reshape(*shape, *[1] * (data.ndim - 2))
            return np.asarray((blocks * scale).reshape(data.shape), np.float32)
        return np.asarray(data * scale, np.float32)


def _has_output_scales(composed: Composed, computed: int) -> bool:
    """True where the output scales are normal numbers of f32, and the bias divided by them is one; in front
    of a computed factor, where sums by the former are far from the ends of f32; of two, where they are 1.
    """
    if composed.scale is None:
        return True
    with np.errstate(all="ignore"):
        bias = vec(0.0) if composed.bias is None else composed.bias / composed.scale
    size = np.abs(composed.scale)
    far = (LARGEST, _APART, 1.0)[computed]
    least = max(SMALLEST_NORMAL, 1 / far)
    return bool(((size >= least) & (size <= far)).all() and (np.abs(bias) <= LARGEST).all())
