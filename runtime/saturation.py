"""Which steps may answer otherwise on a CPU without VNNI: a proof from the plan alone, for each
output channel, from its weights and the codes that its source can hold.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..ir.ops.spec import Array
from ..ir.types import DType
from ..onednn.summation import Summation
from ..plan.attributes import DepthwiseConv, Eltwise, PostOp
from ..plan.types import Plan, Step
from .kernels.gemm import kernel_matrix
from .kernels.pairs import groups_of, law_of, pairs_at_risk

_COMPUTES = ("convolution", "deconvolution", "matmul")
_STORES = (*_COMPUTES, "binary", "eltwise", "reorder")
"""Primitives that end as the epilogue does: post-ops, scale, zero point, store."""

Range = tuple[float, float]


@dataclass(frozen=True)
class StepSums:
    """How an int8 step sums on an instruction set.

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


def sums_of_plan(plan: Plan, isa: str) -> tuple[StepSums, ...]:
    """Every convolution, deconvolution and matmul of codes by s8 weights, in the plan's order.

    Args:
        plan: the plan.
        isa: one of `onednn.summation.ISAS`.
    """
    ranges: dict[str, tuple[int, int]] = {}
    found = []
    for index, step in enumerate(plan.steps):
        if step.primitive in _COMPUTES and (sums := _sums_of(plan, index, isa, ranges)):
            found.append(sums)
        if len(step.outputs) == 1 and (written := codes_written(plan, step)):
            ranges[step.output] = written
    return tuple(found)


def _sums_of(
    plan: Plan, index: int, isa: str, ranges: dict[str, tuple[int, int]]
) -> StepSums | None:
    step = plan.steps[index]
    src, name = step.arg("src"), step.arg("weights")
    if src is None or name is None:
        return None
    dtype, weights = plan.type(src).dtype, plan.type(name)
    if dtype not in (DType.U8, DType.S8) or weights.dtype is not DType.S8 or not weights.shape:
        return None
    codes = ranges.get(src, dtype.range)
    shape = tuple(dim if isinstance(dim, int) else 0 for dim in weights.shape)
    law = law_of(step, isa, dtype, weights.dtype, shape)
    outputs = shape[-1] if step.primitive == "matmul" else shape[0]
    if step.primitive == "deconvolution":
        outputs = shape[1] * groups_of(step)
    data = plan.constants.get(name)
    if data is None:
        # two products with any weights: the largest code decides
        safe = not law.halved and (law.pairs is None or 2 * 128 * (codes[1] + law.shift) <= 1 << 15)
        return StepSums(index, step, law, codes, () if safe else tuple(range(outputs)), outputs)
    channels = {*_channels(step, law, data, codes), *_of_depthwise(plan, step, isa)}
    return StepSums(index, step, law, codes, tuple(sorted(channels)), outputs)


def _of_depthwise(plan: Plan, step: Step, isa: str) -> tuple[int, ...]:
    """The channels that a depthwise post-op lets differ: its codes are u8, or its weights halved."""
    ops = [op for op in step.attr.post_ops if isinstance(op, DepthwiseConv)]
    if isa == "vnni" or all(op.src_dtype is DType.U8 for op in ops):
        return ()
    odd = (np.mod(plan.constants[op.weights], 2) for op in ops)
    differ = [np.flatnonzero(bits.reshape(len(bits), -1).any(axis=1)).tolist() for bits in odd]
    return tuple(itertools.chain(*differ))


def _channels(
    step: Step, law: Summation, weights: Array, codes: tuple[int, int]
) -> tuple[int, ...]:
    """The output channels that can differ."""
    if not law.halved and law.pairs is None:
        return ()
    differ: set[int] = set()
    for matrix, channels in _matrices(step, weights):
        if law.halved:
            found = np.mod(matrix, 2).any(axis=0)
        else:
            shifted = (codes[0] + law.shift, codes[1] + law.shift)
            found = pairs_at_risk(law, matrix, channels, shifted)[1].any(axis=0)
        differ.update(np.flatnonzero(found).tolist())
    return tuple(sorted(differ))


def _matrices(step: Step, weights: Array) -> list[tuple[Array, int]]:
    """The weights as [K, output channels] matrices, K in the order of the sums, and how many
    channels are neighbours within a tap.
    """
    if step.primitive == "matmul":
        depth, columns = weights.shape[-2:]
        return [(matrix, depth) for matrix in weights.reshape(-1, depth, columns)]
    if step.primitive == "convolution":
        return [(kernel_matrix(weights), weights.shape[1])]
    groups = groups_of(step)
    inputs, outputs = weights.shape[0] // groups, weights.shape[1]
    taps = math.prod(weights.shape[2:])
    apart = weights.reshape(groups, inputs, outputs, taps)
    return [(apart.transpose(3, 1, 0, 2).reshape(taps * inputs, groups * outputs), inputs)]


def codes_written(plan: Plan, step: Step) -> tuple[int, int] | None:
    """The least and the largest code that a step can store; None where it stores no codes, or this
    is not known.

    Bounds go through the post-ops in f32, as the data does: each of these maps keeps the order, or
    turns it around, after rounding as well. A NaN becomes 0 in u8, and 127 in s8.
    """
    dtype = plan.type(step.output).dtype
    if dtype not in (DType.U8, DType.S8) or step.primitive not in _STORES:
        return None
    if plan.target == "onednn-v2":
        return None  # its post-ops have scales of their own
    low, high = -math.inf, math.inf
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
    least, largest = dtype.range
    low, high = (int(np.rint(np.clip(end, least, largest))) for end in ends)
    # of a NaN
    return (min(low, 0), max(high, 0)) if dtype is DType.U8 else (low, largest)


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
        # one rounding or two: a step to either side covers both
        ends = sorted(float(np.float32(end) * alpha + beta) for end in bounds)
        return (
            float(np.nextafter(np.float32(ends[0]), np.float32(-np.inf))),
            float(np.nextafter(np.float32(ends[1]), np.float32(np.inf))),
        )
    return -math.inf, math.inf
