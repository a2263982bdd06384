"""Recurrent layers become one step each; what the library cannot say is told, and weights behind
DequantizeLinear are decoded.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from laws.recurrent import draw_dynamic
from laws.runtimes import EACH_RUNTIME
from support.onnx_cases import model, node, random, run_ort

import fqfuse
from fqfuse.ir.decision import DequantizeFate, Outcome
from fqfuse.ir.types import DType
from fqfuse.plan.attributes import Scale
from fqfuse.report.summary import summary_of

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
    told = [d.reason for d in plan.decision_records if d.outcome is Outcome.REFUSED]
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
    fates = {fate.quantizer: fate.fate for fate in plan.fate_records if fate.consumer}
    assert fates == dict.fromkeys(("dq_w", "dq_r"), DequantizeFate.CONSTANT)
    assert any("quantizes no hidden state" in d.reason for d in plan.decision_records)
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


# -- int8 ------------------------------------------------------------------------------------------

INT8 = ["int8-recurrence"]


def test_int8_is_told_where_it_is_not_asked_for() -> None:
    plan = fqfuse.compile(of(*lstm()))
    (told,) = (d for d in plan.decision_records if d.rule == "recurrent layer in int8")
    assert told.outcome is Outcome.REFUSED
    assert told.expected == 'approximate=("int8-recurrence",)'
    assert "hidden state are rounded to codes" in told.hint


@pytest.mark.parametrize("target", ["onednn-v2", "onednn-v3", "unified"])
def test_the_recommended_parameters(target: str) -> None:
    plan = fqfuse.compile(of(*lstm()), target=target, approximate=INT8)
    quantize, layer = plan.steps
    assert (quantize.primitive, layer.primitive) == ("reorder", "rnn")
    quant = plan.type(quantize.output).quant
    assert quant is not None
    assert (round(1 / quant.scale[0]), quant.zero_point) == (127, (128,))
    for role, name in (("w", "w"), ("r", "r")):
        codes = plan.constants[layer.arg(role) or ""]
        assert codes.dtype == np.int8
        assert np.abs(codes.astype(int)).max() <= 63, name
    if target != "unified":
        made = fqfuse.compile(of(*lstm()), target="unified", approximate=INT8)
        assert fqfuse.convert(plan, "unified").steps[-1] == made.steps[-1]
    if target == "unified":
        assert layer.attr.scales.keys() == {"src", "w", "r"}
        assert layer.attr.zero_points["src"].values == (128,)
    else:
        assert layer.attr.rnn_data_qparams == Scale((127.0, 128.0))
        weights = layer.attr.rnn_weights_qparams
        assert weights is not None
        assert weights.mask == 24
        # of each row the larger of both kinds of weights becomes 63
        both = np.concatenate([lstm()[1]["w"], lstm()[1]["r"]], axis=2)
        np.testing.assert_allclose(weights.array, 63 / np.abs(both).max((0, 2)), rtol=1e-6)


@EACH_RUNTIME
def test_int8_is_close_to_f32(runtime: str) -> None:
    """Inputs within -1..1, and weights of 7 bits: about 1/127 of what the gates add up."""
    feeds = {"x": np.tanh(FEEDS["x"])}
    proto = of(*lstm())
    plan = fqfuse.compile(proto, approximate=INT8)
    (found,) = fqfuse.InferenceSession(plan, runtime).run(None, feeds)
    assert np.abs(found - run_ort(proto, feeds)[0]).max() < 0.03


@EACH_RUNTIME
@pytest.mark.parametrize(("steps", "batch"), [(0, BATCH), (STEPS, 0), (0, 0)])
def test_int8_of_no_steps_or_no_sequences(runtime: str, steps: int, batch: int) -> None:
    layer, constants = lstm()
    proto = model([layer], inputs={"x": ["T", "N", INPUTS]}, constants=constants)
    session = fqfuse.InferenceSession(fqfuse.compile(proto, approximate=INT8), runtime)
    (found,) = session.run(None, {"x": np.zeros((steps, batch, INPUTS), np.float32)})
    assert found.shape == (steps, 1, batch, HIDDEN)


def _around(scale: float, zero: int, kind: type[np.generic] = np.uint8) -> onnx.ModelProto:
    """Q/DQ in front of a layer and behind it."""
    layer, constants = lstm()
    layer.input[0], layer.output[0] = "decoded", "h"
    nodes = [
        node("QuantizeLinear", ["x", "s", "z"], ["q"], name="before"),
        node("DequantizeLinear", ["q", "s", "z"], ["decoded"]),
        layer,
        node("QuantizeLinear", ["h", "s", "z"], ["hq"], name="behind"),
        node("DequantizeLinear", ["hq", "s", "z"], ["y"]),
    ]
    constants |= {"s": np.float32(scale), "z": kind(zero)}
    return model(nodes, inputs={"x": [STEPS, BATCH, INPUTS]}, constants=constants)


def test_a_quantized_input_names_the_parameters_and_codes_are_stored() -> None:
    plan = fqfuse.compile(_around(1 / 60, 100), approximate=INT8)
    assert [step.primitive for step in plan.steps] == ["reorder", "rnn", "reorder"]
    layer = plan.steps[1]
    data = layer.attr.rnn_data_qparams
    assert data is not None
    np.testing.assert_allclose(data.values, (60, 100), rtol=1e-6)
    assert plan.type(layer.output).dtype is DType.U8
    fates = {(fate.quantizer, fate.half.value): fate.fate.value for fate in plan.fate_records}
    assert fates["before", "dequantize"] == "source_scale"
    assert fates["behind", "quantize"] == "dst_scale"


def test_a_quantized_input_of_s8_names_the_parameters() -> None:
    """Of u8: its zero point and 128."""
    plan = fqfuse.compile(_around(1 / 60, -20, np.int8), approximate=INT8)
    assert [step.primitive for step in plan.steps[:2]] == ["reorder", "rnn"]
    layer = plan.steps[1]
    data = layer.attr.rnn_data_qparams
    assert data is not None
    np.testing.assert_allclose(data.values, (60, 108), rtol=1e-6)
    fqfuse.InferenceSession(plan, "numpy").run(None, FEEDS)


def test_a_quantized_input_that_others_read_too() -> None:
    proto = _around(1 / 60, 100)
    proto.graph.node.append(node("Relu", ["decoded"], ["other"]))
    proto.graph.output.append(onnx.ValueInfoProto(name="other"))
    plan = fqfuse.compile(proto, approximate=INT8)
    layer = next(step for step in plan.steps if step.primitive == "rnn")
    assert plan.type(layer.arg("src") or "").dtype is DType.U8
    fqfuse.InferenceSession(plan, "numpy").run(None, FEEDS)


def test_an_input_of_a_range_that_clips_the_hidden_state_does_not() -> None:
    plan = fqfuse.compile(_around(1 / 400, 100), approximate=INT8)
    layer = next(step for step in plan.steps if step.primitive == "rnn")
    assert layer.attr.rnn_data_qparams == Scale((127.0, 128.0))


def test_an_input_is_not_clipped_where_a_quantizer_gives_its_range() -> None:
    """Whatever the quantizer in front: one whose zero point is no integer or none of u8, of few levels or 16
    bits, one for each feature, and two whose results are joined. The data's codes reach its ends.
    """
    rng = np.random.default_rng(5)
    for draw in range(24):
        low, high = -rng.uniform(0, 4), rng.uniform(0.1, 4)
        kind = ("fake", "few", "along", "joined", "s8", "u16")[draw % 6]
        levels = {"few": 16, "u16": 1 << 16}.get(kind, 256)
        scale = np.float32((high - low) / (levels - 1))
        layer, constants = lstm()
        layer.input[0] = "d"
        if kind in ("s8", "u16"):
            zero = np.array(np.rint(-low / scale) - 128 * (kind == "s8"))
            constants |= {"s": scale, "z": zero.astype({"s8": np.int8, "u16": np.uint16}[kind])}
            lowest = -128 if kind == "s8" else 0
            low, high = (scale * (lowest + code - float(zero)) for code in (0, levels - 1))
            nodes = [
                node("QuantizeLinear", ["x", "s", "z"], ["q"]),
                node("DequantizeLinear", ["q", "s", "z"], ["d"]),
            ]
        else:
            ends = np.array([low, high], np.float32)
            if kind == "along":
                ends = np.multiply.outer(ends, rng.uniform(0.5, 1, INPUTS)).astype(np.float32)
                ends[:, 2] = low, high
            constants |= {"low": ends[0], "high": ends[1], "joints": np.array([2, 3])}
            parts = ["x_a", "x_b"] if kind == "joined" else ["x"]
            given = {"domain": "org.openvinotoolkit", "levels": levels}
            made = ["d_a", "d_b"] if kind == "joined" else ["d"]
            nodes = [
                node("FakeQuantize", [part, "low", "high", "low", "high"], [out], **given)
                for part, out in zip(parts, made, strict=True)
            ]
            if kind == "joined":
                constants |= {"other": np.float32(low / 2)}
                nodes[1].input[1] = nodes[1].input[3] = "other"
                split = node("Split", ["x", "joints"], parts, axis=2)
                nodes = [split, *nodes, node("Concat", made, ["d"], axis=2)]
        proto = model([*nodes, layer], inputs={"x": [STEPS, BATCH, INPUTS]}, constants=constants)
        plan = fqfuse.compile(proto, approximate=INT8)
        data = plan.steps[-1].attr.rnn_data_qparams
        assert data is not None
        factor, shift = data.values
        # the input's ends to the last bits of f32, in which the parameters are; a hidden state of 1 to a step
        step = 1 / factor
        assert (0 - shift) * step <= min(low * (1 - 1e-5), step - 1), (kind, low, high)
        assert (255 - shift) * step >= max(high * (1 - 1e-5), 1 - step), (kind, low, high)
        # no coarser than both ends need
        assert factor >= 127 / max(-low, high, 1) - 1e-3, (kind, low, high)
        feeds = {"x": rng.uniform(low, high, [STEPS, BATCH, INPUTS]).astype(np.float32)}
        (expected,) = fqfuse.InferenceSession(proto, "numpy").run(None, feeds)
        (found,) = fqfuse.InferenceSession(plan, "numpy").run(None, feeds)
        # weights are off by 1/126 of the largest, the data by half a step
        assert np.abs(found - expected).max() < 0.01 + 0.01 * max(-low, high), (kind, low, high)


def test_what_has_no_int8_stays_f32() -> None:
    constants = {"w": random([1, HIDDEN, INPUTS]), "r": random([1, HIDDEN, HIDDEN])}
    proto = of(node("RNN", ["x", "w", "r"], hidden_size=HIDDEN), constants)
    assert [step.primitive for step in fqfuse.compile(proto, approximate=INT8).steps] == ["rnn"]
    layer, weights = lstm("", "", "", "", "p")
    peepholes = of(layer, {**weights, "p": random([1, 3 * HIDDEN])})
    plan = fqfuse.compile(peepholes, approximate=INT8)
    assert [step.primitive for step in plan.steps] == ["rnn"]
    assert any(d.reason == "oneDNN's LSTM in int8 has no peepholes" for d in plan.decision_records)


@pytest.mark.parametrize("names", [["int4"], "int8-recurrence", 3])
def test_approximations_that_there_are_not(names: Any) -> None:
    with pytest.raises(fqfuse.FqfuseError, match="approximat"):
        fqfuse.compile(of(*lstm()), approximate=names)


def test_quantizers_of_a_dynamic_layer_have_fates() -> None:
    plan = fqfuse.compile(draw_dynamic(0).model)
    told = {(fate["quantizer"], fate["half"]): fate["fate"] for fate in plan.fates()}
    # what it quantizes of x and h has no name in the file: its results'
    for part in ("y", "last_h"):
        assert told[part, "quantize"] == "source"
        assert told[part, "dequantize"] == "source_scale"
    for part in "wr":
        assert told[part, "quantize"] == "constant"
        assert told[part, "dequantize"] == "weights_scale"
    assert summary_of(plan).dynamic >= 2


@pytest.mark.parametrize("op", ["LSTM", "GRU", "RNN"])
def test_a_layer_of_half_floats_whose_last_state_alone_is_read_has_a_row(op: str) -> None:
    gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[op]
    constants = {
        "w": random([1, 3 * gates, 2]).astype(np.float16),
        "r": random([1, 3 * gates, 3]).astype(np.float16),
    }
    built = model(
        [node(op, ["x", "w", "r"], ["", "h"], hidden_size=3)],
        inputs={"x": [2, 1, 2]},
        outputs=["h"],
        constants=constants,
        types=dict.fromkeys("xh", onnx.TensorProto.FLOAT16),
    )
    rows = fqfuse.compile(built).steps_table()
    assert [row["primitive"] for row in rows].count("rnn") == 1  # between casts
