"""What a finding promises against what the plan with its remedy is estimated to take."""

from __future__ import annotations

import numpy as np
import pytest
from support.finding_networks import Net
from support.onnx_cases import model, node, random
from support.ort_quantizer import quantized_by_ort

import fqfuse
from fqfuse.report.verdict.catalogue import CATALOGUE
from fqfuse.report.verdict.changes import change_of
from fqfuse.report.verdict.estimate import costs_of
from fqfuse.report.verdict.findings import Verdict, verdict_of
from fqfuse.report.verdict.machine import machine_from
from fqfuse.report.verdict.remedies import Tool
from fqfuse.report.verdict.view import View

MACHINE = machine_from("flags\t\t: avx512_vnni\n", cores=2, clock=3.8)
CHANNELS = 32


def normalized(per_channel: bool) -> Verdict:
    """A block of a ConvNeXt: a depthwise convolution, of codes with a scale for each channel or with one, turned for a
    normalization.
    """
    net = Net()
    scale = np.linspace(0.05, 0.1, CHANNELS, dtype=np.float32) if per_channel else np.float32(0.1)
    zero = np.full(CHANNELS, 128, np.uint8) if per_channel else np.uint8(128)
    hidden = net.quantized("x", scale, zero, axis=1 if per_channel else None)
    codes = np.random.default_rng(0).integers(-99, 99, (CHANNELS, 1, 7, 7)).astype(np.int8)
    weights = net.weights(codes, np.float32(0.01))
    hidden = net.op("Conv", hidden, weights, name="depthwise", group=CHANNELS, pads=[3] * 4)
    turned = net.op("Transpose", hidden, name="turned", perm=[0, 2, 3, 1])
    ones = net.constant(np.ones(CHANNELS, np.float32))
    net.op("LayerNormalization", turned, ones, name="norm", out="y")
    proto = net.proto(inputs={"x": [1, CHANNELS, 28, 28]})
    return verdict_of(fqfuse.compile(proto), MACHINE)


def test_the_promise_for_depthwise_layers_is_kept() -> None:
    """Codes are multiplied no faster there, and what turns data turns codes."""
    before, after = normalized(True), normalized(False)
    (found,) = (f for f in before.findings if f.kind.code == "per-channel-activation")
    gained = before.estimate.ms - after.estimate.ms
    # the quantizer of the input is another step in each; next to nothing is gained of a run
    assert found.ms == pytest.approx(gained, abs=0.1 * before.estimate.ms)


def test_depthwise_multiply_adds_of_codes_are_no_faster() -> None:
    def ms(group: int, quantized: bool) -> float:
        weights = {"w": random([64, 64 // group, 7, 7], 1, 0.1)}
        nodes = [node("Conv", ["x", "w"], ["y"], name="conv", group=group, pads=[3] * 4)]
        proto = model(nodes, inputs={"x": [1, 64, 28, 28]}, constants=weights)
        plan = fqfuse.compile(quantized_by_ort(proto) if quantized else proto)
        (index,) = (n for n, step in enumerate(plan.steps) if step.primitive == "convolution")
        return costs_of(plan, MACHINE).ms[index]

    assert ms(1, quantized=True) < 0.3 * ms(1, quantized=False)
    assert ms(64, quantized=False) <= ms(64, quantized=True)


def test_attention_that_nncf_quantizes_with_all_additions_pays_for_those() -> None:
    """Without model_type=TRANSFORMER each sum has a quantizer, too: a ViT became no faster."""
    net = Net()
    rows = net.matmul(net.quantized("x"), "values")
    scores = net.op("Softmax", "s", name="shares")
    mixed = net.op("MatMul", scores, rows, name="mix")
    added = net.op("Add", mixed, "x", name="skip")
    ones = net.constant(np.ones(16, np.float32))
    net.op("LayerNormalization", added, ones, name="norm", out="y")
    plan = fqfuse.compile(net.proto(inputs={"x": [4, 16], "s": [4, 4]}))
    view, kind = View(plan), CATALOGUE["f32-attention"]
    (index,) = (n for n, step in enumerate(plan.steps) if "mix" in step.origin)
    costs = costs_of(plan, MACHINE)
    by_nncf, by_others = (
        costs.saved(change_of(view, kind, [index], tool), [index]) for tool in (Tool.NNCF, Tool.ORT)
    )
    assert by_others.ms - by_nncf.ms >= MACHINE.call
