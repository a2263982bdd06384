"""What a layer adds, what has accumulated, and why: on networks whose noise is known."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support.onnx_cases import model, node, random

import fqfuse
from fqfuse.accuracy.layers import Cause, Layer, measure_layers
from fqfuse.accuracy.matching import pairs_of
from fqfuse.accuracy.words import reason_of
from fqfuse.frontend import graph_from_onnx

SCALE, ZERO = np.float32(0.05), np.uint8(128)
WEIGHTS = random([4, 4], 3)


def f32_model() -> Any:
    """y = relu(x @ w) @ w."""
    nodes = [
        node("MatMul", ["x", "w"], ["product"], name="first"),
        node("Relu", ["product"], ["positive"], name="relu"),
        node("MatMul", ["positive", "w"], ["y"], name="second"),
    ]
    return model(nodes, inputs={"x": [2, 4]}, constants={"w": WEIGHTS})


def int8_model(scale: Any = 0.05, zero: Any = 0, *, weights: Any = WEIGHTS) -> Any:
    """The same as ONNX Runtime writes it: the Relu went into a quantizer, its value's name to the first product."""
    nodes = [
        node("MatMul", ["x", "w"], ["positive"], name="first"),
        node(
            "QuantizeLinear", ["positive", "s", "z"], ["positive_QuantizeLinear_Output"], name="q"
        ),
        node(
            "DequantizeLinear",
            ["positive_QuantizeLinear_Output", "s", "z"],
            ["positive_DequantizeLinear_Output"],
            name="d",
        ),
        node("MatMul", ["positive_DequantizeLinear_Output", "v"], ["y"], name="second"),
    ]
    constants = {"w": weights, "v": WEIGHTS, "s": np.float32(scale), "z": np.uint8(zero)}
    return model(nodes, inputs={"x": [2, 4]}, constants=constants)


def layers_of(int8: Any, x: Any) -> dict[str, Layer]:
    f32, other = graph_from_onnx(f32_model()), graph_from_onnx(int8)
    pairs, _ = pairs_of(f32, other)
    found = measure_layers(f32, other, pairs, [{"x": x}], {})
    return {layer.pair.name: layer for layer in found.layers}


def sqnr(wanted: Any, found: Any) -> float:
    wanted, found = (np.asarray(value, np.float64) for value in (wanted, found))
    return float(10 * np.log10((wanted**2).sum() / ((wanted - found) ** 2).sum()))


X = random([2, 4], 5)
POSITIVE = np.maximum(X @ WEIGHTS, 0)


def rounded(values: Any, scale: float, zero: int = 0) -> Any:
    return (np.clip(np.rint(values / scale) + zero, 0, 255) - zero) * scale


def test_the_relu_that_a_quantizer_took_over_is_no_error() -> None:
    layers = layers_of(int8_model(), X)
    quantized = layers["positive"]
    # f32 sums in another order than this test's numpy at most
    assert quantized.added.sqnr == pytest.approx(sqnr(POSITIVE, rounded(POSITIVE, 0.05)), abs=1e-2)
    assert quantized.computed.noise == 0
    assert quantized.cause is Cause.COARSE
    assert quantized.pair.layer == "first"


def test_a_layer_fed_with_f32_adds_nothing_where_only_others_quantize() -> None:
    layers = layers_of(int8_model(), X)
    assert layers["y"].added.noise == 0
    wanted = POSITIVE @ WEIGHTS
    found = rounded(POSITIVE, 0.05) @ WEIGHTS
    assert layers["y"].total.sqnr == pytest.approx(sqnr(wanted, found), abs=1e-2)


def test_a_relu_that_nothing_does_is_missing() -> None:
    """A range from -6.4 on, and no Relu in front of it."""
    layer = layers_of(int8_model(zero=128), X)["positive"]
    assert (layer.cause, layer.pair.missing) == (Cause.MISSING, "relu")
    assert layer.added.sqnr == pytest.approx(sqnr(POSITIVE, rounded(X @ WEIGHTS, 0.05, 128)))
    assert "no relu" in reason_of(layer)
    assert layers_of(int8_model(), X)["positive"].pair.missing == ""


def test_what_only_moves_is_not_blamed_for_weights_of_its_own() -> None:
    def turned(weights: Any, product: str) -> Any:
        nodes = [
            node("MatMul", ["x", "w"], [product], name="first"),
            node("Transpose", [product], ["y"], name="turn", perm=[1, 0]),
        ]
        return graph_from_onnx(model(nodes, inputs={"x": [2, 4]}, constants={"w": weights}))

    f32, other = turned(WEIGHTS, "product"), turned(np.round(WEIGHTS * 8) / 8, "renamed")
    pairs, _ = pairs_of(f32, other)
    layer = measure_layers(f32, other, pairs, [{"x": X}], {}).layers[-1]
    assert (layer.pair.layer, layer.cause) == ("turn", Cause.COMPUTED)
    assert "only moves what comes of first" in reason_of(layer)


