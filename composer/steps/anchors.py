"""Anchors with weights: convolution, deconvolution and matrix product, in int8 or f32, with the
chain behind them.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from ...ir.decision import DequantizeFate
from ...ir.node import Node
from ...ir.rule import Refusal
from ...ir.types import DType, Quantization
from ...plan.attributes import PrimitiveAttr, Scale, ZeroPoint
from ...plan.types import Step
from ..formula.exact_zeros import zero_shows
from ..formula.formula import Vec, vec
from ..mapping.post_ops_composer import Composed, Front, PostOpsComposer
from .chain import Chain, grow
from .drafts import Drafts, origins
from .operands import (
    Source,
    Weights,
    accumulator_refusal,
    float_weights,
    grouped_source_of,
    source_of,
    weights_of,
)
from .steps import plain

__all__ = ["matmul", "weighted"]


def weighted(drafts: Drafts, node: Node) -> None:
    """A convolution or deconvolution: in int8 when source and weights are codes, in f32
    otherwise.
    """
    primitive = "convolution" if node.op == "Conv" else "deconvolution"
    groups = node.attr("group", int)
    kind = drafts.graph.type(node.output)
    channels = kind.shape[1] if kind.shape is not None else "?"
    mask = 1 if groups == 1 else 3
    bias = node.inputs[2] if len(node.inputs) > 2 else ""
    _Anchor(
        drafts, node, primitive, 1, channels if isinstance(channels, int) else 0, mask, bias
    ).build(0 if node.op == "Conv" else 1, groups)


def matmul(drafts: Drafts, node: Node) -> None:
    """A matrix product: in int8 when both operands are codes (the second one s8), in f32
    otherwise.
    """
    graph = drafts.graph
    ranks = [
        len(kind.shape) if (kind := graph.type(value)).shape is not None else 0
        for value in node.inputs
    ]
    if min(ranks) < 2:
        plain(drafts, node)
        return
    shape = graph.type(node.output).shape
    assert shape is not None
    columns = shape[-1]
    axis = len(shape) - 1
    _Anchor(
        drafts,
        node,
        "matmul",
        axis,
        columns if isinstance(columns, int) else 0,
        1 << (ranks[1] - 1),
        "",
    ).build(ranks[1] - 1)


class _Anchor:
    """Builds the step of one anchor with weights."""

    def __init__(
        self,
        drafts: Drafts,
        node: Node,
        primitive: str,
        axis: int,
        channels: int,
        mask: int,
        bias: str,
    ) -> None:
        self.drafts, self.graph, self.node, self.primitive = drafts, drafts.graph, node, primitive
        self.axis, self.channels, self.mask, self.bias = axis, channels, mask, bias
        self.target = drafts.target
        self.v2 = drafts.target.scales == "output"

    def build(self, weights_axis: int, groups: int = 1) -> None:
        """Adds the step, in int8 when nothing refuses."""
        capability = self.target.capability(self.primitive)
        grouped = groups > 1 and self.primitive == "convolution"
        fraction = self._takes_fraction()
        source = (
            grouped_source_of(self.graph, self.node, capability, fraction=fraction)
            if grouped
            else source_of(self.graph, self.node.inputs[0], capability, fraction=fraction)
        )
        weights = weights_of(self.graph, self.node, weights_axis, groups)
        refusal = next((found for found in (source, weights) if isinstance(found, Refusal)), None)
        if (
            refusal is None
            and isinstance(weights, Weights)
            and weights.zero_point
            and self.primitive != "matmul"
        ):
            refusal = Refusal(
                f"{self.primitive} takes no zero point on its weights",
                "zero point 0",
                str(weights.zero_point),
                "quantize weights symmetrically",
            )
        if refusal is None and isinstance(source, Source) and isinstance(weights, Weights):
            rank = self.graph.type(weights.value).rank
            summed = (
                [rank - 2]
                if self.primitive == "matmul"
                else [axis for axis in range(rank) if axis != weights_axis]
            )
            refusal = accumulator_refusal(self.graph, source, weights, summed)
        if refusal is None and isinstance(source, Source) and isinstance(weights, Weights):
            self._int8(source, weights)
            return
        assert refusal is not None
        self.drafts.refuse(f"{self.primitive} in int8", self.node, refusal)
        self._f32(refusal.reason)

    def _takes_fraction(self) -> bool:
        """True when a fraction of the source's zero point may go into the bias: every output reads
        all weights, and both are constant.

        sum of (q - z)*w = sum of (q - floor(z))*w - (z - floor(z)) * sum of w. Padding is the real
        0, which has no part in the first sum, and at the edges of a deconvolution some weights read
        nothing.
        """
        decode = self.graph.producer(self.node.inputs[0])
        if (
            decode is None
            or decode.op != "Dequantize"
            or decode.attr("quant", Quantization).integral
        ):
            return False
        pads = self.node.attrs.get("pads")
        padded = (isinstance(pads, tuple) and any(pads)) or self.node.attrs.get(
            "auto_pad", "NOTSET"
        ) not in ("NOTSET", "VALID")
        constant = float_weights(self.graph, self.node.inputs[1])
        plain_rank = self.primitive == "convolution" or (
            constant is not None and constant.ndim == 2
        )
        return (
            self.primitive != "deconvolution"
            and not padded
            and plain_rank
            and constant is not None
            and self._bias() is not None
        )

    def _bias(self) -> Vec | None:
        """The constant bias as a vector (zero without one); None when it is computed at run
        time.
        """
        if not self.bias:
            return vec(0.0)
        data = float_weights(self.graph, self.bias)
        return None if data is None else vec(data)

    def _front(self, src: DType, scale: Vec | None) -> Front:
        rank = self.graph.type(self.node.output).rank
        shows = zero_shows(self.graph, self.node, rounded=True)
        per_channel = self.channels > 0
        return Front(
            self.primitive,
            self.node.name,
            src,
            rank,
            self.axis,
            self.channels,
            scale,
            self._bias(),
            per_channel,
            zero_shows=shows,
        )

    def _grow(self, front: Front) -> Chain:
        found = grow(
            self.graph,
            PostOpsComposer(self.target, front),
            self.node.output,
            self.node,
            self.drafts.is_claimed,
        )
        assert isinstance(found, Chain)  # every anchor with weights can store f32
        return found

    # -- int8 --------------------------------------------------------------------------------------

    def _int8(self, source: Source, weights: Weights) -> None:
        scale = weights.scale * source.scale if self.v2 else weights.scale
        if source.per_channel is not None:
            scale = vec(
                np.broadcast_to(scale, (self.channels,))
                * np.repeat(source.per_channel, self.channels // source.per_channel.size)
            )
        front = self._front(source.dtype, scale)
        if source.fraction and front.bias is not None:
            front = replace(
                front,
                bias=vec(
                    front.bias
                    - source.fraction * source.scale * weights.scale * self._weight_sums(weights)
                ),
            )
        chain = self._grow(front)
        composed = chain.composed
        assert composed.scale is not None
        args = [("src", source.value), ("weights", weights.value)]
        args += self._bias_args(composed, composed.scale if self.v2 else None)
        attr = self._attributes(composed, source, weights)
        step = Step(
            self.node.name,
            self.primitive,
            self.node.op,
            tuple(args),
            (chain.value,),
            self.node.attrs,
            attr,
            self._origins(chain, source, weights),
        )
        self.drafts.add_chain(step, self.node, chain)
        assert source.decode is not None
        how = f"scale and zero point of {self.primitive}'s source"
        if source.per_channel is not None:
            how = f"its scales along the channels multiply those of {self.primitive}'s weights"
        self.drafts.decoded(source.decode, DequantizeFate.SOURCE_SCALE, how, self.node, step.name)
        self.drafts.decoded(
            weights.decode,
            DequantizeFate.WEIGHTS_SCALE,
            f"scale of {self.primitive}'s weights",
            self.node,
            step.name,
        )

    def _weight_sums(self, weights: Weights) -> Vec:
        """The sum of the codes that each output channel reads, less their zero point."""
        data = self.graph.constant(weights.value)
        assert data is not None
        axes = (0,) if self.primitive == "matmul" else tuple(range(1, data.ndim))
        return np.asarray((data.astype(np.int64) - weights.zero_point).sum(axes), np.float64)

    def _attributes(self, composed: Composed, source: Source, weights: Weights) -> PrimitiveAttr:
        scales: dict[str, Scale] = {}
        output_scales = None
        assert composed.scale is not None
        if self.v2:
            output_scales = _scale(composed.scale, 1 << self.axis)
        else:
            scales = {
                "src": _scale(vec(source.scale), 0),
                "weights": _scale(composed.scale, self.mask),
            }
            if composed.dst_scale is not None:
                scales["dst"] = _scale(vec(composed.dst_scale), 0)
        zero_points = {
            "src": int(source.zero_point),
            "weights": weights.zero_point,
            "dst": composed.dst_zero_point or 0,
        }
        return PrimitiveAttr(
            scales,
            {role: ZeroPoint((zero,)) for role, zero in zero_points.items() if zero},
            composed.post_ops,
            output_scales,
        )

    def _bias_args(self, composed: Composed, divisor: Vec | None) -> list[tuple[str, str]]:
        """The bias argument: constant, in the real domain, or divided by the output scale into the
        accumulator's.
        """
        if composed.bias is None:
            return [("bias", self.bias)]
        bias = composed.bias if divisor is None else composed.bias / divisor
        if not bias.any():
            return []
        values = np.broadcast_to(bias, (self.channels or bias.size,)).astype(np.float32)
        return [("bias", self.drafts.file_constant(f"{self.node.name}/bias", values))]

    def _origins(self, chain: Chain, *operands: Source | Weights) -> tuple[str, ...]:
        decodes = [operand.decode for operand in operands if operand.decode is not None]
        names = [name for node in decodes for name in node.origin]
        return tuple(dict.fromkeys([*origins(self.node, chain), *names]))

    # -- f32 ---------------------------------------------------------------------------------------

    def _f32(self, reason: str) -> None:
        data = float_weights(self.graph, self.node.inputs[1])
        if data is None and self.primitive != "matmul":
            plain(self.drafts, self.node)  # weights computed at run time cannot be packed
            return
        chain = self._grow(self._front(DType.F32, None if data is None else vec(1.0)))
        composed = chain.composed
        weights = self.node.inputs[1]
        if data is not None and (composed.scale is not None and (composed.scale != 1).any()):
            weights = self.drafts.file_constant(
                f"{self.node.name}/weights", self._scaled(data, composed.scale)
            )
        elif data is not None and self.graph.constant(weights) is None:
            weights = self.drafts.file_constant(f"{self.node.name}/weights", data)
        args = [
            ("src", self.node.inputs[0]),
            ("weights", weights),
            *self._bias_args(composed, None),
        ]
        step = Step(
            self.node.name,
            self.primitive,
            self.node.op,
            tuple(args),
            (chain.value,),
            self.node.attrs,
            _float_attributes(composed),
            origins(self.node, chain),
        )
        self.drafts.add_chain(step, self.node, chain)
        decode = self.graph.producer(self.node.inputs[1])
        if data is not None and decode is not None and decode.op == "Dequantize":
            self.drafts.decoded(
                decode,
                DequantizeFate.CONSTANT,
                f"decoded at compile time, the step runs in f32: {reason}",
                self.node,
                step.name,
            )

    def _scaled(self, data: npt.NDArray[np.float32], scale: Vec) -> npt.NDArray[np.float32]:
        """f32 weights with each output channel multiplied by its factor."""
        if scale.size == 1 or self.primitive == "matmul":
            return np.asarray(data * scale, np.float32)
        if self.primitive == "convolution":
            return np.asarray(data * scale.reshape(-1, *[1] * (data.ndim - 1)), np.float32)
        groups = self.node.attr("group", int)
        blocks = data.reshape(groups, data.shape[0] // groups, *data.shape[1:])
        product = blocks * scale.reshape(groups, 1, -1, *[1] * (data.ndim - 2))
        return np.asarray(product.reshape(data.shape), np.float32)


def _scale(values: Vec, mask: int) -> Scale:
    floats = tuple(values.astype(np.float32).tolist())
    return Scale(floats, mask if len(floats) > 1 else 0)


def _float_attributes(composed: Composed) -> PrimitiveAttr:
    scales = {} if composed.dst_scale is None else {"dst": _scale(vec(composed.dst_scale), 0)}
    zero_points = (
        {} if not composed.dst_zero_point else {"dst": ZeroPoint((composed.dst_zero_point,))}
    )
    return PrimitiveAttr(scales, zero_points, composed.post_ops)
