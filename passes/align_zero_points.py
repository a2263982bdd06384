"""FakeQuantize whose zero points are no integers gets integers: `compile(..., approximate=[...])`."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from decimal import ROUND_CEILING, Context
from functools import partial

import numpy as np
import numpy.typing as npt

from ..ir.approximations import FRACTIONAL_ZERO_POINT, SMALL_SHIFT
from ..ir.graph import Graph
from ..ir.node import Node
from ..ir.ranges import Ranges, ranges_of
from ..ir.rule import Refusal
from .base import Contract, Pass, Verdict, decide
from .split_fake_quantize import needs_comparison, snapped, split_refusal

F64 = npt.NDArray[np.float64]

_SMALL = 1e-5
"""Of the clip's range, the levels: what OpenVINO drops of a shift."""

ALIGNED = (SMALL_SHIFT, FRACTIONAL_ZERO_POINT)
"""The approximations that this pass makes."""


def align_zero_points(graph: Graph, names: Collection[str] = ()) -> None:
    """Moves the ranges of FakeQuantize so that 0 is a point of their grids, where the compilation was
    asked to.

    Before -> after::

        FakeQuantize(x, il, ih, ol, oh)  ->  FakeQuantize(x, -z*s, (levels-1-z)*s, -w*t, (levels-1-w)*t)

    with s = (ih - il) / (levels - 1), z the integer next to the zero point -il / s; t, w likewise of
    the output, where w goes the way that z went. `small-shift` does so where the fraction is at most
    1e-5 of the levels, `fractional-zero-point` wherever the output's zero point is no integer.
    Integers are what sources, sums and destinations take; a fraction becomes a shift, or a bias that
    varies with the position where a convolution pads.

    Legal because: it was asked for. With d and e the moves of z and w, |d| <= 1/2, x/s + z changes its
    code by 0 or by 1 in the direction of d, so that the value changes by at most the larger of |e| and
    |sign(d) - e| steps of the output: one and a half at most, and one where both move the same way.
    Refuses when: a fraction is larger than a small shift; the output's zero point is an integer, so that
    a bias takes the input's; the range lies so far from 0 that f32 cannot tell the integer.

    Args:
        names: of the approximations asked for; others than these two do nothing here.
    """
    for name in filter(names.__contains__, ALIGNED):
        for node in graph.each("FakeQuantize"):
            decide(graph, name, node, _aligned(graph, node, name))


ALIGN_ZERO_POINTS = Pass("align_zero_points", Contract("approximation", "ties"), align_zero_points)


def aligning(names: Collection[str]) -> Pass:
    """The pass for the names of approximations."""
    return replace(ALIGN_ZERO_POINTS, rewrite=partial(align_zero_points, names=names))


def _aligned(graph: Graph, node: Node, name: str) -> Verdict:
    before = ranges_of(graph, node)
    if isinstance(before, str) or split_refusal(before) or needs_comparison(before):
        return None
    after = aligned(before, name)
    if not isinstance(after, Ranges):
        return after
    _write(graph, node, after)
    pairs = np.stack([np.concatenate(_zero_points(ranges)) for ranges in (before, after)])
    first = pairs[:, pairs[0] != pairs[1]][:, 0]
    return f"zero point {first[0]:g} becomes {first[1]:g}: at most {_at_most(error_of(before, after))} off"


def _at_most(errors: F64) -> str:
    """The largest one in four digits, rounded up."""
    up = Context(prec=4, rounding=ROUND_CEILING)
    return f"{float(up.create_decimal_from_float(float(errors.max()))):g}"


def _zero_points(ranges: Ranges) -> tuple[F64, F64]:
    """Of the input and of the output, as f32 knows them."""
    return (
        snapped(-ranges.input_low / ranges.input_scale, ranges.levels),
        snapped(-ranges.output_low / ranges.output_scale, ranges.levels),
    )


