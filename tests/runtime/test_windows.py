"""Windows of a map as in Swin: what moves them moves codes, and the numbers are ONNX Runtime's."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from support.judge import ort_session

import fqfuse
from fqfuse.ir.types import DType

# A map is padded by nothing, shifted by a row and a column, cut into windows of 2x2, multiplied by a
# factor for each channel, quantized, multiplied, put together, shifted back and averaged.
TEXT = """
<ir_version: 8, opset_import: ["" : 17]>
windows (float[1, 4, 4, 8] x) => (float[1, 8] y) <
    float scale = {0.5}, uint8 zero = {10}, float one = {1.0}, int8 none = {0},
    int64[8] widths = {0, 0, 0, 0, 0, 0, 0, 0}, int64[6] parted = {1, 2, 2, 2, 2, 8}, int64[3] rows = {-1, 4, 8},
    int64[4] whole = {1, 4, 4, 8}, int64[1] b0 = {0}, int64[1] b1 = {1}, int64[1] b2 = {2}, int64[1] b3 = {3},
    int64[1] b9 = {9}
> {
    xc = QuantizeLinear (x, one, zero)
    xv = DequantizeLinear (xc, one, zero)
    vv = DequantizeLinear (v, one, none)
    m = MatMul (xv, vv)
    p = Pad (m, widths)
    p0 = Slice (p, b1, b9, b1)
    p1 = Slice (p, b0, b1, b1)
    q = Concat <axis = 1> (p0, p1)
    q0 = Slice (q, b1, b9, b2)
    q1 = Slice (q, b0, b1, b2)
    r = Concat <axis = 2> (q0, q1)
    s = Reshape (r, parted)
    t = Transpose <perm = [0, 1, 3, 2, 4, 5]> (s)
    u = Reshape (t, rows)
    f = Mul (u, factor)
    codes = QuantizeLinear (f, scale, zero)
    values = DequantizeLinear (codes, scale, zero)
    weights = DequantizeLinear (w, one, none)
    g = MatMul (values, weights)
    h = Reshape (g, parted)
    i = Transpose <perm = [0, 1, 3, 2, 4, 5]> (h)
    j = Reshape (i, whole)
    j0 = Slice (j, b3, b9, b1)
    j1 = Slice (j, b0, b3, b1)
    k = Concat <axis = 1> (j0, j1)
    y = ReduceMean <axes = [1, 2], keepdims = 0> (k)
}
"""


def model() -> onnx.ModelProto:
    """Whole numbers and powers of two, so that nothing is rounded but to codes."""
    rng = np.random.default_rng(0)
    made = onnx.parser.parse_model(TEXT)
    constants = {
        "v": rng.integers(-3, 4, (8, 8)).astype(np.int8),
        "w": rng.integers(-9, 9, (8, 8)).astype(np.int8),
        "factor": np.array([0.5, 2, 1, 0.25, 4, 1, 0.5, 2], np.float32),
    }
    made.graph.initializer.extend(numpy_helper.from_array(v, k) for k, v in constants.items())
    return made


@pytest.mark.parametrize("backend", ["numpy", "onednn"])
def test_the_numbers_are_those_of_onnx_runtime(backend: str) -> None:
    made = model()
    x = np.random.default_rng(1).integers(-4, 5, (1, 4, 4, 8)).astype(np.float32)
    expected = ort_session(made, optimized=True).run(None, {"x": x})[0]
    session = fqfuse.InferenceSession(fqfuse.compile(made), backend=backend)
    np.testing.assert_array_equal(session.run(None, {"x": x})[0], expected)


def test_windows_are_moved_as_codes_that_the_product_in_front_stores() -> None:
    plan = fqfuse.compile(model())
    kinds = [step.primitive for step in plan.steps]
    first, last = (at for at, kind in enumerate(kinds) if kind == "matmul")
    assert {plan.type(step.output).dtype for step in plan.steps[:last]} == {DType.U8}
    assert not {"onnx.Pad", "binary", "reorder", "reduction"} & set(kinds[first:])
