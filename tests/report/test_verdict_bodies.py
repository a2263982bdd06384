"""Products count that run as ONNX has them: by themselves, and inside If, Loop and Scan, trip by trip.
A finding covers them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from support.finding_networks import Net
from support.json_documents import problems
from support.onnx_cases import model, node, random

import fqfuse
from fqfuse.plan.types import Plan
from fqfuse.report.json import plan_json
from fqfuse.report.layout import PIPE
from fqfuse.report.verdict.findings import Verdict, verdict_of
from fqfuse.report.verdict.machine import machine_from
from fqfuse.report.verdict.screen import answer_text, verdict_report

MACHINE = machine_from("flags\t\t: avx512_vnni\n", cores=4, clock=3.0)
F32, S64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
LAYER = 4 * 16 * 16  # multiply-adds of [4, 16] times [16, 16]


def info(name: str, kind: int = F32, shape: Any = None) -> onnx.ValueInfoProto:
    return helper.make_value_info(name, helper.make_tensor_type_proto(kind, shape))


def judged(proto: onnx.ModelProto, **sizes: int) -> Verdict:
    return verdict_of(fqfuse.compile(proto), MACHINE, sizes)


def looped(trips: int | str, shape: Any = (4, 16), rows: int | str = 4) -> onnx.ModelProto:
    """A quantized layer, then `trips` layers of f32 in a Loop."""
    net = Net()
    hidden = net.matmul(net.quantized("x"), "fc")
    net.loop(hidden, net.constant(random([16, 16])), trips, "steps", shape, out="y")
    given: dict[str, Any] = {"inputs": {"x": [rows, 16]}}
    if isinstance(trips, str):
        given = {"inputs": {"x": [rows, 16], trips: []}, "types": {trips: S64}}
    return net.proto(**given)


def codes_of(verdict: Verdict) -> list[str]:
    return [finding.kind.code for finding in verdict.findings]


@pytest.mark.parametrize("shape", [(4, 16), None], ids=["declared", "of the first trip"])
def test_a_product_in_a_loop_counts_once_a_trip(shape: Any) -> None:
    verdict = judged(looped(7, shape))
    assert verdict.shares.macs == (1 + 7) * LAYER
    assert verdict.shares.int8_macs == LAYER
    assert verdict.loops == ()
    assert codes_of(verdict)[0] == "control-flow"
    assert verdict.findings[0].layers == ("steps",)
    assert "12 % of the multiply-adds run in int8" in answer_text(verdict)
    work = verdict.costs.works[-1]
    assert (work.calls, work.int8) == (7 * 2, False)


def test_a_loop_whose_trips_data_decide_counts_once_and_is_said_to(rendered) -> None:
    plan = fqfuse.compile(looped("n"))
    verdict = verdict_of(plan, MACHINE)
    assert verdict.shares.macs == 2 * LAYER
    assert verdict.loops == ("steps",)
    text = " ".join(" ".join(rendered(verdict_report(plan, verdict, PIPE), PIPE)).split())
    assert "loops counted as one trip, because data decide how many they take: steps" in text
    document = plan_json(plan, MACHINE)
    assert document["verdict"]["loops_taken_once"] == ["steps"]
    assert problems(document) == []


def test_open_sizes_reach_into_bodies() -> None:
    proto = looped(3, None, rows="N")
    assert judged(proto).shares.macs == 4 * LAYER // 4
    assert judged(proto, N=8).shares.macs == 4 * LAYER * 2


def test_a_loop_that_its_condition_may_end_counts_once() -> None:
    body = helper.make_graph(
        [
            node("MatMul", ["s", "w"], ["next"]),
            node("ReduceMax", ["next"], ["top"], keepdims=0),
            node("Less", ["top", "limit"], ["on"]),
        ],
        "body",
        [info("trip", S64, []), info("going", BOOL, []), info("s", F32, [4, 16])],
        [info("on", BOOL, []), info("next", F32, [4, 16])],
    )
    proto = model(
        [node("Loop", ["trips", "", "x"], ["y"], body=body, name="until")],
        inputs={"x": [4, 16]},
        constants={"trips": np.int64(2**62), "w": random([16, 16]), "limit": np.float32(9)},
    )
    verdict = judged(proto)
    assert verdict.shares.macs == LAYER
    assert verdict.loops == ("until",)
    assert codes_of(verdict) == ["control-flow"]


def branched() -> onnx.ModelProto:
    """A 3x3 convolution of 4 to 8 channels in one branch of an If, of 4 to 2 in the other."""
    branches = [
        helper.make_graph(
            [node("Conv", ["x", f"w{size}"], [f"z{size}"], pads=[1] * 4)],
            f"to {size}",
            [],
            [info(f"z{size}", F32, None)],
        )
        for size in (8, 2)
    ]
    choice = node("If", ["go"], name="choice", then_branch=branches[0], else_branch=branches[1])
    return model(
        [choice],
        inputs={"x": [1, 4, 10, 10], "go": []},
        types={"go": BOOL},
        constants={"w8": random([8, 4, 3, 3]), "w2": random([2, 4, 3, 3])},
    )


def test_of_branches_the_costlier_one_counts() -> None:
    verdict = judged(branched())
    assert verdict.shares.macs == 8 * 100 * 4 * 9
    assert verdict.shares.int8_macs == 0
    assert codes_of(verdict) == ["control-flow"]
    assert verdict.loops == ()


def scanned() -> onnx.ModelProto:
    """A recurrence of 5 rows: h = x_t @ w + h @ w."""
    body = helper.make_graph(
        [
            node("MatMul", ["row", "w"], ["a"]),
            node("Gemm", ["h", "w", "a"], ["next"]),
            node("Identity", ["next"], ["kept"]),
        ],
        "body",
        [info("h", F32, [4, 16]), info("row", F32, [4, 16])],
        [info("next", F32, [4, 16]), info("kept", F32, [4, 16])],
    )
    scan = node(
        "Scan",
        ["start", "x"],
        ["last", "y"],
        body=body,
        num_scan_inputs=1,
        name="cell",
    )
    return model(
        [scan],
        inputs={"x": [5, 4, 16]},
        constants={"start": np.zeros((4, 16), np.float32), "w": random([16, 16])},
    )


def test_a_scan_runs_along_its_first_axis() -> None:
    verdict = judged(scanned())
    assert verdict.shares.macs == 5 * 2 * LAYER
    assert codes_of(verdict) == ["control-flow"]


def test_a_body_on_indices_with_a_product_inside_is_no_index_arithmetic() -> None:
    """It reads integers only; the table and the weights are constants inside."""
    body = helper.make_graph(
        [
            node("Gather", ["table", "i"], ["rows"]),
            node("MatMul", ["rows", "w"], ["z"]),
        ],
        "look up",
        [],
        [info("z", F32, None)],
        [
            onnx.numpy_helper.from_array(random([30, 16]), "table"),
            onnx.numpy_helper.from_array(random([16, 16]), "w"),
        ],
    )
    choice = node("If", ["go"], ["y"], name="choice", then_branch=body, else_branch=body)
    proto = model([choice], inputs={"i": [4], "go": []}, types={"i": S64, "go": BOOL})
    verdict = judged(proto)
    assert verdict.shares.macs == LAYER
    assert codes_of(verdict) == ["control-flow"]


def plan_of_a_nested_loop() -> Plan:
    inner = helper.make_graph(
        [
            node("Identity", ["g2"], ["on2"]),
            node("Einsum", ["s2", "w"], ["n2"], equation="ij,jk->ik"),
        ],
        "inner",
        [info("t2", S64, []), info("g2", BOOL, []), info("s2", F32, [4, 16])],
        [info("on2", BOOL, []), info("n2", F32, [4, 16])],
    )
    outer = helper.make_graph(
        [
            node("Constant", [], ["two"], value=onnx.numpy_helper.from_array(np.array(2))),
            node("Identity", ["g1"], ["on1"]),
            node("Loop", ["two", "g1", "s1"], ["n1"], body=inner),
        ],
        "outer",
        [info("t1", S64, []), info("g1", BOOL, []), info("s1", F32, [4, 16])],
        [info("on1", BOOL, []), info("n1", F32, [4, 16])],
    )
    proto = model(
        [node("Loop", ["three", "", "x"], ["y"], body=outer, name="nest")],
        inputs={"x": [4, 16]},
        constants={"three": np.int64(3), "w": random([16, 16])},
    )
    return fqfuse.compile(proto)


def test_loops_in_loops_multiply() -> None:
    verdict = verdict_of(plan_of_a_nested_loop(), MACHINE)
    assert verdict.shares.macs == 3 * 2 * LAYER
    assert verdict.loops == (), "where a trip begins, its condition holds"


TRIP, GOING, STATE = info("trip", S64, []), info("going", BOOL, []), info("s")
ON = node("Identity", ["going"], ["on"])
PRODUCT = node("MatMul", ["s", "w"], ["next"])
ODD: dict[str, tuple[list[str], list[onnx.NodeProto], list[onnx.ValueInfoProto]]] = {
    "no outputs": (["three", "", "x"], [ON, PRODUCT], []),
    "an operand is missing": (
        ["three", "", "x"],
        [ON, node("MatMul", ["s"], ["next"])],
        [info("on", BOOL, []), info("next")],
    ),
    "a vector of trips": (["vector", "", "x"], [ON, PRODUCT], [info("on", BOOL, []), info("next")]),
    "no number of trips": (["none", "", "x"], [ON, PRODUCT], [info("on", BOOL, []), info("next")]),
    "for ever": (["", "", "x"], [ON, PRODUCT], [info("on", BOOL, []), info("next")]),
}


@pytest.mark.each_case
@pytest.mark.parametrize("case", ODD)
def test_bodies_that_fail_in_a_run_are_counted_as_far_as_they_go(case: str) -> None:
    """The import takes them: what they are shows when they run."""
    inputs, nodes, outputs = ODD[case]
    body = helper.make_graph(nodes, "body", [TRIP, GOING, STATE], outputs)
    constants = {"three": np.int64(3), "vector": np.array([3]), "none": np.zeros(0, np.int64)}
    proto = model(
        [node("Loop", inputs, ["y"], body=body, name="odd")],
        inputs={"x": [4, 16]},
        constants={**constants, "w": random([16, 16])},
    )
    verdict = judged(proto)
    assert verdict.shares.macs > 0
    assert codes_of(verdict) == ["control-flow"]


PRODUCTS: dict[str, tuple[onnx.NodeProto, dict[str, list[int]], int]] = {
    "Einsum": (
        node("Einsum", ["a", "b"], ["y"], equation="bij,bkj->bk"),
        {"a": [2, 3, 5], "b": [2, 7, 5]},
        2 * 3 * 7 * 5,
    ),
    "Einsum of three": (
        node("Einsum", ["a", "b", "c"], ["y"], equation="i,ij,j->"),
        {"a": [3], "b": [3, 5], "c": [5]},
        2 * 3 * 5,
    ),
    "Attention": (
        node("Attention", ["q", "k", "v"], ["y"]),
        {"q": [2, 4, 3, 8], "k": [2, 4, 6, 8], "v": [2, 4, 6, 10]},
        2 * 4 * 3 * 6 * (8 + 10),
    ),
    "Attention, heads side by side": (
        node("Attention", ["q", "k", "v"], ["y"], q_num_heads=4, kv_num_heads=2),
        {"q": [2, 3, 32], "k": [2, 6, 16], "v": [2, 6, 20]},
        2 * 4 * 3 * 6 * (8 + 10),
    ),
    "Attention behind a past": (
        node("Attention", ["q", "k", "v", "", "pk", "pv"], ["y", "ok", "ov"]),
        {name: [1, 2, 5 if name in ("pk", "pv") else 1, 8] for name in ("q", "k", "v", "pk", "pv")},
        2 * 6 * (8 + 8),
    ),
    "DeformConv": (
        node("DeformConv", ["x", "w", "o"], ["y"], kernel_shape=[2, 2]),
        {"x": [1, 3, 5, 5], "w": [4, 3, 2, 2], "o": [1, 8, 4, 4]},
        4 * 4 * 4 * 3 * 2 * 2,
    ),
}


@pytest.mark.parametrize("case", PRODUCTS)
def test_a_product_without_a_primitive_counts_as_f32(case: str) -> None:
    operator, inputs, macs = PRODUCTS[case]
    net = Net()
    net.matmul(net.quantized("x0"), "fc", out="z")
    proto = net.proto(inputs={"x0": [4, 16]})
    proto.graph.node.append(operator)
    proto.graph.input.extend(info(name, F32, shape) for name, shape in inputs.items())
    proto.graph.output.append(info("z"))
    proto.opset_import[0].version = 23
    verdict = judged(proto)
    assert verdict.shares.macs == LAYER + macs
    assert verdict.shares.int8_macs == LAYER
    # Attention is read as its products; the others stay operators
    code = "f32-attention" if operator.op_type == "Attention" else "fallback"
    assert code in codes_of(verdict)
