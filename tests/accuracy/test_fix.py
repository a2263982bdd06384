"""`fix`: files with one fault by real tools, of which the first finding is that fault, and healthy ones, which stay."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnxruntime import quantization
from support.finding_networks import Net
from support.judge import ort_session
from support.planted import PLANTED, SHAPE, TOKENS, Planted, attention, conv, inputs, plain, static
from support.planted import weights as normal

import fqfuse
from fqfuse.accuracy.compare import compared, read_models
from fqfuse.accuracy.data import given
from fqfuse.accuracy.fixing import codes_of_remedies
from fqfuse.accuracy.layers import Cause
from fqfuse.accuracy.measures import sqnr_of
from fqfuse.models.digits import digits_model_path, digits_test_set
from fqfuse.report.verdict.catalogue import CATALOGUE
from fqfuse.report.verdict.findings import verdict_of
from fqfuse.report.verdict.kind import Gain
from fqfuse.report.verdict.machine import machine_from

AVX2 = machine_from("flags\t\t: avx2\n", cores=2, clock=3.0)
QUICK = ("dead concat", "narrow range")
CASES = [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in PLANTED]
FASTER = {
    "unlike signs",
    "wrong layer excluded",
    "dynamic",
    "f16",
    "open sizes",
    "asymmetric weights",
}
"""Faults that cost time: whether less of it shows depends on what else the machine does."""


@cache
def planted(name: str) -> Planted:
    return PLANTED[name]()


@pytest.mark.parametrize("name", PLANTED)
def test_the_first_finding_is_the_fault(name: str) -> None:
    case = planted(name)
    if case.code in CATALOGUE:
        machine = AVX2 if name == "saturation" else None
        assert verdict_of(fqfuse.compile(case.int8), machine).findings[0].kind.code == case.code
    else:  # no file tells what the data is
        models = read_models(case.f32, case.int8)
        found = compared(models, given(models.f32, case.feeds, "data"))
        assert found.ranking[0].cause is Cause.SATURATED


def judged(case: Planted, model: onnx.ModelProto) -> float:
    """SQNR of a model to f32, both by ONNX Runtime without optimizations."""
    found = []
    for each in (case.f32, model):
        session = ort_session(each)
        half = session.get_inputs()[0].type == "tensor(float16)"
        feeds = [feed["x"].astype(np.float16 if half else np.float32) for feed in case.feeds]
        runs = [session.run(None, {"x": x})[0].astype(np.float64) for x in feeds]
        found.append(np.concatenate(runs))
    return sqnr_of(*found)


@pytest.mark.parametrize("name", CASES)
def test_the_fault_is_repaired(tmp_path: Path, name: str) -> None:
    """The file has no such finding any more, and ONNX Runtime computes of it what is said."""
    case, out = planted(name), tmp_path / "out.onnx"
    before = case.int8.SerializeToString()
    asked = {"f32": case.f32, "data": list(case.feeds), "sizes": case.sizes, "only": [case.code]}
    told = fqfuse.fix(case.int8, out, **asked)
    assert case.int8.SerializeToString() == before, "the caller's model is not touched"
    (step,) = told["steps"]
    assert step["code"] == case.code
    assert step["after"], step["why"]
    if not step["kept"]:
        assert name in FASTER
        assert step["why"] == "no faster here"
        assert not out.exists()
        return
    assert told["after"]["bytes"] == out.stat().st_size
    model = onnx.load(out)
    onnx.checker.check_model(model, full_check=True)
    assert {node.domain for node in model.graph.node} == {""}
    machine = AVX2 if name == "saturation" else None
    codes = {found.kind.code for found in verdict_of(fqfuse.compile(out), machine).findings}
    assert case.code not in codes
    if CATALOGUE.get(case.code) is None or CATALOGUE[case.code].gain is not Gain.TIME:
        # our own figure is that of the worst part; ONNX Runtime's is of all
        assert judged(case, model) >= told["after"]["sqnr"] - 1
        assert step["after"]["sqnr"] >= step["before"]["sqnr"] + 0.5


def test_without_f32_and_data_the_reason_is_told(tmp_path: Path) -> None:
    for name, needed in (("one scale for all weights", "--f32"), ("dynamic", "--data")):
        out = tmp_path / "out.onnx"
        told = fqfuse.fix(planted(name).int8, out, only=[planted(name).code])
        assert needed in told["steps"][0]["why"]
        assert not told["changed"]
        assert told["before"] == told["after"]
        assert not out.exists()


def test_wrong_arguments(tmp_path: Path) -> None:
    model = tmp_path / "model.onnx"
    model.write_bytes(digits_model_path("qdq").read_bytes())
    with pytest.raises(fqfuse.InvalidInput, match="would replace a model that is read"):
        fqfuse.fix(model, model)
    with pytest.raises(fqfuse.InvalidInput, match="no remedy is called 'speed'"):
        fqfuse.fix(model, only=["speed"])
    with pytest.raises(fqfuse.InvalidInput, match="there is no runtime 'there'"):
        fqfuse.fix(model, runtime="there")
    assert model.read_bytes() == digits_model_path("qdq").read_bytes()


def test_remedies_are_those_of_findings() -> None:
    assert set(codes_of_remedies()) - set(CATALOGUE) == {"range", "suggest", "layout"}


# -- healthy files ---------------------------------------------------------------------------------


def residual() -> onnx.ModelProto:
    net = Net()
    hidden = net.op("Relu", conv(net, "x", "first", seed=1), name="relu")
    added = net.op("Add", conv(net, hidden, "second", seed=2), "x", name="sum")
    conv(net, added, "third", out="y", seed=3)
    return net.proto(inputs={"x": SHAPE})


def dense() -> onnx.ModelProto:
    net = Net()
    hidden = net.op("MatMul", "x", net.constant(normal(32, 64, seed=1)), name="first")
    hidden = net.op("Relu", hidden, name="relu")
    net.op("MatMul", hidden, net.constant(normal(64, 32, seed=2)), name="second", out="y")
    return net.proto(inputs={"x": [64, 32]})


Healthy = Callable[
    [], tuple[onnx.ModelProto | Path, onnx.ModelProto | Path, list[dict[str, np.ndarray]]]
]


def by_static(f32: Callable[[], onnx.ModelProto], shape: list[int], **options: object) -> Healthy:
    def make() -> tuple[onnx.ModelProto, onnx.ModelProto, list[dict[str, np.ndarray]]]:
        model, feeds = f32(), list(inputs(shape))
        return model, static(model, feeds, **options), feeds

    return make


def digits(form: str) -> Healthy:
    feeds = [{"image": digits_test_set()[0][:8]}]
    return lambda: (digits_model_path("f32"), digits_model_path(form), feeds)


QOPERATOR = quantization.QuantFormat.QOperator
HEALTHY: dict[str, Healthy] = {
    "digits, Q/DQ": digits("qdq"),
    "digits, FakeQuantize": digits("fakequantize"),
    "convolutions": by_static(plain, SHAPE),
    "convolutions, QOperator": by_static(plain, SHAPE, quant_format=QOPERATOR),
    "convolutions, 7 bits": by_static(plain, SHAPE, reduce_range=True),
    "convolutions, percentiles": by_static(
        plain, SHAPE, calibrate_method=quantization.CalibrationMethod.Percentile
    ),
    "residual": by_static(residual, SHAPE),
    "attention": by_static(attention, TOKENS),
    "dense": by_static(dense, [64, 32]),
    "dense, s8": by_static(dense, [64, 32], activation_type=quantization.QuantType.QInt8),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", HEALTHY)
def test_healthy_files_stay(tmp_path: Path, name: str) -> None:
    f32, int8, feeds = HEALTHY[name]()
    for given_too in ({"f32": f32, "data": feeds}, {"data": feeds}, {"f32": f32}, {}):
        told = fqfuse.fix(int8, tmp_path / "out.onnx", **given_too)
        assert not told["changed"], [step for step in told["steps"] if step["kept"]]
    assert not list(tmp_path.iterdir())
