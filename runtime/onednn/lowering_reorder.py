"""Quantizing, dequantizing, requantizing and converting: the `reorder` steps of a plan."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ...composer.attributes import PrimitiveAttr
from ...composer.plan import Step
from . import pointwise
from .attributes import Attributes, Eltwise
from .binding import Binder, Wanted, first_accepted
from .enums import AlgKind, Arg, DataType
from .lowering_compute import convolution_window
from .lowering_pointwise import need
from .lowering_stem import stem_of
from .memory import Memory, MemoryDesc
from .primitive_desc import PrimitiveDesc
from .tensors import channels_last, relaid, row_major
from .translation import Translated, same_frame, translate

__all__ = ["quantizing_reorder"]

_CODES = (DataType.u8, DataType.s8)


def quantizing_reorder(binder: Binder, step: Step) -> None:
    """Quantize, dequantize, requantize, convert; it writes channels last where convolutions of codes read next.

    A change of both type and layout is done one after the other, which takes 0.6 of the time that one reorder for both does. Quantizing by
    one scale is a product with its reciprocal, and that is what runs: the library's binary takes 0.4 of the time of its reorder, and rounds
    in the same places.
    """
    src = need(step, "src")
    dims, dtype = binder.dims(step.output), binder.dtype(step.output)
    attr = step.attr
    if attr.output_scales is not None:
        attr = PrimitiveAttr({"src": attr.output_scales}, attr.zero_points, attr.post_ops)
    source = binder.desc(src)
    wished = channels_last(binder.library, dims, dtype) if _convolved(binder, step.output) else None
    target = relaid(source, dims, dtype) or wished or row_major(binder.library, dims, dtype)
    factor = _factor(attr, source.dtype, dtype) if source.is_plain and relaid(source, dims, dtype) == target else None
    made: dict[int, dict[int, Wanted | Memory]] = {}
    operand: list[Wanted | None] = [None]

    def attempt(by_product: bool) -> PrimitiveDesc:
        if by_product:
            assert factor is not None
            desc, made[id(desc)] = _product(binder, step, attr, source, target, factor)
            return desc
        translated: Translated = translate(binder, attr, same_frame(dims, target), dtype)
        desc = pointwise.reorder(binder.engine, source, target, attributes=translated.attributes, origin=binder.origin(step))
        made[id(desc)] = translated.args
        operand[0] = translated.sum_operand
        return desc

    def ways() -> Iterator[bool]:
        if factor is not None:
            yield True
        yield False

    found = first_accepted(binder, ways(), attempt)
    args = {**made[id(found)], Arg.SRC: Wanted(src, source)}
    if wished is None or wished == target or operand[0] is not None:
        binder.commit(step, found, args, operand[0])
    else:
        binder.commit_and_relay(step, found, args, wished)


def _product(
    binder: Binder, step: Step, attr: PrimitiveAttr, source: MemoryDesc, target: MemoryDesc, factor: np.float32
) -> tuple[PrimitiveDesc, dict[int, Wanted | Memory]]:
    """x * factor + zero point, as a binary."""
    scalar = row_major(binder.library, (1,) * len(source.dims), DataType.f32)
    zero = attr.zero_points.get("dst")
    shift = (Eltwise(AlgKind.eltwise_linear, 1.0, float(zero.values[0])),) if zero is not None and zero.values[0] else ()
    desc = pointwise.binary(
        binder.engine, AlgKind.binary_mul, source, scalar, target, attributes=Attributes(post_ops=shift), origin=binder.origin(step)
    )
    return desc, {Arg.SRC_1: Memory(binder.engine, scalar, np.asarray([factor], np.float32))}


def _factor(attr: PrimitiveAttr, src: DataType, dst: DataType) -> np.float32 | None:
    """What quantizing by one scale multiplies by; None where the step is something else."""
    if src != DataType.f32 or dst not in _CODES or attr.post_ops or set(attr.zero_points) - {"dst"}:
        return None
    if any(len(zero.values) > 1 for zero in attr.zero_points.values()) or len(attr.scales) != 1:
        return None
    (role, scale), *_ = attr.scales.items()
    if len(scale.values) > 1:
        return None
    value = np.float32(scale.values[0])
    return value if role == "src" else np.float32(1) / value


def _convolved(binder: Binder, value: str) -> bool:
    kinds = ("convolution", "deconvolution", "pooling")
    readers = [step for step in binder.readers(value) if step.primitive in kinds]
    return len(binder.dims(value)) >= 3 and any(
        step.primitive != "convolution" or stem_of(binder, step, convolution_window(binder, step)) is None for step in readers
    )
