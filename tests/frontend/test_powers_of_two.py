"""float8e8m0, powers of two, as MX formats have their scales in: constants, casts, and quantizers."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx
import pytest
from laws.runtimes import EACH_RUNTIME
from onnx import TensorProto, helper
from support.onnx_cases import model, node

import fqfuse
from fqfuse.ir.ops.small_floats import decoded, power_of_two
from fqfuse.ir.types import DType

POWERS = TensorProto.FLOAT8E8M0
FLOAT = ml_dtypes.float8_e8m0fnu


def numbers() -> np.ndarray:
    """Around every power of two, and what is none."""
    powers = np.ldexp(np.float32(1), np.arange(-149, 128)).astype(np.float32)
    near = [np.nextafter(powers, np.float32(side)) for side in (0, np.inf)]
    found = np.concatenate([powers, *near, powers * np.float32(1.25), powers * np.float32(1.5)])
    odd = np.array([0, -0.0, np.inf, -np.inf, np.nan], np.float32)
    return np.concatenate([found, -found, odd])


def test_the_numbers_are_those_of_ml_dtypes() -> None:
    codes = np.arange(256, dtype=np.uint8).view(FLOAT)
    np.testing.assert_array_equal(decoded(DType.F8E8M0), codes.astype(np.float32))


@pytest.mark.parametrize("saturate", [True, False])
@pytest.mark.parametrize("how", ["up", "down", "nearest"])
def test_rounding_is_that_of_onnx(how: str, saturate: bool) -> None:
    with np.errstate(all="ignore"):
        x = numbers()
    wanted = onnx.numpy_helper.to_float8e8m0(x, saturate, how).astype(np.float32)
    np.testing.assert_array_equal(power_of_two(x, how, saturate=saturate), wanted)


@EACH_RUNTIME
@pytest.mark.parametrize("how", ["up", "down", "nearest"])
def test_casts_there_and_back(runtime: str, how: str) -> None:
    cast = node("Cast", ["x"], ["p"], to=POWERS, round_mode=how)
    proto = model(
        [cast, node("Cast", ["p"], ["y"], to=TensorProto.FLOAT)],
        inputs={"x": [5]},
        outputs=["p", "y"],
        opset=24,
    )
    proto.graph.output[0].type.tensor_type.elem_type = POWERS
    x = np.array([0.3, 1.0, 1.5, 3.0, 100.0], np.float32)
    power, back = fqfuse.InferenceSession(proto, runtime).run(None, {"x": x})
    assert power.dtype == FLOAT
    wanted = onnx.numpy_helper.to_float8e8m0(x, True, how)
    np.testing.assert_array_equal(back, wanted.astype(np.float32))
    np.testing.assert_array_equal(power.view(np.uint8), wanted.view(np.uint8))


@EACH_RUNTIME
@pytest.mark.parametrize("fed", [True, False])
def test_scales_of_quantizers(runtime: str, fed: bool) -> None:
    scale = np.array(2.0**-4, FLOAT)
    nodes = [
        node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        node("DequantizeLinear", ["q", "s", "z"], ["y"], output_dtype=TensorProto.FLOAT),
    ]
    proto = model(
        nodes,
        inputs={"x": [4], **({"s": []} if fed else {})},
        types={"s": POWERS},
        constants={"z": np.uint8(100)},
        opset=24,
    )
    if not fed:
        proto.graph.initializer.append(
            helper.make_tensor("s", POWERS, [], scale.tobytes(), raw=True)
        )
    x = np.array([-7.0, 0.03, 0.1, 20.0], np.float32)
    feeds = {"x": x, **({"s": scale} if fed else {})}
    (found,) = fqfuse.InferenceSession(proto, runtime).run(None, feeds)
    codes = np.clip(np.rint(x * 16) + 100, 0, 255)
    np.testing.assert_array_equal(found, ((codes - 100) / 16).astype(np.float32))
