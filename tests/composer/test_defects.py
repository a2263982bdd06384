"""What others get wrong, one test a defect: the plan's numbers are those of the model, and the
defect's answer would be other numbers.

Where the defect is arithmetic, the test computes its answer, too, and holds it to be another one on
the data it uses.
"""

from __future__ import annotations

import numpy as np
import pytest
from laws.build import Net, Value

from fqfuse.composer.compose import plan_from_graph
from fqfuse.ir.graph import Graph
from fqfuse.ir.interpret import run_graph
from fqfuse.ir.types import DType, Quantization
from fqfuse.passes import optimize
from fqfuse.plan.types import Plan
from fqfuse.runtime.session import InferenceSession

targets = pytest.mark.parametrize("target", ["onednn-v3", "onednn-v2"])
# no number of it lies on a tie of these grids
X = np.random.default_rng(0).uniform(-3, 3, (2, 3, 4, 4)).astype(np.float32)


def compiled(graph: Graph, target: str) -> Plan:
    return plan_from_graph(optimize(graph.copy()), target)


def both(n: Net, y: Value, target: str, x: np.ndarray = X) -> tuple[np.ndarray, np.ndarray, Plan]:
    """(what the model says, what the plan computes, the plan)."""
    graph = n.done(y)
    plan = compiled(graph, target)
    feeds = {"x": x}
    return run_graph(graph, feeds)[y], InferenceSession(plan, "numpy", 1).run(None, feeds)[0], plan


def value_of(n: Net, name: str, x: np.ndarray = X) -> np.ndarray:
    """A value of the imported graph in the unfused f32 run."""
    return run_graph(n.graph, {"x": x}, keep_all=True)[name]


def quantized(
    x: np.ndarray, low: float, high: float, levels: int = 256, zero: float | None = None
) -> np.ndarray:
    """Scale, shift, round, clip, shift back: what FakeQuantize becomes; `zero` instead of the real
    zero point is a defect.
    """
    step = (high - low) / (levels - 1)
    zero = -low / step if zero is None else zero
    codes = np.clip(np.rint(x.astype(np.float64) / step + zero), 0, levels - 1)
    return ((codes - zero) * step).astype(np.float32)


def conv(n: Net, channels: int = 4) -> Value:
    return n.conv(
        n.fq(n.input(("N", 3, 4, 4)), -2.0, 2 - 1 / 64), channels, 1, style="fq", scale=2**-6
    )


@targets
def test_relu_with_negative_scale(target: str) -> None:
    """relu(x)*s became relu(x*s) for s < 0."""
    n = Net()
    relu = n.op("Relu", conv(n))
    factors = np.array([1, -1, 0.5, -2.0]).reshape(1, 4, 1, 1)
    wanted, found, _ = both(n, n.fq(n.op("Mul", relu, factors), -4.0, 127 / 32), target)
    assert np.array_equal(found, wanted)
    defective = quantized(
        np.maximum(value_of(n, n.graph.producer(relu).inputs[0]) * factors, 0), -4.0, 127 / 32
    )
    assert (defective != wanted).mean() > 0.4, "every value of the channels with s < 0"
    assert (wanted[:, 1] <= 0).all()
    assert (wanted[:, 1] < 0).any()


@targets
def test_255_levels_into_s8(target: str) -> None:
    """The store saturates at -128, the quantizer at -127."""
    n = Net()
    # For a depthwise convolution, which takes s8; for another one the codes would be u8, and -127
    # the code 1.
    wanted, found, plan = both(
        n, n.conv(n.fq(conv(n), -127 / 64, 127 / 64, levels=255), 4, 3, style="fq", group=4), target
    )
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-4)
    stored = InferenceSession(plan, "numpy", 1).run_steps({"x": X})[plan.steps[1].output]
    assert stored.dtype == np.int8
    assert stored.min() == -127, "the code -128 does not come, though values lie below"
    defective = np.clip(np.rint(value_of(n, "conv3_y") * 64), -128, 127)
    assert (defective == -128).any(), "the store alone, its clip dropped as if 255 levels filled s8"
    assert np.array_equal(np.maximum(defective, -127), stored)


@targets
def test_equal_bounds_are_a_threshold(target: str) -> None:
    """il == ih: two outputs, not a constant, and no division by zero."""
    n = Net()
    wanted, found, _ = both(n, n.fq(conv(n), 0.5, 0.5, -1.0, 1.0, levels=2), target)
    assert np.array_equal(found, wanted)
    assert set(np.unique(found)) == {-1.0, 1.0}
    with np.errstate(all="ignore"):
        defective = (
            np.rint((value_of(n, "conv3_y") - 0.5) / (np.float32(0.5) - np.float32(0.5))) * 2 - 1
        )
    assert not np.isfinite(defective).any(), "the formula between the bounds divides by zero"


