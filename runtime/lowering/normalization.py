"""softmax, layer_normalization, batch_normalization, lrn, prelu, resampling and reduction as oneDNN
primitives.
"""

from __future__ import annotations

import math
from itertools import product

import numpy as np

from ...onednn import primitives
from ...onednn.attributes import Attributes
from ...onednn.enums import AlgKind, Arg, DataType, NormalizationFlags
from ...onednn.layouts import row_major
from ...onednn.memory import Memory, MemoryDesc
from ...onednn.primitive_desc import PrimitiveDesc
from ...plan.types import Step
from .binding import Binder, NotLowered, Wanted, first_accepted
from .pointwise import follow, need
from .translation import same_frame, translate

__all__ = [
    "batch_normalization",
    "layer_normalization",
    "lrn",
    "prelu",
    "reduction",
    "resampling",
    "softmax",
]


def softmax(binder: Binder, step: Step) -> None:
    """Softmax or LogSoftmax along an axis."""
    axis = _axis(step, "axis", -1, len(binder.dims(step.output)))
    # LogSoftmax of the library is off by up to 3.5e-6, beyond the few ulp that f32 results are held
    # to.
    if step.op != "Softmax":
        raise NotLowered("oneDNN's log-softmax is less exact than the contract asks")

    def make(source: MemoryDesc, target: MemoryDesc, attributes: Attributes) -> PrimitiveDesc:
        return primitives.softmax(
            binder.engine,
            source,
            target,
            axis=axis,
            attributes=attributes,
            origin=binder.origin(step),
        )

    follow(binder, step, make)


def layer_normalization(binder: Binder, step: Step) -> None:
    """LayerNormalization over the last dimensions, seen as one."""
    src, dims, dtype = need(step, "src"), binder.dims(step.output), binder.dtype(step.output)
    axis = _axis(step, "axis", -1, len(dims))
    if step.attr.post_ops:
        raise NotLowered("oneDNN's layer_normalization takes no post-ops")
    inner = (math.prod(dims[:axis]), math.prod(dims[axis:]))
    flags, args = NormalizationFlags.none, dict[int, Wanted | Memory]()
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
    source, target = (
        row_major(binder.library, inner, binder.dtype(src)),
        row_major(binder.library, inner, dtype),
    )
    translated = translate(binder, step.attr, same_frame(inner, target), dtype)
    epsilon = _number(step, "epsilon", 1e-5)
    found = first_accepted(
        binder,
        [source],
        lambda desc: primitives.layer_normalization(
            binder.engine,
            desc,
            target,
            epsilon=epsilon,
            flags=flags,
            attributes=translated.attributes,
            origin=binder.origin(step),
        ),
    )
    binder.commit(step, found, {**translated.args, **args, Arg.SRC: Wanted(src, source)})


def batch_normalization(binder: Binder, step: Step) -> None:
    """BatchNormalization with given statistics."""
    flags = (
        NormalizationFlags.use_global_stats
        | NormalizationFlags.use_scale
        | NormalizationFlags.use_shift
    )
    args: dict[int, Wanted | Memory] = {}
    for role, arg in (
        ("scale", Arg.SCALE),
        ("bias", Arg.SHIFT),
        ("mean", Arg.MEAN),
        ("var", Arg.VARIANCE),
    ):
        name = need(step, role)
        args[arg] = Wanted(name, row_major(binder.library, binder.dims(name), DataType.f32))
    epsilon = _number(step, "epsilon", 1e-5)
    follow(
        binder,
        step,
        lambda source, target, attributes: primitives.batch_normalization(
            binder.engine,
            source,
            target,
            epsilon=epsilon,
            flags=flags,
            attributes=attributes,
            origin=binder.origin(step),
        ),
        args,
    )


def lrn(binder: Binder, step: Step) -> None:
    """LRN across channels."""
    size = step.params.get("size")
    if not isinstance(size, int):
        raise NotLowered("it has no size")
    alpha, beta, bias = (
        _number(step, "alpha", 1e-4),
        _number(step, "beta", 0.75),
        _number(step, "bias", 1.0),
    )
    follow(
        binder,
        step,
        lambda source, target, attributes: primitives.lrn(
            binder.engine,
            source,
            target,
            local_size=size,
            alpha=alpha,
            beta=beta,
            k=bias,
            attributes=attributes,
            origin=binder.origin(step),
        ),
    )


