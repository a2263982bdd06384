"""Eltwise, concat and pooling as oneDNN primitives: they follow the layout of their source."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np

from ...ir.ops import OPS
from ...ir.ops.rows import integer
from ...ir.ops.windows import Window
from ...ir.types import DType
from ...onednn.attributes import Attributes
from ...onednn.enums import AlgKind, Arg, DataType, arg_multiple_src, arg_scales
from ...onednn.layouts import channels_last, relaid, row_major, viewed
from ...onednn.memory import Memory, MemoryDesc, numpy_dtype
from ...plan import attributes as plan_attributes
from ...plan.types import Step
from ..windows import window_of
from .averages import average_of_codes
from .binding import Binder, first_accepted, first_lowered, need
from .translation import algorithm, same_frame, translate
from .values import Args, NotLowered, Offer, Wanted, distinct


def layouts(binder: Binder, value: str, dims: tuple[int, ...]) -> list[MemoryDesc]:
    """Layouts in which a source may be handed over, best first: as it lies, channels last,
    row-major.
    """
    dtype, library = binder.dtype(value), binder.library
    others = (like(library, dims, dtype) for like in (channels_last, row_major))
    return distinct(viewed(binder.desc(value), dims), *others)


def eltwise(binder: Binder, step: Step) -> None:
    """algorithm(src; alpha, beta) with post-ops.

    The compiled kernels of oneDNN 3.2 take no post-ops and store no other type. Those of its binary
    do both: there the algorithm is the first post-op of a product with 1, which changes no bit.
    """
    name = str(step.params["algorithm"])
    alpha, beta = (_number(step, param) for param in ("alpha", "beta"))
    alg = algorithm("eltwise", name)

    def lower(by_binary: bool) -> None:
        if not by_binary:
            follow(binder, step, "eltwise", alg=alg, alpha=alpha, beta=beta)
            return
        post_ops = (plan_attributes.Eltwise(name, alpha, beta), *step.attr.post_ops)
        product = replace(step, attr=replace(step.attr, post_ops=post_ops))
        one = row_major(binder.library, (1,) * len(binder.dims(need(step, "src"))), DataType.f32)
        args: Args = {Arg.SRC_1: Memory(binder.engine, one, np.ones(1, np.float32))}
        follow(binder, product, "binary", args, [one], alg=AlgKind.binary_mul)

    floats = binder.dtype(need(step, "src")) == DataType.f32
    first_lowered((False, True) if floats else (False,), lower)


def pooling(binder: Binder, step: Step) -> None:
    """Maximum or average of windows."""
    shape = binder.dims(need(step, "src"))
    if len(shape) < 3:
        raise NotLowered("it has no spatial dimensions")
    win = window_of(step, shape[2:])
    counted = step.op == "AveragePool" and step.params.get("count_include_pad")
    beyond = (
        reach - size - begin > end
        for reach, size, begin, end in zip(win.reach, shape[2:], win.begin, win.end, strict=True)
    )
    if counted and any(beyond):
        raise NotLowered("windows reach beyond the padding, which oneDNN would count")
    pool(binder, step, _pooling_algorithm(step), win)


def pool(binder: Binder, step: Step, alg: AlgKind, win: Window) -> None:
    """Runs a step by the pooling primitive, whose compiled kernels store the type that they read:
    averages of codes in f32 are a kernel of our own, or, as maxima of codes, pooled as f32.
    """
    codes = binder.dtype(need(step, "src")) in (DataType.u8, DataType.s8)
    ways: list[Callable[[], None]] = [lambda: _pool(binder, step, alg, win)]
    if codes and binder.dtype(step.output) == DataType.f32:
        ways = [lambda: _pool(binder, step, alg, win, converted=True)]
        if alg != AlgKind.pooling_max:
            ways.insert(0, lambda: average_of_codes(binder, step, win))
    elif alg != AlgKind.pooling_max:
        ways.insert(0, lambda: _mean_of_rows(binder, step, win))
    first_lowered(ways, lambda way: way())


def _mean_of_rows(binder: Binder, step: Step, win: Window) -> None:
    """An average of whole maps of f32 that lie one after the other, as the reduction primitive: oneDNN
    3.2's pooling adds them up one by one (the means of 64 rows of 768: 48 us, and 3 by a reduction).

    Raises:
        NotLowered: the windows, the types or the layout are others.
    """
    src = need(step, "src")
    dims, shape = binder.dims(src), binder.dims(step.output)
    source = row_major(binder.library, dims, binder.dtype(src))
    target = row_major(binder.library, shape, binder.dtype(step.output))
    if not source.dtype == target.dtype == DataType.f32 or binder.desc(src) != source:
        raise NotLowered("not maps of f32, one after the other")
    if win.kernel != dims[2:] or any((*win.begin, *win.end)) or shape[2:] != (1,) * len(shape[2:]):
        raise NotLowered("windows of another size than the map")

    def attempt(like: MemoryDesc) -> Offer:
        translated = translate(binder, step.attr, same_frame(shape, like), like.dtype)
        attributes, alg = translated.attributes, AlgKind.reduction_mean
        desc = binder.describe(step, "reduction", source, like, alg=alg, attributes=attributes)
        return translated.offer(desc, {Arg.SRC: Wanted(src, source)})

    binder.commit(step, first_accepted(binder, [target], attempt))


def _pool(
    binder: Binder, step: Step, alg: AlgKind, win: Window, *, converted: bool = False
) -> None:
    sizes = binder.dims(need(step, "src"))[2:]
    follow(
        binder,
        _within_codes(binder, step),
        "pooling",
        converted=converted,
        alg=alg,
        kernel=win.kernel,
        strides=win.strides,
        dilations=tuple(d - 1 for d in win.dilations),
        padding_l=win.begin,
        padding_r=tuple(
            reach - size - begin
            for reach, size, begin in zip(win.reach, sizes, win.begin, strict=True)
        ),
    )


def _within_codes(binder: Binder, step: Step) -> Step:
    """The step with its post-ops held within the codes that it stores: averages of codes are
    converted to s32 as they are, and beyond its range that gives the lowest s32.
    """
    narrowest, last = binder.plan.type(step.output).dtype, step.attr.post_ops[-1:]
    if not last or narrowest not in (DType.U8, DType.S8):
        return step
    low, high = map(float, narrowest.range)
    clip = plan_attributes.Eltwise("clip", low, high)
    if last == (clip,):
        return step
    return replace(step, attr=replace(step.attr, post_ops=(*step.attr.post_ops, clip)))


def _pooling_algorithm(step: Step) -> AlgKind:
    if step.op in ("MaxPool", "GlobalMaxPool"):
        return AlgKind.pooling_max
    include = step.op == "GlobalAveragePool" or bool(step.params.get("count_include_pad"))
    return AlgKind.pooling_avg_include_padding if include else AlgKind.pooling_avg_exclude_padding


def follow(
    binder: Binder,
    step: Step,
    kind: str,
    args: Args | None = None,
    more: Sequence[MemoryDesc] = (),
    *,
    converted: bool = False,
    **parameters: Any,
) -> None:
    """Runs a step by a primitive whose destination lies as its source does, in the first layout
    that is well implemented.

    Args:
        binder: the binder.
        step: the step; the source's role is `src`.
        kind: of the primitive.
        args: further arguments.
        more: operands between source and destination.
        converted: the source is brought into the type of the destination beforehand.
        parameters: of the primitive.
    """
    src, dims, dtype = need(step, "src"), binder.dims(step.output), binder.dtype(step.output)

    def attempt(lies: MemoryDesc) -> Offer:
        source = (relaid(lies, lies.dims, dtype) or lies) if converted else lies
        target = relaid(source, dims, dtype) or MemoryDesc.any(binder.library, dims, dtype)
        frame = same_frame(dims, target if target.is_plain else source)
        translated = translate(binder, step.attr, frame, dtype)
        attributes = translated.attributes
        desc = binder.describe(
            step, kind, source, *more, target, attributes=attributes, **parameters
        )
        return translated.offer(desc, {**(args or {}), Arg.SRC: Wanted(src, source)})

    found = first_accepted(binder, layouts(binder, src, binder.dims(src)), attempt)
    if converted:
        found = found.reading({Arg.SRC: binder.convert(src, found.desc.src_md())})
    binder.commit(step, found)


def _number(step: Step, param: str) -> float:
    value = step.params.get(param, 0.0)
    return float(value) if isinstance(value, int | float) else 0.0


# further on, DNNL_ARG_MULTIPLE_SRC + index is DNNL_ARG_ATTR_SCALES, the mark of a scale
_MOST_SOURCES = Arg.ATTR_SCALES - Arg.MULTIPLE_SRC


def concat(binder: Binder, step: Step) -> None:
    """Sources joined along an axis, each with a scale; they are brought to one layout."""
    sources, factors = _scaled_sources(step)
    dims, dtype = binder.dims(step.output), binder.dtype(step.output)
    axis = _axis(binder, step)
    if step.attr.post_ops:
        raise NotLowered("oneDNN's concat takes no post-ops")
    if "dst" in step.attr.scales or step.attr.zero_points:
        raise NotLowered("oneDNN's concat takes no scale and no zero point of its destination")
    sources, factors = _joined_before(binder, axis, dtype, sources, factors)
    if len(sources) > _MOST_SOURCES:
        raise NotLowered(f"{len(sources)} sources, and oneDNN has arguments for {_MOST_SOURCES}")
    scales: dict[int, int] = {}
    args: dict[int, Wanted | Memory] = {}
    for index, factor in enumerate(factors):
        if factor != 1.0:
            scales[arg_multiple_src(index)] = 0
            args[arg_scales(arg_multiple_src(index))] = binder.constants.vector(
                np.asarray([factor], np.float32)
            )

    def attempt(like: MemoryDesc) -> Offer:
        target = relaid(like, dims, dtype)
        given = [relaid(like, binder.dims(value), binder.dtype(value)) for value in sources]
        if target is None or None in given:
            if axis > 1:
                # the library would put that dimension around the blocks of channels, where its
                # other primitives do not look for it (onednn/defects, "binary of inner blocks")
                raise NotLowered("blocks of channels are not joined along a spatial dimension")
            given, target = [binder.desc(value) for value in sources], None
        attributes = Attributes(scales)
        desc = binder.describe(step, "concat", *given, target, axis=axis, attributes=attributes)
        wanted = {
            arg_multiple_src(index): Wanted(value, lies)
            for index, (value, lies) in enumerate(zip(sources, given, strict=True))
            if lies is not None
        }
        return Offer(desc, {**args, **wanted})

    found = first_accepted(binder, layouts(binder, sources[0], binder.dims(sources[0])), attempt)
    parts = None if scales else _copies(binder, step, axis, sources, found)
    if parts is None:
        binder.commit(step, found)
    else:
        binder.commit_boxes(step, found.desc.dst_md(), parts)
    given = [value for _, value in step.args]
    if len(given) > 1:
        binder.joined.setdefault((given[0], given[1]), []).append(step)


_SHORT_ROWS = 96  # bytes


def _copies(
    binder: Binder, step: Step, axis: int, sources: Sequence[str], joined: Offer
) -> list[Offer] | None:
    """A copy of each source into its place; None where the concat that was found is as fast.

    It copies row by row, 6 ns each, where a reorder has loops for short rows. On AVX-512 and Zen 4,
    two sources of u8: 224x224 positions of 16 channels each 640 us and 118, 112x112 of 32 163 and
    53, 56x56 of 64 46 and 29, 28x28 of 128 12 and 15. No compiled kernel of oneDNN 3.2 writes into
    such a place itself: of convolutions, poolings and binary, all are `ref:any`.
    """
    whole = joined.desc.dst_md()
    if not whole.is_plain or _row(whole, axis) >= _SHORT_ROWS * len(sources):
        return None
    copies, start = [], 0
    for index, value in enumerate(sources):
        dims, arg = binder.dims(value), arg_multiple_src(index)
        place = whole.submemory(dims, tuple(start if at == axis else 0 for at in range(len(dims))))
        start += dims[axis]
        move = binder.describe(step, "reorder", joined.desc.exec_arg_md(arg), place)
        if move.is_reference or binder.objection(move):
            return None
        copies.append(Offer(move, {Arg.SRC: joined.args[arg]}))
    return copies


def _row(desc: MemoryDesc, axis: int) -> int:
    """Bytes of a plain layout that lie side by side for one index of all dimensions around an axis."""
    size = numpy_dtype(desc.dtype).itemsize
    return desc.dims[axis] * desc.strides[axis] * size


def _scaled_sources(step: Step) -> tuple[list[str], list[float]]:
    """The sources of a concat, and their scales."""
    scales = [step.attr.scales.get(role) for role, _ in step.args]
    factors = [1.0 if scale is None else scale.values[0] for scale in scales]
    return [value for _, value in step.args], factors


def _axis(binder: Binder, step: Step) -> int:
    return integer(OPS[step.op].known(step.params), "axis") % len(binder.dims(step.output))


def _joined_before(
    binder: Binder, axis: int, dtype: DataType, sources: list[str], factors: list[float]
) -> tuple[list[str], list[float]]:
    """The sources, where those that an earlier concat joined in the same way are replaced by its
    result: dense networks join the same feature maps again and again, and one long copy is several
    times as fast as many short ones."""
    best: tuple[int, int, str] | None = None
    for start, pair in enumerate(pairwise(sources)):
        for earlier in binder.joined.get(pair, ()):
            if not binder.reaches(earlier.output) or binder.dtype(earlier.output) != dtype:
                continue
            parts, old = _scaled_sources(earlier)
            count = len(parts)
            fits = sources[start : start + count] == parts and factors[start : start + count] == old
            if fits and _axis(binder, earlier) == axis and (best is None or count > best[1]):
                best = start, count, earlier.output
    if best is None:
        return sources, factors
    start, count, value = best
    return [*sources[:start], value, *sources[start + count :]], [
        *factors[:start],
        1.0,
        *factors[start + count :],
    ]