@targets
def test_inverted_ranges(target: str) -> None:
    """Not monotone: everything up to the smaller bound gives ol, everything above the larger gives
    oh.
    """
    n = Net()
    wanted, found, plan = both(n, n.fq(conv(n), 1.0, -1.0, 0.0, 1.0), target)
    # the same codes; code * scale rounds once more than the definition
    np.testing.assert_allclose(found, wanted, rtol=0, atol=2**-23)
    assert [step.primitive for step in plan.steps] == ["reorder", "convolution"]
    source = run_graph(n.graph, {"x": X}, keep_all=True)["conv3_y"]
    assert (found[source > 1] == 1).all()
    assert (found[source < -1] == 0).all()
    assert (source > 1).any()
    assert (source < -1).any()
    # bounds swapped, falling: the formula inside, clipped at its ends
    defective = 1 - quantized(source, -1.0, 1.0) / 2 - 0.5
    inside = np.abs(source) < 1
    np.testing.assert_allclose(defective[inside], wanted[inside], rtol=0, atol=1e-6)
    assert np.abs(defective - wanted)[~inside].min() > 0.9, (
        "beyond the bounds it gives the other end"
    )


@targets
def test_shared_range_constants(target: str) -> None:
    """Quantizers that read the same four constants were not fused."""
    n = Net()
    first = conv(n)
    ranges = n.graph.producer(n.graph.producer(first).inputs[0]).inputs[1:]  # type: ignore[union-attr]
    again = n.graph.add(
        "FakeQuantize",
        [n.op("Relu", first), *ranges],
        {"levels": 256},
        name="again",
        outputs=["again_y"],
        origin=["again"],
    )
    assert all(len(n.graph.consumers(value)) == 2 for value in ranges), (
        "a rule that asks for constants of one reader refuses here"
    )
    wanted, found, plan = both(n, n.conv(again.output, 2, 1, style="fq"), target)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-4)
    assert [step.primitive for step in plan.steps][1:] == ["convolution", "convolution"]
    assert plan.type(plan.steps[-1].arg("src")).dtype.is_integer


@targets
def test_15_levels(target: str) -> None:
    """Codes -7..7, not -8..7."""
    n = Net()
    wanted, found, _ = both(n, n.fq(conv(n), -7 / 4, 7 / 4, levels=15), target)
    assert np.array_equal(found, wanted)
    assert found.min() == -7 / 4
    assert len(np.unique(found)) == 15
    codes = np.rint(value_of(n, "conv3_y") * 4)
    assert not np.array_equal(np.clip(codes, -7, 127) / 4, wanted), (
        "the upper end of 16 levels, or of 8 bits"
    )
    assert not np.array_equal(np.clip(codes, -8, 7) / 4, wanted), "the range of 4 bits"
    assert np.array_equal(np.clip(codes, -7, 7) / 4, wanted)


@targets
def test_odd_zero_points_at_ties(target: str) -> None:
    """Averages of four codes lie on ties: round(y/s) + z and round(y/s + z) part there for odd
    z.
    """
    n = Net()
    pooled = n.op(
        "AveragePool",
        n.qdq(n.input(("N", 3, 4, 4)), 2**-5, 101),
        kernel_shape=(2, 2),
        strides=(2, 2),
    )
    wanted, found, _ = both(n, n.q(pooled, 2**-5, 101), target)
    assert np.array_equal(found, wanted)
    exact = run_graph(n.graph, {"x": X}, keep_all=True)["averagepool3_y"] * 32
    assert (exact % 1 == 0.5).mean() > 0.05, "ties are there"
    assert not np.array_equal(found, np.clip(np.rint(exact + 101), 0, 255)), (
        "the other order gives other codes"
    )


@targets
@pytest.mark.parametrize(("low", "high"), [(-1.0, 1.0), (-0.3, 1.0), (0.5, 3.5), (-2.0, -1.1)])
def test_zero_points_that_are_no_integers(target: str, low: float, high: float) -> None:
    """il = -ih with 256 levels gives 127.5; rounding it to 128 moves every code."""
    n = Net()
    y = n.fq(conv(n), low, high)
    wanted, found, plan = both(n, n.op("Sigmoid", y), target)
    step = (high - low) / 255
    assert np.abs(found - wanted).max() <= 1e-6, "no code differs"
    assert len(plan.steps) == 2
    source = value_of(n, "conv3_y")
    for zero, differs in ((-low / step, False), (np.rint(-low / step), True)):
        answer = 1 / (1 + np.exp(-quantized(source, low, high, zero=zero).astype(np.float64)))
        assert (np.abs(answer - wanted) > 1e-5).any() == differs, (
            "the rounded zero point moves every code"
        )


