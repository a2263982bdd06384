"""A FakeQuantize that is no Quantize and Dequantize as basic operations: thresholds, inverted
ranges, constant outputs, many levels.

The definition asks for comparisons with its bounds. A chain of post-ops has the value once, so
comparisons that forget it come last: a threshold is a clip one unit in the last place wide, or a
binary comparison; the two jumps of an inverted range are folds.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ...ir.graph import Graph
from ...ir.node import Node
from ...ir.ranges import Ranges, makes_codes, ranges_of
from ...ir.rule import Refusal, Rule
from ..formula.algebra import is_normal
from ..formula.formula import BasicOp, BinaryOp, Clip, EltwiseOp, Round, ScaleBy, Shift, Vec, vec
from ..mapping.composed import Front

_FARTHEST = 2.0**20
"""Largest grid index, and distance of a range from zero in steps: f32 then knows x/s + z to 2^-3 of
a step.
"""

_NEAR_ZERO = 2.0**-40
"""Thresholds nearer to zero are compared by a binary post-op: one f32 step there has no reciprocal
that products could bear.
"""


def compare(graph: Graph, node: Node, value: str, front: Front) -> list[BasicOp] | Refusal:
    """What the FakeQuantize `node` does to `value` behind `front`, or why post-ops cannot do it."""
    ranges = ranges_of(graph, node)
    if isinstance(ranges, str) and value == node.input:
        found = _along_several_axes(graph, node, value)
        if found is not None:
            return found
    if isinstance(ranges, str) or value != node.input:
        return Refusal(
            "the FakeQuantize has no form as post-ops",
            "constant ranges, which have the dimensions of the input",
            ranges if isinstance(ranges, str) else "a range computed from the chain",
            "calibrate it to constant ranges, one for the tensor or for each channel",
        )
    given, made = graph.type(value).shape or (), graph.type(node.output).shape or ()
    told = [d for d, size in zip(given, made, strict=False) if isinstance(size, int) and d != size]
    if told:
        return Refusal(
            "post-ops keep the shape, and the ranges tell the size of a symbolic dimension",
            "an input of as many channels as there are ranges",
            f"{told[0]} channels",
            "export the input with a fixed number of channels",
        )
    if ranges.axis not in (None, front.channel_axis):
        return Refusal(
            "the ranges vary along another axis than the channels",
            f"axis {front.channel_axis}",
            f"axis {ranges.axis}",
            "calibrate it to one range for the tensor, or one for each channel",
        )

    def operand(values: Vec) -> str:
        return graph.add_constant(f"{node.output}/threshold", front.along_channels(values))

    return FAKE_QUANTIZE.apply(ranges, operand)


def _along_several_axes(graph: Graph, node: Node, value: str) -> list[BasicOp] | Refusal | None:
    """The FakeQuantize where its constant ranges vary along several axes, as binary operations with
    tensors; None where they do not fit the input.

    With il < ih everywhere, s = (ih - il)/L: y = round(clip(x*[1/s] + [-il/s], 0, L))*[(oh - ol)/L]
    + [ol], as `fake_quantize_operations` has it for each channel.
    """
    shape, data = graph.type(value).shape, [graph.constant(end) for end in node.inputs[1:]]
    arrays = [np.asarray(array, np.float64) for array in data if array is not None]
    if shape is None or len(arrays) != len(data):
        return None
    common = np.broadcast_shapes(*(array.shape for array in arrays))
    if len(common) > len(shape):
        return None
    common = (1,) * (len(shape) - len(common)) + common
    if any(size not in (1, own) for size, own in zip(common, shape, strict=True)):
        return None
    low, high, out_low, out_high = arrays
    steps = node.attr("levels", int) - 1
    width = np.asarray((high - low) / steps)
    finite = all(np.isfinite(array).all() for array in arrays)
    if not finite or not (high > low).all() or steps < 2:
        return Refusal(
            "ranges along several axes have a form as post-ops where each is a grid",
            "finite ranges, lower bounds below upper ones, and 3 levels or more",
            "an inverted range" if steps > 1 else "a threshold",
            "calibrate it to one range for the tensor or for each channel",
        )
    far = float((np.abs(low / width)).max()) + steps
    if not is_normal(width.reshape(-1)) or far > _FARTHEST:
        return Refusal(*_too_far(far, float(width.min())))
    numbered = iter(range(len(arrays)))

    def each(algorithm: str, values: np.ndarray) -> BasicOp:
        if (values == values.flat[0]).all():
            one = vec(values.flat[0])
            return ScaleBy(one) if algorithm == "mul" else Shift(one)
        wide = values.reshape((1,) * (len(shape) - values.ndim) + values.shape)
        name = f"{node.output}/range{next(numbered)}"
        return BinaryOp(algorithm, graph.add_constant(name, wide.astype(np.float32)))

    return [
        each("mul", 1.0 / width),
        each("add", -low / width),
        Clip(vec(0.0), vec(float(steps))),
        Round(),
        each("mul", np.asarray((out_high - out_low) / steps)),
        each("add", np.asarray(out_low)),
    ]


def _too_far(steps: float, width: float) -> tuple[str, str, str, str]:
    return (
        "the range lies so far from zero, or its steps are so small, that f32 cannot tell them apart",
        f"at most {_FARTHEST:.0f} steps from zero",
        f"{steps:.0f} steps of {width:g}",
        "calibrate it to a range around 0",
    )


def keeps_codes(graph: Graph, node: Node) -> bool:
    """True of a Quantize behind a FakeQuantize that makes codes, all of which it keeps as they
    are.
    """
    maker = graph.producer(node.input)
    if maker is None or not makes_codes(graph, maker):
        return False
    quant = node.quant
    ends = [graph.constant(value) for value in maker.inputs[3:5]]
    codes = np.concatenate([np.ravel(end) for end in ends if end is not None]) + np.float32(
        quant.zero_point[0]
    )
    kept = bool((codes >= node.attr("lo", int)).all() and (codes <= node.attr("hi", int)).all())
    return kept and quant.scale == (1.0,) and quant.integral


def fake_quantize_operations(
    ranges: Ranges, operand: Callable[[Vec], str]
) -> list[BasicOp] | Refusal:
    """A FakeQuantize is crop, scale, round and shift; comparisons that forget the value come last,
    for a chain has it once.

    With u the grid index, L = levels - 1 and s = (ih - il)/L::

        il < ih             u = clip(x/s - il/s, 0, L)
        il == ih            u = clip((x - il)/m, 0, 1) * L, m the distance of il to the next f32; or (x > il) * L
        levels = 2          a threshold at (il + ih)/2, where the definition's round half even goes down
        il > ih             u = L - fold(L - fold(clip(x/s - il/s, -d, L + d))), fold(v) = v where v >= 0, else -(L - 1/4)/d * v
        ol == oh            u = 0
        y = round(u) * (oh - ol)/L + ol

    Args:
        ranges: per tensor, or along the channels.
        operand: files a vector as a constant of the chain, and returns its name.

    Legal because: it is the definition, round((clip(x, il, ih) - il)/s) * (oh - ol)/L + ol where il
    < ih, with the clip on the grid's index, which (x - il)/s never turns around. A threshold is a
    clip one unit in the last place wide; beyond the bounds of an inverted range, values jump to the
    other end, which a relu with a large negative slope does.
    Refuses when: a range is NaN or infinite, or lies so far from zero, in steps, that f32 cannot
    tell them apart.

    Contract `ties`: indices differ by 1 at most, and only where the real x/s - il/s lies within f32
    rounding of a tie; the side of a
    bound that jumps differs only where x lies within f32 rounding of that bound. Source: OpenVINO's
    specification of FakeQuantize-1.
    """
    if not ranges.finite:
        return Refusal(
            "a range of the FakeQuantize is not finite",
            "finite numbers",
            "NaN or infinity",
            "calibrate it to finite ranges",
        )
    constant = ranges.output_low == ranges.output_high
    threshold = (ranges.input_low == ranges.input_high) | (
        (ranges.levels == 2) & (ranges.input_low < ranges.input_high)
    )
    steps = 1.0 if bool((threshold | constant).all()) else float(ranges.levels - 1)
    width = np.where(constant, 1.0, (ranges.output_high - ranges.output_low) / steps)
    output: list[BasicOp] = [ScaleBy(vec(width)), Shift(vec(ranges.output_low))]
    at = _last_below(ranges)
    if steps == 1 and not constant.any() and bool((np.abs(at) < _NEAR_ZERO).any()):
        return [BinaryOp("gt", operand(vec(at))), *output]
    found = _indices(ranges, constant, threshold, at, steps)
    return found if isinstance(found, Refusal) else [*found, *output]


FAKE_QUANTIZE = Rule(
    "fake_quantize(x) = round(clip(x*(1/s) - il/s, 0, L))*((oh-ol)/L) + ol",
    fake_quantize_operations,
    float="ties",
)


def _last_below(ranges: Ranges) -> Vec:
    """The largest f32 that does not exceed the middle of each input range: x > it is the same as x
    > the middle, for x in f32.
    """
    middle = (ranges.input_low + ranges.input_high) / 2
    nearest = middle.astype(np.float32)
    return np.where(nearest > middle, np.nextafter(nearest, np.float32(-np.inf)), nearest).astype(
        np.float64
    )


def _indices(
    ranges: Ranges, constant: np.ndarray, threshold: np.ndarray, at: Vec, steps: float
) -> list[BasicOp] | Refusal:
    """The index of x on the grid, 0 .. steps, rounded."""
    above = np.nextafter(at.astype(np.float32), np.float32(np.inf)).astype(np.float64) - at
    width = np.where(
        threshold, np.maximum(above, _NEAR_ZERO * 2.0**-24) / steps, ranges.input_scale
    )
    width = np.where(constant, 1.0, width)
    start = np.where(constant, 0.0, np.where(threshold, at, ranges.input_low))
    far = np.where(threshold | constant, 0.0, np.abs(start / width)) + steps
    if not is_normal(width) or bool((far > _FARTHEST).any()):
        return Refusal(*_too_far(float(far.max()), float(np.abs(width).min())))
    inverted = (ranges.input_low > ranges.input_high) & ~constant
    margin = np.where(inverted, _power_of_two(2.0**-23 * float(far.max())), 0.0)
    high = np.where(constant, 0.0, steps + margin)
    ops: list[BasicOp] = [
        ScaleBy(vec(1.0 / width)),
        Shift(vec(2 * margin - start / width)),
        Clip(vec(0.0 - margin), vec(high)),
    ]
    if inverted.any():
        # `margin` beyond the bounds, values jump to the other end: to a quarter of a step inside of
        # it, which keeps the folds apart.
        fold = EltwiseOp("relu", -(steps - 0.25) / float(margin.max()))
        turn: list[BasicOp] = [ScaleBy(vec(-1.0)), Shift(vec(steps))]
        ops += [fold, *turn, fold, ScaleBy(vec(-1.0)), Shift(vec(steps - 2 * margin))]
    return [*ops, Round()]


def _power_of_two(value: float) -> float:
    """The power of two at or above a positive number."""
    return float(2.0 ** np.ceil(np.log2(value)))
