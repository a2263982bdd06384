"""softmax, layer_normalization, batch_normalization, lrn, prelu, resampling and reduction as oneDNN
primitives.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from itertools import product

import numpy as np

from ...ir.ops import OPS
from ...ir.ops.rows import integer, number
from ...ir.ops.windows import Window
from ...onednn.enums import AlgKind, Arg, DataType, NormalizationFlags
from ...onednn.layouts import innermost, row_major, viewed
from ...onednn.memory import Memory, MemoryDesc
from ...plan.attributes import PrimitiveAttr, Sum
from ...plan.types import Step
from .binding import Binder, first_accepted, first_lowered, need
from .joining import Frame, wide
from .pointwise import follow, pool
from .program import Buffer, Owner, Tensor
from .translation import same_frame, translate
from .values import Args, NotLowered, Offer, Wanted

_SHORT_ROWS = 8
"""Elements: 100,000 rows of 4 take NumPy 0.9 ms, behind reorders 3.1; of 8 2.8 and 3.2, of 16 5.8 and 3.9."""

_LONGEST_APART = 4096
"""Elements that batch_normalization of oneDNN 3.2 adds one after the other where they lie apart: rows of
4,096 normal numbers are 7e-6 off at most, as f32 means and variances may be (of 65,536: 3e-5). Rows side
by side are added in parts: 6e-7, of both sizes.
"""


def softmax(binder: Binder, step: Step) -> None:
    """Softmax or LogSoftmax along an axis: as the source lies, or of rows, for which reorders bring
    the axis innermost, and back.
    """
    kind = {"Softmax": AlgKind.softmax_accurate, "LogSoftmax": AlgKind.softmax_log}[step.op]
    axis = integer(OPS[step.op].known(step.params), "axis") % len(binder.dims(step.output))
    ways: list[Callable[[], None]] = [
        lambda: follow(binder, step, "softmax", alg=kind, axis=axis),
        lambda: _softmax_of_rows(binder, step, kind, axis),
    ]
    first_lowered(ways, lambda way: way())


def _softmax_of_rows(binder: Binder, step: Step, kind: AlgKind, axis: int) -> None:
    """oneDNN 3.2 has its reference implementation only where the axis is not innermost. Of 86,016
    elements in rows of 16 NumPy takes 0.27 ms, the two reorders and the primitive 0.16.
    """
    src, dims, dtype = need(step, "src"), binder.dims(step.output), binder.dtype(step.output)
    shape = (math.prod(dims) // dims[axis], dims[axis])
    source, target = (
        row_major(binder.library, shape, type_) for type_ in (binder.dtype(src), dtype)
    )

    def attempt(like: MemoryDesc) -> Offer:
        frame = Frame(dims, shape, partial(_along_rows, axis=axis), like)
        translated = translate(binder, step.attr, frame, dtype)
        attributes = translated.attributes
        desc = binder.describe(
            step, "softmax", source, like, attributes=attributes, alg=kind, axis=1
        )
        return translated.offer(desc, {})

    if dims[axis] < _SHORT_ROWS:
        raise NotLowered(f"NumPy is faster than reorders of rows of {dims[axis]}")
    if any(isinstance(op, Sum) for op in step.attr.post_ops):
        raise NotLowered("the operand of a sum lies in another order than rows")
    found = first_accepted(binder, [target], attempt)
    lies = innermost(binder.library, dims, binder.dtype(src), axis)
    flat = binder.flattened(src, lies)
    binder.commit(
        step,
        found.reading({Arg.SRC: Wanted(flat.value, source)}),
        layout=innermost(binder.library, dims, dtype, axis),
    )


def _along_rows(shape: tuple[int, ...], axis: int) -> tuple[int, ...] | None:
    """The shape of a post-op's operand beside rows: one number, or one for each place in a row."""
    alone = math.prod(shape) == shape[axis]
    return (1, shape[axis]) if alone else None


def layer_normalization(binder: Binder, step: Step) -> None:
    """LayerNormalization over the last dimensions, seen as one: rows where they lie, or of a copy."""
    if step.attr.post_ops:
        raise NotLowered("oneDNN's layer_normalization takes no post-ops")
    ways = (_rows_as_channels, _rows_side_by_side)
    first_lowered(ways, lambda lower: lower(binder, step))


def _rows_and_their_size(binder: Binder, step: Step) -> tuple[int, int]:
    dims, axis = binder.dims(step.output), integer(OPS[step.op].known(step.params), "axis")
    at = axis % len(dims)
    return math.prod(dims[:at]), math.prod(dims[at:])


