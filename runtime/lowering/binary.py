"""Operations of two operands as oneDNN primitives.

oneDNN 3.2's compiled kernels want a first source of the destination's shape, f32 if the destination
is f32, and broadcast the second one in a few patterns; everything else has the reference
implementation `ref:any`. So operands change places where the result stays the same, dimensions are
joined, and constants that are still too small are written out in full.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from ...onednn.enums import Arg, DataType
from ...onednn.layouts import relaid, row_major
from ...onednn.memory import Memory, MemoryDesc
from ...plan import attributes as plan_attributes
from ...plan.types import Step
from .binding import Binder, first_accepted, first_lowered, need
from .convolving import affine
from .joining import Way, join_axes, joined, joined_frame, wide
from .pointwise import layouts
from .translation import algorithm, translate
from .values import Args, NotLowered, Offer, Wanted, distinct

_MIRRORED = {
    "add": "add",
    "mul": "mul",
    "max": "max",
    "min": "min",
    "eq": "eq",
    "ne": "ne",
    "gt": "lt",
    "lt": "gt",
    "ge": "le",
    "le": "ge",
}
_INT8 = (DataType.u8, DataType.s8)
_BLIND_TO_THE_SIGN_OF_ZERO = frozenset({"linear", "relu", "clip", "round", "abs"})
_SOURCES = ("src_0", "src_1")


def binary(binder: Binder, step: Step) -> None:
    """algorithm(src_0 * scale_0, src_1 * scale_1) with post-ops.

    Codes are converted by a reorder where the destination is f32, which is exact.
    """
    try:
        affine(binder, step)
    except NotLowered:
        pass
    else:
        return
    first_lowered(_ways(binder, step), lambda way: _binary(binder, step, way))


def _ways(binder: Binder, step: Step) -> Iterator[Way]:
    """How to run the step, best first."""
    dims = binder.dims(step.output)
    yield Way(tuple((axis,) for axis in range(len(dims))))
    names = {need(step, role) for role in _SOURCES}
    names |= {
        op.operand
        for op in step.attr.post_ops
        if isinstance(op, plan_attributes.Binary | plan_attributes.Prelu)
    }
    fixed = {name for name in names if binder.is_constant(name) and binder.dims(name) != dims}
    fixed -= {op.operand for op in step.attr.post_ops if isinstance(op, plan_attributes.Prelu)}
    for absent in (set[str](), {name for name in fixed if math.prod(binder.dims(name)) > 1}, fixed):
        groups = join_axes(
            dims, [wide(binder.dims(name), len(dims)) for name in sorted(names - absent)]
        )
        yield Way(((), *groups) if len(groups) < 2 else groups, frozenset(absent))


def _orders(binder: Binder, step: Step) -> list[Step]:
    """The step, and the same with its sources the other way round where that gives the same
    numbers.
    """
    name, attr = str(step.params["algorithm"]), step.attr
    roles = dict(zip(_SOURCES, reversed(_SOURCES), strict=True))
    attr = replace(attr, scales={roles.get(r, r): scale for r, scale in attr.scales.items()})
    if name == "sub" and _may_lose_a_sign(binder, step):
        negated = plan_attributes.Eltwise("linear", -1.0, 0.0)
        attr = replace(attr, post_ops=(negated, *attr.post_ops))
    elif name in _MIRRORED:
        name = _MIRRORED[name]
    else:
        return [step]
    args = tuple((roles[role], value) for role, value in step.args)
    return [step, replace(step, args=args, params={"algorithm": name}, attr=attr)]


def _may_lose_a_sign(binder: Binder, step: Step) -> bool:
    """True where a - b may run as -(b - a).

    Rounding is symmetric, so the two differ for zeros only: oneDNN's linear adds 0 behind the
    product, which turns its -0 into +0, as a - a is. -0 - 0 remains, which is -0 and becomes +0:
    either a holds no -0, as codes do not, or nobody behind tells them apart.
    """
    a = need(step, "src_0")
    if binder.dtype(a) != DataType.f32:
        return True
    if binder.is_constant(a):
        data = binder.constants.data(a)
        return not np.any((data == 0) & np.signbit(data))
    blind = all(
        isinstance(op, plan_attributes.Eltwise) and op.algorithm in _BLIND_TO_THE_SIGN_OF_ZERO
        for op in step.attr.post_ops
    )
    return blind and binder.dtype(step.output) != DataType.f32


def _binary(binder: Binder, step: Step, way: Way) -> None:
    whole, dtype = binder.dims(step.output), binder.dtype(step.output)
    dims = joined(whole, way.groups)

    def shape(value: str) -> tuple[int, ...]:
        written = value in way.written_out
        return dims if written else joined(wide(binder.dims(value), len(whole)), way.groups)

    def source(value: str, desc: MemoryDesc) -> Wanted | Memory:
        other_type = desc.dtype != binder.dtype(value)
        if value in way.written_out or (binder.is_constant(value) and other_type):
            return binder.written_out(value, whole, desc)
        return Wanted(value, desc)

    def attempt(candidate: tuple[int, bool, Step]) -> Offer:
        layout, converted, order = candidate
        value, other = (need(order, role) for role in _SOURCES)
        plain = row_major(binder.library, dims, binder.dtype(value))
        options = [plain] if value in way.written_out else _layouts(binder, value, shape(value))
        src0 = options[min(layout, len(options) - 1)]
        if converted:
            src0 = _f32(src0)
        src1 = _second(binder, other, shape(other), dims, src0)
        target = relaid(src0, dims, dtype) or MemoryDesc.any(binder.library, dims, dtype)
        like = target if target.is_plain else src0
        frame = joined_frame(whole, way.groups, like, way.written_out)
        translated = translate(binder, order.attr, frame, dtype)
        alg = algorithm("binary", str(order.params["algorithm"]))
        desc = binder.describe(
            step, "binary", src0, src1, target, alg=alg, attributes=translated.attributes
        )
        args: Args = {Arg.SRC_0: source(value, src0), Arg.SRC_1: source(other, src1)}
        return translated.offer(desc, args)

    orders = [order for order in _orders(binder, step) if shape(need(order, "src_0")) == dims]
    if not orders:
        raise NotLowered(
            "its first source is broadcast, for which oneDNN has only the reference implementation ref:any"
        )
    candidates = [
        (layout, binder.dtype(need(order, "src_0")) in _INT8 and dtype not in _INT8, order)
        for layout in range(3)
        for order in orders
    ]
    offer = first_accepted(binder, candidates, attempt)
    src0 = offer.args[Arg.SRC_0]
    if isinstance(src0, Wanted) and src0.desc.dtype != binder.dtype(src0.value):
        offer = offer.reading({Arg.SRC_0: binder.convert(src0.value, src0.desc)})
    binder.commit(step, offer)


def _layouts(binder: Binder, value: str, dims: tuple[int, ...]) -> list[MemoryDesc]:
    """Layouts for the first source, best first. Where the last dimension lies side by side, as in
    heads that were turned, row-major comes in front of channels last: copying whole rows is faster,
    and so is the kernel (rotary embeddings of [1, 12, 64, 64]: 10 us in place of 50).
    """
    options = layouts(binder, value, dims)
    first = options[0]
    if first.dims == dims and first.is_plain and first.strides[-1] == 1:
        return distinct(first, row_major(binder.library, dims, first.dtype), *options)
    return options


def _f32(desc: MemoryDesc) -> MemoryDesc:
    found = relaid(desc, desc.dims, DataType.f32)
    if found is None:
        raise NotLowered(f"{desc} has no counterpart in f32")
    return found


def _second(
    binder: Binder, value: str, shape: tuple[int, ...], dims: tuple[int, ...], like: MemoryDesc
) -> MemoryDesc:
    kind = binder.dtype(value)
    desc = relaid(like, shape, kind)
    if desc is not None:
        return desc
    if shape == dims and kind == like.dtype:
        return like
    if shape != dims and len([d for d in shape if d != 1]) <= 1:
        return row_major(binder.library, shape, kind)
    raise NotLowered(f"{value} cannot lie as {like}")
