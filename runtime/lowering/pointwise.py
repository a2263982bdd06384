"""Eltwise, concat and pooling as oneDNN primitives: they follow the layout of their source."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from ...ir.ops import OPS
from ...ir.ops.windows import Window, window
from ...onednn import primitives
from ...onednn.attributes import Attributes
from ...onednn.enums import AlgKind, Arg, DataType, arg_multiple_src, arg_scales
from ...onednn.layouts import channels_last, relaid, row_major, viewed
from ...onednn.memory import Memory, MemoryDesc
from ...onednn.primitive_desc import PrimitiveDesc
from ...plan import attributes as plan_attributes
from ...plan.attributes import Scale
from ...plan.types import Step
from .binding import Binder, NotLowered, Wanted, first_accepted
from .translation import Translated, algorithm, same_frame, translate

__all__ = ["Make", "concat", "eltwise", "follow", "layouts", "need", "pooling"]

Make = Callable[[MemoryDesc, MemoryDesc, Attributes], PrimitiveDesc]
"""Descriptors of source and destination, and attributes -> the primitive descriptor."""


def need(step: Step, role: str) -> str:
    """The value in a role. NotLowered where the step has none."""
    value = step.arg(role)
    if value is None:
        raise NotLowered(f"it has no {role}")
    return value


def layouts(binder: Binder, value: str, dims: tuple[int, ...]) -> list[MemoryDesc]:
    """Layouts in which a source may be handed over, best first: as it lies, channels last,
    row-major.
    """
    dtype = binder.dtype(value)
    lies = viewed(binder.desc(value), dims)
    found = [] if lies is None else [lies]
    for other in (
        channels_last(binder.library, dims, dtype),
        row_major(binder.library, dims, dtype),
    ):
        if other not in found:
            found.append(other)
    return found


def eltwise(binder: Binder, step: Step) -> None:
    """algorithm(src; alpha, beta) with post-ops.

    The compiled kernels of oneDNN 3.2 take no post-ops and store no other type. Those of its binary
    do both: there the algorithm is the first post-op of a product with 1, which changes no bit.
    """
    name = step.params.get("algorithm")
    if not isinstance(name, str):
        raise NotLowered("it names no algorithm")
    alg = algorithm("eltwise", name)
    alpha, beta = (_number(step, param) for param in ("alpha", "beta"))

    def make(source: MemoryDesc, target: MemoryDesc, attributes: Attributes) -> PrimitiveDesc:
        return primitives.eltwise(
            binder.engine,
            alg,
            source,
            target,
            alpha=alpha,
            beta=beta,
            attributes=attributes,
            origin=binder.origin(step),
        )

    try:
        follow(binder, step, make)
    except NotLowered as refusal:
        if binder.dtype(need(step, "src")) != DataType.f32:
            raise
        try:
            _product_with_one(binder, step, name, alpha, beta)
        except NotLowered as second:
            raise NotLowered(f"{refusal}; {second}") from second


def _product_with_one(binder: Binder, step: Step, name: str, alpha: float, beta: float) -> None:
    """An eltwise of f32 as the first post-op of a binary."""
    attr = replace(
        step.attr, post_ops=(plan_attributes.Eltwise(name, alpha, beta), *step.attr.post_ops)
    )
    one = row_major(binder.library, (1,) * len(binder.dims(need(step, "src"))), DataType.f32)

    def make(source: MemoryDesc, target: MemoryDesc, attributes: Attributes) -> PrimitiveDesc:
        return primitives.binary(
            binder.engine,
            AlgKind.binary_mul,
            source,
            one,
            target,
            attributes=attributes,
            origin=binder.origin(step),
        )

    follow(
        binder,
        replace(step, attr=attr),
        make,
        {Arg.SRC_1: Memory(binder.engine, one, np.ones(1, np.float32))},
    )


def pooling(binder: Binder, step: Step) -> None:
    """Maximum or average of windows."""
    src, op = need(step, "src"), step.op
    shape, dims = binder.dims(src), binder.dims(step.output)
    if len(shape) < 3:
        raise NotLowered("it has no spatial dimensions")
    win = _pooling_window(step, shape, dims)
    end = tuple(
        (o - 1) * s + (k - 1) * d + 1 - i - b
        for o, s, k, d, i, b in zip(
            win.out, win.strides, win.kernel, win.dilations, shape[2:], win.begin, strict=True
        )
    )
    if (
        op == "AveragePool"
        and step.params.get("count_include_pad")
        and any(e > given for e, given in zip(end, win.end, strict=True))
    ):
        raise NotLowered("windows reach beyond the padding, which oneDNN would count")

    def make(source: MemoryDesc, target: MemoryDesc, attributes: Attributes) -> PrimitiveDesc:
        return primitives.pooling(
            binder.engine,
            _pooling_algorithm(step),
            source,
            target,
            kernel=win.kernel,
            strides=win.strides,
            dilations=tuple(d - 1 for d in win.dilations),
            padding_l=win.begin,
            padding_r=end,
            attributes=attributes,
            origin=binder.origin(step),
        )

    follow(binder, step, make)


def _pooling_window(step: Step, shape: tuple[int, ...], dims: tuple[int, ...]) -> Window:
    if step.op.startswith("Global"):
        ones, zeros = (1,) * (len(shape) - 2), (0,) * (len(shape) - 2)
        return Window(shape[2:], ones, ones, zeros, zeros, dims[2:])
    attrs = OPS[step.op].known(step.params)
    kernel = attrs["kernel_shape"]
    if not isinstance(kernel, tuple):
        raise NotLowered("it has no kernel_shape")
    return window(attrs, shape[2:], tuple(k for k in kernel if isinstance(k, int)))


def _pooling_algorithm(step: Step) -> AlgKind:
    if step.op in ("MaxPool", "GlobalMaxPool"):
        return AlgKind.pooling_max
    include = step.op == "GlobalAveragePool" or bool(step.params.get("count_include_pad"))
    return AlgKind.pooling_avg_include_padding if include else AlgKind.pooling_avg_exclude_padding


def follow(
    binder: Binder, step: Step, make: Make, args: Mapping[int, Wanted | Memory] | None = None
) -> None:
    """Runs a step by a primitive of one source whose destination lies as the source does, in the
    first layout that is well implemented.

    Args:
        binder: the binder.
        step: the step; the source's role is `src`.
        make: descriptor from the descriptors of source and destination and the attributes.
        args: further arguments.
    """
    src, dims, dtype = need(step, "src"), binder.dims(step.output), binder.dtype(step.output)
    made: dict[int, tuple[Translated, MemoryDesc]] = {}

    def attempt(source: MemoryDesc) -> PrimitiveDesc:
        target = relaid(source, dims, dtype) or MemoryDesc.any(binder.library, dims, dtype)
        translated = translate(
            binder, step.attr, same_frame(dims, target if target.is_plain else source), dtype
        )
        desc = make(source, target, translated.attributes)
        made[id(desc)] = translated, source
        return desc

    found = first_accepted(binder, layouts(binder, src, binder.dims(src)), attempt)
    translated, source = made[id(found)]
    binder.commit(
        step,
        found,
        {**translated.args, **(args or {}), Arg.SRC: Wanted(src, source)},
        translated.sum_operand,
    )


def concat(binder: Binder, step: Step) -> None:
    """Sources joined along an axis, each with a scale; they are brought to one layout."""
    sources = [value for role, value in step.args if role.startswith("src_")]
    dims, dtype = binder.dims(step.output), binder.dtype(step.output)
    axis = step.params.get("axis", 0)
    if not isinstance(axis, int):
        raise NotLowered("it has no axis")
    axis %= len(dims)
    if step.attr.post_ops:
        raise NotLowered("oneDNN's concat takes no post-ops")
    factors = [_factor(step.attr.scales.get(f"src_{index}")) for index in range(len(sources))]
    sources, factors = _joined_before(binder, axis, dtype, sources, factors)
    scales: dict[int, int] = {}
    args: dict[int, Wanted | Memory] = {}
    for index, factor in enumerate(factors):
        if factor != 1.0:
            scales[arg_multiple_src(index)] = 0
            args[arg_scales(arg_multiple_src(index))] = binder.constants.vector(
                np.asarray([factor], np.float32)
            )
    made: dict[int, list[MemoryDesc]] = {}

    def attempt(like: MemoryDesc) -> PrimitiveDesc:
        descs, target = (
            [relaid(like, binder.dims(value), binder.dtype(value)) for value in sources],
            relaid(like, dims, dtype),
        )
        given = [desc for desc in descs if desc is not None]
        if target is None or len(given) < len(sources):
            given, target = [binder.desc(value) for value in sources], None
        desc = primitives.concat(
            binder.engine,
            axis,
            given,
            target,
            attributes=Attributes(scales),
            origin=binder.origin(step),
        )
        made[id(desc)] = given
        return desc

    found = first_accepted(binder, layouts(binder, sources[0], binder.dims(sources[0])), attempt)
    for index, (value, desc) in enumerate(zip(sources, made[id(found)], strict=True)):
        args[arg_multiple_src(index)] = Wanted(value, desc)
    binder.commit(step, found, args)
    binder.joined.append(step)


def _joined_before(
    binder: Binder, axis: int, dtype: DataType, sources: list[str], factors: list[float]
) -> tuple[list[str], list[float]]:
    """The sources, where those that an earlier concat joined in the same way are replaced by its
    result: dense networks join the same feature maps again and again, and one long copy is several
    times as fast as many short ones."""
    best: tuple[int, int, str] | None = None
    for earlier in binder.joined:
        if not binder.is_alive(earlier.output) or binder.dtype(earlier.output) != dtype:
            continue
        parts = [value for role, value in earlier.args if role.startswith("src_")]
        same_axis = (
            isinstance(of := earlier.params.get("axis", 0), int)
            and of % len(binder.dims(earlier.output)) == axis
        )
        old = [_factor(earlier.attr.scales.get(f"src_{index}")) for index in range(len(parts))]
        count = len(parts)
        for start in range(len(sources) - count + 1):
            fits = sources[start : start + count] == parts and factors[start : start + count] == old
            if fits and same_axis and count > 1 and (best is None or count > best[1]):
                best = start, count, earlier.output
    if best is None:
        return sources, factors
    start, count, value = best
    return [*sources[:start], value, *sources[start + count :]], [
        *factors[:start],
        1.0,
        *factors[start + count :],
    ]


def _factor(scale: Scale | None) -> float:
    return 1.0 if scale is None else scale.values[0]


def _number(step: Step, param: str) -> float:
    value = step.params.get(param, 0.0)
    return float(value) if isinstance(value, int | float) else 0.0
