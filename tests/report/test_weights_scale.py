"""The scale of weights is told as the model has it, whatever has joined it inside a step."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from support.plan_text import parse_plan

import fqfuse
from fqfuse.plan.text import print_plan
from fqfuse.plan.types import Plan
from fqfuse.report.diff.compare import difference_of
from fqfuse.report.html.data import document
from fqfuse.report.json import plan_json

OWN = np.array([0.011, 0.012, 0.013, 0.014], np.float32)
STORED = np.float32(0.25)


def model(stored: np.float32 = STORED) -> onnx.ModelProto:
    """x -> codes -> MatMul by weights in codes -> codes -> y."""
    constants = {
        "xs": np.float32(0.02),
        "xz": np.uint8(128),
        "w": np.arange(-16, 16, dtype=np.int8).reshape(8, 4),
        "ws": OWN,
        "wz": np.zeros(4, np.int8),
        "ys": stored,
        "yz": np.uint8(100),
    }
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "xs", "xz"], ["xq"], "x_q"),
        helper.make_node("DequantizeLinear", ["xq", "xs", "xz"], ["xd"], "x_d"),
        helper.make_node("DequantizeLinear", ["w", "ws", "wz"], ["wd"], "w_d", axis=1),
        helper.make_node("MatMul", ["xd", "wd"], ["m"], "product"),
        helper.make_node("QuantizeLinear", ["m", "ys", "yz"], ["yq"], "y_q"),
        helper.make_node("DequantizeLinear", ["yq", "ys", "yz"], ["y"], "y_d"),
    ]
    values = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, size])
        for name, size in (("x", 8), ("y", 4))
    ]
    held = [numpy_helper.from_array(np.asarray(data), name) for name, data in constants.items()]
    graph = helper.make_graph(nodes, "m", values[:1], values[1:], held)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=10)


def product(plan: Plan) -> int:
    return next(index for index, step in enumerate(plan.steps) if step.primitive == "matmul")


@pytest.mark.each_case
@pytest.mark.parametrize("target", ["onednn-v3", "onednn-v2", "unified"])
def test_json_has_the_scale_of_the_model(target: str) -> None:
    plan = fqfuse.compile(model(), target=target)
    step = plan_json(plan)["steps"][product(plan)]
    told = step["types"]["inputs"][step["roles"].index("weights")]
    assert told == "s8[8,4]{s=[0.011,0.012,0.013,0.014],z=[0,0,0,0],axis=1}"
    if target == "onednn-v3":  # where the destination's scale has joined it
        np.testing.assert_allclose(step["scales"]["weights"]["values"], OWN / STORED, rtol=1e-6)


def test_the_page_has_both_under_their_own_names() -> None:
    page = document(plan := fqfuse.compile(model()))
    texts = [*page["texts"], *page["details"]["texts"]]
    facts = page["details"]["steps"][product(plan)]["facts"]
    told = {texts[name]: texts[value] for name, value in facts}
    assert told["scale of weights"] == "0.011, 0.012, 0.013, 0.014"
    assert told["factor of the product"].startswith("0.044, 0.048, 0.052, 0.056")


def test_a_difference_of_the_destination_is_none_of_the_weights() -> None:
    first, second = fqfuse.compile(model()), fqfuse.compile(model(STORED * 2))
    told = next(
        change
        for pair in difference_of(first, second).pairs
        for change in pair.changes
        if pair.second == product(second) and change.what == "scales"
    )
    assert "factor of the product (0.044, 0.048, 0.052, 0.056)" in told.first
    assert "weights" not in told.first


def test_files_and_texts_keep_it(tmp_path: Path) -> None:
    plan = fqfuse.compile(model())
    held = plan.quantizers["w_d"].quant
    assert held is not None
    assert held.scale == tuple(map(float, OWN))
    fqfuse.save_plan(plan, tmp_path / "m.plan.onnx")
    assert fqfuse.load_plan(tmp_path / "m.plan.onnx") == plan
    assert parse_plan(print_plan(plan)) == plan
    without = {key: replace(q, quant=None) for key, q in plan.quantizers.items()}
    assert parse_plan(print_plan(replace(plan, quantizers=without))) != plan
