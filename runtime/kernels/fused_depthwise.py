"""Which kernel runs a convolution: dense, grouped, depthwise, or one with a depthwise post-op: a
1x1 convolution, its result stored in between, and a depthwise convolution of that.
"""

from __future__ import annotations

from dataclasses import replace

from ...ir.ops.spec import Attr
from ...plan.attributes import DepthwiseConv, PrimitiveAttr
from .base import BETWEEN, Binding, InTurn, Kernel, Layout, Operand
from .convolution import bind_convolution
from .depthwise import DepthwiseConvolution
from .pairs import sums_of_step


def bind_any_convolution(binding: Binding) -> Kernel:
    """The kernel of a `convolution`."""
    for index, op in enumerate(binding.step.attr.post_ops):
        if isinstance(op, DepthwiseConv):
            return _fused(binding, op, index)
    # every group has one input channel, and there are groups
    grouped = binding.number("group", 1) > 1 and binding.need("weights").shape[1] == 1
    if grouped and sums_of_step(binding).pairs is None:
        return DepthwiseConvolution(binding)
    return bind_convolution(binding)


def _fused(binding: Binding, op: DepthwiseConv, at: int) -> Kernel:
    """A convolution with a depthwise post-op.

    The step's dst scale is that of the 1x1 result, and the source scale of the depthwise
    convolution; post-ops behind it, its own dst scale, and the step's dst zero point belong to the
    second result. In between lie codes of `src_dtype`.

    Args:
        binding: the step.
        op: the post-op.
        at: its place among the post-ops.
    """
    step, attr, src = binding.step, binding.step.attr, binding.need("src")
    channels = binding.operands[op.weights].shape[0]
    shape = (src.shape[0], channels, *src.shape[2:])
    zeros = dict(attr.zero_points)
    last_zero = {"dst": zeros.pop("dst")} if "dst" in zeros else {}
    first_attr = PrimitiveAttr(attr.scales, zeros, attr.post_ops[:at], attr.output_scales)
    first = replace(
        binding,
        step=replace(step, attr=first_attr, outputs=(BETWEEN,)),
        dtypes=(op.src_dtype,),
        shapes=(shape,),
    )
    scales = {"weights": op.weights_scale, "dst": op.dst_scale}
    if "dst" in attr.scales:
        scales["src"] = attr.scales["dst"]
    params: dict[str, Attr] = {
        "group": channels,
        "strides": (op.stride,) * 2,
        "pads": (op.padding,) * 4,
    }
    bias = (("bias", op.bias),) if op.bias else ()
    second_step = replace(
        step,
        args=(("src", BETWEEN), ("weights", op.weights), *bias),
        params=params,
        attr=PrimitiveAttr(scales, last_zero, attr.post_ops[at + 1 :]),
    )
    between = Operand(BETWEEN, op.src_dtype, shape, Layout.CHANNELS_LAST)
    operands = {**binding.operands, BETWEEN: between}
    second = replace(binding, step=second_step, operands=operands)
    return InTurn(bind_convolution(first), DepthwiseConvolution(second))
