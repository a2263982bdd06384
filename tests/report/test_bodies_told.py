"""What is told of plans in bodies: their work and findings count trip by trip under the names of their
own nodes, `why` finds these, and the documents keep to their schemas.
"""

from __future__ import annotations

import numpy as np
import pytest
from support.body_cases import WIDTH, Writer, branched, in_each_other, looped, scanned
from support.json_documents import problems
from support.onnx_cases import node

import fqfuse
from fqfuse.plan.types import MOST_DEPTH
from fqfuse.report.json import plan_json, summary_json
from fqfuse.report.verdict.findings import Verdict, verdict_of
from fqfuse.report.verdict.machine import machine_from

MACHINE = machine_from("flags\t\t: avx512_vnni\n", cores=4, clock=3.0)
LAYER = 2 * WIDTH * WIDTH  # multiply-adds of [2, WIDTH] times [WIDTH, WIDTH]


def judged(plan: fqfuse.Plan) -> Verdict:
    return verdict_of(plan, MACHINE)


def two_layers(trips: int = 5, how: str = "constant") -> fqfuse.Plan:
    return fqfuse.compile(looped(Writer(["matmul", "per channel"], "inside", 1), trips, how=how))


def test_int8_work_in_a_loop_counts_as_such_in_each_trip() -> None:
    verdict = judged(two_layers())
    assert (verdict.shares.macs, verdict.shares.int8_macs) == (5 * 2 * LAYER,) * 2
    assert verdict.loops == ()
    assert "control-flow" not in [finding.kind.code for finding in verdict.findings]
    assert verdict.shares.between == 5 * judged(two_layers(1)).shares.between


def test_a_loop_of_unknown_trips_counts_once() -> None:
    verdict = judged(two_layers(how="fed"))
    assert verdict.shares.int8_macs == 2 * LAYER
    assert verdict.loops == ("loop",)


def test_a_scan_counts_its_rows_and_an_if_its_costlier_branch() -> None:
    assert (
        judged(fqfuse.compile(scanned(Writer(["matmul"], "inside", 1)))).shares.int8_macs
        == 3 * LAYER
    )
    branches = branched(Writer(["matmul"], "inside", 1), Writer(["matmul", "matmul"], "inside", 1))
    assert judged(fqfuse.compile(branches)).shares.int8_macs == 2 * LAYER


def test_findings_name_the_nodes_of_bodies_with_what_they_cost_in_all_trips() -> None:
    def tangent(trips: int) -> fqfuse.Plan:
        proto = looped(Writer(["matmul"], "inside", 1), trips, how="constant")
        body = next(item.g for item in proto.graph.node[0].attribute if item.name == "body")
        for found in body.node:
            found.input[:] = ["bent" if name == "t0.mm" else name for name in found.input]
        made = [place for place, found in enumerate(body.node) if "t0.mm" in found.output]
        body.node.insert(made[0] + 1, node("Tan", ["t0.mm"], ["bent"], name="bent"))
        return fqfuse.compile(proto)

    one, many = ({f.kind.code: f for f in judged(tangent(n)).findings} for n in (1, 6))
    assert many["fallback"].layers == ("bent",)
    assert many["fallback"].steps == (0,)
    assert many["fallback"].ms == pytest.approx(6 * one["fallback"].ms)


def test_why_finds_what_lies_in_bodies() -> None:
    plan = fqfuse.compile(looped(Writer(["matmul", "nested"], "inside", 1), 2, how="constant"))
    told = fqfuse.why(plan, "t0.mm")
    assert problems(told) == []
    assert told["body"] == "loop.body"
    assert told["answer"].startswith(
        "In a body of loop, which has a plan of its own: t0.mm runs in int8"
    )
    deeper = fqfuse.why(plan, "t1.t0.mm")
    assert deeper["body"].endswith("then_branch")
    assert "runs in int8" in deeper["answer"]
    assert fqfuse.why(plan, "loop")["body"] == ""
    with pytest.raises(fqfuse.InvalidInput, match=r"no node, quantizer, value or step 't9\.mm'"):
        fqfuse.why(plan, "t9.mm")


def test_documents_hold_the_plans_of_bodies() -> None:
    document = plan_json(two_layers(), MACHINE)
    assert problems(document) == []
    (step,) = document["steps"]
    (body,) = step["bodies"]
    assert (body["name"], body["times"]) == ("loop.body", 5)
    products = [found for found in body["steps"] if found["primitive"] == "matmul"]
    assert [found["macs"] for found in products] == [LAYER, LAYER]
    assert step["macs"] == 5 * 2 * LAYER
    assert summary_json(two_layers())["primitives"]["matmul"] == {"steps": 2, "int8": 2}


def test_a_body_that_has_no_plan_says_why() -> None:
    proto = in_each_other(MOST_DEPTH + 1)
    plan = fqfuse.compile(proto)
    parts = [plan, *(body for _, body in plan.within)]
    told = {
        item for part in parts for item in part.decision_records if item.rule == "compile_bodies"
    }
    assert {(item.subject, item.outcome.value) for item in told} == {("if1", "refused")}
    assert f"in more than {MOST_DEPTH} bodies" in next(iter(told)).reason
    assert plan_json(plan, MACHINE)["steps"][0]["bodies"]
    x = np.float32([1, 2])
    for go in (True, False):
        (found,) = fqfuse.InferenceSession(plan).run(None, {"x": x, "k": np.bool_(go)})
        np.testing.assert_allclose(found, np.tan(x), rtol=1e-6)  # NumPy's own tangent is as exact
