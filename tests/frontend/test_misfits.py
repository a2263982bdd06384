"""Models whose parts do not fit each other, where a part that nothing is known of stands beside
them: they are refused at import, in words, and never reach a pass.
"""

from __future__ import annotations

import numpy as np
import onnx.numpy_helper
import onnx.parser
import pytest

import fqfuse

MISFITS = {
    "sum beside an unknown rank": (
        "(float[0, 3] a, float[2, 1] b, float[] c) => (float[] y) { y = Sum(a, b, c) }",
        "do not broadcast",
    ),
    "largest beside an unknown rank": (
        "(float[2, 3] a, float[2, 2] b, float[] c) => (float[] y) { y = Max(c, a, b) }",
        "do not broadcast",
    ),
    "matrix beside an unknown rank": (
        "(float[] a, float[0, 1, 3, 0] b) => (float[] y) { y = Gemm <transB = 1> (a, b) }",
        "b must have 2 dimensions",
    ),
    "normalization of an unknown rank": (
        (
            "(float[] x) => (float[] y) <float[2] s = {1, 1}, float[4] b = {1, 1, 1, 1}> "
            "{ y = BatchNormalization(x, s, b, s, s) }"
        ),
        "bias must have 2 entries",
    ),
    "normalization of symbolic channels": (
        (
            "(float[1, C, 2, 2] x) => (float[] y) <float[2] s = {1, 1}, float[4] b = {1, 1, 1, 1}> "
            "{ y = BatchNormalization(x, s, b, s, s) }"
        ),
        "bias must have 2 entries",
    ),
    "more pieces than sizes": (
        "(float[4] x, int64[2] s) => (float[] a, float[] b, float[] c) { a, b, c = Split(x, s) }",
        "3 outputs, and 2 sizes",
    ),
    "fewer pieces than sizes": (
        "(float[4] x) => (float[] a, float[] b) <int64[3] s = {1, 1, 2}> { a, b = Split(x, s) }",
        "2 outputs, and 3 sizes",
    ),
    "einsum of nothing": (
        '() => (float[] y) { y = Einsum <equation = "i->i"> ("") }',
        "needs its input 0",
    ),
    "infinite scale": (
        '(float[N] x) => (float[] y) <float[1] s = {inf}> { y = Resize(x, "", s) }',
        "scales must be finite",
    ),
}


def parsed(text: str) -> onnx.ModelProto:
    """The model; `[]` stands for an unknown rank."""
    model = onnx.parser.parse_model(
        f'<ir_version: 9, opset_import: ["": 18, "org.openvinotoolkit": 1]> g {text}'
    )
    for value in (*model.graph.input, *model.graph.output):
        if not value.type.tensor_type.shape.dim:
            value.type.tensor_type.ClearField("shape")
    return model


@pytest.mark.parametrize("case", MISFITS)
def test_a_misfit_is_an_invalid_model(case: str) -> None:
    text, message = MISFITS[case]
    model = parsed(text)
    if case == "einsum of nothing":  # the parser has no word for an absent input
        model.graph.node[0].input[:] = [""]
    with pytest.raises(fqfuse.InvalidModel) as caught:
        fqfuse.compile(model)
    assert message in str(caught.value)


@pytest.mark.parametrize("scale", [np.inf, 1e38])
def test_a_size_beyond_f32_is_an_invalid_input(scale: float) -> None:
    model = parsed('(float[9] x, float[1] s) => (float[] y) { y = Resize(x, "", s) }')
    model.graph.node[0].input[1] = ""
    session = fqfuse.InferenceSession(model, backend="numpy")
    with pytest.raises(fqfuse.InvalidInput):
        session.run(None, {"x": np.zeros(9, np.float32), "s": np.array([scale], np.float32)})


# -- what fits, beside something unusual -----------------------------------------------------------


