"""u8 weights by any zero point, one or one for each output channel, on both runtimes: int8, and the
numbers of exact arithmetic.
"""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto
from support.onnx_cases import model, node

import fqfuse
from fqfuse.ir.ops.convolution import convolve
from fqfuse.ir.ops.windows import window
from fqfuse.ir.types import DType
from fqfuse.plan.types import Plan

EACH_RUNTIME = pytest.mark.parametrize("runtime", ["numpy", "onednn"])
RNG = np.random.default_rng(5)
X_SCALE, X_ZERO = np.float32(0.02), np.uint8(117)


def whole_range(*shape: int) -> np.ndarray:
    """u8 codes, each output channel of which holds 0 and 255."""
    codes = RNG.integers(0, 256, shape).astype(np.uint8)
    columns = codes if len(shape) == 2 else np.moveaxis(codes.reshape(shape[0], -1), 0, 1)
    columns[0], columns[1] = 0, 255
    return codes


KERNEL, MATRIX = whole_range(18, 8, 3, 3), whole_range(70, 18)
SCALES = RNG.uniform(0.001, 0.003, 18).astype(np.float32)
ZEROS = RNG.integers(0, 256, 18).astype(np.uint8)
BIAS = RNG.standard_normal(18).astype(np.float32)
PARAMETERS = {
    "one": (np.float32(0.002), np.uint8(119)),
    "scales": (SCALES, np.full(18, 119, np.uint8)),
    "zero_points": (SCALES, ZEROS),
}
"""Scale and zero point of the weights: one, or one for each output channel."""


def product(op: str, which: str, *, dynamic: bool, relu: bool = False) -> onnx.ModelProto:
    scale, zero = PARAMETERS[which]
    constants = {"w": KERNEL if op == "Conv" else MATRIX, "ws": scale, "wz": zero, "b": BIAS}
    inputs = {"x": ["N", 8, 7, 6] if op == "Conv" else ["N", 70]}
    nodes = [
        node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"])
        if dynamic
        else node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        node("DequantizeLinear", ["q", "s", "z"], ["d"]),
        node("DequantizeLinear", ["w", "ws", "wz"], ["v"], axis=0 if op == "Conv" else 1),
    ]
    inputs_of = {"Conv": ["d", "v", "b"], "Gemm": ["d", "v", "b"], "MatMul": ["d", "v"]}
    attributes = {"pads": [1, 1, 0, 2], "strides": [1, 2]} if op == "Conv" else {}
    nodes.append(node(op, inputs_of[op], ["p"], **attributes))
    nodes.append(node("Relu" if relu else "Identity", ["p"], ["y"]))
    if not dynamic:
        constants |= {"s": X_SCALE, "z": X_ZERO}
    return model(nodes, inputs=inputs, constants=constants)


def exactly(op: str, which: str, codes: np.ndarray, scale: float, zero: int) -> np.ndarray:
    """The product of what the codes stand for, in f64."""
    s, z = (np.asarray(value, np.float64).reshape(-1) for value in PARAMETERS[which])
    x = (codes.astype(np.float64) - zero) * scale
    if op == "Conv":
        along = (-1, 1, 1, 1)
        attrs = {"pads": (1, 1, 0, 2), "strides": (1, 2), "dilations": (), "auto_pad": "NOTSET"}
        win = window({**attrs, "kernel_shape": ()}, (7, 6), (3, 3))
        y = convolve(x, (KERNEL - z.reshape(along)) * s.reshape(along), win, 1)
        return y + BIAS.reshape(1, -1, 1, 1)
    return x @ ((MATRIX - z) * s) + (BIAS if op == "Gemm" else 0)


def quantized(x: np.ndarray, *, dynamic: bool) -> tuple[np.ndarray, float, int]:
    """Codes, scale and zero point by ONNX's definitions."""
    if not dynamic:
        codes = np.clip(np.rint(x / X_SCALE) + X_ZERO, 0, 255)
        return codes, float(X_SCALE), int(X_ZERO)
    low, high = min(x.min(), np.float32(0)), max(x.max(), np.float32(0))
    scale = np.float32((high - low) / np.float32(255))
    zero = np.clip(np.rint(-low / scale), 0, 255)
    return np.clip(np.rint(x / scale) + zero, 0, 255), float(scale), int(zero)


def all_in_int8(plan: Plan) -> bool:
    """No product of f32 but that of the windows' sums."""
    products = [step for step in plan.steps if step.primitive in ("matmul", "convolution")]
    return all(
        plan.type(step.arg("src")).dtype is not DType.F32
        or plan.type(step.arg("src")).shape[1] == 1
        for step in products
    )


