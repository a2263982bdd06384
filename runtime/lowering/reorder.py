"""Quantizing, dequantizing, requantizing and converting: the `reorder` steps of a plan."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ...onednn import primitives
from ...onednn.attributes import Attributes, Eltwise
from ...onednn.enums import AlgKind, Arg, DataType
from ...onednn.layouts import channels_last, relaid, row_major
from ...onednn.memory import Memory
from ...onednn.primitive_desc import PrimitiveDesc
from ...plan.attributes import PrimitiveAttr, Sum
from ...plan.types import Step
from .binding import Binder, NotLowered, Wanted, first_accepted
from .compute import convolution_window
from .pointwise import need
from .stem import stem_of
from .translation import Translated, same_frame, translate

__all__ = ["quantizing_reorder"]

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
    made: dict[int, dict[int, Wanted | Memory]] = {}
    operand: list[Wanted | None] = [None]

    def attempt(by_binary: bool) -> PrimitiveDesc:
        if by_binary:
            assert affine is not None
            desc, args = _binary(binder, step, affine, binder.flattened(src, source), dtype)
            made[id(desc)] = args
            return desc
        translated: Translated = translate(binder, attr, same_frame(dims, target), dtype)
        desc = primitives.reorder(
            binder.engine,
            source,
            target,
            attributes=translated.attributes,
            origin=binder.origin(step),
        )
        made[id(desc)] = {**translated.args, Arg.SRC: Wanted(src, source)}
        operand[0] = translated.sum_operand
        return desc

    found = first_accepted(binder, (True, False) if affine is not None else (False,), attempt)
    args, home = made[id(found)], target if found.kind == "binary" else None
    if wished is None or wished == target or operand[0] is not None:
        binder.commit(step, found, args, operand[0], home=home)
    else:
        binder.commit_and_relay(step, found, args, wished, home=home)


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


def _binary(
    binder: Binder, step: Step, affine: _Affine, source: Wanted, dtype: DataType
) -> tuple[PrimitiveDesc, dict[int, Wanted | Memory]]:
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
    desc = primitives.binary(
        binder.engine,
        algorithm,
        source.desc,
        scalar,
        target,
        attributes=Attributes(post_ops=tuple(chain)),
        origin=binder.origin(step),
    )
    return desc, {
        Arg.SRC_0: source,
        Arg.SRC_1: Memory(binder.engine, scalar, np.asarray([operand], np.float32)),
    }


def _convolved(binder: Binder, value: str) -> bool:
    kinds = ("convolution", "deconvolution", "pooling")
    readers = [step for step in binder.readers(value) if step.primitive in kinds]
    return len(binder.dims(value)) >= 3 and any(
        step.primitive != "convolution"
        or stem_of(binder, step, convolution_window(binder, step)) is None
        for step in readers
    )
