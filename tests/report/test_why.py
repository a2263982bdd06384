"""Every node, quantizer, value and step has a story with an ending; names are found as people type
them; what cannot be told is said.
"""

from __future__ import annotations

import json

import numpy as np
import pytest
from support.finding_cases import CASES
from support.finding_networks import Net
from support.json_documents import problems
from support.onnx_cases import model, node
from support.plan_corpus import every_plan, models

import fqfuse
from fqfuse.errors import InvalidInput
from fqfuse.frontend.model_nodes import model_nodes
from fqfuse.models.digits import digits_model_path
from fqfuse.plan.types import Plan
from fqfuse.report.layout import PIPE, Layout
from fqfuse.report.lines import WIDTH
from fqfuse.report.verdict.findings import Verdict, verdict_of
from fqfuse.report.verdict.machine import machine_from
from fqfuse.report.why.document import matches_data, story_data
from fqfuse.report.why.endings import anchor_of
from fqfuse.report.why.index import Index
from fqfuse.report.why.screen import matches_report, story_report
from fqfuse.report.why.story import Story, ending_of, story_of

MACHINE = machine_from("flags\t\t: avx512_vnni\n", cores=4, clock=3.0)


@pytest.fixture(scope="module")
def digits() -> Plan:
    return fqfuse.compile(digits_model_path("qdq"))


def tell(plan: Plan, name: str, model: object = None) -> Story:
    index = Index(plan, () if model is None else model_nodes(model))
    return story_of(index, name)


# -- law -------------------------------------------------------------------------------------------


def check_ending(index: Index, name: str, verdict: Verdict) -> None:
    story = story_of(index, name, verdict)
    where = f"{index.plan.name}: {name}"
    assert story.answer.endswith("."), where
    if not story.places and not story.fates:
        assert story.kind == "value" or "has no step: " in story.answer, where
    for place in story.places:
        step = index.plan.steps[place.step]
        assert place.role, where
        assert place.post_op is None or place.post_op < len(step.attr.post_ops), where
    assert ending_of(index, name), where
    check_document(story_data(index.plan, story), where)


def check_document(document: dict, where: str) -> None:
    """It is what the schema says, as a reader gets it."""
    assert problems(json.loads(json.dumps(document, allow_nan=False))) == [], where


@pytest.mark.slow
def test_every_name_of_a_plan_has_an_ending(rendered) -> None:
    for _, plan in every_plan():
        index, verdict = Index(plan), verdict_of(plan, MACHINE)
        names = index.node_names()
        assert set(plan.quantizers) <= set(names)
        assert {name for step in plan.steps for name in step.origin if name} <= set(names)
        for name in [*names, *plan.values, *plan.constants, *(s.name for s in plan.steps)]:
            if name:
                check_ending(index, name, verdict)
        for name in names[-1:]:
            for layout in (PIPE, Layout(60)):
                report = story_report(plan, story_of(index, name, verdict), layout)
                lines = rendered(report, layout)
                assert max(map(len, lines)) <= min(layout.width or WIDTH, WIDTH), name


def test_every_node_of_a_model_has_an_ending() -> None:
    protos = [*((name, proto) for name, proto in models())]
    protos += [(code, make(False)) for code, make in CASES.items()]
    for name, proto in protos:
        plan = fqfuse.compile(proto)
        index, verdict = Index(plan, model_nodes(proto)), verdict_of(plan, MACHINE)
        assert {node.name for node in model_nodes(proto)} <= set(index.node_names()), name
        for each in index.node_names():
            check_ending(index, each, verdict)
        for value in index.maker:
            check_ending(index, value, verdict)
        check_document(matches_data(index, index.matching("*")), name)


# -- answers ---------------------------------------------------------------------------------------


def test_a_node_that_a_step_is_built_around(digits: Plan) -> None:
    step = next(step for step in digits.steps if step.primitive == "convolution")
    name = anchor_of(digits, step)
    story = tell(digits, name)
    number = digits.steps.index(step)
    assert story.answer.startswith(f"{name} runs in int8 as step {number}, a convolution")
    assert [place.step for place in story.places] == [number]
    assert {fate.consumer for fate in story.fates if fate.half.value == "dequantize"} == {name}


