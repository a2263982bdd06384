"""split_fake_quantize: golden cases, each held to the laws; its arithmetic against exact rational
numbers.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from laws.build import Net
from laws.golden import check_pass

from fqfuse.ir.decision import Outcome
from fqfuse.ir.graph import Graph
from fqfuse.ir.interpret import run_graph
from fqfuse.ir.types import DType, Quantization
from fqfuse.passes.split_fake_quantize import SPLIT_FAKE_QUANTIZE


@pytest.mark.golden("split_fake_quantize")
def test_golden(golden) -> None:
    check_pass(golden, SPLIT_FAKE_QUANTIZE)


def split(
    low: float,
    high: float,
    levels: int,
    out_low: float | None = None,
    out_high: float | None = None,
) -> Graph:
    """x -> FakeQuantize -> y, split; the codes are returned too when it was."""
    n = Net()
    y = n.fq(n.input(("N",)), low, high, out_low, out_high, levels)
    graph = n.done(y)
    SPLIT_FAKE_QUANTIZE.run(graph)
    codes = [node.output for node in graph.nodes() if node.op == "Quantize"]
    graph.set_outputs([*graph.outputs, *codes])
    return graph


def refused(graph: Graph) -> bool:
    return any(decision.outcome is Outcome.REFUSED for decision in graph.decisions)


singles = st.floats(-100, 100, width=32)
steps = st.sampled_from([2.0**-7, 2.0**-5, 0.5, 1.0, 0.0473])


@st.composite
def ranges(draw: st.DrawFn) -> tuple[np.float32, np.float32, int]:
    """Ranges on a grid that holds zero, shifted off it, and anywhere."""
    levels = draw(st.sampled_from([2, 3, 15, 16, 128, 255, 256]))
    kind = draw(st.integers(0, 2))
    if kind == 2:
        low, high = sorted(draw(st.lists(singles, min_size=2, max_size=2, unique=True)))
    else:
        step, zero = draw(steps), draw(st.integers(-10, levels + 10)) + (0.5 if kind else 0)
        low, high = -zero * step, (levels - 1 - zero) * step
    return np.float32(low), np.float32(high), levels


@given(bounds=ranges(), data=st.data())
@settings(max_examples=3 * settings.default.max_examples)
def test_codes_are_those_of_the_definition_but_for_ties(
    bounds: tuple[np.float32, np.float32, int], data: st.DataObject
) -> None:
    """`ties`: codes differ by at most 1, and only where the exact argument lies within f32 rounding
    of a tie.
    """
    low, high, levels = bounds
    graph = split(float(low), float(high), levels)
    assume(not refused(graph))
    il, ih = Fraction(float(low)), Fraction(float(high))
    step = (ih - il) / (levels - 1)
    at_tie = st.integers(-2, levels + 1).map(
        lambda code: np.float32(float(il + (code + Fraction(1, 2)) * step))
    )
    xs = data.draw(st.lists(at_tie | singles.map(np.float32), min_size=1, max_size=8))
    _, codes = run_graph(graph, {"x": np.asarray(xs, np.float32)}).values()
    quantize = next(node for node in graph.nodes() if node.op == "Quantize")
    offset, apart = quantize.attr("lo", int), 1
    if levels == 2:  # the two codes may lie farther apart
        apart = quantize.attr("hi", int) - offset
    for x, code in zip(xs, codes.tolist(), strict=True):
        exact = (Fraction(float(x)) - il) / step
        wanted = min(max(round(exact), 0), levels - 1)
        found = Fraction(code - offset, apart)
        # x/s and + z round once each; s and z were rounded when the ranges became parameters, z to
        # what the grid can tell.
        slack = 8 * Fraction(1, 2**24) * (abs(Fraction(float(x)) / step) + abs(il / step) + levels)
        nearest_tie = abs(exact - (Fraction(int(exact // 1)) + Fraction(1, 2)))
        assert abs(found - wanted) <= (1 if nearest_tie <= slack else 0), (x, exact)


@given(bounds=ranges(), output=st.tuples(singles, singles))
def test_values_are_those_of_the_definition_at_every_code(
    bounds: tuple[np.float32, np.float32, int], output: tuple[float, float]
) -> None:
    low, high, levels = bounds
    out_low, out_high = (np.float32(end) for end in output)
    assume(out_low != out_high)
    graph = split(float(low), float(high), levels, float(out_low), float(out_high))
    assume(not refused(graph))
    steps_of = (np.float64(high) - np.float64(low)) / (levels - 1)
    # the middle of each code, far from every tie
    x = (np.float64(low) + np.arange(levels) * steps_of).astype(np.float32)
    values, codes = run_graph(graph, {"x": x}).values()
    assert len(np.unique(codes)) == levels
    wanted = np.float64(out_low) + np.arange(levels) * (
        np.float64(out_high) - np.float64(out_low)
    ) / (levels - 1)
    largest = max(abs(float(out_low)), abs(float(out_high)))
    # The scale has a relative error of 2^-24, and so has each of the two operations that decode; z
    # is known to the grid's resolution.
    assert np.abs(values - wanted).max() <= 8 * 2.0**-24 * largest + levels * 2.0**-23 * abs(
        float(out_high - out_low)
    ) / (levels - 1)


@pytest.mark.parametrize(
    ("low", "high", "levels", "dtype", "lo", "hi", "zero"),
    [
        (0.0, 255.0, 256, DType.U8, 0, 255, 0),
        (-128.0, 127.0, 256, DType.S8, -128, 127, 0),
        # 255 levels into s8: the code -128 must not come
        (
            -127.0,
            127.0,
            255,
            DType.S8,
            -127,
            127,
            0,
        ),
        # a symmetric range, widened below by 1/127 of itself: 0 has a code
        (-1.0078740157480315, 1.0, 256, DType.S8, -128, 127, 0),
        (-7.0, 7.0, 15, DType.S8, -7, 7, 0),
        (-8.0, 7.0, 16, DType.S8, -8, 7, 0),
        (-1.0, 1.0, 256, DType.U8, 0, 255, 127.5),
        (-106.00001, 148.99999, 256, DType.U8, 0, 255, 106),
        (-1e-8, 4.0, 256, DType.U8, 0, 255, 0),
        (-1e-3, 4.0, 256, DType.U8, 0, 255, pytest.approx(0.06373, rel=1e-3)),
        (-1.0, 0.0, 2, DType.S8, -1, 0, 0),
        (-1.0, 1.0, 2, DType.S8, -1, 1, 0),  # two values: their codes have their ratio
        (-1.0, 3.0, 2, DType.S8, -1, 3, 0),
        (0.5, 0.5, 2, DType.U8, 1, 1, 0),
    ],
)
def test_the_codes_type_and_zero_point(
    low: float, high: float, levels: int, dtype: DType, lo: int, hi: int, zero: float
) -> None:
    quantize = next(node for node in split(low, high, levels).nodes() if node.op == "Quantize")
    assert (quantize.attrs["dtype"], quantize.attrs["lo"], quantize.attrs["hi"]) == (dtype, lo, hi)
    assert quantize.attr("quant", Quantization).zero_point == (zero,)
    assert quantize.attrs["order"] == "zp_first"


def test_nan_becomes_the_lowest_code() -> None:
    """The definition leaves NaN as it is; integer codes have none. Both halves say so: the
    reference keeps it, codes are the lowest.
    """
    n = Net()
    whole = n.done(n.fq(n.input(("N",)), -1.0, 1.0))
    x = np.asarray([np.nan, np.inf, -np.inf], np.float32)
    assert np.isnan(run_graph(whole, {"x": x})["fq1_y"][0])
    values, codes = run_graph(split(-1.0, 1.0, 256), {"x": x}).values()
    assert codes.tolist() == [0, 255, 0]
    assert values.tolist() == [-1.0, 1.0, -1.0]


def test_quantizers_keep_their_names_on_both_halves() -> None:
    nodes = split(0.0, 1.0, 256).nodes()
    assert [node.quantizer for node in nodes] == [("fq1",), ("fq1",)]
    assert [node.origin for node in nodes] == [("fq1",), ("fq1",)]
