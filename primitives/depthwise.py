"""The depthwise post-op of a convolution, as the library takes it: two convolutions, whose first
result the second one reads.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType

from ..ir.types import TensorType
from ..plan.attributes import DepthwiseConv, PostOp, PrimitiveAttr, Scale
from .description import Description, axes, grouped, operands_of

ALONG = 3
"""Channels of depthwise weights (C, 1, 1, kernel...)."""

_ONE = Scale((1.0,))


def parts(description: Description) -> tuple[Description, ...]:
    """The primitive; where it is a convolution with a depthwise post-op, what stands in front of
    that, and the depthwise convolution with what stands behind it.

    The second one's destination is what the library makes, which is not told another: there are
    `ceil(size / stride)` positions, with the padding at the end that they take. Its source has the
    destination scale of the first one.
    """
    post_ops = description.attr.post_ops
    op = next((op for op in post_ops if isinstance(op, DepthwiseConv)), None)
    if description.kind != "convolution" or op is None:
        return (description,)
    found = post_ops.index(op)
    between = TensorType(op.src_dtype, (*description.dims("dst")[:2], *_between(description)))
    first = replace(
        description,
        tensors=MappingProxyType({**description.tensors, "dst": between}),
        operands=_operands(description, post_ops[:found]),
        attr=replace(description.attr, post_ops=post_ops[:found]),
    )
    return first, _second(description, op, between, post_ops[found + 1 :])


def _second(
    description: Description, op: DepthwiseConv, between: TensorType, behind: tuple[PostOp, ...]
) -> Description:
    channels, size = between.static_shape[1], between.static_shape[2:]
    positions = tuple(-(-n // max(op.stride, 1)) for n in size)
    tensors = {
        "src": between,
        "weights": TensorType(op.weights_dtype, (channels, 1, 1, *(op.kernel,) * len(size))),
        "dst": TensorType(op.dst_dtype, (*between.static_shape[:2], *positions)),
    }
    if op.bias:
        tensors["bias"] = description.operands[op.bias]
    ends = (
        (count - 1) * op.stride - n + op.kernel - op.padding
        for n, count in zip(size, positions, strict=True)
    )
    params = {
        "strides": (op.stride,) * len(size),
        "dilations": (0,) * len(size),
        "padding_l": (op.padding,) * len(size),
        "padding_r": tuple(ends),
    }
    scales = {"src": description.attr.scales.get("dst", _ONE), **dict(scales_of(op))}
    attr = PrimitiveAttr(
        {role: scale for role, scale in scales.items() if scale != _ONE},
        post_ops=behind,
    )
    return replace(
        description,
        tensors=MappingProxyType(tensors),
        operands=_operands(description, behind),
        params=MappingProxyType(params),
        attr=attr,
    )


def _operands(description: Description, post_ops: tuple[PostOp, ...]) -> Mapping[str, TensorType]:
    names = [name for op in post_ops for name in operands_of(op)]
    return MappingProxyType({name: description.operands[name] for name in names})


def scales_of(op: DepthwiseConv) -> Iterator[tuple[str, Scale]]:
    """The scales that the depthwise convolution has, with the library's masks."""
    if op.weights_scale != _ONE:
        yield "weights", Scale(op.weights_scale.values, ALONG if op.weights_scale.mask else 0)
    if op.dst_scale != _ONE:
        yield "dst", op.dst_scale


def _between(description: Description) -> tuple[int, ...]:
    """Spatial sizes of what the first convolution writes."""
    source = description.dims("src")[2:]
    kernel = description.dims("weights")[2 + grouped(description) :]
    if len(source) != len(kernel):
        return source
    strides, dilations, begins, ends = axes(description)
    return tuple(
        max(math.trunc((n - 1 - (k - 1) * (d + 1) + b + e) / max(s, 1)) + 1, 0)
        for n, k, s, d, b, e in zip(source, kernel, strides, dilations, begins, ends, strict=True)
    )
