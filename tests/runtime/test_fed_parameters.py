"""Scales and zero points that are fed: what one session gives for ten of them is, byte for byte, what
ten models give that have them as constants; of sources, weights, per-axis activations, destinations.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from support.onnx_cases import model, node, random, run_ort

import fqfuse
from fqfuse.ir.types import DType
from fqfuse.plan.arguments import AT_RUN_TIME
from fqfuse.plan.types import Plan

EACH_RUNTIME = pytest.mark.parametrize("runtime", ["numpy", "onednn"])
RNG = np.random.default_rng(3)
MATRIX = RNG.integers(-128, 128, (16, 12)).astype(np.int8)
KERNEL = RNG.integers(-128, 128, (6, 3, 3, 3)).astype(np.int8)
BIAS = random((6,), 8)
Arrays = Mapping[str, np.ndarray]


def drawn(shape: tuple[int, ...], seed: int) -> np.ndarray:
    return np.random.default_rng(seed).uniform(0.004, 0.05, shape).astype(np.float32)


def matmul(weights: tuple[int, ...]) -> tuple[list[onnx.NodeProto], dict[str, tuple[int, ...]]]:
    """A product whose source has one scale and zero point, and whose weights have scales."""
    nodes = [
        node("DequantizeLinear", ["q", "s", "z"], ["d"]),
        node("DequantizeLinear", ["w", "ws"], ["v"], axis=1),
        node("MatMul", ["d", "v"], ["y"]),
    ]
    return nodes, {"s": (), "z": (), "ws": weights}


def convolution(
    weights: tuple[int, ...],
) -> tuple[list[onnx.NodeProto], dict[str, tuple[int, ...]]]:
    nodes = [
        node("DequantizeLinear", ["q", "s", "z"], ["d"]),
        node("DequantizeLinear", ["w", "ws"], ["v"], axis=0),
        node("Conv", ["d", "v", "b"], ["c"], pads=[1, 1, 1, 1]),
        node("Relu", ["c"], ["y"]),
    ]
    return nodes, {"s": (), "z": (), "ws": weights}


CASES = {
    "matmul": (matmul(()), {"w": MATRIX}, (5, 16)),
    "matmul by columns": (matmul((12,)), {"w": MATRIX}, (5, 16)),
    "convolution": (convolution(()), {"w": KERNEL, "b": BIAS}, (2, 3, 6, 5)),
    "convolution by channels": (convolution((6,)), {"w": KERNEL, "b": BIAS}, (2, 3, 6, 5)),
    "decoded": (
        ([node("DequantizeLinear", ["q", "s", "z"], ["y"])], {"s": (), "z": ()}),
        {},
        (4, 3, 5),
    ),
    "decoded by channels": (
        ([node("DequantizeLinear", ["q", "s", "z"], ["y"], axis=1)], {"s": (3,), "z": (3,)}),
        {},
        (4, 3, 5),
    ),
}
"""Nodes and the shapes of what is fed, constants, the shape of the codes `q`."""


def built(
    nodes: list[onnx.NodeProto],
    inputs: Mapping[str, tuple[int, ...]],
    constants: Arrays,
    kind: type,
) -> onnx.ModelProto:
    element = helper.np_dtype_to_tensor_dtype(np.dtype(kind))
    return model(
        nodes,
        inputs={name: list(shape) for name, shape in inputs.items()},
        constants=constants,
        types={"q": element, "z": element},
    )


def on_numpy(session: fqfuse.InferenceSession) -> list[str]:
    return [p.step.primitive for p in session.placement() if p.runtime == "numpy"]


@EACH_RUNTIME
@pytest.mark.parametrize("kind", [np.uint8, np.int8])
@pytest.mark.parametrize("case", CASES)
def test_ten_feeds_are_ten_models(case: str, kind: type, runtime: str) -> None:
    (nodes, fed), constants, shape = CASES[case]
    session = fqfuse.InferenceSession(
        fqfuse.compile(built(nodes, {"q": shape, **fed}, constants, kind)), runtime, 1
    )
    info = np.iinfo(kind)
    for seed in range(10):
        rng = np.random.default_rng(seed)
        q = rng.integers(info.min, info.max + 1, shape).astype(kind)
        feeds = {name: drawn(size, seed + len(name)) for name, size in fed.items() if name != "z"}
        feeds["z"] = rng.integers(info.min, info.max + 1, fed["z"]).astype(kind)
        alone = fqfuse.compile(built(nodes, {"q": shape}, {**constants, **feeds}, kind))
        (expected,) = fqfuse.InferenceSession(alone, runtime, 1).run(None, {"q": q})
        (found,) = session.run(None, {"q": q, **feeds})
        assert found.tobytes() == expected.tobytes(), seed
    if runtime == "onednn":
        assert not on_numpy(session)


def test_other_scales_need_no_other_primitives() -> None:
    """They are arguments of the execution: what was made for the shapes serves them all."""
    (nodes, fed), constants, shape = CASES["convolution by channels"]
    plan = fqfuse.compile(built(nodes, {"q": shape, **fed}, constants, np.uint8))
    session = fqfuse.InferenceSession(plan, "onednn", 1)
    programs, results = [], []
    for seed in range(3):
        feeds = {"q": np.full(shape, 200, np.uint8), "z": np.uint8(seed)}
        feeds |= {name: drawn(size, seed) for name, size in fed.items() if name != "z"}
        results.append(session.run(None, feeds)[0])
        programs.append(session._executor._latest())
    assert not on_numpy(session)
    assert all(program is programs[0] for program in programs)
    assert not np.array_equal(results[0], results[1])


@EACH_RUNTIME
@pytest.mark.parametrize("axis", [None, 1])
def test_codes_by_fed_scales_are_those_of_constant_ones_but_at_ties(
    axis: int | None, runtime: str
) -> None:
    """A constant scale multiplies by 1/s; next to a tie, where the two may differ, the fed one gives
    ONNX's code.
    """
    shape = () if axis is None else (3,)
    along = [-1 if index == axis else 1 for index in range(4)]
    nodes = [
        node("QuantizeLinear", ["x", "s", "z"], ["y"], **({} if axis is None else {"axis": 1}))
    ]
    fed = built(nodes, {"x": (2, 3, 9, 8), "s": shape, "z": shape}, {}, np.uint8)
    plan = fqfuse.compile(fed)
    assert not any(step.op == "Onnx" for step in plan.steps)
    session = fqfuse.InferenceSession(plan, runtime, 1)
    for seed in range(10):
        x, scale = random((2, 3, 9, 8), seed, 2.0), drawn(shape, seed)
        zero = np.random.default_rng(seed).integers(0, 256, shape).astype(np.uint8)
        (found,) = session.run(None, {"x": x, "s": scale, "z": zero})
        np.testing.assert_array_equal(found, run_ort(fed, {"x": x, "s": scale, "z": zero})[0])
        alone = fqfuse.compile(built(nodes, {"x": x.shape}, {"s": scale, "z": zero}, np.uint8))
        (expected,) = fqfuse.InferenceSession(alone, runtime, 1).run(None, {"x": x})
        divided = x.astype(np.float64) / scale.astype(np.float64).reshape(along if shape else ())
        # f32 numbers of up to 2**9: a few units in their last place
        clear = np.abs(divided - np.floor(divided) - 0.5) > 2.0**-13
        np.testing.assert_array_equal(found[clear], expected[clear])


@EACH_RUNTIME
def test_a_destination_by_a_fed_scale_is_stored_by_the_product(runtime: str) -> None:
    constants = {"w": MATRIX, "ws": np.float32(0.01), "s": np.float32(0.02), "z": np.uint8(9)}
    nodes = [
        node("DequantizeLinear", ["q", "s", "z"], ["d"]),
        node("DequantizeLinear", ["w", "ws"], ["v"]),
        node("MatMul", ["d", "v"], ["p"]),
        node("QuantizeLinear", ["p", "t", "u"], ["y"]),
    ]
    proto = model(
        nodes,
        inputs={"q": [5, 16], "t": [], "u": []},
        constants=constants,
        types=dict.fromkeys("quy", TensorProto.UINT8),
    )
    plan = fqfuse.compile(proto)
    (step,) = [step for step in plan.steps if step.primitive == "matmul"]
    assert plan.type(step.output).dtype is DType.U8
    q = RNG.integers(0, 256, (5, 16)).astype(np.uint8)
    session = fqfuse.InferenceSession(plan, runtime, 1)
    for scale, zero in ((0.3, 117), (0.11, 0)):
        feeds = {"q": q, "t": np.float32(scale), "u": np.uint8(zero)}
        (found,) = session.run(None, feeds)
        sums = (q.astype(int) - 9) @ MATRIX.astype(int)
        exact = np.clip(sums * 0.02 * 0.01 / scale + zero, 0, 255)
        assert (np.abs(found - exact) <= 0.5 + 1e-3).all()


@EACH_RUNTIME
def test_weights_by_constant_zero_points_and_fed_scales(runtime: str) -> None:
    zeros = RNG.integers(-3, 4, 12).astype(np.int8)
    constants = {
        "w": np.clip(MATRIX, -100, 100),
        "wz": zeros,
        "s": np.float32(0.02),
        "z": np.uint8(9),
    }
    nodes = [
        node("DequantizeLinear", ["q", "s", "z"], ["d"]),
        node("DequantizeLinear", ["w", "ws", "wz"], ["v"], axis=1),
        node("MatMul", ["d", "v"], ["y"]),
    ]
    proto = model(
        nodes,
        inputs={"q": [5, 16], "ws": [12]},
        constants=constants,
        types={"q": TensorProto.UINT8},
    )
    plan = fqfuse.compile(proto)
    assert parameterized(plan) == ["matmul"]
    feeds = {"q": RNG.integers(0, 256, (5, 16)).astype(np.uint8), "ws": drawn((12,), 5)}
    (found,) = fqfuse.InferenceSession(plan, runtime).run(None, feeds)
    (expected,) = run_ort(proto, feeds)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5 * np.abs(expected).max())


def parameterized(plan: Plan) -> list[str]:
    return [s.primitive for s in plan.steps if any(role in AT_RUN_TIME for role, _ in s.args)]


@EACH_RUNTIME
def test_a_bias_in_the_units_of_a_computed_scale_is_added_by_the_product(runtime: str) -> None:
    """As exporters write it: bias = codes in s32 times the scales of both factors."""
    bias = RNG.integers(-30000, 30000, 6).astype(np.int32)
    nodes = [
        node("DequantizeLinear", ["q", "s", "z"], ["d"]),
        node("DequantizeLinear", ["w", "ws"], ["v"], axis=0),
        node("Mul", ["s", "ws"], ["bs"]),
        node("DequantizeLinear", ["b", "bs"], ["f"], axis=0),
        node("Conv", ["d", "v", "f"], ["y"], pads=[1, 1, 1, 1]),
    ]
    constants = {"w": KERNEL, "ws": drawn((6,), 1), "b": bias, "z": np.uint8(7)}
    proto = model(
        nodes,
        inputs={"q": [2, 3, 6, 5], "s": []},
        constants=constants,
        types={"q": TensorProto.UINT8},
    )
    plan = fqfuse.compile(proto)
    assert not any(step.op == "Onnx" for step in plan.steps)
    (step,) = [step for step in plan.steps if step.primitive == "convolution"]
    assert plan.type(step.arg("src")).dtype is DType.U8
    feeds = {"q": RNG.integers(0, 256, (2, 3, 6, 5)).astype(np.uint8), "s": np.float32(0.03)}
    (found,) = fqfuse.InferenceSession(plan, runtime).run(None, feeds)
    (expected,) = run_ort(proto, feeds)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5 * np.abs(expected).max())


@EACH_RUNTIME
def test_what_changes_nothing_in_front_of_a_fed_scale(runtime: str) -> None:
    """Adding 0 leaves the division by the scale to be all that the step does."""
    proto = model(
        [node("Add", ["x", "zero"], ["a"]), node("QuantizeLinear", ["a", "s", "z"], ["q"])],
        constants={"zero": np.zeros(1, np.float32), "z": np.int8(0)},
        inputs={"x": (3,), "s": ()},
        outputs=["q"],
    )
    feeds = {"x": np.array([2.5, 5.0, -0.75], np.float32), "s": np.array(0.0625, np.float32)}
    session = fqfuse.InferenceSession(proto, runtime)
    np.testing.assert_array_equal(session.run(None, feeds)[0], run_ort(proto, feeds)[0])
