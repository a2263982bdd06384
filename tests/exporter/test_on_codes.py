"""A normalization between quantizers, as a convolution of codes: every code of every channel, held against
the real number.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from support.finding_networks import Net, codes
from support.onnx_cases import optimized_operators, run_ort

import fqfuse
from fqfuse.exporter import FORMS

S, Z = np.float32(0.1), np.uint8(100)  # of the source
T, Y = np.float32(0.13), np.uint8(90)  # of the destination
EVERY = (np.arange(256, dtype=np.float32) - 100) * S
"""The numbers that the codes of the source stand for."""


def normalized(scale: np.ndarray, shift: np.ndarray, *, relu: bool = False) -> onnx.ModelProto:
    """Quantizer, normalization, quantizer, on each code in each channel."""
    net, channels = Net(), len(scale)
    parts = [scale, shift, np.zeros(channels), np.ones(channels)]
    named = [net.constant(part.astype(np.float32)) for part in parts]
    hidden = net.op(
        "BatchNormalization", net.quantized("x", S, Z), *named, name="norm", epsilon=0.0
    )
    if relu:
        hidden = net.op("Relu", hidden)
    net.op("Identity", net.quantized(hidden, T, Y), name="last", out="y")
    return net.proto(inputs={"x": [1, channels, 16, 16]})


def feed(channels: int) -> np.ndarray:
    return np.broadcast_to(EVERY.reshape(1, 1, 16, 16), (1, channels, 16, 16)).copy()


def check(proto: onnx.ModelProto, scale: np.ndarray, shift: np.ndarray, low: int = 0) -> None:
    """Codes are those of the real number, or of one next to it that a bias may be off by."""
    found = np.rint(run_all(proto, len(scale)).reshape(len(scale), 256) / T) + Y
    real = EVERY.astype(np.float64) * scale[:, None] + shift[:, None]
    slack = 1 / 16  # of a step: what `bias_codes` lets the rounding of a bias be
    least, most = (np.rint(real / np.float64(T) + off) + int(Y) for off in (-slack, slack))
    assert (found >= np.clip(least, low, 255)).all()
    assert (found <= np.clip(most, low, 255)).all()


def run_all(proto: onnx.ModelProto, channels: int) -> np.ndarray:
    plain, fast = (run_ort(proto, {"x": feed(channels)}, optimized=o)[0] for o in (False, True))
    np.testing.assert_array_equal(plain, fast)
    return fast


@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("form", FORMS)
def test_every_code_of_every_channel(form: str, relu: bool, tmp_path: Path) -> None:
    """Of factors of either sign, from such as one step of the source moves by ten of the destination's down
    to such as nothing moves by, and none at all.
    """
    rng = np.random.default_rng(5)
    scale = np.concatenate([rng.normal(size=24), np.geomspace(1e-9, 12, 20), [0, -0.0, -7, 1e-30]])
    scale, shift = (
        part.astype(np.float32).astype(np.float64) for part in (scale, rng.normal(size=48) * 3)
    )
    shift[-3] = 0
    source = normalized(scale, shift, relu=relu)
    exported = fqfuse.export(source, tmp_path / "out.onnx", to=form)
    assert len(exported.operations) == (relu and form == "qdq"), "the relu, behind a quantizer"
    made = optimized_operators(exported.model, tmp_path)
    assert made["QLinearConv"] == 1
    assert made["BatchNormalization"] == 0
    check(exported.model, scale, shift, low=int(Y) if relu else 0)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("wrong", [1e35, np.inf])
def test_a_shift_that_no_code_holds_stays_in_f32(wrong: float, form: str, tmp_path: Path) -> None:
    source = normalized(np.array([1.0, 2.0]), np.array([0.5, wrong]))
    exported = fqfuse.export(source, tmp_path / "out.onnx", to=form)
    assert [node for node, _ in exported.operations] == ["norm"]
    assert optimized_operators(exported.model, tmp_path)["QLinearConv"] == 0
    np.testing.assert_array_equal(
        run_all(exported.model, 2), run_ort(source, {"x": feed(2)}, optimized=False)[0]
    )


def test_a_normalization_that_somebody_else_reads_stays(tmp_path: Path) -> None:
    net = Net()
    named = [net.constant(np.full(8, part, np.float32)) for part in (2, 0.5, 0, 1)]
    hidden = net.op("BatchNormalization", net.quantized("x"), *named, name="norm")
    net.op("Add", net.quantized(net.conv(net.quantized(hidden), "c")), hidden, name="a", out="y")
    exported = fqfuse.export(net.proto(), tmp_path / "out.onnx", to="qoperator")
    assert "QLinearConv" in {node.op_type for node in exported.model.graph.node}
    assert optimized_operators(exported.model, tmp_path)["QLinearConv"] == 1
    assert "x_DequantizeLinear" in {node for node, _ in exported.operations}, "which has its scale"


def test_what_reads_codes_in_f32_is_named_with_the_reason(tmp_path: Path) -> None:
    net = Net()
    swish = net.op("HardSwish", net.quantized("x"), name="swish")
    skipped = net.op("Add", net.quantized(swish), swish, name="skip")
    wide = net.op("Add", net.quantized(skipped, 0.1, np.uint16(9)), net.quantized("x"), name="wide")
    moved = net.op("Transpose", net.quantized(wide), name="moved", perm=[0, 1, 3, 2])
    net.conv(net.quantized(moved), "conv", out="y", weights=net.weights(codes((8, 8, 3, 3))))
    for form in FORMS:
        exported = fqfuse.export(net.proto(), tmp_path / "out.onnx", to=form)
        told = dict(exported.operations)
        assert set(told) == {"swish", "skip", "wide"}
        assert told["swish"] == "ONNX Runtime has no HardSwish of codes"
        assert "no quantizer reads the result" not in told["skip"]
        assert "of the result's type" in told["wide"]