def prelu(binder: Binder, step: Step) -> None:
    """PRelu with a slope for each element, channel, or in between."""
    name = need(step, "slope")
    rank = len(binder.dims(step.output))
    if binder.is_constant(name) and not np.isfinite(binder.constants.data(name)).all():
        raise NotLowered("oneDNN multiplies infinite slopes by the 0 of what is positive, too")
    shape = (1,) * (rank - len(binder.dims(name))) + binder.dims(name)
    weights = row_major(binder.library, shape, binder.dtype(name))
    follow(
        binder,
        step,
        lambda source, target, attributes: primitives.prelu(
            binder.engine,
            source,
            weights,
            target,
            attributes=attributes,
            origin=binder.origin(step),
        ),
        {Arg.WEIGHTS: Wanted(name, weights)},
    )


def reduction(binder: Binder, step: Step) -> None:
    """A mean or maximum over all spatial dimensions, as global pooling; the library's own reduction
    is a reference.
    """
    src = need(step, "src")
    shape, dims = binder.dims(src), binder.dims(step.output)
    kinds = {"ReduceMean": AlgKind.pooling_avg_include_padding, "ReduceMax": AlgKind.pooling_max}
    spatial = len(shape) - 2
    # The library's reduction divides the sum, pooling multiplies it by 1/n: in codes that is a
    # difference.
    if step.op == "ReduceMean" and binder.dtype(src) != DataType.f32:
        raise NotLowered("oneDNN has only the reference implementation ref:any for a mean of codes")
    if step.op not in kinds or spatial < 1 or dims != (*shape[:2], *[1] * spatial):
        raise NotLowered("oneDNN has only the reference implementation ref:any for reductions")
    ones, zeros = (1,) * spatial, (0,) * spatial

    def make(source: MemoryDesc, target: MemoryDesc, attributes: Attributes) -> PrimitiveDesc:
        return primitives.pooling(
            binder.engine,
            kinds[step.op],
            source,
            target,
            kernel=shape[2:],
            strides=ones,
            dilations=zeros,
            padding_l=zeros,
            padding_r=zeros,
            attributes=attributes,
            origin=binder.origin(step),
        )

    follow(binder, step, make)


def resampling(binder: Binder, step: Step) -> None:
    """Resize of the spatial dimensions, where ONNX's coordinates are oneDNN's half-pixel ones."""
    shape, dims = binder.dims(need(step, "src")), binder.dims(step.output)
    if len(shape) < 3 or shape[:2] != dims[:2]:
        raise NotLowered("it resizes more than the spatial dimensions")
    _check_scales(binder, step, shape, dims)
    mode = step.params.get("mode", "nearest")
    if mode == "nearest" and _repeats(step, shape[2:], dims[2:]):
        alg = AlgKind.resampling_nearest
    elif mode == "linear" and _plainly_linear(step, shape[2:], dims[2:]):
        alg = AlgKind.resampling_linear
    else:
        raise NotLowered("oneDNN resamples with half-pixel coordinates only")

    def make(source: MemoryDesc, target: MemoryDesc, attributes: Attributes) -> PrimitiveDesc:
        return primitives.resampling(
            binder.engine, alg, source, target, attributes=attributes, origin=binder.origin(step)
        )

    follow(binder, step, make)


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
    return (
        step.params.get("coordinate_transformation_mode", "half_pixel") == "half_pixel"
        and step.arg("roi") is None
    )


def _axis(step: Step, param: str, default: int, rank: int) -> int:
    value = step.params.get(param, default)
    if not isinstance(value, int):
        raise NotLowered(f"it has no {param}")
    return value % rank


def _number(step: Step, param: str, default: float) -> float:
    value = step.params.get(param, default)
    return float(value) if isinstance(value, int | float) else default
