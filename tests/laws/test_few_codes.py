"""A quantizer is said to have hardly a code for a part of its source exactly where no data gives more."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from onnx.reference import ReferenceEvaluator
from onnxruntime.quantization import QuantFormat
from support.finding_networks import Net
from support.onnx_cases import random
from support.ort_quantizer import quantized_by_ort

import fqfuse

KEPT = 2048
GRID = np.concatenate([np.linspace(-end, end, KEPT // 2) for end in (12, 2000)]).astype(np.float32)
"""What reaches both ends of each operator, and every code between."""

BOUNDED = {
    "Sigmoid": {},
    "Tanh": {},
    "HardSigmoid": {"alpha": 0.3, "beta": 0.4},
    "Erf": {},
    "Softsign": {},
    "Relu": {},
    "Clip": {},
}
UNBOUNDED = {"LeakyRelu": {"alpha": 0.1}, "Abs": {}, "HardSwish": {}}


def drawn(rng: np.random.Generator) -> tuple[onnx.ModelProto, str]:
    """Operator, factor or not, another quantizer or not, moves, a Concat or not, a quantizer; and the operator."""
    net = Net()
    op = str(rng.choice([*BOUNDED, *UNBOUNDED]))
    bounds = [net.constant(np.float32(end)) for end in (-1, 2)] if op == "Clip" else []
    value = net.op(op, "x", *bounds, name="maker", **(BOUNDED | UNBOUNDED)[op])
    if rng.random() < 0.3:
        factor = net.constant(np.float32(rng.choice([-2, 0.5])))
        operands = [(value, factor), (factor, value)][int(rng.integers(2))]
        value = net.op(str(rng.choice(["Div", "Mul", "Sub"])), *operands, name="maker2")
    if rng.random() < 0.3:
        value = net.quantized(value, 1 / 64, np.uint8(rng.integers(256)))
    if rng.random() < 0.5:
        value = net.op("Reshape", value, net.constant(np.int64([KEPT, 1])))
        value = net.op("Transpose", value, perm=[1, 0])
    if rng.random() < 0.5:
        value = net.op(
            "Concat", value, net.op("Mul", "x", net.constant(np.float32(40))), name="join", axis=1
        )
    scale = float(np.exp(rng.uniform(np.log(1 / 400), np.log(8))))
    zero = rng.choice([np.uint8(0), np.uint8(10), np.uint8(255), np.int8(0), np.int8(-128)])
    net.op("Identity", net.quantized(value, scale, zero), name="last", out="y")
    return net.proto(inputs={"x": [1, KEPT]}), op


@pytest.mark.parametrize("draws", [20, pytest.param(400, marks=pytest.mark.slow)])
def test_few_codes_are_found_where_no_data_gives_more_and_nowhere_else(draws: int) -> None:
    rng = np.random.default_rng(draws)
    seen = {True: 0, False: 0}
    for draw in range(draws):
        model, op = drawn(rng)
        constants = {each.name for each in model.graph.initializer}
        with np.errstate(all="ignore"):  # exponentials of what a sigmoid does not choose
            (given,) = ReferenceEvaluator(model).run(None, {"x": GRID[None]})
        few = len(np.unique(given[:, :KEPT])) <= 4 and op not in UNBOUNDED
        inner = [node.op_type for node in model.graph.node].count("QuantizeLinear") == 2
        found = [
            one for one in fqfuse.findings(fqfuse.compile(model)) if one["code"] == "few-codes"
        ]
        if op in UNBOUNDED and inner:
            continue  # the inner quantizer bounds it at numbers that the grid need not reach
        if any(
            node.op_type == "Div" and node.input[1] not in constants for node in model.graph.node
        ):
            assert (
                not found or few
            )  # a divisor may come close to 0: nothing is known of the quotient
            continue
        assert bool(found) == few, (draw, op, np.unique(given[:, :KEPT])[:9], found)
        seen[few] += 1
        if found:
            assert found[0]["gain"] == "numbers"
            names = {node.name for node in model.graph.node}
            assert names.issuperset(found[0]["layers"])
            joined = "join" in names and "join" in found[0]["layers"]
            assert joined or "join" not in names
    assert min(seen.values()) >= draws / 10  # each verdict has been put to the test


@pytest.mark.parametrize("form", [QuantFormat.QDQ, QuantFormat.QOperator])
def test_excluding_what_the_finding_names_brings_class_scores_back(form: QuantFormat) -> None:
    """The head of a detector as ONNX Runtime quantizes it, and again without what the finding names."""
    net = Net()
    hidden = net.op("Relu", "x")
    boxes, scores = (
        net.op("Conv", hidden, net.constant(random([rows, 8, 1, 1], rows)), name=f"conv{rows}")
        for rows in (4, 6)
    )
    boxes = net.op("Mul", boxes, net.constant(np.float32(60)), name="boxes")
    scores = net.op("Sigmoid", scores, name="scores")
    net.op("Concat", boxes, scores, name="head", out="y", axis=1)
    model = net.proto(inputs={"x": [1, 8, 6, 6]})

    def scores_of(excluded: list[str]) -> tuple[int, list[dict[str, object]]]:
        int8 = quantized_by_ort(model, quant_format=form, nodes_to_exclude=excluded)
        plan = fqfuse.compile(int8)
        with fqfuse.InferenceSession(plan, backend="numpy") as session:
            (y,) = session.run(None, {"x": random([1, 8, 6, 6], 5)})
        found = [one for one in fqfuse.findings(plan) if one["code"] == "few-codes"]
        return len(np.unique(y[:, 4:])), found

    different, (found,) = scores_of([])
    assert different <= 4
    assert "nodes_to_exclude=['head']" in str(found["change"])
    different, gone = scores_of(["head"])
    assert different > 20
    assert gone == []


def test_a_scale_for_each_channel_has_codes_enough_if_one_channel_has() -> None:
    for scales, few in (([3.0, 1 / 255], False), ([3.0, 4.0], True)):
        net = Net()
        value = net.quantized(net.op("Sigmoid", "x"), np.float32(scales), np.uint8([0, 0]), 1)
        net.op("Identity", value, out="y")
        model = net.proto(inputs={"x": [1, 2, 3]})
        assert numpy_helper.to_array(model.graph.initializer[0]).shape == (2,)
        codes = {one["code"] for one in fqfuse.findings(fqfuse.compile(model))}
        assert ("few-codes" in codes) == few
