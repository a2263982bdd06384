"""A FakeQuantize whose output is a grid of integers, and a Cast to their type: the store of codes.
And back, as OpenVINO's low precision transformations write it: codes, Cast, Sub, Mul.
"""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from laws.plans import refusals
from onnx import TensorProto, helper
from support.onnx_cases import model, node, random, run_ort

import fqfuse
from fqfuse.ir.decision import DequantizeFate, Half
from fqfuse.ir.types import DType

OPENVINO = "org.openvinotoolkit"
RUNTIMES = ("numpy", "onednn")
RANGES = ("input_low", "input_high", "output_low", "output_high")
X = np.concatenate([random((1000,), scale=2), np.linspace(-4, 4, 1073)]).astype(np.float32)
X = X[: 3 * 691].reshape(1, 3, 691, 1)


def fake_quantized(x, low, high, first, levels):
    """The definition in f64, onto the integers from `first` on."""
    low, high = np.float64(np.float32(low)), np.float64(np.float32(high))
    with np.errstate(all="ignore"):  # a threshold's bounds are equal, and it has no grid
        grid = np.rint((x - low) / (high - low) * (levels - 1)) + first
    return np.where(x <= low, first, np.where(x > high, first + levels - 1, grid))


def cast_of(low, high, first, levels, to) -> onnx.ModelProto:
    """x -> FakeQuantize -> Cast -> y."""
    ranges = dict(zip(RANGES, (low, high, first, first + levels - 1), strict=True))
    constants = {name: np.asarray(value, np.float32) for name, value in ranges.items()}
    nodes = [
        node("FakeQuantize", ["x", *RANGES], ["f"], name="fq", domain=OPENVINO, levels=levels),
        node("Cast", ["f"], ["y"], name="cast", to=to),
    ]
    return model(nodes, inputs={"x": X.shape}, constants=constants, domains={OPENVINO: 1})


PER_CHANNEL = np.float32([1, 2, 4]).reshape(1, 3, 1, 1)


@pytest.mark.parametrize("backend", RUNTIMES)
@pytest.mark.parametrize("target", ["onednn-v3", "onednn-v2", "unified"])
@pytest.mark.parametrize(
    ("low", "high", "first", "levels", "to"),
    [
        (0, 2.55, 0, 256, TensorProto.UINT8),
        (-1.28, 1.27, -128, 256, TensorProto.INT8),
        (-1, 1, -128, 256, TensorProto.INT8),
        (-1, 1, -127, 255, TensorProto.INT8),
        (0.3, 2, 0, 128, TensorProto.INT8),
        (0.3, 2, 0, 128, TensorProto.UINT8),
        (-1, 2, 40, 16, TensorProto.INT8),
        (-PER_CHANNEL, PER_CHANNEL, -127, 255, TensorProto.INT8),
        (-PER_CHANNEL, PER_CHANNEL, 0, 200, TensorProto.UINT8),
        (0.5, 0.5, 0, 2, TensorProto.UINT8),
    ],
)
def test_a_cast_of_a_grid_of_integers_is_one_store(
    low, high, first, levels, to, target, backend
) -> None:
    proto = cast_of(low, high, first, levels, to)
    plan = fqfuse.compile(proto, target=target)
    (step,) = plan.steps
    assert plan.type(step.output).dtype is {2: DType.U8, 3: DType.S8}[to]
    (fate,) = (fate for fate in plan.fate_records if fate.half is Half.DEQUANTIZE)
    assert (fate.fate, fate.consumer) == (DequantizeFate.REDUNDANT, "cast")
    (found,) = fqfuse.InferenceSession(plan, backend=backend).run(None, {"x": X})
    assert found.dtype == helper.tensor_dtype_to_np_dtype(to)
    wanted = fake_quantized(X, low, high, first, levels)
    # the other code, where f32 divides next to a tie
    off = found != wanted
    step_size = np.maximum((np.float64(high) - low) / (levels - 1), 2.0**-20)
    place = np.broadcast_to((X - np.float64(low)) / step_size, X.shape)
    assert np.abs(found - wanted).max() <= 1
    assert (np.abs(place[off] - np.floor(place[off]) - 0.5) < 1e-4).all()
    assert off.mean() < 0.01
    assert len(np.unique(found)) > 0.9 * levels


@pytest.mark.parametrize(
    ("first", "levels", "to"),
    [(-128, 256, TensorProto.UINT8), (0, 256, TensorProto.INT8), (-1, 257, TensorProto.INT8)],
)
def test_a_cast_that_may_wrap_around_stays(first, levels, to) -> None:
    plan = fqfuse.compile(cast_of(-1, 1, first, levels, to))
    assert any("cast" in step.origin for step in plan.steps)
    if levels <= 256:
        assert refusals(plan, "is not surely one of its integers")


