"""Quantizing, dequantizing, requantizing and converting: the `reorder` steps of a plan."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ...onednn.attributes import Attributes, Eltwise
from ...onednn.enums import AlgKind, Arg, DataType
from ...onednn.layouts import channels_last, relaid, row_major
from ...onednn.memory import Memory
from ...plan.attributes import PrimitiveAttr, Sum
from ...plan.types import Step
from .binding import Binder, first_accepted, need
from .convolving import convolution_window, space_to_depth_of
from .translation import same_frame, translate
from .values import NotLowered, Offer, Wanted

_CODES = (DataType.u8, DataType.s8)

_SMALLEST = {DataType.u8: 4096, DataType.s8: 4096}
"""Elements from which on a binary requantizes codes faster: below, its call costs as much as the
work, and it wakes all threads for it.
"""


def quantizing_reorder(binder: Binder, step: Step) -> None:
    """Quantize, dequantize, requantize, convert; it writes channels last where convolutions of
    codes read next.

    A change of both type and layout is done one after the other, which takes 0.6 of the time that
    one reorder for both does. Quantizing and
    requantizing by one scale run as a binary with the same roundings in the same places: it takes
    0.2 to 0.5 of the time of the library's reorder (`_SMALLEST`).
    """
    src = need(step, "src")
    dims, dtype = binder.dims(step.output), binder.dtype(step.output)
    attr = step.attr
    if dtype == DataType.f32 and any(isinstance(op, Sum) for op in attr.post_ops):
        raise NotLowered(
            "oneDNN's reorder rounds a sum of f32 numbers once, by a fused multiply-add, or twice, as its code path has it"
        )
    source = binder.desc(src)
    wished = channels_last(binder.library, dims, dtype) if _convolved(binder, step.output) else None
    target = relaid(source, dims, dtype) or wished or row_major(binder.library, dims, dtype)
    dense = source.is_plain and not source.offset and relaid(source, dims, dtype) == target
    affine = (
        _affine(attr, source.dtype, dtype)
        if dense and math.prod(dims) >= _SMALLEST.get(source.dtype, 0)
        else None
    )

    def attempt(found: _Affine | None) -> Offer:
        if found is not None:
            return _binary(binder, step, found, binder.flattened(src, source), dtype)
        translated = translate(binder, attr, same_frame(dims, target), dtype)
        attributes = translated.attributes
        desc = binder.describe(step, "reorder", source, target, attributes=attributes)
        return translated.offer(desc, {Arg.SRC: Wanted(src, source)})

    offer = first_accepted(binder, dict.fromkeys((affine, None)), attempt)
    layout = target if offer.desc.kind == "binary" else None
    relay = None if wished == target or offer.sum_operand is not None else wished
    binder.commit(step, offer, layout=layout, relay=relay)


@dataclass(frozen=True)
class _Affine:
    """(x - shift) * factors, one after the other, + zero: each operation rounds once, as in a
    reorder.

    Attributes:
        shift: the source's zero point; the difference of codes is exact.
        factors: the source's scale, and the reciprocal of the destination's; none of them 1.
        zero: the destination's zero point.
    """

    shift: float
    factors: tuple[float, ...]
    zero: float


def _affine(attr: PrimitiveAttr, src: DataType, dst: DataType) -> _Affine | None:
    """What a step to codes computes, per tensor; None where it is something else, or only a
    conversion.
    """
    kinds = {DataType.f32: {"dst"}, DataType.u8: {"src", "dst"}, DataType.s8: {"src", "dst"}}
    if (
        dst not in _CODES
        or src not in kinds
        or attr.post_ops
        or not set(attr.zero_points) <= kinds[src]
    ):
        return None
    if any(len(zero.values) > 1 for zero in attr.zero_points.values()) or any(
        len(scale.values) > 1 for scale in attr.scales.values()
    ):
        return None
    scales = {role: np.float32(scale.values[0]) for role, scale in attr.scales.items()}
    one = np.float32(1)
    factors = tuple(
        float(factor)
        for factor in (scales.get("src", one), one / scales.get("dst", one))
        if factor != one
    )
    zeros = {role: float(zero.values[0]) for role, zero in attr.zero_points.items()}
    found = _Affine(zeros.get("src", 0.0), factors, zeros.get("dst", 0.0))
    return found if found.shift or factors else None


def _binary(binder: Binder, step: Step, affine: _Affine, source: Wanted, dtype: DataType) -> Offer:
    """x - shift, or x * the first factor, as a binary with the rest as post-ops.

    Elements are taken in the order of their addresses: with channels last, unless the channels fill
    whole vectors, the kernel takes up to eight times as long. A linear post-op is a fused
    multiply-add, hence one for each operation.
    """
    scalar = row_major(binder.library, (1,), DataType.f32)
    factors = list(affine.factors)
    algorithm, operand = (
        (AlgKind.binary_sub, affine.shift) if affine.shift else (AlgKind.binary_mul, factors.pop(0))
    )
    chain = [Eltwise(AlgKind.eltwise_linear, factor, 0.0) for factor in factors]
    if affine.zero:
        chain.append(Eltwise(AlgKind.eltwise_linear, 1.0, affine.zero))
    target = row_major(binder.library, source.desc.dims, dtype)
    attributes = Attributes(post_ops=tuple(chain))
    desc = binder.describe(
        step, "binary", source.desc, scalar, target, alg=algorithm, attributes=attributes
    )
    number = Memory(binder.engine, scalar, np.asarray([operand], np.float32))
    return Offer(desc, {Arg.SRC_0: source, Arg.SRC_1: number})


def _convolved(binder: Binder, value: str) -> bool:
    kinds = ("convolution", "deconvolution", "pooling")
    readers = [step for step in binder.readers(value) if step.primitive in kinds]
    return len(binder.dims(value)) >= 3 and any(
        step.primitive != "convolution"
        or space_to_depth_of(binder, step, convolution_window(binder, step)) is None
        for step in readers
    )