def test_a_refusal_is_in_the_way_with_its_change() -> None:
    proto = CASES["f32-weights"](False)
    plan = fqfuse.compile(proto)
    codes = {finding["code"] for finding in fqfuse.findings(plan)}
    assert "f32-weights" in codes
    layer = next(f["layers"][0] for f in fqfuse.findings(plan) if f["code"] == "f32-weights")
    told = fqfuse.why(plan, layer, model=proto)
    assert "in f32" in told["answer"] or "What stands in the way" in told["answer"]
    (finding,) = [f for f in told["findings"] if f["code"] == "f32-weights"]
    assert finding["change"]
    refused = [d for d in told["decisions"] if d["outcome"] == "refused"]
    assert refused
    assert refused[0]["expected"]
    assert refused[0]["found"]


def test_a_folded_node_is_told_of_with_the_model_and_not_without() -> None:
    nodes = [
        node("Constant", [], ["c"], value_float=2.0),
        node("Sqrt", ["c"], ["root"], name="root"),
        node("Mul", ["x", "root"], ["y"], name="scaled"),
        node("Exp", ["x"], ["unused"], name="dead"),
    ]
    proto = model(nodes)
    plan = fqfuse.compile(proto)
    assert "constant" in fqfuse.why(plan, "root", model=proto)["answer"]
    assert "nothing that the model returns" in fqfuse.why(plan, "dead", model=proto)["answer"]
    assert "it is a constant" in fqfuse.why(plan, "c", model=proto)["answer"]
    with pytest.raises(InvalidInput, match="no node") as raised:
        fqfuse.why(plan, "dead")
    assert "ask the model itself" in raised.value.hint
    assert fqfuse.why(plan, "scaled")["unknown"]


# -- names -----------------------------------------------------------------------------------------


def test_unknown_names_get_the_nearest_and_the_number_of_nodes(digits: Plan) -> None:
    name = next(iter(Index(digits).node_names()))
    with pytest.raises(InvalidInput) as raised:
        fqfuse.why(digits, f"{name}x")
    assert repr(name) in raised.value.hint
    assert f"{len(Index(digits).node_names()):,} nodes" in raised.value.hint


def test_patterns_and_beginnings_list_what_they_match(digits: Plan, rendered) -> None:
    index = Index(digits)
    every = index.matching("*")
    assert every == index.node_names()
    lines = rendered(matches_report(index, "*", every, PIPE), PIPE)
    assert all(any(name in line for line in lines) for name in every)
    with pytest.raises(InvalidInput, match=f"{len(every)} nodes match"):
        fqfuse.why(digits, "*")


def test_a_step_by_its_number(digits: Plan) -> None:
    told = fqfuse.why(digits, "#1")
    assert told["kind"] == "step"
    assert told["places"][0]["step"] == 1
    with pytest.raises(InvalidInput):
        fqfuse.why(digits, "#999")


def test_wrong_arguments(digits: Plan) -> None:
    with pytest.raises(InvalidInput, match="no plan"):
        fqfuse.why(None, "x")
    with pytest.raises(InvalidInput, match="no name"):
        fqfuse.why(digits, 3)
    with pytest.raises(InvalidInput):
        fqfuse.why(digits, "")


def test_a_change_is_about_the_node_that_was_asked_for() -> None:
    net = Net()
    value = net.conv(net.quantized("x"), "stem")
    for number in range(3):
        value = net.op(
            "Add", net.conv(net.quantized(value), f"conv{number}"), value, name=f"add{number}"
        )
    net.conv(net.quantized(value), "last", out="y")
    proto = net.proto()
    plan = fqfuse.compile(proto)
    told = fqfuse.why(plan, "add1", model=proto)
    (finding,) = [f for f in told["findings"] if f["code"] == "f32-residual"]
    assert finding["layers"] == ["conv1"]
    assert "conv0" not in finding["change"]


def test_where_no_rule_left_a_word_the_neighbours_are_told() -> None:
    nodes = [
        node("Reshape", ["x", "flat"], ["a"], name="first"),
        node("Reshape", ["a", "back"], ["b"], name="second"),
        node("Relu", ["b"], ["y"], name="relu"),
    ]
    shapes = {"flat": np.array([2, 60]), "back": np.array([2, 3, 20])}
    proto = model(nodes, constants=shapes)
    plan = fqfuse.compile(proto)
    told = {name: fqfuse.why(plan, name, model=proto) for name in ("first", "second")}
    silent = [one for one in told.values() if not one["places"]]
    assert silent, "one of the two goes"
    for one in silent:
        assert "has no step: " in one["answer"]
        assert one["decisions"] or one["unknown"]