@EACH_RUNTIME
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("which", PARAMETERS)
@pytest.mark.parametrize("op", ["Conv", "MatMul", "Gemm"])
def test_asymmetric_weights_are_multiplied_in_int8(
    op: str, which: str, dynamic: bool, runtime: str
) -> None:
    plan = fqfuse.compile(product(op, which, dynamic=dynamic))
    assert all_in_int8(plan)
    session = fqfuse.InferenceSession(plan, runtime, 2)
    for batch in (1, 3):
        shape = (batch, 8, 7, 6) if op == "Conv" else (batch, 70)
        x = (np.random.default_rng(batch).standard_normal(shape) * 0.8).astype(np.float32)
        (found,) = session.run(None, {"x": x})
        codes, scale, zero = quantized(x, dynamic=dynamic)
        expected = exactly(op, which, codes, scale, zero)
        # two sums of 72 products up to 255 * 128 quanta, each rounded to f32, and their sum
        quantum = 72 * 255 * 128 * scale * float(np.max(PARAMETERS[which][0]))
        np.testing.assert_allclose(found, expected, rtol=0, atol=3 * 2.0**-24 * quantum)
    if runtime == "onednn":
        steps = [p for p in session.placement() if p.step.primitive in ("matmul", "convolution")]
        assert {p.runtime for p in steps} == {"onednn"}, [p.reason for p in steps]


def test_few_products_stay_f32_and_say_why() -> None:
    constants = {"w": whole_range(4, 2, 1, 1), "ws": np.float32(0.01), "wz": np.uint8(120)}
    built = model(
        [
            node("DequantizeLinear", ["q", "s", "z"], ["d"]),
            node("DequantizeLinear", ["w", "ws", "wz"], ["v"]),
            node("Conv", ["d", "v"], ["y"]),
        ],
        inputs={"q": [1, 2, 4, 4]},
        constants={**constants, "s": X_SCALE, "z": X_ZERO},
        types={"q": TensorProto.UINT8},
    )
    reasons = [
        d.reason
        for d in fqfuse.compile(built).decision_records
        if d.rule == "split_weights_zero_point"
    ]
    assert reasons == ["the sum of the source would cost what int8 saves"]


@EACH_RUNTIME
@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize(("low", "high"), [(-1.0, 1.0), (-0.9, 1.1)])
@pytest.mark.parametrize("op", ["Conv", "MatMul"])
def test_zero_points_of_weights_that_are_no_integers(
    op: str, low: float, high: float, per_channel: bool, runtime: str
) -> None:
    """FakeQuantize of weights by -h..h in 256 levels: the zero point 127.5; the source's is 127.5,
    or an integer.
    """
    rng = np.random.default_rng(8)
    channels = (18, 1, 1, 1) if op == "Conv" else (18,)
    wide = rng.uniform(0.1, 0.4, channels if per_channel else ())
    constants = {
        "w": rng.uniform(-0.5, 0.5, KERNEL.shape if op == "Conv" else MATRIX.shape),
        "xl": low,
        "xh": high,
        "wl": -wide,
        "wh": wide,
    }
    constants = {name: np.asarray(data, np.float32) for name, data in constants.items()}
    quantizers = [
        node(
            "FakeQuantize",
            [name, f"{name}l", f"{name}h", f"{name}l", f"{name}h"],
            [f"{name}q"],
            levels=256,
            domain="org.openvinotoolkit",
        )
        for name in "xw"
    ]
    padded = {"pads": [1, 1, 0, 2], "strides": [1, 2]} if op == "Conv" else {}
    shape = (8, 7, 6) if op == "Conv" else (70,)
    built = model(
        [*quantizers, node(op, ["xq", "wq"], ["y"], **padded)],
        inputs={"x": ["N", *shape]},
        constants=constants,
    )
    plan = fqfuse.compile(built)
    assert all_in_int8(plan)
    x = rng.uniform(low * 1.1, high * 1.1, (2, *shape)).astype(np.float32)
    (found,) = fqfuse.InferenceSession(plan, runtime).run(None, {"x": x})
    real = {}
    for name, data in (("x", x), ("w", constants["w"])):
        least, most = (constants[f"{name}{end}"].astype(np.float64) for end in "lh")
        step = (most - least) / 255
        real[name] = np.rint((np.clip(data, least, most) - least) / step) * step + least
    if op == "Conv":
        attrs = {**{key: tuple(value) for key, value in padded.items()}, "dilations": ()}
        win = window({**attrs, "auto_pad": "NOTSET", "kernel_shape": ()}, (7, 6), (3, 3))
        expected = convolve(real["x"], real["w"], win, 1)
    else:
        expected = real["x"] @ real["w"]
    # Sums of 72 products as above. A draw next to a tie of its quantizer has another code in f64
    # than in f32; there is none among these.
    bound = 72 * 255 * 128 * (high - low) / 255 * float(wide.max()) * 2 / 255
    np.testing.assert_allclose(found, expected, rtol=0, atol=4 * 2.0**-24 * bound)