@targets
def test_a_zero_point_that_is_an_integer_but_for_rounding(target: str) -> None:
    n = Net()
    y = n.conv(n.fq(conv(n), -106.00001 / 64, (255 - 106.00001) / 64), 2, 1, style="fq")
    wanted, found, plan = both(n, y, target)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-4)
    assert plan.steps[2].attr.zero_points["src"].values == (106,)
    assert plan.steps[2].arg("bias") is None, "where a fraction would be"


@targets
def test_a_shift_too_small_to_matter(target: str) -> None:
    """A range from -1e-7: 0 is the code 0, and no fraction goes on into the next convolution."""
    n = Net()
    wanted, found, plan = both(
        n, n.conv(n.fq(n.op("Relu", conv(n)), -1e-7, 4.0), 2, 1, style="fq"), target
    )
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-4)
    assert all(
        plan.type(step.arg("src")).dtype.is_integer
        for step in plan.steps
        if step.primitive == "convolution"
    )
    assert all(step.arg("bias") is None for step in plan.steps), "where a fraction would be"


@targets
def test_per_channel_ranges_with_equal_entries(target: str) -> None:
    """They are one range: the next convolution takes it as its source's scale."""
    n = Net()
    y = n.fq(n.op("Relu", conv(n)), np.zeros((1, 4, 1, 1)), np.full((1, 4, 1, 1), 255 / 64))
    wanted, found, plan = both(n, n.conv(y, 2, 1, style="fq"), target)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-4)
    assert [step.primitive for step in plan.steps][1:] == ["convolution", "convolution"]


@targets
def test_nan_is_the_lowest_code(target: str) -> None:
    """Left undefined by others; here it is a code, and always the same."""
    n = Net()
    y = n.conv(n.qdq(n.input(("N", 3, 4, 4)), 2**-5, 7), 2, 1)
    x = X.copy()
    x[0, 0] = np.nan
    wanted, found, _ = both(n, y, target, x)
    assert np.array_equal(found, wanted)
    assert np.isfinite(found).all()


@targets
def test_a_padded_average_of_codes_with_a_zero_point(target: str) -> None:
    """Padding counts as the real 0, whose code is the zero point, not as code 0."""
    n = Net()
    window = {"kernel_shape": (3, 3), "pads": (1, 1, 1, 1), "count_include_pad": 1}
    y = n.op("AveragePool", n.qdq(n.input(("N", 3, 4, 4)), 2**-5, 101), **window)
    wanted, found, _ = both(n, n.qdq(y, 2**-5, 101), target)
    assert np.abs(found - wanted).max() <= 2**-5
    assert (found != wanted).mean() < 0.02
    corner = np.abs(wanted[:, :, 0, 0])
    assert (corner < 2.5).all(), "with code 0 a corner would come near -101/32 * 5/9"


@targets
def test_the_skip_of_a_sum_is_read_again(target: str) -> None:
    """A sum overwrites its operand: whoever reads it later must still find it."""
    n = Net()
    skip = n.qdq(n.op("Relu", conv(n)), 2**-6)
    total = n.qdq(n.op("Relu", n.op("Add", n.conv(skip, 4, 1, scale=2**-8), skip)), 2**-5)
    wanted, found, _ = both(n, n.op("Add", n.conv(total, 4, 1, scale=2**-8), skip), target)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-4)


@targets
@pytest.mark.parametrize(
    ("scale", "zero"),
    [([0.5, 0.25, 0.125], 0), (0.25, [3, 121, 255])],
    ids=["scales", "zero points"],
)
def test_per_channel_activations_of_a_plain_convolution(
    scale: float | list[float], zero: int | list[int], target: str
) -> None:
    """One peer fuses them and fails at run time: they are legal in groups only."""
    n = Net()
    x = n.qdq(n.input(("N", 3, 4, 4)), scale, zero, axis=1)
    wanted, found, plan = both(n, n.conv(x, 2, 1), target)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-4)
    assert plan.type(plan.steps[-1].arg("src")).dtype is DType.F32