def test_leaving_out_what_is_missing_keeps_the_product_in_int8() -> None:
    """The node of the model that was quantized is named, and the gain is that of the Relu alone."""
    found = fqfuse.compare(f32_model(), int8_model(zero=128), data={"x": X}, suggest=True)
    suggestion = found["suggestion"]
    assert suggestion["nodes"] == ["relu"]
    second = np.maximum(rounded(X @ WEIGHTS, 0.05, 128), 0) @ WEIGHTS
    assert suggestion["chosen"]["sqnr"] == pytest.approx(sqnr(POSITIVE @ WEIGHTS, second), abs=1e-3)


def test_weights_are_blamed_for_what_they_do() -> None:
    layers = layers_of(
        int8_model(1e-3, weights=rounded(WEIGHTS, 0.25, 128).astype(np.float32)), 0.01 * X
    )
    assert layers["positive"].cause is Cause.COMPUTED


def test_values_beyond_the_range_are_counted() -> None:
    scale = float(POSITIVE.max()) / 255 / 2
    layer = layers_of(int8_model(scale), X)["positive"]
    assert layer.cause is Cause.SATURATED
    assert layer.saturated == np.mean(255.5 * scale < POSITIVE) > 0
    assert layer.codes == 0  # f32 saturates alike


def test_steps_by_channel_are_told_as_a_span() -> None:
    """With the largest alone it looked as if nothing lay beyond the range."""
    scales = np.array([0.003, 0.05, 0.05, 0.05], np.float32)
    layer = layers_of(int8_model(scales, np.zeros(4)), X)["positive"]
    assert layer.cause is Cause.SATURATED
    assert "a code is 0.003 to 0.05, by channel" in reason_of(layer)
    assert "a code is 0.001" in reason_of(layers_of(int8_model(0.001), X)["positive"])


def test_an_absurd_scale_is_called_too_wide() -> None:
    layer = layers_of(int8_model(1.3e36), X)["positive"]
    assert layer.cause is Cause.TOO_WIDE
    assert layer.added.sqnr == 0  # all zeros


def test_the_largest_error_counts_in_codes() -> None:
    # first product is off by exactly 3 steps in each entry that is large enough
    layer = layers_of(int8_model(0.05, weights=WEIGHTS), X)["positive"]
    assert layer.codes == 0
    shifted = int8_model(0.05)
    shifted.graph.node[0].output[0] = "bare"
    shifted.graph.node.insert(1, node("Add", ["bare", "three"], ["positive"], name="shift"))
    shifted.graph.initializer.append(
        model([], constants={"three": np.float32(0.15)}, outputs=[]).graph.initializer[0]
    )
    assert layers_of(shifted, np.abs(X))["positive"].codes == 3


def test_a_convolution_whose_normalization_was_folded_stands_for_it() -> None:
    ones, zeros = np.ones(4, np.float32), np.zeros(4, np.float32)
    kernel = random([4, 3, 1, 1], 1)
    nodes = [
        node("Conv", ["x", "w"], ["conv"], name="conv"),
        node("BatchNormalization", ["conv", "ten", "zero", "zero", "one"], ["bn"], name="bn"),
        node("Relu", ["bn"], ["y"], name="relu"),
    ]
    constants = {"w": kernel, "ten": 10 * ones, "zero": zeros, "one": ones}
    f32 = graph_from_onnx(model(nodes, inputs={"x": [1, 3, 2, 2]}, constants=constants))
    nodes = [
        node("Conv", ["x", "w"], ["conv"], name="conv"),
        node("Relu", ["conv"], ["y"], name="relu"),
    ]
    int8 = graph_from_onnx(model(nodes, inputs={"x": [1, 3, 2, 2]}, constants={"w": 10 * kernel}))
    pairs, left = pairs_of(f32, int8)
    assert {pair.name: pair.raw for pair in pairs} == {"x": "x", "bn": "conv", "y": "y"}
    assert left == ["conv"]
    found = measure_layers(f32, int8, pairs, [{"x": random([1, 3, 2, 2])}], {})
    # the factor 10 and epsilon are rounded in another place
    assert min(layer.added.sqnr for layer in found.layers) > 80