def _rows_as_channels(binder: Binder, step: Step) -> None:
    """Rows that lie as the channels of one image do, their elements apart: batch_normalization by the
    statistics of its source, without a copy.
    """
    src, (rows, size) = need(step, "src"), _rows_and_their_size(binder, step)
    image = viewed(binder.desc(src), (1, rows, size, 1))
    if image is None or image == row_major(binder.library, image.dims, image.dtype):
        raise NotLowered("its rows do not lie as the channels of an image")
    if size > _LONGEST_APART:
        raise NotLowered(f"sums of {size} elements that lie apart are too far off")
    if {binder.dtype(src), binder.dtype(step.output)} != {DataType.f32} or step.attr.scales:
        raise NotLowered("oneDNN's batch_normalization takes statistics of f32, and stores f32")
    if not (_is_all(binder, step.arg("scale"), 1) and _is_all(binder, step.arg("bias"), 0)):
        raise NotLowered("its scale is not that of a whole row")

    def attempt(epsilon: float) -> Offer:
        flags = NormalizationFlags.none
        desc = binder.describe(
            step, "batch_normalization", image, image, epsilon=epsilon, flags=flags
        )
        return Offer(desc, {Arg.SRC: Wanted(src, image)})

    epsilon = number(OPS[step.op].known(step.params), "epsilon")
    binder.commit(step, first_accepted(binder, [epsilon], attempt))


def _is_all(binder: Binder, name: str | None, number: float) -> bool:
    """True where there is no such operand, or it is that number everywhere."""
    return name is None or (
        binder.is_constant(name) and bool((binder.constants.data(name) == number).all())
    )


def _rows_side_by_side(binder: Binder, step: Step) -> None:
    src, dtype = need(step, "src"), binder.dtype(step.output)
    inner = _rows_and_their_size(binder, step)
    flags, args = NormalizationFlags.none, dict[int, Wanted]()
    for role, flag, arg in (
        ("scale", NormalizationFlags.use_scale, Arg.SCALE),
        ("bias", NormalizationFlags.use_shift, Arg.SHIFT),
    ):
        name = step.arg(role)
        if name is not None:
            if math.prod(binder.dims(name)) != inner[1]:
                raise NotLowered(f"{name} {list(binder.dims(name))} is broadcast")
            flags |= flag
            args[arg] = Wanted(name, row_major(binder.library, (inner[1],), DataType.f32))
    source, target = (row_major(binder.library, inner, kind) for kind in (binder.dtype(src), dtype))
    args[Arg.SRC] = Wanted(src, source)

    def attempt(epsilon: float) -> Offer:
        translated = translate(binder, step.attr, same_frame(inner, target), dtype)
        desc = binder.describe(
            step,
            "layer_normalization",
            source,
            target,
            epsilon=epsilon,
            flags=flags,
            attributes=translated.attributes,
        )
        return translated.offer(desc, args)

    epsilon = number(OPS[step.op].known(step.params), "epsilon")
    binder.commit(step, first_accepted(binder, [epsilon], attempt))


def batch_normalization(binder: Binder, step: Step) -> None:
    """BatchNormalization with given statistics."""
    flags = (
        NormalizationFlags.use_global_stats
        | NormalizationFlags.use_scale
        | NormalizationFlags.use_shift
    )
    roles = {"scale": Arg.SCALE, "bias": Arg.SHIFT, "mean": Arg.MEAN, "var": Arg.VARIANCE}
    args: Args = {
        arg: Wanted(name, row_major(binder.library, binder.dims(name), DataType.f32))
        for role, arg in roles.items()
        if (name := need(step, role))
    }
    epsilon = number(OPS[step.op].known(step.params), "epsilon")
    follow(binder, step, "batch_normalization", args, epsilon=epsilon, flags=flags)


def lrn(binder: Binder, step: Step) -> None:
    """LRN across channels."""
    attrs = OPS[step.op].known(step.params)
    alpha, beta, k = (number(attrs, name) for name in ("alpha", "beta", "bias"))
    size = integer(attrs, "size")
    follow(binder, step, "lrn", local_size=size, alpha=alpha, beta=beta, k=k)


def prelu(binder: Binder, step: Step) -> None:
    """PRelu with a slope for each element, channel, or in between."""
    name = need(step, "slope")
    if binder.is_constant(name) and not np.isfinite(binder.constants.data(name)).all():
        raise NotLowered("oneDNN multiplies infinite slopes by the 0 of what is positive, too")
    shape = wide(binder.dims(name), len(binder.dims(step.output)))
    weights = row_major(binder.library, shape, binder.dtype(name))
    follow(binder, step, "prelu", {Arg.WEIGHTS: Wanted(name, weights)}, [weights])


_REDUCTIONS = {
    "ReduceMean": AlgKind.reduction_mean,
    "ReduceSum": AlgKind.reduction_sum,
    "ReduceProd": AlgKind.reduction_mul,
    "ReduceMax": AlgKind.reduction_max,
    "ReduceMin": AlgKind.reduction_min,
}
_POOLED = {"ReduceMean": AlgKind.pooling_avg_include_padding, "ReduceMax": AlgKind.pooling_max}


