"""Totals: what counts as int8, and that everything adds up."""

from __future__ import annotations

import pytest
from laws.recurrent import draw_dynamic
from onnx import TensorProto, helper
from support.onnx_cases import model, node, random
from support.plan_text import parse_plan

import fqfuse
from fqfuse.ir.ops.recurrent import DYNAMIC
from fqfuse.models.digits import digits_model_path
from fqfuse.plan.file import save_plan
from fqfuse.plan.targets import TARGETS
from fqfuse.plan.types import runs_in_int8
from fqfuse.report.summary import Kind, summary_of
from fqfuse.report.tables import steps_table
from fqfuse.report.text import _quantizers
from fqfuse.report.verdict.findings import verdict_of
from fqfuse.report.verdict.machine import machine_from
from fqfuse.report.verdict.view import View
from fqfuse.report.verdict.work import operator_of, work_of
from fqfuse.report.why.endings import precision

STEPS = """plan p target=onednn-v3
  in %u : u8[N,4,2,2]
  in %f : f32[N,4,2,2]
  const @w : s8[4,4,1,1] = [1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]
  const @wf : f32[4,4,1,1] = [1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]
  #0 %a : f32[N,4,2,2] = convolution<Conv>(src=%u, weights=@w) ; int8
  #1 %b : f32[N,4,2,2] = convolution<Conv>(src=%u, weights=@wf) ; f32_weights
  #2 %c : f32[N,4,2,2] = convolution<Conv>(src=%f, weights=@w) ; f32_source
  #3 %d : f32[N,4,2,2] = reorder<Identity>(src=%u) ; reorder
  #4 %e : u8[N,4,2,2] = concat<Concat>(src_0=%u, src_1=%u){axis=0} ; concat
  #5 %g : u8[N,4,2,2] = binary<Add>(src_0=%u, src_1=%f){algorithm="add"} ; mixed
  #6 %h : u8[N,4,2,2] = onnx.Mystery(x=%u) ; codes
  #7 %i : f32[N,4,2,2] = onnx.Mystery(x=%f) ; floats
  #8 %j : f32[2] = onnx.Mystery() ; nothing
  out %a
"""


VNNI = machine_from("flags\t\t: avx512_vnni\n", cores=2, clock=3.0)


def test_int8_needs_all_sources_and_the_weights() -> None:
    plan = parse_plan(STEPS)
    assert {step.name for step in plan.steps if runs_in_int8(plan, step)} == {
        "int8",
        "concat",
        "codes",
    }


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("seed", range(4))
def test_all_that_tell_of_a_layer_with_codes_for_weights_call_it_int8(seed, target) -> None:
    # it takes the range of its f32 input, and of its state, in each run
    plan = fqfuse.compile(draw_dynamic(seed).model, target=target)
    (index,) = [index for index, step in enumerate(plan.steps) if operator_of(step) == DYNAMIC]
    told = (
        summary_of(plan).kinds[plan.steps[index].primitive].int8 == 1,
        steps_table(plan)[index]["int8"],
        View(plan).in_int8(index),
        work_of(plan, plan.steps[index]).int8,
        precision(plan, index) == "in int8",
        (shares := verdict_of(plan, VNNI).shares).int8_macs == shares.macs > 0,
    )
    assert all(told), told


def test_kinds_are_counted_the_most_frequent_first() -> None:
    summary = summary_of(parse_plan(STEPS))
    assert list(summary.kinds.items()) == [
        ("convolution", Kind(3, 1)),
        ("onnx.Mystery", Kind(3, 1)),
        ("binary", Kind(1, 0)),
        ("concat", Kind(1, 1)),
        ("reorder", Kind(1, 0)),
    ]
    assert (summary.steps, summary.int8, summary.compute) == (9, 3, Kind(3, 1))


def test_a_foreign_operator_is_called_by_its_name(tmp_path) -> None:
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in "xy")
    graph = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["r"]), helper.make_node("Tan", ["r"], ["y"])],
        "g",
        [x],
        [y],
    )
    plan = fqfuse.compile(
        helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9
        ).SerializeToString()
    )
    assert summary_of(plan).kinds["onnx.Tan"] == Kind(1, 0)
    save_plan(plan, tmp_path / "plan.onnx")
    assert fqfuse.load_plan(tmp_path / "plan.onnx") == plan


def test_a_quantizer_is_settled_with_both_halves_and_fused_without_a_step() -> None:
    fates = """  quantizer both : FakeQuantize of f
  quantizer half : QuantizeLinear of f
  quantizer none : QuantizeLinear of f
  quantizer costly : FakeQuantize of f
  fate both quantize -> dst_scale at #0 : ""
  fate both dequantize of a -> sum at #1 : ""
  fate both dequantize of b -> post_op at #2 : ""
  fate half quantize -> constant : ""
  fate costly quantize -> constant : ""
  fate costly dequantize of c -> standalone at #3 : ""
"""
    summary = summary_of(parse_plan(STEPS + fates))
    assert (summary.quantizers, summary.settled, summary.fused) == (4, 2, 1)
    assert summary.forms == {"FakeQuantize": 2, "QuantizeLinear": 2}
    assert list(summary.quantize.items()) == [("dst_scale", 1), ("constant", 2)]
    assert list(summary.dequantize.items()) == [("sum", 1), ("post_op", 1), ("standalone", 1)]


@pytest.mark.parametrize("form", ["f32", "fakequantize", "qdq"])
@pytest.mark.parametrize("target", ["onednn-v3", "onednn-v2"])
def test_fates_of_the_digits_model_add_up(form, target: str) -> None:
    plan = fqfuse.compile(digits_model_path(form), target=target)
    summary = summary_of(plan)
    assert summary.settled == summary.quantizers == len(plan.quantizers)
    assert sum(summary.quantize.values()) >= summary.quantizers
    assert sum(summary.dequantize.values()) >= summary.quantizers
    assert sum(summary.quantize.values()) + sum(summary.dequantize.values()) == len(
        plan.fate_records
    )
    if form != "f32":
        assert summary.compute == Kind(8, 8), "seven convolutions and the final gemm"
        assert summary.fused == summary.quantizers - 1, "all but the one at the graph's input"


def test_quantizers_by_ranges_at_run_time_are_counted() -> None:
    constants = {"w": random((8, 4)), "v": random((8, 4), 1)}
    nodes = [node("MatMul", ["x", "w"], ["a"]), node("MatMul", ["x", "v"], ["b"])]
    built = model(
        [*nodes, node("Add", ["a", "b"], ["y"])], inputs={"x": [2, 8]}, constants=constants
    )
    plan = fqfuse.compile(built, dynamic="matmul")
    summary = summary_of(plan)
    assert (summary.quantizers, summary.dynamic, summary.settled) == (3, 1, 3)
    assert summary_of(fqfuse.compile(built)).dynamic == 0
    assert "1 by ranges at run time" in _quantizers(summary).plain
