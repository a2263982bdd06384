"""align_zero_points: golden cases, each held to the laws but that of meaning; its bound in fractions."""

from __future__ import annotations

import re
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from laws.budget import examples
from laws.build import Net
from laws.golden import check_pass

from fqfuse.ir.approximations import FRACTIONAL_ZERO_POINT, SMALL_SHIFT
from fqfuse.ir.graph import Graph
from fqfuse.ir.interpret import run_graph
from fqfuse.ir.ranges import Ranges, ranges_of
from fqfuse.passes.align_zero_points import ALIGN_ZERO_POINTS, aligned, aligning, error_of
from fqfuse.passes.split_fake_quantize import needs_comparison, snapped, split_refusal

BOTH = (SMALL_SHIFT, FRACTIONAL_ZERO_POINT)


@pytest.mark.golden("align_zero_points")
def test_golden(golden) -> None:
    check_pass(golden, aligning(BOTH))


def graph_of(low: float, high: float) -> Graph:
    n = Net()
    return n.done(n.fq(n.input(("N",)), low, high))


@pytest.mark.parametrize("names", [(), ("int8-recurrence", "middle-rounding")])
def test_nothing_moves_unless_it_is_asked_for(names: tuple[str, ...]) -> None:
    graph = graph_of(-1.0, 1.0)
    before = graph.copy()
    for step in (ALIGN_ZERO_POINTS, aligning(names)):
        step.run(graph)
    assert graph == before
    assert graph.decisions == ()


@pytest.mark.parametrize(
    ("low", "moves"), [(-1e-6, True), (-1.5e-5, True), (-3e-5, False), (-0.7, False)]
)
def test_a_shift_is_small_by_the_range_of_the_clip(low: float, moves: bool) -> None:
    """1e-5 of it, as OpenVINO has it: 2e-5 of 2."""
    graph = graph_of(low, 2.0)
    aligning([SMALL_SHIFT]).run(graph)
    (decision,) = graph.decisions
    assert decision.outcome.value == ("fired" if moves else "refused")
    assert decision.rule == SMALL_SHIFT


# -- the bound -------------------------------------------------------------------------------------


def fake_quantize(ranges: Ranges, x: Fraction) -> Fraction:
    """The definition, exactly."""
    low, high, out_low, out_high = (
        Fraction(float(end[0]))
        for end in (ranges.input_low, ranges.input_high, ranges.output_low, ranges.output_high)
    )
    if x <= low:
        return out_low
    if x > high:
        return out_high
    steps = ranges.levels - 1
    return round((x - low) / (high - low) * steps) * (out_high - out_low) / steps + out_low


singles = st.floats(-100, 100, width=32)


@st.composite
def ranges(draw: st.DrawFn) -> Ranges:
    """Ranges anywhere, with 0 next to a point of the grid, or half way; outputs likewise."""
    levels = draw(st.sampled_from([3, 15, 16, 128, 255, 256]))

    def ends() -> tuple[float, float]:
        step = draw(st.sampled_from([2.0**-7, 0.5, 0.0473]))
        fraction = draw(st.sampled_from([0.0, 0.5, 1e-3, -1e-3, 1e-6]) | st.floats(-0.5, 0.5))
        zero = draw(st.integers(-5, levels + 5)) + fraction
        return -zero * step, (levels - 1 - zero) * step

    pairs = [ends() if draw(st.booleans()) else tuple(sorted((draw(singles), draw(singles))))]
    pairs.append(pairs[0] if draw(st.booleans()) else ends())
    vectors = [np.asarray([end], np.float32).astype(np.float64) for pair in pairs for end in pair]
    found = Ranges(*vectors, None, levels)
    assume(not needs_comparison(found) and split_refusal(found) is None)
    return found


@given(
    before=ranges(), name=st.sampled_from(BOTH), values=st.lists(singles, min_size=4, max_size=4)
)
@examples(300)
def test_the_bound_holds_in_fractions(before: Ranges, name: str, values: list[float]) -> None:
    after = aligned(before, name)
    if not isinstance(after, Ranges):
        return
    bound = Fraction(float(error_of(before, after)[0]))
    low, step = Fraction(float(before.input_low[0])), Fraction(float(before.input_scale[0]))
    ties = [low + step * Fraction(2 * n + 1, 2) for n in (-1, 0, 1, before.levels // 2)]
    for x in (*map(Fraction, values), *ties, *(tie + step / 1000 for tie in ties)):
        assert abs(fake_quantize(before, x) - fake_quantize(after, x)) <= bound


@given(before=ranges())
@examples(300)
def test_zero_points_become_integers(before: Ranges) -> None:
    """All where the output has a fraction; and then nothing is left to do."""
    after = aligned(before, FRACTIONAL_ZERO_POINT)
    if isinstance(after, Ranges):
        zero = snapped(-after.output_low / after.output_scale, after.levels)
        assert float(zero[0]).is_integer()
        assert not isinstance(aligned(after, FRACTIONAL_ZERO_POINT), Ranges)


def test_both_move_alike_and_cost_no_more_than_a_step() -> None:
    before = ranges_of(*_node(graph_of(-1.0, 1.0)))
    assert isinstance(before, Ranges)
    after = aligned(before, FRACTIONAL_ZERO_POINT)
    assert isinstance(after, Ranges)
    # half a step, where a code more makes up for half of the zero point
    half = before.output_scale[0] / 2
    assert error_of(before, after)[0] == pytest.approx(half, abs=2.0**-22)  # what f32 rounds


@pytest.mark.parametrize(
    ("zero_in", "zero_out", "steps"), [(13.97, 3.46, 1.46), (3.46, 3.46, 0.54), (3.4, 3.46, 0.54)]
)
def test_the_bound_is_told_and_rounded_up(zero_in: float, zero_out: float, steps: float) -> None:
    """Input and output that move apart cost more than a step: one and a half at most."""
    n = Net()
    ends = [
        (-zero * step, (15 - zero) * step) for zero, step in ((zero_in, 0.1), (zero_out, 0.843))
    ]
    graph = n.done(n.fq(n.input(("N",)), *ends[0], *ends[1], levels=16))
    before = ranges_of(*_node(graph))
    aligning([FRACTIONAL_ZERO_POINT]).run(graph)
    after = ranges_of(*_node(graph))
    assert isinstance(before, Ranges)
    assert isinstance(after, Ranges)
    bound = float(error_of(before, after)[0])
    assert bound / 0.843 == pytest.approx(steps, abs=1e-3)
    told = re.findall(r"at most (\S+) off", graph.decisions[-1].reason)
    assert bound <= float(told[0]) <= bound * 1.001


def _node(graph: Graph):
    return graph, next(iter(graph.each("FakeQuantize")))


def test_each_channel_moves_by_itself() -> None:
    n = Net()
    low, high = np.float32([[-1.0], [0.0], [-1e-6]]), np.float32([[1.0], [2.0], [2.0]])
    graph = n.done(n.fq(n.input((3, 64)), low, high))
    x = np.random.default_rng(0).uniform(-1.5, 2.5, (3, 64)).astype(np.float32)
    before = run_graph(graph, {"x": x})["fq1_y"]
    kept = ranges_of(*_node(graph))
    aligning(BOTH).run(graph)
    moved = ranges_of(*_node(graph))
    assert isinstance(kept, Ranges)
    assert isinstance(moved, Ranges)
    far = np.abs(run_graph(graph, {"x": x})["fq1_y"] - before).max(axis=1)
    # f32 rounds the grid's points on both sides
    assert (far <= error_of(kept, moved) + 2.0**-22).all()
    assert far[0] > 0
    assert far[1] == 0
