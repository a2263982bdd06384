"""Which steps may answer otherwise on a CPU without VNNI: a proof from the plan alone, for each
output channel, from its weights and the codes that its source can hold.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ..ir.ops import OPS
from ..ir.ops.spec import Array, Trait
from ..ir.types import DType
from .attributes import DepthwiseConv, Eltwise, PostOp, PrimitiveAttr
from .saturation_of_layers import (
    ALL,
    differing_of_layer,
    law_of_layer,
    outputs_of_layer,
    rounded_of_layer,
)
from .summation import Summation, fits, largest, pairs_at_risk
from .summation_of_steps import groups_of, laws_of
from .types import Plan, Step

_COMPUTES = ("convolution", "deconvolution", "matmul")
_KEEP = frozenset({Trait.LAYOUT_ONLY, Trait.SELECTS, Trait.JOINS})
_STORES = (*_COMPUTES, "binary", "eltwise", "reorder", "softmax")
"""Primitives that end as the epilogue does: post-ops, scale, zero point, store."""

_STORED = frozenset({"pooling", "concat", "shuffle"})
"""Primitives that store codes of their sources, where nothing follows, by the traits of their op."""

_SHARES = (0.0, 1.001)
"""What a softmax gives, however its sum is rounded."""

_ANY_WEIGHT = 128  # the largest magnitude of s8
_F32 = 2**24
"""Integers up to it are exact in f32."""

_COLUMNS = 64  # of weights that are looked at in one go

Codes = tuple[int, int]
"""The least and the largest one that a value can hold."""

Range = tuple[float, float]


@dataclass(frozen=True)
class StepSums:
    """How an int8 step sums on an instruction set. Channels of a recurrent layer are its hidden values,
    one direction behind the other.

    Attributes:
        index: its place in the plan.
        step: the step.
        law: what the implementation does that oneDNN takes first, as far as is known.
        codes: the least and the largest code that its source can hold, as the plan tells.
        channels: the output channels whose results can differ from the exact ones, whatever the
            data; all where the weights are computed at run time.
        of: how many output channels there are; 0 where the plan does not tell.
        rounded: the output channels of constant weights whose sums can pass 2^24, in magnitude: some code, on
            every CPU, has them in f32 on its way, and the result may be a rounding away from the exact
            one's. All where weights are computed.
        others: what others do that it may take as well. All are proven; what is emulated is `law`.
        at_risk: which of them let these channels differ.
    """

    index: int
    step: Step
    law: Summation
    codes: tuple[int, int]
    channels: tuple[int, ...]
    of: int
    others: tuple[Summation, ...] = ()
    at_risk: tuple[Summation, ...] = ()
    rounded: tuple[int, ...] = ()

    @property
    def laws(self) -> tuple[Summation, ...]:
        """All that oneDNN may do."""
        return (self.law, *self.others)

    @property
    def emulated(self) -> bool:
        """Whether a run on NumPy gives the numbers of that CPU: it is known what oneDNN does there, or
        it does not matter.
        """
        return not self.saturates or not self.others

    @property
    def saturates(self) -> bool:
        """Whether it is not proven that nothing saturates, and no weight loses its last bit."""
        return bool(self.channels)

    @property
    def exact(self) -> bool:
        """Whether it is proven that the results are the exact ones."""
        return not self.channels and not self.rounded

    def as_dict(self) -> dict[str, Any]:
        """Plain data: `index`, `name`, `primitive`, `layers`, `sums` (`exact`, `pairs`, `halved`),
        `codes`, `channels`, `of`, `rounded`, `exact`, `emulated`.
        """
        sums = "halved" if self.law.halved else "pairs" if self.law.pairs else "exact"
        return {
            "index": self.index,
            "name": self.step.name,
            "primitive": self.step.primitive,
            "layers": list(self.step.origin),
            "sums": sums,
            "codes": list(self.codes),
            "channels": list(self.channels),
            "of": self.of,
            "rounded": list(self.rounded),
            "exact": self.exact,
            "emulated": self.emulated,
        }


def sums_of_plan(plan: Plan, isa: str) -> tuple[StepSums, ...]:
    """Every convolution, deconvolution and matmul of codes by s8 weights, and every recurrent layer of
    codes, in the plan's order; an If, Loop or Scan as the first such layer in its bodies that can differ.

    Args:
        plan: the plan.
        isa: one of `summation.ISAS`.
    """
    codes = codes_of_plan(plan)
    every = (
        _sums_of(plan, index, isa, codes) if step.bodies is None else _sums_within(index, step, isa)
        for index, step in enumerate(plan.steps)
    )
    return tuple(sums for sums in every if sums is not None)


def _sums_within(index: int, step: Step, isa: str) -> StepSums | None:
    """How the first layer in the bodies of a step sums whose results can differ; the first one where
    none is such; None where there is none.
    """
    bodies = () if step.bodies is None else step.bodies.plans
    every = [sums for body in bodies for sums in sums_of_plan(body, isa)]
    worst = max(every, key=lambda sums: (sums.saturates, not sums.exact), default=None)
    return None if worst is None else replace(worst, index=index, step=step)


def steps_at_risk(plan: Plan, isa: str) -> tuple[int, ...]:
    """The steps that may saturate: those of `sums_of_plan`, without their channels, which takes a fraction of
    the time.
    """
    codes = codes_of_plan(plan)
    return tuple(i for i in range(len(plan.steps)) if _is_at_risk(plan, i, isa, codes))


def products_in_f32(plan: Plan, isa: str) -> dict[int, int]:
    """The steps that may saturate -> how many products in f32 add up what one of codes does, exactly: 2 where its sums
    less the zero point can pass 2^24.
    """
    codes, found = codes_of_plan(plan), dict[int, int]()
    for index in steps_at_risk(plan, isa):
        sums = _without_channels(plan, index, isa, codes)
        data = None if sums is None else plan.constants.get(sums.step.arg("weights") or "")
        pass_it = sums is not None and _beyond_f32(plan, sums, data, _zero_points(sums.step))
        found[index] = 2 if pass_it else 1
    return found


def _zero_points(step: Step) -> list[int]:
    """Of the source; 0 where the plan tells none."""
    zero = step.attr.zero_points.get("src")
    return [0] if zero is None else list(map(int, zero.values))


def _is_at_risk(plan: Plan, index: int, isa: str, codes: Mapping[str, Codes]) -> bool:
    layer = _of_layer(plan, index, isa, codes)
    if layer is not None:
        return layer.saturates
    sums = _without_channels(plan, index, isa, codes)
    if sums is None:
        return False
    step, data = sums.step, plan.constants.get(sums.step.arg("weights") or "")
    if data is None:
        return sums.saturates
    if _of_depthwise(plan, step, isa):
        return True
    return any(columns.size for _, columns in _differing(sums, data))


def _of_layer(plan: Plan, index: int, isa: str, codes: Mapping[str, Codes]) -> StepSums | None:
    """How a recurrent layer of codes sums; None of another step."""
    step = plan.steps[index]
    law = law_of_layer(plan, step, isa)
    if law is None:
        return None
    held = codes.get(step.arg("src") or "", ALL)
    differ = differing_of_layer(plan, step, law, held)
    of, at_risk = outputs_of_layer(plan, step), (law,) if differ else ()
    rounded = rounded_of_layer(plan, step)
    return StepSums(index, step, law, held, differ, of, at_risk=at_risk, rounded=rounded)


def _sums_of(plan: Plan, index: int, isa: str, codes: Mapping[str, Codes]) -> StepSums | None:
    layer = _of_layer(plan, index, isa, codes)
    if layer is not None:
        return layer
    sums = _without_channels(plan, index, isa, codes)
    if sums is None:
        return None
    data = plan.constants.get(sums.step.arg("weights") or "")
    sums = replace(sums, rounded=_rounded(plan, sums, data))
    if data is None:
        return sums
    differ, at_risk = set(_of_depthwise(plan, sums.step, isa)), dict[Summation, None]()
    for law, channels in _differing(sums, data):
        differ.update(channels.tolist())
        if channels.size:
            at_risk[law] = None
    return replace(sums, channels=tuple(sorted(differ)), at_risk=tuple(at_risk))


def _without_channels(
    plan: Plan, index: int, isa: str, codes: Mapping[str, Codes]
) -> StepSums | None:
    """How a step sums; None of another step. Its channels are those of weights that nobody knows."""
    step = plan.steps[index]
    src, name = step.arg("src"), step.arg("weights")
    if step.primitive not in _COMPUTES or src is None or name is None:
        return None
    dtype, weights = plan.type(src).dtype, plan.type(name)
    if dtype not in (DType.U8, DType.S8) or weights.dtype is not DType.S8 or not weights.shape:
        return None
    shape = tuple(dim if isinstance(dim, int) else 0 for dim in weights.shape)
    law, *others = laws_of(step, isa, dtype, weights.dtype, shape, plan.type)
    outputs = shape[-1] if step.primitive == "matmul" else shape[0]
    if step.primitive == "deconvolution":
        outputs = shape[1] * groups_of(step)
    found = codes.get(src, dtype.range)
    at_risk = tuple(each for each in (law, *others) if not _any_weights_fit(each, found[1]))
    channels = tuple(range(outputs)) if at_risk else ()
    return StepSums(index, step, law, found, channels, outputs, tuple(others), at_risk)


def _any_weights_fit(law: Summation, code: int) -> bool:
    """Whether nothing is lost with any weights, and codes up to this one: two products of the largest decide."""
    if law.halved or law.turned:
        return False
    return law.pairs is None or fits(_ANY_WEIGHT, code + law.shift)


def _of_depthwise(plan: Plan, step: Step, isa: str) -> tuple[int, ...]:
    """The channels that a depthwise post-op lets differ: its codes are u8, or its weights halved."""
    ops = [op for op in step.attr.post_ops if isinstance(op, DepthwiseConv)]
    if isa == "vnni" or all(op.src_dtype is DType.U8 for op in ops):
        return ()
    odd = (np.mod(plan.constants[op.weights], 2) for op in ops)
    differ = [np.flatnonzero(bits.reshape(len(bits), -1).any(axis=1)).tolist() for bits in odd]
    return tuple(itertools.chain(*differ))


def _differing(sums: StepSums, weights: Array) -> Iterator[tuple[Summation, npt.NDArray[np.intp]]]:
    """The output channels that constant weights let differ by a law, some at a time."""
    for law in sums.laws:
        codes = sums.codes[0] + law.shift, sums.codes[1] + law.shift
        if law.halved or (law.pairs and (law.turned or not fits(largest(weights), codes[1]))):
            for at, matrix, channels in _matrices(sums.step, weights):
                yield law, at + np.flatnonzero(_at_risk(law, matrix, channels, codes).any(axis=0))


def _at_risk(law: Summation, matrix: Array, channels: int, codes: Codes) -> Array:
    """What can differ of weights [K, N]: [some, N]."""
    if law.halved:
        return np.mod(matrix, 2).astype(np.bool_)
    if law.turned:
        matrix = matrix.astype(np.int16) + 128
    return pairs_at_risk(law, matrix, channels, codes)[1]


def _matrices(step: Step, weights: Array) -> Iterator[tuple[int, Array, int]]:
    """The weights as [K, output channels] matrices, some columns at a time: which the first is, K in
    the order of the sums, and how many channels are neighbours within a tap.
    """
    if step.primitive == "matmul":
        depth = weights.shape[-2]
        for matrix in weights.reshape(-1, *weights.shape[-2:]):
            yield from (
                (at, matrix[:, columns], depth) for at, columns in _columns(matrix.shape[1])
            )
    elif step.primitive == "convolution":
        for at, rows in _columns(weights.shape[0]):
            turned = np.moveaxis(weights[rows], (0, 1), (-1, -2))
            yield at, turned.reshape(-1, turned.shape[-1]), weights.shape[1]
    else:
        groups = groups_of(step)
        inputs, outputs = weights.shape[0] // groups, weights.shape[1]
        taps = math.prod(weights.shape[2:])
        apart = weights.reshape(groups, inputs, outputs, taps).transpose(3, 1, 0, 2)
        yield 0, apart.reshape(taps * inputs, groups * outputs), inputs


def _rounded(plan: Plan, sums: StepSums, data: Array | None) -> tuple[int, ...]:
    """The output channels whose sums, or what is taken off them for a zero point or a shift by 128, can
    pass 2^24.
    """
    signed = plan.type(sums.step.arg("src") or "").dtype is DType.S8
    points = [0, *_zero_points(sums.step), *([-128] if signed else [])]
    return _beyond_f32(plan, sums, data, points)


def _beyond_f32(
    plan: Plan, sums: StepSums, data: Array | None, points: list[int]
) -> tuple[int, ...]:
    """The output channels whose sums of codes less one of these points can pass 2^24."""
    step = sums.step
    # of a source without a zero point, all the same: one from the other's end is the far one
    far = max(abs(code - point) for code in sums.codes for point in points)
    own = step.attr.zero_points.get("weights")
    moved = 0 if own is None else max(abs(int(value)) for value in own.values)
    shape = plan.type(step.arg("weights") or "").shape or ()
    if data is None:
        deep = shape[-2] if len(shape) > 1 else None
        fits_f32 = isinstance(deep, int) and deep * (_ANY_WEIGHT + moved) * far <= _F32
        return () if fits_f32 else tuple(range(sums.of))
    found = set[int]()
    for at, matrix, _ in _matrices(step, data):
        if matrix.shape[0] * (largest(matrix) + moved) * far > _F32:
            found.update(
                (at + np.flatnonzero(_most(matrix, sums.codes, points, moved) > _F32)).tolist()
            )
    return tuple(sorted(found))


def _most(matrix: Array, codes: Codes, points: list[int], moved: int) -> npt.NDArray[np.int64]:
    """The largest magnitude, for each column of weights [K, N], of sums of codes less one of these points,
    and of what those take off.
    """
    wide = matrix.astype(np.int64)
    up, down = np.maximum(wide, 0).sum(axis=0), np.minimum(wide, 0).sum(axis=0)
    found = np.zeros(matrix.shape[1], np.int64)
    for point in points:
        low, high = codes[0] - point, codes[1] - point
        beside = matrix.shape[0] * moved * max(abs(low), abs(high))
        ends = up * high + down * low, up * low + down * high, point * (up + down)
        found = np.maximum(found, np.abs(ends).max(axis=0) + beside)
    return found


def _columns(count: int) -> Iterator[tuple[int, slice]]:
    """Some at a time, and which the first is."""
    return ((at, slice(at, at + _COLUMNS)) for at in range(0, count, _COLUMNS))


def codes_of_plan(plan: Plan) -> dict[str, Codes]:
    """The codes that values can hold, of those where they can be less than all of their type: what
    steps store, and what is moved, joined or chosen of it.
    """
    found: dict[str, Codes] = {}
    for step in plan.steps:
        if not step.outputs or not step.output:
            continue
        written = codes_written(plan, step) or _codes_kept(step, found)
        if written is not None:
            found[step.output] = written
    return found


def _codes_kept(step: Step, codes: Mapping[str, Codes]) -> Codes | None:
    """The codes of a step that gives elements of its sources as they are; None of another step."""
    as_is = step.primitive in _STORED or step.primitive.startswith("onnx.")
    traits = OPS[step.op].traits if step.op in OPS else frozenset()
    if not as_is or step.attr != PrimitiveAttr() or traits.isdisjoint(_KEEP):
        return None
    read = [value for _, value in step.args] if Trait.JOINS in traits else [step.args[0][1]]
    if not all(value in codes for value in read):
        return None
    least, largest = zip(*(codes[value] for value in read), strict=True)
    return min(least), max(largest)


def codes_written(plan: Plan, step: Step) -> Codes | None:
    """The least and the largest code that a step can store; None where it stores no codes, or this
    is not known.

    Bounds go through the post-ops in f32, as the data does: each of these maps keeps the order, or
    turns it around, after rounding as well.
    """
    dtype = plan.type(step.output).dtype
    if dtype not in (DType.U8, DType.S8) or step.primitive not in _STORES:
        return None
    low, high = _SHARES if step.op == "Softmax" else (-math.inf, math.inf)
    if step.primitive == "softmax" and ("src" in step.attr.scales or step.attr.output_scales):
        return dtype.range  # a factor of the result
    for op in step.attr.post_ops:
        low, high = _through(op, (low, high))
    scale, zero = step.attr.scales.get("dst"), step.attr.zero_points.get("dst")
    with np.errstate(all="ignore"):
        ends = np.array([low, high], np.float32)
        if scale is not None:
            if len(scale.values) > 1 or scale.values[0] <= 0:
                return dtype.range
            ends = ends * (np.float32(1) / np.float32(scale.values[0]))
        if zero is not None:
            if len(zero.values) > 1:
                return dtype.range
            ends = ends + np.float32(zero.values[0])
    low, high = (int(np.rint(np.clip(end, *dtype.range))) for end in ends)
    # of a NaN, which becomes 0 in u8, and an end of s8
    return (min(low, 0), max(high, 0)) if dtype is DType.U8 else dtype.range


def _through(op: PostOp, bounds: Range) -> Range:
    """Bounds behind a post-op."""
    low, high = bounds
    if not isinstance(op, Eltwise):
        return -math.inf, math.inf
    if op.scale != 1.0:  # of `onednn-v2`: of the result
        return _through(Eltwise("linear", op.scale), _through(replace(op, scale=1.0), bounds))
    if op.algorithm == "relu" and op.alpha == 0:
        return max(low, 0.0), max(high, 0.0)
    if op.algorithm.startswith("clip"):
        first, last = float(np.float32(op.alpha)), float(np.float32(op.beta))
        return min(max(low, first), last), min(max(high, first), last)
    if op.algorithm == "round":
        return float(np.rint(low)), float(np.rint(high))
    if op.algorithm == "linear" and op.alpha:
        alpha, beta = np.float32(op.alpha), np.float32(op.beta)
        # one rounding or two: a step to either side covers both
        with np.errstate(all="ignore"):  # what lies beyond f32 is infinite in the data, too
            least, most = sorted(np.float32(end) * alpha + beta for end in bounds)
            below = float(np.nextafter(least, np.float32(-np.inf)))
            above = float(np.nextafter(most, np.float32(np.inf)))
        # of an infinite factor any number may come out
        return (-math.inf, math.inf) if math.isnan(below + above) else (below, above)
    return -math.inf, math.inf
