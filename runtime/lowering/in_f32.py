"""Products of codes by f32 kernels, where the library has no exact int8 kernel: most of all on CPUs without VNNI,
where sums of pairs of products saturate.

Codes less their zero points are integers, and so are their products and sums. f32 holds every integer up to
2^24, so an f32 kernel adds them exactly, in any order, while no sum of some of the terms is larger. Post-ops do
the rest in the order of the int8 kernels, with the same roundings: scale, bias, the post-ops of the step,
destination scale and zero point, rounding, clipping. The bytes are those of VNNI.

Where the sums may be larger, there are two products. Both sums are exact, and their own sum is rounded once, as the
conversion of an s32 sum to f32 is. The products multiply half of the input channels each, which costs no more than
one product. Where halves may be too large as well, or weights are computed, weights are cut into 16 * high + low.

Results that are codes stay in f32 until a reader wants them in their own type: most readers are further products,
and want them less their zero point in f32 (`Values.less`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...onednn.attributes import Attributes, Binary, Eltwise
from ...onednn.enums import AlgKind, Arg, DataType, arg_post_op
from ...onednn.layouts import channels_last, row_major
from ...onednn.memory import Memory, MemoryDesc
from ...onednn.primitive_desc import PrimitiveDesc
from ...plan import attributes as plan_attributes
from ...plan.accumulator import EXACT_IN_F32, largest_sum
from ...plan.arguments import AT_RUN_TIME, at_run_time
from ...plan.attributes import PostOp, PrimitiveAttr
from ...plan.types import Step
from .binding import Binder, first_accepted, need
from .joining import Frame, wide
from .program import Buffer, Owner, Tensor
from .translation import Added, Leading, Scaled, translate
from .values import Args, NotLowered, Offer, Wanted, Weights, Zero

_CODES = (DataType.u8, DataType.s8)
RELU = plan_attributes.Eltwise("relu")
_HIGH = 16
"""Weights are cut into so many times a code of 4 bits, and one of 4 bits: the bounds of both sums are a sixteenth
of that of the whole, for weights of full range.
"""

Range = tuple[int, int]


@dataclass(frozen=True)
class Factors:
    """What one f32 kernel multiplies.

    Attributes:
        source: codes less their zero point, or some of their channels.
        weights: less their zero point, or a part of them.
        times: what the product is multiplied by.
    """

    source: str
    weights: Weights
    times: int = 1


@dataclass(frozen=True)
class Product:
    """The product of a step as f32 kernels compute it.

    Attributes:
        attr: the post-ops.
        scaled: what stands around the post-ops, but for `first` and the bias.
        last: what the kernel multiplies that applies the post-ops.
        first: what is multiplied before, and added; None where one product is exact.
    """

    attr: PrimitiveAttr
    scaled: Scaled
    last: Factors
    first: Factors | None = None


def product_in_f32(
    binder: Binder, step: Step, weights: Weights, summed: Sequence[int], along: tuple[int, ...]
) -> Product:
    """How a step computes its product of codes in f32.

    Args:
        binder: the binder.
        step: a convolution, deconvolution or matmul of codes.
        weights: as its int8 kernel reads them.
        summed: the axes of the weights that are summed over.
        along: the shape of an operand along the output channels, as the primitive sees it.

    Raises:
        NotLowered: it multiplies no codes, or its sums may be too large.
    """
    source = need(step, "src")
    if binder.dtype(source) not in _CODES or weights.dtype not in _CODES:
        raise NotLowered("no product of codes")
    zeros = {role: _zero_point(step, role) for role in ("src", "weights")}
    codes = binder.codes(source)
    left = _less(codes, zeros["src"], binder.plan.type(source).dtype.range)
    made = _in_f32(binder, weights, zeros["weights"])
    scaled = Scaled(_scales(binder, step, along), *_stored(binder, step))
    attr = PrimitiveAttr(post_ops=_needed(step.attr.post_ops, scaled.trailing))
    less = binder.less(source, zeros["src"])
    every = binder.plan.type(weights.name).dtype.range
    reach = max(map(abs, _less(every, zeros["weights"], every)))
    if _bound(binder, made, reach, left, summed) < EXACT_IN_F32:
        return Product(attr, scaled, Factors(less, made))
    channels = len(binder.dims(source)) - 1 if step.primitive == "matmul" else 1
    halves = _halves(binder, less, made, channels, summed[0])
    if halves and all(
        _bound(binder, half.weights, reach, left, summed) < EXACT_IN_F32 for half in halves
    ):
        return Product(attr, scaled, *halves)
    if _bound_of_parts(binder, made, reach, left, summed) >= EXACT_IN_F32:
        raise NotLowered("sums of products that f32 does not hold, of two parts either")
    low, high = _parts(binder, step, made)
    return Product(attr, scaled, Factors(less, low), Factors(less, high, _HIGH))


def _halves(
    binder: Binder, source: str, weights: Weights, channels: int, axis: int
) -> tuple[Factors, ...]:
    """Two products of half of the input channels each; none where the channels cannot be cut.

    Args:
        binder: the binder.
        source: codes less their zero point.
        weights: less their zero point.
        channels: the axis of the source.
        axis: that of the weights.
    """
    data, count = weights.data, weights.dims[axis]
    cuttable = count > 1 and count == binder.dims(source)[channels]
    if data is None or binder.is_constant(source) or not cuttable:
        return ()

    def half(places: range) -> Factors:
        cut = (*(slice(None) for _ in range(axis)), slice(places.start, places.stop))
        dims = (*weights.dims[:axis], len(places), *weights.dims[axis + 1 :])
        form = f"{weights.form}, {places.start} to {places.stop}"
        part = replace(weights, dims=dims, form=form, data=lambda: data()[cut])
        return Factors(binder.part(source, channels, places), part)

    return half(range(count // 2, count)), half(range(count // 2))


def _zero_point(step: Step, role: str) -> Zero:
    computed = step.arg(f"zero_points_{role}")
    if computed is not None:
        return computed
    zeros = step.attr.zero_points.get(role)
    values = (0,) if zeros is None else tuple(zeros.array.tolist())
    if len(set(values)) > 1:
        raise NotLowered(f"zero points of {role} along an axis")
    return int(values[0])


def _less(codes: Range, zero_point: Zero, every: Range) -> Range:
    """The range of codes less a zero point, and 0, which padding adds.

    Args:
        codes: the least and the largest one.
        zero_point: one that is computed is any code of the type.
        every: the least and the largest code of the type.
    """
    low, high = codes
    least, most = every if isinstance(zero_point, str) else (zero_point, zero_point)
    return min(low - most, 0), max(high - least, 0)


def _in_f32(binder: Binder, weights: Weights, zero_point: Zero) -> Weights:
    """Weights less their zero point."""
    data = weights.data
    if data is None or isinstance(zero_point, str):
        name = binder.less(weights.name, zero_point)
        return replace(weights, name=name, dtype=DataType.f32, data=None)
    if zero_point == 0:  # a reorder converts them
        return replace(weights, dtype=DataType.f32)
    form = f"{weights.form} less {zero_point}"
    less = np.float32(zero_point)
    return replace(
        weights, dtype=DataType.f32, form=form, data=lambda: data().astype(np.float32) - less
    )


def _bound(
    binder: Binder, weights: Weights, reach: int, codes: Range, summed: Sequence[int]
) -> float:
    """A bound on the magnitude of all sums of some of the terms.

    Args:
        binder: the binder.
        weights: less their zero point.
        reach: their largest magnitude.
        codes: the range of what they are multiplied by.
        summed: the axes of the weights that are summed over.
    """
    terms = math.prod(weights.dims[axis] for axis in summed)
    bound = float(terms * max(map(abs, codes)) * reach)
    data = weights.data
    if bound < EXACT_IN_F32 or data is None:
        return bound
    key = "sums", weights.name, weights.form, codes, tuple(summed)
    # the weights themselves say more
    return binder.constants.once(key, lambda: largest_sum(data(), codes, summed))


def _bound_of_parts(
    binder: Binder, weights: Weights, reach: int, codes: Range, summed: Sequence[int]
) -> float:
    """A bound as of `_bound` on the sums by low and by high parts of weights."""
    parts: Sequence[Weights] = (weights, weights)
    if weights.data is not None:
        parts = _parts_of_constant(weights, weights.data)
    reaches = (_HIGH // 2, round(reach / _HIGH))
    return max(
        _bound(binder, part, most, codes, summed) for part, most in zip(parts, reaches, strict=True)
    )


def _parts(binder: Binder, step: Step, weights: Weights) -> tuple[Weights, Weights]:
    """Low and high parts of weights."""
    if weights.data is not None:
        return _parts_of_constant(weights, weights.data)
    low, high = _parts_of_value(binder, step, weights.name)
    return replace(weights, name=low), replace(weights, name=high)


def _parts_of_constant(
    weights: Weights, data: Callable[[], NDArray[Any]]
) -> tuple[Weights, Weights]:
    """high = (w + 8) // 16 and low = w - 16 * high, as s8: a reorder converts them."""

    def high() -> NDArray[Any]:
        return ((data().astype(np.int16) + _HIGH // 2) // _HIGH).astype(np.int8)

    def low() -> NDArray[Any]:
        return (data().astype(np.int16) - _HIGH * high().astype(np.int16)).astype(np.int8)

    return (
        replace(weights, form=f"{weights.form} low", data=low),
        replace(weights, form=f"{weights.form} high", data=high),
    )


def _parts_of_value(binder: Binder, step: Step, value: str) -> tuple[str, str]:
    """The names of low and high parts of a value in f32: high = round(x / 16), low = x - 16 * high."""
    names = f"{value} low", f"{value} high"
    if binder.reaches(names[0]):
        return names
    lies, library = binder.desc(value), binder.library
    if not lies.is_plain or lies.offset:
        raise NotLowered(f"{value} lies as {lies}")
    flat = binder.flattened(value, lies)
    scalar, multiply = row_major(library, (1,), DataType.f32), AlgKind.binary_mul

    def part(
        name: str, source: Wanted | Tensor, factor: float, post_op: Eltwise | Binary, args: Args
    ) -> Tensor:
        attributes = Attributes(post_ops=(post_op,))
        desc = binder.describe(
            step, "binary", flat.desc, scalar, flat.desc, alg=multiply, attributes=attributes
        )
        target = Tensor(Buffer(name, Owner.ARENA, flat.desc.size), flat.desc)
        number = binder.constants.vector(np.asarray([factor], np.float32))
        binder.commit_part(Offer(desc, {Arg.SRC_0: source, Arg.SRC_1: number, **args}), target)
        binder.derived(name, value, Tensor(target.buffer, lies))
        return target

    low, high = names
    rounded = Eltwise(AlgKind.eltwise_round, 0.0, 0.0)
    whole = part(high, flat, 1 / _HIGH, rounded, {})
    added = Binary(AlgKind.binary_add, flat.desc)
    part(low, whole, -float(_HIGH), added, {arg_post_op(0, Arg.SRC_1): flat})
    return names


def _scales(
    binder: Binder, step: Step, along: tuple[int, ...]
) -> tuple[tuple[AlgKind, Wanted | Tensor | Memory], ...]:
    """The product of the scales of source and weights, rounded to f32 as the library rounds it."""
    computed = {
        AT_RUN_TIME[role][1]: value
        for role, value in at_run_time(step.op, step.args).items()
        if AT_RUN_TIME[role][0] == "scales"
    }
    known = np.ones(1, np.float32)
    for role in ("src", "weights"):
        if role in step.attr.scales and role not in computed:
            known = known * step.attr.scales[role].array
    ones = (1,) * len(along)
    if not computed:
        if np.all(known == 1) and not step.attr.post_ops:
            return ()
        scales = binder.constants.vector(known, along if known.size > 1 else ones)
        return ((AlgKind.binary_mul, scales),)
    factors: list[Wanted | Memory] = [
        Wanted(value, row_major(binder.library, dims, DataType.f32))
        for value in computed.values()
        for dims in (along if math.prod(binder.dims(value)) > 1 else ones,)
    ]
    if len(factors) < len(("src", "weights")):
        if np.all(known == 1):
            return ((AlgKind.binary_mul, factors[0]),)
        factors.append(binder.constants.vector(known, along if known.size > 1 else ones))
    return ((AlgKind.binary_mul, binder.multiplied(*factors)),)


def _stored(binder: Binder, step: Step) -> tuple[tuple[Eltwise, ...], int | None]:
    """What stores codes in f32 behind the post-ops, and the zero point that they are less; sums in s32 are
    left to a reorder.

    The clip gives its lower end for a NaN. That is the code of int8 kernels for u8; for s8 it is the upper end, so
    there the negative codes are clipped.
    """
    dtype, attr = binder.dtype(step.output), step.attr
    if dtype == DataType.f32:
        return (), None
    zero_point = int(attr.zero_points["dst"].array[0]) if "dst" in attr.zero_points else 0
    factors = [float(np.float32(1) / attr.scales["dst"].array[0])] if "dst" in attr.scales else []
    sign = -1.0 if dtype == DataType.s8 else 1.0
    if zero_point or (sign < 0 and not factors):
        factors.append(1.0)
    # one operation for each rounding of the int8 kernels, the last one with the sign
    found = [Eltwise(AlgKind.eltwise_linear, factor, 0.0) for factor in factors[:-1]]
    if factors:
        shift = sign * zero_point + 0.0
        found.append(Eltwise(AlgKind.eltwise_linear, sign * factors[-1], shift))
    if dtype == DataType.s32:  # a reorder rounds
        return tuple(found), None
    least, most = sorted(sign * end for end in binder.plan.type(step.output).dtype.range)
    found.append(Eltwise(AlgKind.eltwise_round, 0.0, 0.0))
    found.append(Eltwise(AlgKind.eltwise_clip, least, most))
    if zero_point or sign < 0:
        found.append(Eltwise(AlgKind.eltwise_linear, sign, float(-zero_point)))
    return tuple(found), zero_point


def _needed(post_ops: Sequence[PostOp], trailing: Sequence[Eltwise]) -> tuple[PostOp, ...]:
    """Post-ops without a relu at the end that the clip to codes of 0 and more does as well."""
    kinds = [op.alg for op in trailing]
    clipped = AlgKind.eltwise_clip in kinds and trailing[-1].alg == AlgKind.eltwise_clip
    alike = clipped and trailing[-1].alpha == 0 and all(op.beta == 0 for op in trailing[:-1])
    growing = all(op.alpha > 0 for op in trailing if op.alg == AlgKind.eltwise_linear)
    if alike and growing and post_ops and post_ops[-1] == RELU:
        return tuple(post_ops[:-1])
    return tuple(post_ops)


def operand_in_f32(binder: Binder, name: str | None, dims: tuple[int, ...]) -> Added | None:
    """A bias as the operand of a binary post-op, of this shape; None where there is none."""
    if name is None:
        return None
    if binder.is_constant(name):
        made = binder.constants.vector(binder.constants.data(name).astype(np.float32), dims)
        return lambda _: made
    desc = row_major(binder.library, dims, DataType.f32)
    of_f32 = binder.dtype(name) == DataType.f32
    given = Wanted(name, desc) if of_f32 else binder.convert(name, desc)
    return lambda _: given


Operand = Wanted | Tensor | Memory

OfferOf = Callable[[PrimitiveAttr, Factors, Added | None, Scaled], Offer]
"""The f32 primitive with these attributes, factors, bias, and what stands around its post-ops."""


def commit_in_f32(
    binder: Binder,
    step: Step,
    product: Product,
    bias: Added | None,
    offer: OfferOf,
    frames: Callable[[MemoryDesc], Iterable[Frame]],
) -> None:
    """Runs a step as one or two f32 products, whose kernel applies the post-ops, or a binary behind it.

    Args:
        binder: the binder.
        step: the step.
        product: its factors.
        bias: its bias as an operand.
        offer: makes the primitive.
        frames: how a binary may see what lies so.

    Raises:
        NotLowered: the library has no such primitives.
    """
    scaled, before = product.scaled, list[tuple[Offer, Tensor]]()

    def run(made: Offer, what: str) -> Tensor:
        desc = made.desc.dst_md()
        target = Tensor(Buffer(f"{step.output} {what}", Owner.ARENA, desc.size), desc)
        before.append((made, target))
        return target

    def part(factors: Factors, what: str, leading: Leading) -> Tensor:
        scaled = [float(factors.times)] if factors.times != 1 else []
        times = tuple(Eltwise(AlgKind.eltwise_linear, factor, 0.0) for factor in scaled)
        found = run(offer(PrimitiveAttr(), factors, None, Scaled(leading, times)), what)
        last = channels_last(binder.library, found.desc.dims, DataType.f32)
        as_last = found.desc.is_plain and found.desc.strides == last.strides
        if step.primitive == "matmul" or as_last:
            return found
        relaid = binder.describe(step, "reorder", found.desc, last)
        return run(Offer(relaid, {Arg.SRC: found}), f"{what}, channels last")

    first: Leading = ()
    if product.first is not None:
        first = ((AlgKind.binary_add, part(product.first, "first", ())),)
    try:
        last = offer(
            product.attr, product.last, bias, replace(scaled, leading=(*first, *scaled.leading))
        )
        _as_int8(last.desc)
    except NotLowered:
        sums = part(product.last, "sums", first)
        last = _all_behind(binder, step, product, sums, bias, frames, run)
    for made, target in before:
        binder.commit_part(made, target)
    binder.commit(step, last)
    binder.constants.in_f32.add(step.name)


def _all_behind(
    binder: Binder,
    step: Step,
    product: Product,
    values: Tensor,
    bias: Added | None,
    frames: Callable[[MemoryDesc], Iterable[Frame]],
    run: Callable[[Offer, str], Tensor],
) -> Offer:
    """What stands behind the sums of a product: a binary, or several with a PRelu between two of them."""
    leading = product.scaled.leading
    *parts, rest = _cut_at_slopes(product.attr.post_ops)
    for index, part in enumerate(parts):
        *post_ops, slopes = part
        behind = partial(_behind, binder, step, post_ops, values, bias, Scaled(leading))
        made = first_accepted(binder, frames(values.desc), behind)
        values = run(made, f"in front of slopes {index}")
        sloped = partial(_sloped, binder, step, slopes, values)
        values = run(first_accepted(binder, frames(values.desc), sloped), f"sloped {index}")
        leading, bias = (), None
    around = replace(product.scaled, leading=leading)
    behind = partial(_behind, binder, step, rest, values, bias, around)
    return first_accepted(binder, frames(values.desc), behind)


def _cut_at_slopes(post_ops: Sequence[PostOp]) -> list[list[PostOp]]:
    """Post-ops in parts, each but the last one with a PRelu at its end: a binary primitive takes none.

    Raises:
        NotLowered: a sum is in front of a PRelu; only the last primitive writes over its operand.
    """
    parts: list[list[PostOp]] = [[]]
    for op in post_ops:
        parts[-1].append(op)
        if isinstance(op, plan_attributes.Prelu):
            parts.append([])
    if any(isinstance(op, plan_attributes.Sum) for part in parts[:-1] for op in part):
        raise NotLowered("a sum in front of a PRelu")
    return parts


def _sloped(binder: Binder, step: Step, op: PostOp, values: Tensor, frame: Frame) -> Offer:
    """A PRelu of values, seen as the frame has it."""
    assert isinstance(op, plan_attributes.Prelu)
    like, slopes = frame.like, op.operand
    dims = frame.operand(wide(binder.dims(slopes), len(frame.plan)))
    if dims is None or like.size != values.desc.size:
        raise NotLowered(f"slopes {list(binder.dims(slopes))} for {list(frame.dims)}")
    weights = row_major(binder.library, dims, DataType.f32)
    desc = binder.describe(step, "prelu", like, weights, like)
    source = Tensor(values.buffer, like)
    return Offer(desc, {Arg.SRC: source, Arg.WEIGHTS: Wanted(slopes, weights)})


_OTHER_POST_OPS = re.compile(r".*(gemm|conv:any|sse41)")
"""Implementations in f32 whose post-ops are not those of int8 kernels to the bit: a linear one, or a sum, rounds
twice, and relu gives -0 for negative numbers.
"""


def _as_int8(desc: PrimitiveDesc) -> None:
    """Raises NotLowered where post-ops would round otherwise than those of int8 kernels."""
    others = any(not isinstance(op, Binary) for op in desc.attributes.post_ops)
    if others and _OTHER_POST_OPS.match(desc.impl_info):
        raise NotLowered(f"{desc.impl_info} rounds post-ops otherwise than int8 kernels")


def _behind(
    binder: Binder,
    step: Step,
    post_ops: Sequence[PostOp],
    sums: Tensor,
    bias: Added | None,
    scaled: Scaled,
    frame: Frame,
) -> Offer:
    """All that stands behind the sums, as a binary that sees them as the frame has it."""
    library, like = binder.library, frame.like
    ones = row_major(library, (1,) * len(frame.dims), DataType.f32)
    one = (AlgKind.binary_mul, Memory(binder.engine, ones, np.ones(1, np.float32)))
    leading = [*(scaled.leading or [one])]
    if bias is not None:
        leading.append((AlgKind.binary_add, bias(frame)))
    seen = [(alg, _seen(binder, operand, sums.desc, frame)) for alg, operand in leading]
    (alg, factor), *more = seen
    attr, around = PrimitiveAttr(post_ops=tuple(post_ops)), replace(scaled, leading=())
    translated = translate(binder, attr, frame, DataType.f32, 0, step, more, around)
    attributes = translated.attributes
    desc = binder.describe(step, "binary", like, factor.desc, like, alg=alg, attributes=attributes)
    return translated.offer(desc, {Arg.SRC_0: Tensor(sums.buffer, like), Arg.SRC_1: factor})


def _seen(binder: Binder, operand: Operand, target: MemoryDesc, frame: Frame) -> Operand:
    """An operand of a destination, in the frame's shape: along the last dimension that is longer than 1, or one
    number.
    """
    dims = operand.desc.dims
    if target == frame.like or dims == frame.dims:
        return operand
    count, last = math.prod(dims), max(dims)
    behind = target.dims[dims.index(last) + 1 :]
    if count != last or (count > 1 and math.prod(behind) > 1):
        raise NotLowered(f"an operand {list(dims)} for {list(frame.dims)}")
    desc = row_major(binder.library, (*(1 for _ in frame.dims[1:]), count), DataType.f32)
    if isinstance(operand, Memory):
        return Memory(binder.engine, desc, operand.view())
    return replace(operand, desc=desc)
