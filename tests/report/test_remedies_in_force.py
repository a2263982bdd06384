"""Law: no remedy asks for what made the file already, or names a setting that was not touched and cannot matter."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx
import pytest
from onnxruntime.quantization import CalibrationMethod, QuantFormat, QuantType
from support.onnx_cases import model, node, random
from support.ort_quantizer import quantized_by_ort

import fqfuse

_IN_FORCE = {
    "activation_type": QuantType.QUInt8,
    "weight_type": QuantType.QInt8,
    "per_channel": True,
    "quant_format": QuantFormat.QDQ,
    "calibrate_method": CalibrationMethod.MinMax,
}
_WIDE = [{"quant_type": QuantType.QUInt16}]
OPTIONS: Mapping[str, Mapping[str, Any]] = {
    "recipe": {},
    "per tensor": {"per_channel": False},
    "u8 weights": {"weight_type": QuantType.QUInt8, "per_channel": False},
    "s8 activations": {"activation_type": QuantType.QInt8},
    "symmetric": {
        "activation_type": QuantType.QInt8,
        "extra_options": {"ActivationSymmetric": True},
    },
    "asymmetric weights": {"extra_options": {"WeightSymmetric": False}},
    "u16": {"activation_type": QuantType.QUInt16},
    "s16": {"activation_type": QuantType.QInt16},
    "s16 weights": {"weight_type": QuantType.QInt16},
    "one of u16": {"extra_options": {"TensorQuantOverrides": {"wide": _WIDE}}},
    "dedicated": {"extra_options": {"DedicatedQDQPair": True}},
    "some types": {"op_types_to_quantize": ["Conv", "MatMul"]},
    "constants": {"extra_options": {"MatMulConstBOnly": True}},
    "some nodes": {"nodes_to_exclude": ["left"]},
    "QOperator": {"quant_format": QuantFormat.QOperator},
    "QOperator, some types": {
        "quant_format": QuantFormat.QOperator,
        "op_types_to_quantize": ["Conv", "MatMul"],
    },
}


def convolutions() -> onnx.ModelProto:
    """A skip, parts that are joined, and a classifier."""
    shapes = {
        "w0": [32, 16, 1, 1],
        "w1": [16, 16, 3, 3],
        "w2": [16, 16, 3, 3],
        "w3": [16, 48, 1, 1],
    }
    constants = {name: random(shape, 1, 0.2) for name, shape in shapes.items()}
    constants |= {"halves": np.int64([16, 16]), "w4": random([16, 10], 2, 0.2)}
    nodes = [
        node("Conv", ["x", "w0"], ["a"], name="conv"),
        node("Relu", ["a"], ["as"], name="relu"),
        node("Split", ["as", "halves"], ["p", "q"], name="split", axis=1),
        node("Conv", ["q", "w1"], ["wide"], name="left", pads=[1] * 4),
        node("Conv", ["wide", "w2"], ["c"], name="right", pads=[1] * 4),
        node("Add", ["q", "c"], ["d"], name="skip"),
        node("Concat", ["p", "q", "d"], ["e"], name="join", axis=1),
        node("Conv", ["e", "w3"], ["f"], name="last"),
        node("GlobalAveragePool", ["f"], ["g"], name="pool"),
        node("Flatten", ["g"], ["h"], name="flat"),
        node("MatMul", ["h", "w4"], ["y"], name="fc"),
    ]
    return model(nodes, inputs={"x": [1, 16, 16, 16]}, constants=constants)


def attention() -> onnx.ModelProto:
    """Queries, keys and values of one product, a factor, and a normalization."""
    constants = {
        "w": random([32, 96], 1, 0.3),
        "wo": random([32, 32], 2, 0.2),
        "w1": random([32, 64], 3, 0.2),
        "factor": np.float32(0.17),
        "ones": np.ones(32, np.float32),
    }
    nodes = [
        node("MatMul", ["x", "w"], ["a"], name="qkv"),
        node("Split", ["a"], ["q", "k", "v"], name="parts", axis=2, num_outputs=3),
        node("Mul", ["q", "factor"], ["scaled"], name="scale"),
        node("Transpose", ["k"], ["kt"], name="turned", perm=[0, 2, 1]),
        node("MatMul", ["scaled", "kt"], ["s"], name="scores"),
        node("Softmax", ["s"], ["p"], name="shares", axis=-1),
        node("MatMul", ["p", "v"], ["m"], name="context"),
        node("MatMul", ["m", "wo"], ["wide"], name="left"),
        node("Add", ["wide", "x"], ["r"], name="skip"),
        node("LayerNormalization", ["r", "ones"], ["n"], name="norm"),
        node("MatMul", ["n", "w1"], ["y"], name="fc"),
    ]
    return model(nodes, inputs={"x": [1, 16, 32]}, constants=constants)


@pytest.mark.parametrize("network", [convolutions, attention])
@pytest.mark.parametrize("options", OPTIONS)
def test_no_remedy_asks_for_what_is_so(
    network: Callable[[], onnx.ModelProto], options: str
) -> None:
    given = OPTIONS[options]
    proto = network()
    operators = {each.op_type for each in proto.graph.node}
    more = given.get("extra_options", {})
    for found in fqfuse.compile(quantized_by_ort(proto, **given)).findings():
        change = found["change"]
        told = _settings(change)
        extra = told.pop("extra_options", {})
        asked = [told[name] != {**_IN_FORCE, **given}.get(name) for name in told]
        asked += [extra[name] != more.get(name) for name in extra]
        assert any(asked) or not asked, (found["code"], change, "it is all so")
        for operator in ("Concat", "Split"):
            assert operator in operators or operator not in change, (found["code"], change)
        for name in ("DedicatedQDQPair", "16-bit type"):
            meant = {"16-bit type": "TensorQuantOverrides"}.get(name, name)
            assert meant in more or name not in change, (found["code"], change)
        touched = {"nodes_to_exclude", "op_types_to_quantize"} & set(given)
        assert touched or "out of nodes_to_exclude" not in change, (found["code"], change)


def test_of_one_tensor_in_16_bits_the_override_is_named() -> None:
    made = quantized_by_ort(convolutions(), **OPTIONS["one of u16"])
    (found,) = (f for f in fqfuse.compile(made).findings() if f["code"] == "wide-codes")
    assert found["change"].startswith("no 16-bit type for the inputs of ")
    assert "activation_type" not in found["change"]


def test_keys_that_get_signs_for_a_product_are_told_by_the_type() -> None:
    """As those that a cache gives: u8 in the file, and s8 for the product."""
    constants = {"w": random([32, 32], 1, 0.3)}
    nodes = [
        node("MatMul", ["x", "w"], ["q"], name="queries"),
        node("Concat", ["past", "x"], ["keys"], name="join", axis=1),
        node("Transpose", ["keys"], ["kt"], name="turned", perm=[0, 2, 1]),
        node("MatMul", ["q", "kt"], ["y"], name="scores"),
    ]
    inputs = {"x": [1, 16, 32], "past": [1, 16, 32]}
    proto = model(nodes, inputs=inputs, outputs=["y", "keys"], constants=constants)
    found = {
        kind: {f["code"]: f["change"] for f in fqfuse.compile(made).findings()}
        for kind in (QuantType.QUInt8, QuantType.QInt8)
        for made in [quantized_by_ort(proto, activation_type=kind)]
    }
    assert found[QuantType.QUInt8]["requantized"].startswith("activation_type=QuantType.QInt8: ")
    assert "requantized" not in found[QuantType.QInt8]


def _settings(change: str) -> dict[str, Any]:
    """The arguments of quantize_static that a change writes as `name=value`."""
    written = re.findall(r"\b(\w+=(?:\{[^.]*?\}|[\w.]+))", change)
    names = {each.__name__: each for each in (QuantType, QuantFormat, CalibrationMethod)}
    return eval(f"dict({', '.join(written)})", names)  # noqa: S307 our own text