def reduction(binder: Binder, step: Step) -> None:
    """A mean or maximum over all spatial dimensions as global pooling, in whatever layout; any
    other reduction over the last dimensions by the library's own; a sum over dimensions between
    others as a product.
    """
    ways = (_as_pooling, _as_reduction, _as_product)
    first_lowered(ways, lambda lower: lower(binder, step))


def _as_pooling(binder: Binder, step: Step) -> None:
    src = need(step, "src")
    shape, dims, spatial = binder.dims(src), binder.dims(step.output), len(binder.dims(src)) - 2
    # The library's reduction divides the sum, pooling multiplies it by 1/n: in codes that is a
    # difference.
    ones, zeros = (1,) * spatial, (0,) * spatial
    if (
        step.op not in _POOLED
        or (step.op == "ReduceMean" and binder.dtype(src) != DataType.f32)
        or spatial < 1
        or dims != (*shape[:2], *ones)
    ):
        raise NotLowered("no mean or maximum over all spatial dimensions")
    pool(binder, step, _POOLED[step.op], Window(shape[2:], ones, ones, zeros, zeros, ones))


def _as_reduction(binder: Binder, step: Step) -> None:
    """Over the last dimensions of a row-major source: others take a reference implementation."""
    src, dtype = need(step, "src"), binder.dtype(step.output)
    shape, dims = binder.dims(src), binder.dims(step.output)
    alg, axes = _REDUCTIONS.get(step.op), _reduced_axes(binder, step, len(shape))
    if alg is None:
        raise NotLowered(f"oneDNN's reduction computes no {step.op}")
    if step.op in ("ReduceMax", "ReduceMin") and binder.dtype(src) == DataType.f32:
        raise NotLowered("oneDNN's maximum and minimum drop NaN, and end at the largest f32")
    reduced = tuple(1 if axis in axes else size for axis, size in enumerate(shape))
    if reduced == shape:
        raise NotLowered("it reduces nothing")
    if step.attr.operands and dims != reduced:
        raise NotLowered("operands of post-ops without the reduced dimensions")
    source = row_major(binder.library, shape, binder.dtype(src))
    target = row_major(binder.library, reduced, dtype)

    def attempt(like: MemoryDesc) -> Offer:
        translated = translate(binder, step.attr, same_frame(reduced, like), dtype)
        attributes = translated.attributes
        desc = binder.describe(step, "reduction", source, target, alg=alg, attributes=attributes)
        return translated.offer(desc, {Arg.SRC: Wanted(src, source)})

    binder.commit(step, first_accepted(binder, [target], attempt))


def _as_product(binder: Binder, step: Step) -> None:
    """A sum over neighbouring dimensions as a product with a row of ones: exact, but for the order of
    the additions. Sums of 16 of 86,016 elements take NumPy 0.10 ms, the library's reduction behind a
    reorder 0.07, the product 0.02.
    """
    src, dtype = need(step, "src"), binder.dtype(step.output)
    shape, axes = binder.dims(src), sorted(_reduced_axes(binder, step, len(binder.dims(src))))
    if step.op != "ReduceSum" or binder.dtype(src) != DataType.f32:
        raise NotLowered("only sums of f32 are products with ones")
    if not axes:
        raise NotLowered("it reduces nothing")
    first, last = axes[0], axes[-1] + 1
    if axes != list(range(first, last)):
        raise NotLowered("the dimensions that it sums over are no neighbours")
    if step.attr.operands:
        raise NotLowered("operands of post-ops beside a sum in the middle")
    around, inside, behind = (
        math.prod(shape[a:b]) for a, b in ((0, first), (first, last), (last, len(shape)))
    )
    library, sums = binder.library, (around, 1, behind)
    ones = row_major(library, (1, 1, inside), DataType.f32)
    source = row_major(library, (around, inside, behind), DataType.f32)
    args: Args = {
        Arg.SRC: Memory(binder.engine, ones, np.ones(ones.dims, np.float32)),
        Arg.WEIGHTS: Wanted(src, source),
    }

    def attempt(attr: PrimitiveAttr) -> Offer:
        target = row_major(library, sums, DataType.f32)
        translated = translate(binder, attr, same_frame(sums, target), DataType.f32)
        attributes = translated.attributes
        desc = binder.describe(step, "matmul", ones, source, None, target, attributes=attributes)
        return translated.offer(desc, args)

    if dtype == DataType.f32:
        binder.commit(step, first_accepted(binder, [step.attr], attempt))
        return
    product = first_accepted(binder, [PrimitiveAttr()], attempt)
    size = product.desc.dst_md().size
    bare = Tensor(Buffer(f"{step.name} sums", Owner.ARENA, size), product.desc.dst_md())
    stored = _in_codes(binder, step, bare)
    binder.commit_part(product, bare)
    binder.commit(step, stored)


