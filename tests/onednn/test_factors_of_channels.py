"""Codes of a map times codes for each channel that are computed at run time, as in squeeze and
excitation: on a large map a depthwise convolution, whose numbers are ONNX Runtime's and NumPy's.
"""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from support.judge import ort_session

import fqfuse
from fqfuse.plan.attributes import Eltwise
from fqfuse.plan.types import Plan

# Scales are powers of two, so that ONNX Runtime, which decodes both, rounds nothing either.
TEXT = """
<ir_version: 8, opset_import: ["" : 17]>
excite (KIND[1, SIDE, SIDE, CHANNELS] x, uint8[1, CHANNELS, 1, 1] f) => (uint8[1, SIDE, SIDE, CHANNELS] y) <
    float a = {0.0625}, float b = {0.00390625}, uint8 none = {0}, float c = {0.03125}, uint8 z = {128}
> {
    maps = Transpose <perm = [0, 3, 1, 2]> (x)
    values = DequantizeLinear (maps, a, zero)
    factors = DequantizeLinear (f, b, none)
    product = Mul (ORDER)
    clipped = ACT (product)
    codes = QuantizeLinear (clipped, c, z)
    y = Transpose <perm = [0, 2, 3, 1]> (codes)
}
"""


def model(kind: str, side: int, channels: int, order: str, act: str) -> onnx.ModelProto:
    """The model by its text; `act`: what stands between the product and its quantizer."""
    text = TEXT.replace("KIND", kind).replace("SIDE", str(side)).replace("CHANNELS", str(channels))
    made = onnx.parser.parse_model(text.replace("ORDER", order).replace("ACT", act))
    zero = numpy_helper.from_array(np.zeros((), kind), "zero")
    made.graph.initializer.append(zero)
    return made


def feeds(kind: str, side: int, channels: int) -> dict[str, np.ndarray]:
    rng, info = np.random.default_rng(channels), np.iinfo(kind)
    x = rng.integers(info.min, info.max + 1, (1, side, side, channels)).astype(kind)
    return {"x": x, "f": rng.integers(0, 256, (1, channels, 1, 1)).astype(np.uint8)}


def product_of(plan: Plan) -> str:
    (name,) = (step.name for step in plan.steps if step.primitive == "binary")
    return name


@pytest.mark.parametrize("act", ["Identity", "Relu", "Tanh"])
@pytest.mark.parametrize("order", ["values, factors", "factors, values"])
@pytest.mark.parametrize("channels", [1, 7, 32, 144])
@pytest.mark.parametrize("kind", ["int8", "uint8"])
def test_the_numbers_are_those_of_onnx_runtime(
    kind: str, channels: int, order: str, act: str
) -> None:
    made, given = model(kind, 28, channels, order, act), feeds(kind, 28, channels)
    expected = ort_session(made, optimized=True).run(None, given)[0].astype(int)
    plan = fqfuse.compile(made)
    for backend in ("numpy", "onednn"):
        found = fqfuse.InferenceSession(plan, backend=backend, threads=1).run(None, given)[0]
        # a tanh by polynomials may miss a code by one
        assert abs(found.astype(int) - expected).max() <= (act == "Tanh")


@pytest.mark.parametrize(("side", "convolves"), [(28, True), (14, False)])
def test_a_large_map_is_multiplied_by_a_convolution(side: int, convolves: bool) -> None:
    plan = fqfuse.compile(model("int8", side, 32, "factors, values", "Identity"))
    session = fqfuse.InferenceSession(plan, backend="onednn", threads=1)
    (placed,) = (p for p in session.placement() if p.step.name == product_of(plan))
    by_convolution = any(kind in placed.implementation for kind in ("int8", "brdgmm_dw"))
    assert by_convolution == convolves


def test_the_scales_of_both_are_one_factor_behind_the_product() -> None:
    plan = fqfuse.compile(model("int8", 8, 16, "values, factors", "Identity"))
    (step,) = (step for step in plan.steps if step.primitive == "binary")
    assert not step.attr.scales
    assert step.attr.post_ops == (Eltwise("linear", 2.0**-7, 128.0),)