@targets
def test_max_pool_of_codes_with_a_negative_scale(target: str) -> None:
    """The largest code is the smallest value."""
    n = Net()
    x = n.qdq(n.input(("N", 3, 4, 4)), -(2**-5), 101)
    wanted, found, _ = both(n, n.op("MaxPool", x, kernel_shape=(2, 2)), target)
    assert np.array_equal(found, wanted)


@targets
def test_weights_with_a_zero_point(target: str) -> None:
    n = Net()
    codes = n.graph.add_constant("w", n.codes((3, 5), 0, 255, DType.U8))
    x = n.qdq(n.input(("N", 3)), 2**-5, 101)
    wanted, found, plan = both(
        n, n.op("MatMul", x, n.dq(codes, Quantization((2**-7,), (121.0,)))), target, X[:, :, 0, 0]
    )
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-4)
    assert plan.type(plan.steps[-1].arg("src")).dtype is DType.U8


@targets
def test_a_dead_channel_of_weights(target: str) -> None:
    """il == ih == 0 in one output channel: its scale would be 0, and a refusal would run the whole
    convolution in f32.
    """
    n = Net()
    data = n.rng.uniform(-1, 1, (4, 3, 1, 1))
    data[2] = 0
    reach = np.abs(data).max(axis=1, keepdims=True)
    w = n.fq(n.const(data), -reach, reach, levels=255)
    wanted, found, plan = both(
        n, n.conv(n.fq(n.input(("N", 3, 4, 4)), -2.0, 2 - 1 / 64), 4, 1, weights=w), target
    )
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-5)
    assert (found[:, 2] == 0).all()
    with np.errstate(all="ignore"):
        assert np.isnan(np.rint(data / (reach / 127)) * (reach / 127)).any(), (
            "0 / 0 in the dead channel"
        )
    convolution = plan.steps[-1]
    assert plan.type(convolution.arg("src")).dtype.is_integer
    assert plan.constants[convolution.arg("weights")].dtype == np.int8


@targets
@pytest.mark.parametrize("backend", ["numpy", "onednn"])
@pytest.mark.parametrize("zero", [3, 5, 11, 131])
@pytest.mark.parametrize("function", ["Sqrt", "Log", "Pow", "Reciprocal", "Greater"])
@pytest.mark.parametrize("between", ["nothing", "Mul", "Reshape", "Relu", "residual"])
def test_codes_of_zero_decode_to_zero_where_it_shows(
    target: str, backend: str, zero: int, function: str, between: str
) -> None:
    """(q - z)*s was computed as q*s - z*s, which rounds to a number next to 0: below it a root is
    NaN.
    """
    n = Net()
    y = n.dq(n.q(n.input(X.shape), 0.013371, zero, low=zero))
    y = n.op("Mul", y, 0.37) if between == "Mul" else y
    y = n.op("Reshape", y, n.ints(2, 3, 16)) if between == "Reshape" else y
    y = n.op("Mul", n.op("Relu", y), 0.37) if between == "Relu" else y
    y = n.op("Mul", y, n.op("Sigmoid", "x")) if between == "residual" else y
    operands = [0.37] if function == "Pow" else [0.0] if function == "Greater" else []
    y = n.op(function, y, *operands)
    graph = n.done(n.op("Cast", y, to=DType.F32) if function == "Greater" else y)
    with np.errstate(divide="ignore"):
        (wanted,) = run_graph(graph, {"x": X}).values()
        (found,) = InferenceSession(compiled(graph, target), backend, 1).run(None, {"x": X})
    assert np.array_equal(np.isfinite(found), np.isfinite(wanted))
    if function != "Log":  # near 1 the bound would be an absolute one
        # transcendental post-ops are polynomials
        np.testing.assert_allclose(found, wanted, rtol=1e-5)


def test_a_chain_of_any_length_is_composed_in_linear_time() -> None:
    """The algebra took time with the cube of a chain's length: 200 shifts and clips behind a
    convolution took minutes.
    """
    n = Net()
    y = conv(n)
    for i in range(200):
        y = n.op("Clip", n.op("Add", y, 0.01), -5.0, 5 + i / 64)
    graph = n.done(y)
    plan = compiled(graph, "onednn-v3")
    longest = max(len(step.origin) for step in plan.steps)
    assert len(plan.steps) < 20
    assert longest < 110
    (found,) = InferenceSession(plan, "numpy", 1).run(None, {"x": X})
    # 200 additions to numbers below 8 round by 2^-22 at most, each
    np.testing.assert_allclose(found, run_graph(graph, {"x": X})[y], rtol=0, atol=200 * 2.0**-22)
