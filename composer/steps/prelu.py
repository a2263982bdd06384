"""PRelu where a step has no prelu post-op: x with a slope for each channel, from a tensor that the
step reads anyway.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from ...ir.graph import Graph
from ...ir.node import Node
from ...ir.rule import Refusal, Rule
from ...ir.telling import FAR, FAR_IN_CODES
from ...ir.types import DType
from ..formula.formula import BinaryOp, ChainOp, CodesOp, ScaleBy, Vec
from ..mapping.composed import Front
from .operands import Source
from .two_operands import channel_vector


@dataclass(frozen=True, eq=False)
class PreluOfSource:
    """A prelu of what the step reads.

    Attributes:
        slopes: along the channels.
        value: what the step reads: the values, or codes.
        codes: of codes their type, scale and zero point; None for values in f32.
        factors: files the slopes as a constant of the step, and returns its name.
    """

    slopes: Vec
    value: str
    codes: tuple[DType, float, float] | None
    factors: Callable[[], str]


def _as_maximum(prelu: PreluOfSource) -> tuple[ChainOp, ...] | Refusal:
    """A prelu is the maximum of x and a*x for slopes up to 1, the minimum for slopes from 1 on.

    x is in memory, as the values or codes that the step reads, so that a binary post-op reads it
    once more. Behind an anchor that has it
    in registers only there is no such form: operations on one value have one ratio of slopes for
    all channels.

    Legal because: for a <= 1 a*x is the larger one just where x < 0, in f32 too, for rounding a
    product keeps the order.
    Refuses when: slopes lie on both sides of 1, one of values in f32 is 0 (0 times infinity is
    NaN), or one is so small that a*x of codes is lost beside their zero point.
    """
    slopes = prelu.slopes
    low, high = float(slopes.min()), float(slopes.max())
    if low < 1 < high or (prelu.codes is None and not slopes.all()):
        return Refusal(
            "prelu(x) = max(x, a*x) needs a <= 1",
            "slopes up to 1, or all from 1 on, none of 0",
            f"slopes {low:g} to {high:g}",
            "nothing to change: slopes on both sides of 1 are a prelu of its own",
        )
    smallest = float(np.abs(slopes[slopes != 0]).min(initial=1.0))
    _, scale, zero = prelu.codes or (None, 1.0, 0.0)
    if abs(zero * scale) > FAR and abs(zero) > FAR_IN_CODES * smallest:
        return Refusal(
            "a*x is lost beside the zero point: of codes, a*(q - z) + z is compared",
            f"a zero point z of {FAR_IN_CODES:g} times the smallest slope at most, or an s*z of {FAR:g}",
            f"zero point {zero:g}, scale {scale:g}, slope {smallest:g}",
            "nothing to change: the values are decoded first",
        )
    algorithm = "max" if high <= 1 else "min"
    if prelu.codes is None:
        return ScaleBy(slopes), BinaryOp(algorithm, prelu.value)
    on_codes = CodesOp(algorithm, prelu.value, *prelu.codes)
    return ScaleBy(slopes) if slopes.all() else BinaryOp(
        "mul", prelu.factors()
    ), on_codes  # no scale may be 0: rules divide by them


PRELU = Rule("prelu(x, a) = max(x, a*x), a <= 1", _as_maximum)


def prelu_as_maximum(
    graph: Graph, node: Node, source: Source, front: Front
) -> tuple[ChainOp, ...] | Refusal:
    """A PRelu of the step's own source by `PRELU`; or why not: slopes along another axis, or
    computed, codes with several scales.
    """
    data = graph.constant(node.inputs[1])
    slopes = None if data is None else channel_vector(np.asarray(data), front)
    if slopes is None or not np.isfinite(slopes).all():
        what = "the slopes are computed, or vary along another axis than the channels"
        return Refusal(
            what,
            "constant slopes along the channels",
            "others",
            "give the PRelu constant slopes, one or one for each channel",
        )
    codes = None
    if source.decode is not None:
        quant = source.decode.quant
        if not quant.per_tensor or not source.dtype.is_code:
            return Refusal(
                "the codes are decoded with several scales",
                "one scale",
                f"axis {quant.axis}",
                "quantize the input of the PRelu per tensor",
            )
        codes = (source.dtype, quant.scale[0], quant.zero_point[0])

    factors = partial(graph.add_constant, f"{node.inputs[1]}/factors", front.along_channels(slopes))
    return PRELU.apply(
        PreluOfSource(slopes, node.input if codes is None else source.value, codes, factors)
    )