@pytest.mark.parametrize("backend", ["numpy", "auto"])
def test_ranges_may_tell_how_many_channels_there_are(backend: str) -> None:
    """An inverted range is written in post-ops, which keep the shape of what they work on."""
    model = parsed(
        "(float[1, C, 2, 2] x) => (float[] y) <float il = {0}, float ih = {-1.6}, "
        "float[1, 4, 1, 1] ol = {0.1, 0.2, -0.3, 0.4}, float oh = {0.5}> "
        "{ y = org.openvinotoolkit.FakeQuantize <levels = 256> (x, il, ih, ol, oh) }"
    )
    session = fqfuse.InferenceSession(model, backend=backend)
    (y,) = session.run(None, {"x": np.full((1, 4, 2, 2), 0.3, np.float32)})
    np.testing.assert_allclose(y, 0.5, rtol=1e-6)


@pytest.mark.parametrize("target", ["onednn-v3", "onednn-v2", "unified"])
def test_a_scale_without_a_reciprocal_stays_as_it_is(target: str) -> None:
    model = parsed(
        "(float[3] x) => (float[] y) { q = QuantizeLinear(x, s, z) y = Cast <to = 1> (q) }"
    )
    model.graph.initializer.extend(
        [
            onnx.numpy_helper.from_array(np.array(1e-40, np.float32), "s"),
            onnx.numpy_helper.from_array(np.array(7, np.int8), "z"),
        ]
    )
    plan = fqfuse.compile(model, target=target)
    (y,) = fqfuse.InferenceSession(plan, backend="numpy").run(
        None, {"x": np.array([-1e-39, 0.0, 1e-39], np.float32)}
    )
    np.testing.assert_array_equal(y, np.array([-3, 7, 17], np.float32))


@pytest.mark.parametrize("backend", ["numpy", "auto"])
def test_a_text_without_dimensions_is_an_object(backend: str) -> None:
    model = parsed("(string x, int64[0] pads) => (string y) { y = Pad(x, pads) }")
    for value in (model.graph.input[0], model.graph.output[0]):
        value.type.tensor_type.shape.SetInParent()
    session = fqfuse.InferenceSession(model, backend=backend)
    (y,) = session.run(None, {"x": np.array("é", object), "pads": np.zeros(0, np.int64)})
    assert y.dtype == object
    assert y.shape == ()
    assert y.item() == "é"


@pytest.mark.parametrize("backend", ["numpy", "auto"])
def test_scales_along_an_axis_that_is_shorter_in_a_run_are_refused(backend: str) -> None:
    """NumPy would broadcast them."""
    model = parsed(
        "(float[1, 4, N, 4] x, float[4] s) => (int8[] y) <int8[4] z = {0, 0, 0, 0}> "
        "{ y = QuantizeLinear <axis = 2> (x, s, z) }"
    )
    session = fqfuse.InferenceSession(model, backend=backend)
    with pytest.raises(fqfuse.InvalidInput, match="must have the shape \\[1\\]"):
        session.run(None, {"x": np.ones((1, 4, 1, 4), np.float32), "s": np.ones(4, np.float32)})


@pytest.mark.parametrize("target", ["onednn-v3", "onednn-v2", "unified"])
@pytest.mark.parametrize("op", ["Conv", "ConvTranspose"])
def test_quantized_weights_that_are_fed_run_unfused(op: str, target: str) -> None:
    model = parsed(
        "(float[1, 2, 4, 4] x, float[2, 2, 1, 1] w) => (float[] y) <float s = {0.5}, int8 z = {0}> "
        "{ q = QuantizeLinear(x, s, z) d = DequantizeLinear(q, s, z) "
        "  p = QuantizeLinear(w, s, z) e = DequantizeLinear(p, s, z) "
        f"  y = {op}(d, e) }}"
    )
    plan = fqfuse.compile(model, target=target)
    x, w = np.ones((1, 2, 4, 4), np.float32), np.full((2, 2, 1, 1), 1.5, np.float32)
    for backend in ("numpy", "auto"):
        (y,) = fqfuse.InferenceSession(plan, backend=backend).run(None, {"x": x, "w": w})
        np.testing.assert_array_equal(y, np.full((1, 2, 4, 4), 3.0, np.float32))
