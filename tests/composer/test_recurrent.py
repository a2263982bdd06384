"""Recurrent layers become one step each; what the library cannot say is told, and weights behind
DequantizeLinear are decoded.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from laws.runtimes import EACH_RUNTIME
from support.onnx_cases import model, node, random, run_ort

import fqfuse
from fqfuse.ir.decision import DequantizeFate, Outcome

STEPS, BATCH, INPUTS, HIDDEN = 6, 2, 5, 7
FEEDS = {"x": random([STEPS, BATCH, INPUTS])}


def lstm(*further: str, **attrs: Any) -> tuple[onnx.NodeProto, dict[str, np.ndarray]]:
    weights = {
        "w": random([1, 4 * HIDDEN, INPUTS], 1, 0.3),
        "r": random([1, 4 * HIDDEN, HIDDEN], 2, 0.3),
    }
    return node("LSTM", ["x", "w", "r", *further], hidden_size=HIDDEN, **attrs), weights


def of(layer: onnx.NodeProto, constants: dict[str, np.ndarray]) -> onnx.ModelProto:
    return model([layer], inputs={"x": [STEPS, BATCH, INPUTS]}, constants=constants)


@pytest.mark.parametrize(
    ("attrs", "reason"),
    [
        ({"clip": 0.5}, "oneDNN's recurrent primitives do not clip"),
        ({"input_forget": 1}, "oneDNN's LSTM has a forget gate of its own"),
        ({"activations": ["HardSigmoid", "Tanh", "Tanh"]}, "oneDNN's LSTM has other activations"),
    ],
)
def test_what_the_library_cannot_say_is_told_and_runs(attrs: dict[str, Any], reason: str) -> None:
    proto = of(*lstm(**attrs))
    plan = fqfuse.compile(proto)
    assert [step.primitive for step in plan.steps] == ["rnn"]
    told = [d.reason for d in plan.decisions if d.outcome is Outcome.REFUSED]
    assert reason in told
    session = fqfuse.InferenceSession(plan, "auto")
    # approximations of exp and tanh, and sums of a dozen products in another order
    np.testing.assert_allclose(
        session.run(None, FEEDS)[0], run_ort(proto, FEEDS)[0], rtol=0, atol=1e-6
    )
    (placed,) = session.placement()
    assert placed.runtime == "numpy"
    assert reason in placed.reason or "asked for" in placed.reason


def test_lengths_that_are_whole_are_no_argument() -> None:
    layer, constants = lstm("", "lens")
    whole = of(layer, {**constants, "lens": np.full(BATCH, STEPS, np.int32)})
    (step,) = fqfuse.compile(whole).steps
    assert step.arg("sequence_lens") is None
    part = of(layer, {**constants, "lens": np.array([STEPS, 1], np.int32)})
    (step,) = fqfuse.compile(part).steps
    assert step.arg("sequence_lens") == "lens"


@EACH_RUNTIME
def test_sequences_first(runtime: str) -> None:
    """ONNX Runtime does not know `layout`: the same, transposed."""
    layer, constants = lstm(layout=1)
    first = of(layer, constants)
    first.graph.input[0].CopyFrom(
        onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [BATCH, STEPS, INPUTS])
    )
    turned = {"x": FEEDS["x"].transpose(1, 0, 2)}
    (found,) = fqfuse.InferenceSession(first, runtime).run(None, turned)
    (expected,) = run_ort(of(*lstm()), FEEDS)
    np.testing.assert_allclose(found, expected.transpose(2, 0, 1, 3), rtol=0, atol=1e-6)


@EACH_RUNTIME
def test_weights_behind_dequantize_linear_are_decoded(runtime: str) -> None:
    layer, weights = lstm()
    nodes, constants = [], dict[str, np.ndarray]()
    for name, data in weights.items():
        scale = (np.abs(data).max() / 127).astype(np.float32)
        constants |= {
            f"{name}_codes": np.rint(data / scale).astype(np.int8),
            f"{name}_scale": scale,
        }
        nodes.append(
            node("DequantizeLinear", [f"{name}_codes", f"{name}_scale"], [name], name=f"dq_{name}")
        )
    proto = model([*nodes, layer], inputs={"x": [STEPS, BATCH, INPUTS]}, constants=constants)
    plan = fqfuse.compile(proto)
    assert [step.primitive for step in plan.steps] == ["rnn"]
    fates = {fate.quantizer: fate.fate for fate in plan.fates if fate.consumer}
    assert fates == dict.fromkeys(("dq_w", "dq_r"), DequantizeFate.CONSTANT)
    assert any("quantizes no hidden state" in d.reason for d in plan.decisions)
    (found,) = fqfuse.InferenceSession(plan, runtime).run(None, FEEDS)
    np.testing.assert_allclose(found, run_ort(proto, FEEDS)[0], rtol=0, atol=1e-6)


@EACH_RUNTIME
def test_other_sizes_are_bound_anew(runtime: str) -> None:
    layer, constants = lstm()
    proto = model([layer], inputs={"x": ["T", "N", INPUTS]}, constants=constants)
    session = fqfuse.InferenceSession(proto, runtime)
    for steps, batch in ((3, 1), (1, 4), (3, 1), (9, 2)):
        feeds = {"x": random([steps, batch, INPUTS], steps)}
        (found,) = session.run(None, feeds)
        np.testing.assert_allclose(found, run_ort(proto, feeds)[0], rtol=0, atol=1e-6)


def test_lengths_beyond_the_steps_are_refused() -> None:
    layer, constants = lstm("", "lens")
    proto = model(
        [layer],
        inputs={"x": [STEPS, BATCH, INPUTS], "lens": [BATCH]},
        types={"lens": onnx.TensorProto.INT32},
        constants=constants,
    )
    session = fqfuse.InferenceSession(proto, "numpy")
    with pytest.raises(fqfuse.FqfuseError, match="sequence_lens must be from 0 to 6"):
        session.run(None, {**FEEDS, "lens": np.array([7, 1], np.int32)})
