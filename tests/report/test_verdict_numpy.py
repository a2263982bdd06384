"""What NumPy computes between primitives: what the verdict says that it takes, and which finding tells it."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnxruntime.quantization import QuantFormat, QuantType
from support.finding_cases import CASES, OPTIONS
from support.numpy_steps import MEASURED, ORDINARY, plan_of
from support.onnx_cases import model, node, random
from support.ort_quantizer import quantized_by_ort

import fqfuse
from fqfuse.ir.ops import OPS
from fqfuse.plan.types import Plan
from fqfuse.report.verdict.estimate import costs_of, on_numpy
from fqfuse.report.verdict.findings import Finding, Verdict, verdict_of
from fqfuse.report.verdict.kind import Gain
from fqfuse.report.verdict.machine import machine_from
from fqfuse.report.verdict.work import MOVES, PRODUCTS, RECURRENT, WITH_BODIES

MACHINE = machine_from("flags\t\t: avx512_vnni\n", cores=2, clock=3.8)
BY_MACS = PRODUCTS | RECURRENT | {"Gemm", "MatMulBlocks", "MatMulInteger"}
A_FEW_NUMBERS = {"FakeQuantizeGrid"}
"""What reads and writes a few numbers, and takes Python's time alone."""


def test_each_operator_has_an_ordinary_step_that_was_measured() -> None:
    assert set(ORDINARY) == set(MEASURED)
    assert set(OPS) - set(ORDINARY) == BY_MACS | {"Onnx"}


@pytest.mark.each_case
@pytest.mark.parametrize("name", sorted(set(ORDINARY) - A_FEW_NUMBERS))
def test_a_step_takes_about_what_the_verdict_says(name: str) -> None:
    plan = plan_of(name)
    if not on_numpy(plan.steps[0]):
        pytest.skip("no NumPy computes it: it moves data, or has a kernel")
    told = costs_of(plan, MACHINE).estimate.ms
    # a class holds operators that differ by factors of 5, and a call takes 15 to 40 µs
    assert told / 4 <= MEASURED[name] <= told * 4


def wide(activation: QuantType) -> onnx.ModelProto:
    """A GELU as PyTorch writes it, between two products."""
    constants = {
        "w0": random([32, 64], 1, 0.2),
        "w1": random([64, 32], 2, 0.2),
        "root": np.float32(2**0.5),
        "one": np.float32(1),
        "half": np.float32(0.5),
    }
    nodes = [
        node("MatMul", ["x", "w0"], ["a"], name="fc1"),
        node("Div", ["a", "root"], ["b"], name="scaled"),
        node("Erf", ["b"], ["c"], name="erf"),
        node("Add", ["c", "one"], ["d"], name="shifted"),
        node("Mul", ["a", "d"], ["e"], name="gate"),
        node("Mul", ["e", "half"], ["f"], name="halved"),
        node("MatMul", ["f", "w1"], ["y"], name="fc2"),
    ]
    proto = model(nodes, inputs={"x": [1, 128, 32]}, constants=constants)
    return quantized_by_ort(proto, activation_type=activation)


def resized(layout: QuantFormat) -> onnx.ModelProto:
    """The head of a network for segmentation, and what it joins: two sizes of a picture."""
    constants = {
        "w0": random([16, 8, 3, 3], 1, 0.2),
        "w1": random([8, 16, 1, 1], 2, 0.2),
        "scales": np.float32([1, 1, 4, 4]),
    }
    nodes = [
        node("Conv", ["x", "w0"], ["a"], name="conv", strides=[2, 2], pads=[1, 1, 1, 1]),
        node("Conv", ["a", "w1"], ["b"], name="head"),
        node("Resize", ["b", "", "scales"], ["y"], name="resize", mode="linear"),
    ]
    proto = model(nodes, inputs={"x": [1, 8, 64, 64]}, constants=constants)
    return quantized_by_ort(proto, quant_format=layout)


def test_a_function_between_16_bit_quantizers_counts_with_what_numpy_takes() -> None:
    """8,192 values: 0.4 ms by NumPy, and next to nothing as a table of 8-bit codes."""
    before, after = (
        verdict_of(fqfuse.compile(wide(kind)), MACHINE)
        for kind in (QuantType.QUInt16, QuantType.QUInt8)
    )
    first = before.findings[0]
    assert first.kind.code == "wide-codes"
    assert first.ms > 0.8 * before.estimate.ms
    left = before.estimate.ms - first.ms
    assert after.estimate.ms / 3 < left < after.estimate.ms * 3


def test_an_interpolation_of_bare_codes_is_left_by_qoperator() -> None:
    """In QDQ it is a primitive."""
    before, after = (
        verdict_of(fqfuse.compile(resized(layout)), MACHINE)
        for layout in (QuantFormat.QOperator, QuantFormat.QDQ)
    )
    first = before.findings[0]
    assert (first.kind.code, first.layers, first.bytes) == ("left-by-qoperator", ("resize",), 0)
    assert "quant_format=QuantFormat.QDQ" in first.change()
    assert first.ms > 0.8 * before.estimate.ms
    assert not {"left-by-qoperator", "fallback"} & {each.kind.code for each in after.findings}
    assert before.estimate.ms - first.ms == pytest.approx(after.estimate.ms, rel=0.5)


def quantized_plans() -> dict[str, Plan]:
    made = {
        f"{code}, {cured}": fqfuse.compile(case(cured), **OPTIONS.get(code, {}))
        for code, case in CASES.items()
        for cured in (False, True)
        if code != "not-quantized"
    }
    for layout in QuantFormat:
        made[f"resized, {layout.name}"] = fqfuse.compile(resized(layout))
    made["16 bits"] = fqfuse.compile(wide(QuantType.QUInt16))
    return made


def test_the_finding_of_a_costly_step_on_numpy_says_so() -> None:
    told = set()
    for name, plan in quantized_plans().items():
        verdict = verdict_of(plan, MACHINE)
        for index, step in enumerate(plan.steps):
            costly = verdict.costs.ms[index] > 0.1 * verdict.estimate.ms
            if costly and on_numpy(step) and step.primitive not in WITH_BODIES | MOVES:
                (finding,) = _about_time(verdict, index)
                assert "NumPy" in finding.kind.why, (name, step.name, finding.kind.code)
                told.add(finding.kind.code)
    assert told >= {"fallback", "left-by-qoperator", "wide-codes", "double-precision"}


def _about_time(verdict: Verdict, index: int) -> list[Finding]:
    """The findings about time that a step belongs to: one."""
    gains = (Gain.TIME, Gain.NOTHING)
    return [f for f in verdict.findings if f.kind.gain in gains and index in f.steps]
