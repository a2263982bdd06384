"""16-bit codes: a quantizer that is decoded at once is post-ops in f32; what else reads the codes
finds codes.
"""

from __future__ import annotations

import numpy as np
import pytest
from laws.build import Net
from laws.plans import compiled
from laws.runtimes import EACH_RUNTIME
from support import onnx_cases

import fqfuse
from fqfuse.ir.decision import DequantizeFate, Half, QuantizeFate
from fqfuse.ir.types import DType
from fqfuse.runtime.session import InferenceSession


@EACH_RUNTIME
@pytest.mark.parametrize("scale", [2**-8, -(2**-7)])
@pytest.mark.parametrize(
    ("dtype", "zero"),
    [(np.uint16, 0), (np.uint16, 32767), (np.uint16, 30000), (np.int16, 0), (np.int16, 7)],
)
@pytest.mark.parametrize("domain", ["", "com.microsoft"])
def test_ties_and_saturation_as_in_onnx_runtime(
    domain: str, dtype: type, zero: int, scale: float, runtime: str
) -> None:
    """Scales are powers of two, so that every tie is one in f32 too: round half even comes before
    an odd zero point.
    """
    ends = {"s": np.float32(scale), "z": dtype(zero)}
    nodes = [
        onnx_cases.node("QuantizeLinear", ["x", "s", "z"], ["q"], domain=domain),
        onnx_cases.node("DequantizeLinear", ["q", "s", "z"], ["y"], domain=domain),
    ]
    domains = {domain: 1} if domain else None
    proto = onnx_cases.model(nodes, inputs={"x": [2, 4, 64, 64]}, constants=ends, domains=domains)
    halves = np.random.default_rng(0).integers(-140000, 140000, (2, 4, 64, 64))
    x = (halves * (abs(scale) / 2)).astype(np.float32)
    plan = fqfuse.compile(proto.SerializeToString())
    assert [step.primitive for step in plan.steps] == ["eltwise"]
    (found,) = InferenceSession(plan, backend=runtime).run(None, {"x": x})
    np.testing.assert_array_equal(found, onnx_cases.run_ort(proto, {"x": x})[0])


def test_both_halves_are_post_ops_of_the_primitive_in_front() -> None:
    n = Net()
    y = n.qdq(n.conv(n.qdq(n.input(("N", 3, 4, 4)), 2**-6, 3), 4), 2**-10, 32767, DType.U16)
    plan = compiled(n, n.op("Relu", y))
    assert [step.primitive for step in plan.steps] == ["reorder", "convolution"]
    (quantizer,) = [
        name
        for name in plan.quantizers
        if any(
            fate.fate is QuantizeFate.POST_OP
            for fate in plan.fate_records
            if fate.quantizer == name
        )
    ]
    found = {
        fate.half: (fate.fate, fate.step)
        for fate in plan.fate_records
        if fate.quantizer == quantizer
    }
    assert found == {
        Half.QUANTIZE: (QuantizeFate.POST_OP, 1),
        Half.DEQUANTIZE: (DequantizeFate.POST_OP, 1),
    }


def test_equal_quantizers_around_a_movement_are_one() -> None:
    n = Net()
    y = n.qdq(n.conv(n.qdq(n.input((2, 3, 4, 4)), 2**-6, 3), 4), 2**-10, 32767, DType.U16)
    moved = n.qdq(n.op("Transpose", y, perm=(0, 2, 3, 1)), 2**-10, 32767, DType.U16)
    plan = compiled(n, n.op("MatMul", moved, n.weights((4, 3), style="float")))
    assert [step.primitive for step in plan.steps] == [
        "reorder",
        "convolution",
        "onnx.Transpose",
        "matmul",
    ]
    assert plan.type(plan.steps[2].output).dtype is DType.F32


def test_values_are_joined_before_they_are_rounded() -> None:
    n = Net()
    x = n.qdq(n.input((2, 3, 4, 4)), 2**-6, 3)
    joined = n.qdq(n.op("Concat", n.conv(x, 4), n.conv(x, 2), axis=1), 2**-10, 32767, DType.U16)
    plan = compiled(n, n.op("Softmax", joined, axis=1))
    assert [step.primitive for step in plan.steps] == [
        "reorder",
        "convolution",
        "convolution",
        "concat",
        "eltwise",
        "softmax",
    ]


def test_codes_that_the_model_returns_or_reads_stay_codes() -> None:
    n = Net()
    codes = n.q(n.input((2, 3, 4, 4)), 2**-10, 32767, DType.U16)
    plan = compiled(n, codes, n.dq(codes))
    assert [step.primitive for step in plan.steps] == ["onnx.Quantize", "onnx.Dequantize"]
    assert {fate.fate.value for fate in plan.fate_records} == {"fallback"}


def test_a_scale_without_a_reciprocal_in_f32_is_no_factor() -> None:
    n = Net()
    plan = compiled(n, n.qdq(n.input((2, 3, 4, 4)), 1e-39, 0, DType.U16))
    assert [step.primitive for step in plan.steps] == ["onnx.Quantize", "onnx.Dequantize"]
