"""Gates of squeeze and excitation in codes, and the addition behind them: on the library's compiled kernels."""

from __future__ import annotations

import numpy as np
import pytest
from onnxruntime.quantization import QuantFormat, QuantType
from support.onnx_cases import model, node, random
from support.ort_quantizer import quantized_by_ort

import fqfuse

CHANNELS = 32


@pytest.mark.parametrize("form", QuantFormat)
@pytest.mark.parametrize("kind", [QuantType.QUInt8, QuantType.QInt8])
def test_a_skip_behind_a_gate_stays_on_the_library(form: QuantFormat, kind: QuantType) -> None:
    """What is gated has a zero point, and is decoded: from f32 to u8 the library has a sum in its reference
    implementation only.
    """
    shapes = {"w0": [CHANNELS, CHANNELS, 1, 1], "w1": [CHANNELS, CHANNELS, 3, 3]}
    shapes |= {"w2": [CHANNELS, CHANNELS, 1, 1], "w3": [8, CHANNELS, 1, 1]}
    nodes = [
        node("Conv", ["x", "w0"], ["a"], name="stem"),
        node("Relu", ["a"], ["b"], name="relu"),
        node("Conv", ["b", "w1"], ["c"], name="conv", pads=[1] * 4),
        node("GlobalAveragePool", ["c"], ["d"], name="squeeze"),
        node("Conv", ["d", "w2"], ["e"], name="excite"),
        node("Sigmoid", ["e"], ["f"], name="gate"),
        node("Mul", ["c", "f"], ["g"], name="gated"),
        node("Add", ["g", "b"], ["h"], name="skip"),
        node("Relu", ["h"], ["i"], name="relu2"),
        node("Conv", ["i", "w3"], ["y"], name="head"),
    ]
    constants = {name: random(shape, 1, 0.2) for name, shape in shapes.items()}
    proto = model(nodes, inputs={"x": [1, CHANNELS, 16, 16]}, constants=constants)
    made = quantized_by_ort(proto, quant_format=form, activation_type=kind)
    session = fqfuse.InferenceSession(made)
    (gated,) = (each for each in session.placement() if "binary" in each.step.primitive)
    assert gated.runtime == "onednn", gated.reason
    feeds = {"x": random([1, CHANNELS, 16, 16], 2)}
    (there,) = session.run(None, feeds)
    (here,) = fqfuse.InferenceSession(made, "numpy").run(None, feeds)
    step = np.diff(np.unique(here)).min()  # one code of the output
    assert np.abs(there - here).max() <= 2 * step  # ties in the chain, which the convolution adds
