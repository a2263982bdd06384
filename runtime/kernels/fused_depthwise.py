"""The depthwise post-op: a 1x1 convolution, its result stored in between, and a depthwise
convolution of that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ...ir.ops.spec import Array, Attr
from ...plan.attributes import DepthwiseConv, PrimitiveAttr
from .base import Binding, Kernel, Layout, Operand, Tasks, Values
from .convolution import Convolution
from .depthwise import DepthwiseConvolution

__all__ = ["FusedDepthwise", "has_depthwise"]

_BETWEEN = (
    "#between"  # no value of a plan: those are the user's names, without a number sign in front
)


def has_depthwise(binding: Binding) -> bool:
    """True when a post-op of the step is a depthwise convolution."""
    return any(isinstance(op, DepthwiseConv) for op in binding.step.attr.post_ops)


class FusedDepthwise(Kernel):
    """`convolution` with a depthwise post-op.

    The step's dst scale is that of the 1x1 result, and the source scale of the depthwise
    convolution; post-ops behind it, its own dst scale, and the step's dst zero point belong to the
    second result. In between lie codes of `src_dtype`.

    Args:
        binding: the step.
    """

    def __init__(self, binding: Binding) -> None:
        step, attr = binding.step, binding.step.attr
        at = next(i for i, op in enumerate(attr.post_ops) if isinstance(op, DepthwiseConv))
        op = attr.post_ops[at]
        if not isinstance(op, DepthwiseConv):
            raise binding.refuse("a post-op changed its kind")
        src, weights = binding.need("src"), binding.operands[op.weights]
        if weights.data is None:
            raise binding.refuse("depthwise weights that are no constant")
        between = op.src_dtype
        channels = weights.shape[0]
        source_zero = {role: zero for role, zero in attr.zero_points.items() if role != "dst"}
        first = replace(
            step,
            attr=PrimitiveAttr(attr.scales, source_zero, attr.post_ops[:at], attr.output_scales),
            outputs=(_BETWEEN,),
        )
        shape = (src.shape[0], channels, *src.shape[2:])
        self._first = Convolution(replace(binding, step=first, dtypes=(between,), shapes=(shape,)))
        scales = {"weights": op.weights_scale, "dst": op.dst_scale} | (
            {"src": attr.scales["dst"]} if "dst" in attr.scales else {}
        )
        zero = {"dst": attr.zero_points["dst"]} if "dst" in attr.zero_points else {}
        args = (
            ("src", _BETWEEN),
            ("weights", op.weights),
            *((("bias", op.bias),) if op.bias else ()),
        )
        params: dict[str, Attr] = {
            "group": channels,
            "strides": (op.stride,) * 2,
            "pads": (op.padding,) * 4,
        }
        second = replace(
            step,
            args=args,
            params=params,
            attr=PrimitiveAttr(scales, zero, attr.post_ops[at + 1 :]),
        )
        kernel = np.asarray(weights.data).reshape(channels, 1, op.kernel, op.kernel)
        operands = {
            **binding.operands,
            _BETWEEN: Operand(_BETWEEN, between, shape, Layout.CHANNELS_LAST),
            op.weights: Operand(op.weights, weights.dtype, kernel.shape, data=kernel),
        }
        self._second = DepthwiseConvolution(replace(binding, step=second, operands=operands))
        self.results = self._second.results
        self.local_bytes = max(self._first.local_bytes, self._second.local_bytes)

    def tasks(self, values: Values, outputs: Sequence[Array]) -> Tasks:
        """Tiles of the 1x1 result, then tiles of the destination."""
        between = self._first.results[0].empty()
        first = self._first.tasks(values, [between])
        return replace(first, then=self._second.tasks({**values, _BETWEEN: between}, outputs))