def decoded_by_arithmetic(kind, zero, *, pooled: bool) -> onnx.ModelProto:
    """x -> Conv in codes -> QuantizeLinear -> (MaxPool) -> Cast -> Sub -> Mul -> Conv -> y.

    All scales are powers of two and zero points even: f32 is exact then, and ties go the same way.
    """
    rng = np.random.default_rng(3)
    constants = {
        "sx": np.float32(2**-4),
        "zx": np.uint8(128),
        "sm": np.float32(2**-3),
        "zm": kind(zero),
        "zero": np.float32(zero),
        "w": rng.integers(-127, 128, (4, 3, 3, 3)).astype(np.int8),
        "v": rng.integers(-127, 128, (5, 4, 1, 1)).astype(np.int8),
        "sw": np.float32(2**-8),
    }
    nodes = [
        node("QuantizeLinear", ["x", "sx", "zx"], ["xq"], name="xq"),
        node("DequantizeLinear", ["xq", "sx", "zx"], ["xd"], name="xd"),
        node("DequantizeLinear", ["w", "sw"], ["wd"], name="wd"),
        node("Conv", ["xd", "wd"], ["c"], name="conv"),
        node("QuantizeLinear", ["c", "sm", "zm"], ["q"], name="q"),
        node("MaxPool", ["q"], ["p"], name="pool", kernel_shape=[2, 2]),
        node("Cast", ["p" if pooled else "q"], ["wide"], name="cast", to=TensorProto.FLOAT),
        node("Sub", ["wide", "zero"], ["shifted"], name="sub"),
        node("Mul", ["sm", "shifted"], ["d"], name="mul"),
        node("DequantizeLinear", ["v", "sw"], ["vd"], name="vd"),
        node("Conv", ["d", "vd"], ["y"], name="conv2"),
    ]
    return model(nodes, inputs={"x": [2, 3, 9, 9]}, constants=constants)


@pytest.mark.parametrize("backend", RUNTIMES)
@pytest.mark.parametrize("pooled", [False, True])
@pytest.mark.parametrize(("kind", "zero"), [(np.uint8, 100), (np.int8, 0), (np.int8, -6)])
def test_codes_decoded_by_arithmetic_are_read_as_codes(kind, zero, pooled, backend) -> None:
    proto = decoded_by_arithmetic(kind, zero, pooled=pooled)
    plan = fqfuse.compile(proto)
    assert [step.primitive for step in plan.steps] == [
        "reorder",
        "convolution",
        *(["pooling"] if pooled else []),
        "convolution",
    ]
    step = plan.steps[-1]
    assert plan.type(step.arg("src")).dtype.is_code
    assert {"cast", "sub", "mul"} <= set(step.origin)
    (fate,) = (f for f in plan.fate_records if f.quantizer == "q" and f.half is Half.DEQUANTIZE)
    assert fate.fate is DequantizeFate.SOURCE_SCALE
    x = random((2, 3, 9, 9), 8, 2)
    (found,) = fqfuse.InferenceSession(plan, backend=backend).run(None, {"x": x})
    (wanted,) = run_ort(proto, {"x": x})
    np.testing.assert_array_equal(found, wanted)
    assert len(np.unique(wanted)) > 100


def low_precision() -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """x -> FakeQuantize onto u8 -> Cast -> Cast -> Sub -> Mul -> Conv with weights that are Cast ->
    Sub -> Mul, as OpenVINO's low precision transformations leave a network; scales are powers of
    two.
    """
    rng = np.random.default_rng(4)
    constants = dict(zip(RANGES, np.float32([-100 / 64, 155 / 64, 0, 255]), strict=True))
    constants |= {
        "z": np.float32(100),
        "s": np.float32(2**-6),
        "w": rng.integers(-127, 128, (4, 3, 3, 1)).astype(np.int8),
        "zw": np.int8(0),
        "sw": np.float32(2.0 ** -np.arange(5, 9)).reshape(4, 1, 1, 1),
    }
    wide = {"to": TensorProto.FLOAT}
    nodes = [
        node("FakeQuantize", ["x", *RANGES], ["f"], name="fq", domain=OPENVINO, levels=256),
        node("Cast", ["f"], ["q"], name="store", to=TensorProto.UINT8),
        node("Cast", ["q"], ["qf"], name="load", **wide),
        node("Sub", ["qf", "z"], ["qz"], name="sub"),
        node("Mul", ["qz", "s"], ["d"], name="mul"),
        node("Cast", ["w"], ["wf"], name="weights", **wide),
        node("Cast", ["zw"], ["zf"], name="weights_zero", **wide),
        node("Sub", ["wf", "zf"], ["wz"], name="weights_sub"),
        node("Mul", ["wz", "sw"], ["wd"], name="weights_mul"),
        node("Conv", ["d", "wd"], ["y"], name="conv"),
    ]
    proto = model(nodes, inputs={"x": X.shape}, constants=constants, domains={OPENVINO: 1})
    return proto, constants


@pytest.mark.parametrize("backend", RUNTIMES)
def test_what_low_precision_transformations_leave_runs_in_int8(backend) -> None:
    proto, constants = low_precision()
    plan = fqfuse.compile(proto)
    assert [step.primitive for step in plan.steps] == ["reorder", "convolution"]
    assert plan.type(plan.steps[0].output).dtype is DType.U8
    x = np.rint(X * 1024) / np.float32(1024)
    (found,) = fqfuse.InferenceSession(plan, backend=backend).run(None, {"x": x})
    codes = fake_quantized(x, -100 / 64, 155 / 64, 0, 256) - 100
    taps = [codes[:, :, k : k + x.shape[2] - 2, 0] for k in range(3)]
    weights = constants["w"].astype(np.float64)
    sums = [np.einsum("nch,oc->noh", tap, weights[:, :, k, 0]) for k, tap in enumerate(taps)]
    step = constants["s"] * constants["sw"].reshape(1, 4, 1, 1)
    np.testing.assert_array_equal(found, sum(sums)[..., None] * step)