def _in_codes(binder: Binder, step: Step, real: Tensor) -> Offer:
    """What makes the codes that a step stores of its f32: a product of f32 stores none itself."""
    if step.attr.scales or step.attr.zero_points:
        raise NotLowered("a binary has no scale and no zero point of its destination")
    one = row_major(binder.library, (1,) * len(real.desc.dims), DataType.f32)
    args: Args = {
        Arg.SRC_0: real,
        Arg.SRC_1: Memory(binder.engine, one, np.ones(1, np.float32)),
    }

    def attempt(target: MemoryDesc) -> Offer:
        dtype, frame = target.dtype, same_frame(target.dims, target)
        translated = translate(binder, step.attr, frame, dtype)
        attributes, alg = translated.attributes, AlgKind.binary_mul
        desc = binder.describe(
            step, "binary", real.desc, one, target, attributes=attributes, alg=alg
        )
        return translated.offer(desc, args)

    target = row_major(binder.library, real.desc.dims, binder.dtype(step.output))
    return first_accepted(binder, [target], attempt)


def _reduced_axes(binder: Binder, step: Step, rank: int) -> set[int]:
    """The axes that a reduction is over.

    Raises:
        NotLowered: they are computed at run time.
    """
    name = step.arg("axes")
    if name is not None and not binder.is_constant(name):
        raise NotLowered("its axes are computed at run time")
    axes = [] if name is None else binder.constants.data(name).reshape(-1).tolist()
    if not axes and not step.params.get("noop_with_empty_axes", 0):
        return set(range(rank))
    return {int(axis) % rank for axis in axes}


def resampling(binder: Binder, step: Step) -> None:
    """Resize of the spatial dimensions, where ONNX's coordinates are oneDNN's half-pixel ones."""
    shape, dims = binder.dims(need(step, "src")), binder.dims(step.output)
    if len(shape) < 3 or shape[:2] != dims[:2]:
        raise NotLowered("it resizes more than the spatial dimensions")
    _check_scales(binder, step, shape, dims)
    mode = step.params.get("mode", "nearest")
    if mode == "nearest" and _repeats(step, shape[2:], dims[2:]):
        follow(binder, step, "resampling", alg=AlgKind.resampling_nearest)
    elif mode == "linear" and _plainly_linear(step, shape[2:], dims[2:]):
        follow(binder, step, "resampling", alg=AlgKind.resampling_linear)
    else:
        raise NotLowered("oneDNN resamples with half-pixel coordinates only")


def _check_scales(
    binder: Binder, step: Step, shape: tuple[int, ...], dims: tuple[int, ...]
) -> None:
    """Refuses scales that are not the ratio of the sizes: ONNX takes coordinates from the scales,
    oneDNN from the sizes.

    Raises:
        NotLowered: they are not, or are computed at run time.
    """
    name = step.arg("scales")
    if name is None:
        return
    if not binder.is_constant(name):
        raise NotLowered("its scales are computed at run time")
    scales, axes = binder.constants.data(name).tolist(), step.params.get("axes")
    along = (
        [int(axis) for axis in axes if isinstance(axis, int)]
        if isinstance(axes, tuple) and axes
        else range(len(shape))
    )
    if scales and any(
        shape[axis] * scale != dims[axis] for axis, scale in zip(along, scales, strict=True)
    ):
        raise NotLowered("its scales are not the ratios of its sizes")


def _repeats(step: Step, before: tuple[int, ...], after: tuple[int, ...]) -> bool:
    """True where the nearest element is the one that whole factors repeat, as it is in oneDNN."""
    if any(out % size for size, out in zip(before, after, strict=True)):
        return False
    pair = (
        step.params.get("coordinate_transformation_mode", "half_pixel"),
        step.params.get("nearest_mode", "round_prefer_floor"),
    )
    return pair in {
        ("asymmetric", "floor"),
        *product(("half_pixel",), ("round_prefer_floor", "round_prefer_ceil")),
    }


def _plainly_linear(step: Step, before: tuple[int, ...], after: tuple[int, ...]) -> bool:
    if step.params.get("antialias", 0) and any(
        out < size for size, out in zip(before, after, strict=True)
    ):
        return False
    coordinates = step.params.get("coordinate_transformation_mode", "half_pixel")
    same = coordinates == "half_pixel" or (
        # PyTorch's, which differ where a single element is left
        coordinates == "pytorch_half_pixel"
        and all(out > 1 or size == 1 for size, out in zip(before, after, strict=True))
    )
    return same and step.arg("roi") is None