def aligned(ranges: Ranges, name: str) -> Ranges | Refusal | None:
    """The ranges with integer zero points, as f32 holds them, by the approximation of that name; None
    where they are integers.
    """
    zero_in, zero_out = zeros = _zero_points(ranges)
    if not any((zero % 1).any() for zero in zeros):
        return None
    small = _SMALL * (ranges.levels - 1)
    if name == SMALL_SHIFT:
        new_in, new_out = (
            np.where(np.abs(zero - np.rint(zero)) <= small, np.rint(zero), zero) for zero in zeros
        )
    else:
        new_in = np.where(zero_out % 1 != 0, np.rint(zero_in), zero_in)
        new_out = np.where(zero_out % 1 != 0, np.rint(zero_out + new_in - zero_in), zero_out)
    if np.array_equal(new_in, zero_in) and np.array_equal(new_out, zero_out):
        return _too_large(zeros, small) if name == SMALL_SHIFT else _no_need(zeros)
    low, high = _moved(ranges.input_low, ranges.input_high, zero_in, new_in, ranges.levels)
    out_low, out_high = _moved(
        ranges.output_low, ranges.output_high, zero_out, new_out, ranges.levels
    )
    found = replace(
        ranges, input_low=low, input_high=high, output_low=out_low, output_high=out_high
    )
    held = all(map(np.array_equal, _zero_points(found), (new_in, new_out)))
    return found if held else _not_held(zeros)


def _not_held(zeros: tuple[F64, F64]) -> Refusal:
    return Refusal(
        "the integer could not be told from ends that f32 holds",
        "a range around 0",
        f"zero points {zeros[0][0]:g} and {zeros[1][0]:g}",
        "calibrate it to a range around 0",
    )


def _too_large(zeros: tuple[F64, F64], small: float) -> Refusal:
    found = np.concatenate(zeros)
    return Refusal(
        "the zero point is further from an integer than a small shift",
        f"at most {small:g} from an integer",
        f"{found[found % 1 != 0][0]:g}",
        f"allow it with --approximate {FRACTIONAL_ZERO_POINT}, or calibrate to a range of which 0 is a point",
    )


def _no_need(zeros: tuple[F64, F64]) -> Refusal:
    return Refusal(
        "the codes have an integer zero point, and a bias takes the input's",
        "an output range whose zero point is no integer",
        f"zero points {zeros[0][zeros[0] % 1 != 0][0]:g} and {zeros[1][0] + 0.0:g}",
        "nothing to change: nothing is lost by it",
    )


def _moved(low: F64, high: F64, old: F64, new: F64, levels: int) -> tuple[F64, F64]:
    """A range whose zero point moves, as f32 holds it; where it does not, the range as it is."""
    step = (high - low) / (levels - 1)
    ends = (0.0 - new * step, (levels - 1 - new) * step)
    first, last = (end.astype(np.float32).astype(np.float64) for end in ends)
    return np.where(new == old, low, first), np.where(new == old, high, last)


def error_of(before: Ranges, after: Ranges) -> F64:
    """By how much a value may differ at most, for each channel: see `align_zero_points`, and what f32
    rounds of the ends. A move of the input by less than that may go either way.
    """
    zero_in, zero_out = _zero_points(before)
    new_in, new_out = _zero_points(after)
    moved, out = new_in - zero_in, new_out - zero_out
    either = np.abs(moved) <= (before.levels + np.abs(zero_in)) * 2.0**-22
    steps = np.maximum(np.abs(out), np.abs(np.sign(moved) - out))
    steps = np.where(moved == 0, np.abs(out), np.where(either, 1 + np.abs(out), steps))
    ends = np.maximum(np.abs(after.output_low), np.abs(after.output_high))
    return np.abs(before.output_scale) * steps + ends * 2.0**-23


def _write(graph: Graph, node: Node, ranges: Ranges) -> None:
    """Gives the node the ranges, as constants of its own."""
    rank = graph.type(node.input).rank if ranges.axis is not None else 0
    shape = [ranges.input_low.size if axis == ranges.axis else 1 for axis in range(rank)]
    ends = {
        "input_low": ranges.input_low,
        "input_high": ranges.input_high,
        "output_low": ranges.output_low,
        "output_high": ranges.output_high,
    }
    values = [
        graph.add_constant(f"{node.output}/{name}", end.astype(np.float32).reshape(shape))
        for name, end in ends.items()
    ]
    graph.set_inputs(node, [node.inputs[0], *values])
