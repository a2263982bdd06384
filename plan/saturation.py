"""Which steps may answer otherwise on a CPU without VNNI: a proof from the plan alone, for each
output channel, from its weights and the codes that its source can hold.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ..ir.ops import OPS
from ..ir.ops.spec import Array, Trait
from ..ir.types import DType
from .attributes import DepthwiseConv, Eltwise, PostOp, PrimitiveAttr
from .saturation_of_layers import ALL, differing_of_layer, law_of_layer, outputs_of_layer
from .summation import (
    EXACT,
    Summation,
    deconvolves_by_gemm,
    fits,
    largest,
    pairs_at_risk,
    summation,
)
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
        law: what the implementation does.
        codes: the least and the largest code that its source can hold, as the plan tells.
        channels: the output channels whose results can differ from the exact ones, whatever the
            data; all where the weights are computed at run time.
        of: how many output channels there are; 0 where the plan does not tell.
    """

    index: int
    step: Step
    law: Summation
    codes: tuple[int, int]
    channels: tuple[int, ...]
    of: int

    @property
    def exact(self) -> bool:
        """Whether it is proven that the results are the exact ones."""
        return not self.channels

    def as_dict(self) -> dict[str, Any]:
        """Plain data: `index`, `name`, `primitive`, `layers`, `sums` (`exact`, `pairs`, `halved`),
        `codes`, `channels`, `of`, `exact`.
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
            "exact": self.exact,
        }


def law_of(step: Step, isa: str, src: DType, weights: DType, shape: Sequence[int]) -> Summation:
    """How a step's products are summed on an instruction set.

    Args:
        step: a convolution, deconvolution or matmul.
        isa: one of `summation.ISAS`.
        src, weights: the types of its factors.
        shape: of the weights.
    """
    if isa == "vnni" or src not in (DType.U8, DType.S8) or weights is not DType.S8:
        return EXACT
    zero, kind = step.attr.zero_points.get("src"), step.primitive
    signed, shifted = src is DType.S8, zero is not None and bool(np.any(zero.array))
    if kind == "matmul":
        return summation(isa, kind, signed=signed, zero_point=shifted)
    groups = groups_of(step)
    rows = shape[0] // groups
    inputs, outputs = (shape[1], rows) if kind == "convolution" else (rows, shape[1])
    by_gemm = kind == "deconvolution" and deconvolves_by_gemm(
        isa,
        groups,
        (inputs, outputs),
        shape[2:],
        *(_along_axes(step, name, len(shape) - 2) for name in ("strides", "dilations", "pads")),
    )
    return summation(
        isa,
        kind,
        signed=signed,
        groups=groups,
        inputs=inputs,
        outputs=outputs,
        spatial=len(shape) - 2,
        zero_point=shifted,
        by_gemm=by_gemm,
    )


def _along_axes(step: Step, name: str, axes: int) -> tuple[int, ...]:
    """A parameter of a window: as it is given, or its default."""
    value = step.params.get(name)
    if isinstance(value, tuple) and value:
        return tuple(int(each) for each in value if isinstance(each, int))
    return (0,) * (2 * axes) if name == "pads" else (1,) * axes


def groups_of(step: Step) -> int:
    """The groups of a convolution or deconvolution."""
    groups = step.params.get("group", 1)
    return groups if isinstance(groups, int) else 1


def sums_of_plan(plan: Plan, isa: str) -> tuple[StepSums, ...]:
    """Every convolution, deconvolution and matmul of codes by s8 weights, and every recurrent layer of
    codes, in the plan's order.

    Args:
        plan: the plan.
        isa: one of `summation.ISAS`.
    """
    codes = codes_of_plan(plan)
    every = (_sums_of(plan, index, isa, codes) for index in range(len(plan.steps)))
    return tuple(sums for sums in every if sums is not None)


def steps_at_risk(plan: Plan, isa: str) -> tuple[int, ...]:
    """The steps that are not proven exact: those of `sums_of_plan`, without their channels, which
    takes a fraction of the time.
    """
    codes = codes_of_plan(plan)
    return tuple(i for i in range(len(plan.steps)) if _is_at_risk(plan, i, isa, codes))


def _is_at_risk(plan: Plan, index: int, isa: str, codes: Mapping[str, Codes]) -> bool:
    layer = _of_layer(plan, index, isa, codes)
    if layer is not None:
        return not layer.exact
    sums = _without_channels(plan, index, isa, codes)
    if sums is None:
        return False
    step, data = sums.step, plan.constants.get(sums.step.arg("weights") or "")
    if data is None:
        return not sums.exact
    if _of_depthwise(plan, step, isa):
        return True
    return any(columns.size for columns in _differing(sums, data))


def _of_layer(plan: Plan, index: int, isa: str, codes: Mapping[str, Codes]) -> StepSums | None:
    """How a recurrent layer of codes sums; None of another step."""
    step = plan.steps[index]
    law = law_of_layer(plan, step, isa)
    if law is None:
        return None
    held = codes.get(step.arg("src") or "", ALL)
    differ = differing_of_layer(plan, step, law, held)
    return StepSums(index, step, law, held, differ, outputs_of_layer(plan, step))


def _sums_of(plan: Plan, index: int, isa: str, codes: Mapping[str, Codes]) -> StepSums | None:
    layer = _of_layer(plan, index, isa, codes)
    if layer is not None:
        return layer
    sums = _without_channels(plan, index, isa, codes)
    if sums is None:
        return None
    data = plan.constants.get(sums.step.arg("weights") or "")
    if data is None:
        return sums
    differ = set(_of_depthwise(plan, sums.step, isa))
    for channels in _differing(sums, data):
        differ.update(channels.tolist())
    return replace(sums, channels=tuple(sorted(differ)))


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
    law = law_of(step, isa, dtype, weights.dtype, shape)
    outputs = shape[-1] if step.primitive == "matmul" else shape[0]
    if step.primitive == "deconvolution":
        outputs = shape[1] * groups_of(step)
    found = codes.get(src, dtype.range)
    # two products with any weights: the largest code decides
    safe = not law.halved and (law.pairs is None or fits(_ANY_WEIGHT, found[1] + law.shift))
    return StepSums(index, step, law, found, () if safe else tuple(range(outputs)), outputs)


def _of_depthwise(plan: Plan, step: Step, isa: str) -> tuple[int, ...]:
    """The channels that a depthwise post-op lets differ: its codes are u8, or its weights halved."""
    ops = [op for op in step.attr.post_ops if isinstance(op, DepthwiseConv)]
    if isa == "vnni" or all(op.src_dtype is DType.U8 for op in ops):
        return ()
    odd = (np.mod(plan.constants[op.weights], 2) for op in ops)
    differ = [np.flatnonzero(bits.reshape(len(bits), -1).any(axis=1)).tolist() for bits in odd]
    return tuple(itertools.chain(*differ))


def _differing(sums: StepSums, weights: Array) -> Iterator[npt.NDArray[np.intp]]:
    """The output channels that constant weights let differ, some at a time."""
    law, (low, high) = sums.law, (code + sums.law.shift for code in sums.codes)
    if not law.halved and (law.pairs is None or fits(largest(weights), high)):
        return
    for at, matrix, channels in _matrices(sums.step, weights):
        risky = (
            np.mod(matrix, 2)
            if law.halved
            else pairs_at_risk(law, matrix, channels, (low, high))[1]
        )
        yield at + np.flatnonzero(risky.any(axis=0))


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
    if plan.target == "onednn-v2":
        return None  # its post-ops have scales of their own
    low, high = _SHARES if step.op == "Softmax" else (-math.inf, math.inf)
    if step.primitive == "softmax" and "src" in step.attr.scales:
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
    if not isinstance(op, Eltwise) or op.scale != 1.0:
        return -math.inf, math.inf
    if op.algorithm == "relu" and op.alpha == 0:
        return max(low, 0.0), max(high, 0.0)
    if op.algorithm.startswith("clip"):
        first, last = float(np.float32(op.alpha)), float(np.float32(op.beta))
        return min(max(low, first), last), min(max(high, first), last)
    if op.algorithm == "round":
        return float(np.rint(low)), float(np.rint(high))
    if op.algorithm == "linear" and op.alpha:
        alpha, beta = np.float32(op.alpha), np.float32(op.beta)
        # one rounding or two: a step to either side covers both; what f32 does not hold is infinite there, too
        with np.errstate(over="ignore"):
            ends = sorted(float(np.float32(end) * alpha + beta) for end in bounds)
        return (
            float(np.nextafter(np.float32(ends[0]), np.float32(-np.inf))),
            float(np.nextafter(np.float32(ends[1]), np.float32(np.inf))),
        )
    return -math.inf, math.inf
