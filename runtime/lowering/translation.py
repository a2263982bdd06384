"""A plan's attributes in the binding's terms: scales, zero points and post-ops with the memories
they read at run time.

They are those of `onednn-v3`: plans for `onednn-v2` were converted (`executor.py`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from ...onednn.attributes import (
    MOST_POST_OPS,
    Attributes,
    Binary,
    Eltwise,
    PostOp,
    PRelu,
    Sum,
)
from ...onednn.enums import AlgKind, Arg, DataType, arg_post_op, arg_scales, arg_zero_points
from ...onednn.layouts import relaid, row_major, viewed
from ...onednn.memory import Memory, MemoryDesc, numpy_dtype
from ...onednn.primitive_desc import PrimitiveDesc
from ...plan import attributes as plan_attributes
from ...plan.arguments import AT_RUN_TIME, at_run_time
from ...plan.attributes import PrimitiveAttr
from ...plan.types import Step
from .binding import Binder
from .joining import Frame
from .program import Tensor, data_type
from .values import Args, NotLowered, Offer, Wanted

_ROLES = {
    "src": Arg.SRC,
    "weights": Arg.WEIGHTS,
    "dst": Arg.DST,
    "src_0": Arg.SRC_0,
    "src_1": Arg.SRC_1,
}


@dataclass
class Translated:
    """Attributes and what they read.

    Attributes:
        attributes: for the primitive descriptor.
        args: execution argument -> memory or value.
        sum_operand: the value that lies in the destination beforehand.
        zero_point: see `Offer`.
    """

    attributes: Attributes
    args: dict[int, Wanted | Tensor | Memory] = field(default_factory=dict)
    sum_operand: str | None = None
    zero_point: int | None = None

    def offer(self, desc: PrimitiveDesc, args: Args) -> Offer:
        """A primitive with these attributes, and what else it reads."""
        return Offer(desc, {**self.args, **args}, self.sum_operand, self.zero_point)


Leading = Sequence[tuple[AlgKind, Wanted | Tensor | Memory]]
"""Binary post-ops in front of those of a step, with their operands."""

Added = Callable[[Frame], Wanted | Memory]
"""Gives an operand that is added, as a destination wants it."""


@dataclass(frozen=True)
class Scaled:
    """What an f32 kernel does around the post-ops of a step whose codes it multiplies.

    Attributes:
        leading: in front of them.
        trailing: behind them.
        zero_point: see `Offer`.
    """

    leading: Leading = ()
    trailing: Sequence[Eltwise] = ()
    zero_point: int | None = None


def algorithm(kind: str, name: str) -> AlgKind:
    """`AlgKind.<kind>_<name>`.

    Raises:
        NotLowered: the library has no such algorithm.
    """
    try:
        return AlgKind[f"{kind}_{name}"]
    except KeyError:
        raise NotLowered(f"oneDNN has no {kind} algorithm {name}") from None


def translate(
    binder: Binder,
    attr: PrimitiveAttr,
    frame: Frame,
    dtype: DataType,
    weights_mask: int = 0,
    step: Step | None = None,
    leading: Leading = (),
    scaled: Scaled | None = None,
) -> Translated:
    """The attributes of a step.

    Args:
        binder: gives descriptors of operands and holds constants.
        attr: the step's attributes, in the order of `onednn-v3`.
        frame: the destination.
        dtype: of the destination.
        weights_mask: of the scales of the weights as the primitive sees them, if not per tensor.
        step: has the parameters that are computed at run time, where it may have such.
        leading: applied in front of the post-ops.
        scaled: the primitive is an f32 one, which does this in place of scales and zero points.

    Raises:
        NotLowered: the library has no such attribute.
    """
    result = Translated(Attributes())
    scales, zero_points = ({}, {}) if scaled else _factors(binder, attr, weights_mask, step, result)
    chain: list[PostOp] = []
    for alg, operand in (*(scaled.leading if scaled else ()), *leading):
        result.args[arg_post_op(len(chain), Arg.SRC_1)] = operand
        chain.append(Binary(alg, operand.desc))
    stored = dtype if step is None else binder.dtype(step.output)
    for op in attr.post_ops:
        _append(binder, op, frame, dtype, chain, result, stored)
    if scaled is not None:
        chain += scaled.trailing
        result.zero_point = scaled.zero_point
    if len(chain) > MOST_POST_OPS:
        raise NotLowered(f"{len(chain)} post-ops, and oneDNN takes {MOST_POST_OPS}")
    result.attributes = Attributes(scales, zero_points, tuple(chain))
    return result


def _factors(
    binder: Binder, attr: PrimitiveAttr, weights_mask: int, step: Step | None, result: Translated
) -> tuple[dict[int, int], dict[int, int]]:
    """The masks of scales and zero points of each argument; their memories go into the result."""
    scales: dict[int, int] = {}
    zero_points: dict[int, int] = {}
    for role, scale in attr.scales.items():
        arg = _ROLES[role]
        mask = weights_mask if role == "weights" else scale.mask
        scales[arg] = mask if len(scale.values) > 1 else 0
        result.args[arg_scales(arg)] = binder.constants.vector(scale.array)
    for role, zero in attr.zero_points.items():
        if not zero.array.any():
            continue  # the library's kernels would subtract it
        arg = _ROLES[role]
        zero_points[arg] = zero.mask if len(zero.values) > 1 else 0
        result.args[arg_zero_points(arg)] = binder.constants.vector(zero.array)
    computed = {} if step is None else at_run_time(step.op, step.args)
    for role, value in computed.items():
        field, argument = AT_RUN_TIME[role]
        arg, count = _ROLES[argument], math.prod(binder.dims(value))
        if field == "scales":
            scales[arg] = weights_mask if count > 1 else 0
            result.args[arg_scales(arg)] = numbers(binder, value, count, DataType.f32)
        else:
            zero_points[arg] = 0
            result.args[arg_zero_points(arg)] = numbers(binder, value, count, DataType.s32)
    return scales, zero_points


def numbers(binder: Binder, value: str, count: int, dtype: DataType) -> Wanted | Memory:
    """Numbers as a memory of one dimension."""
    if binder.is_constant(value):
        return binder.constants.vector(binder.constants.data(value).astype(numpy_dtype(dtype)))
    desc = row_major(binder.library, (count,), dtype)
    binder.desc(value)  # refuses what lies outside of oneDNN's reach
    return Wanted(value, desc) if binder.dtype(value) == dtype else binder.convert(value, desc)


def _append(
    binder: Binder,
    op: plan_attributes.PostOp,
    frame: Frame,
    dtype: DataType,
    chain: list[PostOp],
    result: Translated,
    stored: DataType,
) -> None:
    index = len(chain)
    match op:
        case plan_attributes.Eltwise(name, alpha, beta, 1):
            chain.append(Eltwise(algorithm("eltwise", name), alpha, beta))
        case plan_attributes.Binary(name, operand, None, None):
            need = _operand(binder, operand, frame)
            chain.append(Binary(algorithm("binary", name), need.desc))
            result.args[arg_post_op(index, Arg.SRC_1)] = need
        case plan_attributes.Sum(operand, scale, zero_point, kind):
            read_as = stored if kind is None else data_type(kind)
            if read_as is None or result.sum_operand is not None:
                raise NotLowered("a sum of that type, or a second sum")
            if dtype != stored:  # codes, by a primitive that computes in f32
                if read_as != binder.dtype(operand):
                    raise NotLowered("codes that a sum reads as those of another type")
                if read_as != dtype:
                    operand, read_as, zero_point = binder.less(operand, zero_point), dtype, 0
            else:
                binder.desc(operand)  # refuses what lies outside of oneDNN's reach
            chain.append(Sum(scale, zero_point, DataType.undef if read_as == dtype else read_as))
            result.sum_operand = operand
        case plan_attributes.Prelu(operand):
            mask, slopes = _slopes(binder, operand, frame)
            chain.append(PRelu(mask))
            result.args[arg_post_op(index, Arg.WEIGHTS)] = slopes
        case plan_attributes.Eltwise() | plan_attributes.Binary():
            raise NotLowered(
                "oneDNN takes no scale on an eltwise post-op, or scale or zero point of the operand of a binary one"
            )
        case plan_attributes.DepthwiseConv():
            raise NotLowered(
                "oneDNN runs a depthwise post-op as two primitives by its reference code"
            )


def _operand(binder: Binder, name: str, frame: Frame) -> Wanted | Memory:
    """The operand of a binary post-op: in the destination's layout, or as it lies where it is
    smaller than that.
    """
    given = binder.dims(name)
    if name in frame.written_out:
        whole = relaid(frame.like, frame.dims, binder.dtype(name)) or row_major(
            binder.library, frame.dims, binder.dtype(name)
        )
        return (
            binder.written_out(name, frame.plan, whole)
            if binder.is_constant(name)
            else binder.spread(name, frame.plan, whole)
        )
    dims = frame.operand((1,) * (len(frame.plan) - len(given)) + given)
    if dims is None:
        raise NotLowered(
            f"the operand {name} {list(given)} of a post-op does not fit {list(frame.dims)}"
        )
    kind = binder.dtype(name)
    same = (dims, kind) == (frame.like.dims, frame.like.dtype)
    desc = relaid(frame.like, dims, kind) or (
        frame.like if same else row_major(binder.library, dims, kind)
    )
    if not binder.is_constant(name):
        lies = viewed(binder.desc(name), dims)
        # one dimension at most: any layout is the same
        if lies is not None and math.prod(dims) == max(dims):
            desc = lies
    return Wanted(name, desc)


def _slopes(binder: Binder, name: str, frame: Frame) -> tuple[int, Memory]:
    """Mask and slopes of a prelu post-op. The library takes their number from the mask and the
    destination, so the mask is made anew from the slopes' own shape."""
    if not binder.is_constant(name):
        raise NotLowered("slopes of a prelu post-op that are computed at run time")
    data = binder.constants.data(name)
    dims = frame.operand((1,) * (len(frame.plan) - data.ndim) + data.shape)
    if dims is None or any(
        size not in (1, full) for size, full in zip(dims, frame.dims, strict=True)
    ):
        raise NotLowered(f"slopes {list(data.shape)} for {list(frame.plan)}")
    mask = sum(1 << axis for axis, size in enumerate(dims) if size > 1)
    order = (0, *range(2, len(dims)), 1) if len(dims) >= 3 else tuple(range(len(dims)))
    return mask, binder.constants.vector(
        np.ascontiguousarray(data.reshape(dims).transpose(order), np.float32)
    )


def same_frame(
    dims: tuple[int, ...], like: MemoryDesc, written_out: frozenset[str] = frozenset()
) -> Frame:
    """The frame of a primitive that sees the destination as the plan does."""
    return Frame(dims, dims, lambda shape: shape, like, written_out)


def bias_of(binder: Binder, step: Step, dims: Sequence[int]) -> Wanted | None:
    """The bias of a step in the primitive's shape; None where it has none."""
    name = step.arg("bias")
    return (
        None if name is None else Wanted(name, row_major(binder.library, dims, binder.dtype(name)))
    )
