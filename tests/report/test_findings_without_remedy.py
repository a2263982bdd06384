"""The kinds of the catalogue that no quantizer mends: the sentence that says why holds. Each test bears
the code of its kind; what one might try is `CASES[code](True)`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from onnxruntime.quantization import registry
from support.finding_cases import (
    CASES,
    coded_lstm,
    f32_recurrence,
    in_rows,
    pytorch_gru,
)
from support.finding_networks import Net
from support.screen_networks import NETWORKS

import fqfuse
from fqfuse.ir.types import DType
from fqfuse.plan.types import Plan
from fqfuse.report.verdict.catalogue import CATALOGUE
from fqfuse.report.verdict.findings import Finding, Verdict, verdict_of
from fqfuse.report.verdict.machine import machine_from
from fqfuse.report.verdict.view import View

MACHINE = machine_from("flags\t\t: avx512_vnni\n", cores=2, clock=3.0)
QUANTIZED_STATICALLY = {**registry.QDQRegistry, **registry.QLinearOpsRegistry}


@dataclass(frozen=True)
class Judged:
    """A plan and its verdict."""

    plan: Plan
    verdict: Verdict

    @property
    def ms(self) -> float:
        return self.verdict.estimate.ms

    def finding(self, code: str) -> Finding | None:
        return next((item for item in self.verdict.findings if item.kind.code == code), None)

    def types(self, finding: Finding | None) -> set[DType]:
        """Of all that its steps read and write, constants apart."""
        assert finding is not None
        view, steps = View(self.plan), [self.plan.steps[index] for index in finding.steps]
        values = {value for step in steps for value in (*step.inputs, *step.outputs)}
        types = [view.type(value) for value in values if value and not view.is_constant(value)]
        return {item.dtype for item in types if item is not None}


def judged(proto: Any, **options: Any) -> Judged:
    plan = fqfuse.compile(proto, **options)
    return Judged(plan, verdict_of(plan, MACHINE))


def both(code: str) -> tuple[Judged, Judged]:
    """The model that provokes the kind, and the one with what one might try."""
    return judged(CASES[code](False)), judged(CASES[code](True))


def test_each_kind_without_remedy_has_its_test() -> None:
    kinds = {code for code, kind in CATALOGUE.items() if kind.no_remedy} - {"other"}
    tests = {name.removeprefix("test_why_not_") for name in globals() if "test_why_not_" in name}
    assert tests == {code.replace("-", "_") for code in kinds}


@pytest.mark.parametrize("make", [CASES["f32-rnn"], pytorch_gru])
def test_why_not_f32_rnn(make: Callable[[bool], Any]) -> None:
    """Neither quantizers nor the approximation for GRUs remove it, and ONNX Runtime has none for it."""
    for quantized in (False, True):
        for names in ([], ["int8-recurrence"]):
            assert judged(make(quantized), approximate=names).finding("f32-rnn")
    for operators in (registry.IntegerOpsRegistry, QUANTIZED_STATICALLY):
        assert not {"GRU", "RNN"} & operators.keys()


def test_why_not_dynamic_recurrence() -> None:
    """What calibrates leaves an LSTM in f32, and that takes longer."""
    assert "LSTM" in registry.IntegerOpsRegistry
    assert "LSTM" not in QUANTIZED_STATICALLY
    took = {}
    for made in (coded_lstm, lambda net, _: f32_recurrence(net, "LSTM", 4)):
        net = Net()
        net.op("Relu", in_rows(net, made(net, "x")), out="y")
        told = judged(net.proto(inputs={"x": [4, 2, 16]}))
        took[told.finding("dynamic-recurrence") is not None] = told.verdict.estimate.bytes
    # of 16 by 16 weights the bytes tell; calls outweigh their arithmetic
    assert took[True] < took[False]


def test_why_not_squeeze_excitation() -> None:
    """A quantizer can take these layers in, but next to nothing is multiplied there."""
    assert both("squeeze-excitation")[1].finding("squeeze-excitation") is None
    told = judged(NETWORKS["mobilenet_v3-nncf"]())
    found = told.finding("squeeze-excitation")
    assert found is not None
    macs = [work.macs for work in told.verdict.costs.works]
    assert sum(macs[index] for index in found.steps) < 0.05 * sum(macs)


def test_why_not_code_table() -> None:
    table, arithmetic = both("code-table")
    assert table.types(table.finding("code-table")) == {DType.U8}
    assert table.ms < arithmetic.ms


def test_why_not_model_output() -> None:
    """The model declares f32 there; one that declares codes has no such finding."""
    given, codes = both("model-output")
    found = given.finding("model-output")
    assert found is not None
    assert {given.plan.steps[index].output for index in found.steps} == set(given.plan.outputs)
    assert codes.verdict.findings == ()


def softmax(net: Net, value: str) -> str:
    return net.op("Softmax", value)


def layer_norm(net: Net, value: str) -> str:
    return net.op("LayerNormalization", value, net.constant(np.ones(16, np.float32)))


def rms_norm(net: Net, value: str) -> str:
    """In the operators that exporters write it in."""
    squares = net.op("ReduceMean", net.op("Mul", value, value), net.constant(np.array([-1])))
    root = net.op("Sqrt", net.op("Add", squares, net.constant(np.float32(1e-5))))
    return net.op("Mul", net.op("Div", value, root), net.constant(np.ones(16, np.float32)))


@pytest.mark.parametrize("operation", [softmax, layer_norm, rms_norm])
def test_why_not_float_operation(operation: Callable[[Net, str], str]) -> None:
    """With a quantizer in front, too, the layers there write f32, and it takes no less."""
    told = []
    for quantized in (False, True):
        net = Net()
        value = net.matmul(net.quantized("x"), "scores")
        hidden = operation(net, net.quantized(value) if quantized else value)
        net.matmul(net.quantized(hidden), "fc", out="y")
        told.append(judged(net.proto(inputs={"x": [4, 16]})))
    assert all(item.finding("float-operation") for item in told)
    assert told[0].ms <= told[1].ms


def test_why_not_decoded_operand() -> None:
    """Without zero points it is gone, and as much is to be done elsewhere but for one conversion:
    less than the 3 % from which on the first screen counts a gain.
    """
    zeros, symmetric = both("decoded-operand")
    assert symmetric.finding("decoded-operand") is None
    assert symmetric.ms > 0.97 * zeros.ms


def test_why_not_quantizer_between() -> None:
    """The plan is as long, and moves as much, without the quantizer."""
    fused, without = both("quantizer-between")
    assert without.finding("quantizer-between") is None
    assert len(fused.plan.steps) == len(without.plan.steps)
    assert fused.verdict.estimate == without.verdict.estimate


def check_codes_already(code: str) -> None:
    codes, floats = both(code)
    assert codes.types(codes.finding(code)) <= {DType.U8, DType.S8}
    assert len(codes.plan.steps) <= len(floats.plan.steps)
    assert codes.verdict.estimate.bytes < floats.verdict.estimate.bytes


def test_why_not_layout_copy() -> None:
    check_codes_already("layout-copy")


def test_why_not_own_step() -> None:
    check_codes_already("own-step")


def test_why_not_index_arithmetic() -> None:
    """It is there whatever is quantized, on integers, and costs nothing to speak of."""
    for told in both("index-arithmetic"):
        found = told.finding("index-arithmetic")
        assert told.types(found) == {DType.S64}
        assert found is not None
        assert found.ms == 0
