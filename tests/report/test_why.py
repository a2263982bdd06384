"""Every node, quantizer, value and step has a story with an ending; names are found as people type
them; what cannot be told is said.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from support.finding_cases import CASES
from support.finding_networks import Net
from support.json_documents import problems
from support.onnx_cases import model, node
from support.plan_corpus import every_plan, models
from support.screen_networks import NETWORKS, Ort, yolo

import fqfuse
from fqfuse.errors import InvalidInput
from fqfuse.frontend.model_nodes import model_nodes
from fqfuse.ir.decision import Outcome
from fqfuse.models.digits import digits_model_path
from fqfuse.plan.types import Plan
from fqfuse.report.layout import PIPE, Layout
from fqfuse.report.lines import WIDTH
from fqfuse.report.verdict.findings import Verdict, verdict_of
from fqfuse.report.verdict.machine import machine_from
from fqfuse.report.verdict.view import View
from fqfuse.report.why.document import matches_data, story_data
from fqfuse.report.why.endings import anchor_of, gone
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


@pytest.mark.parametrize("name", NETWORKS)
def test_of_every_node_of_a_network_it_is_known_what_became_of_it(name: str) -> None:
    proto = NETWORKS[name]()
    index = Index(fqfuse.compile(proto), model_nodes(proto))
    for each in index.nodes:
        if not index.steps.get(each) and not index.fates.get(index.quantizer_of(each)):
            assert gone(index, each).known, each


@pytest.mark.parametrize("name", NETWORKS)
def test_a_hint_neither_contradicts_the_verdict_nor_asks_for_what_is_so(
    name: str, rendered
) -> None:
    plan = fqfuse.compile(NETWORKS[name]())
    check_hints(plan, rendered)


@pytest.mark.slow
def test_no_hint_of_any_plan_contradicts_its_verdict(rendered) -> None:
    for _, plan in every_plan():
        check_hints(plan, rendered)


def check_hints(plan: Plan, rendered) -> None:
    index, verdict, view = Index(plan), verdict_of(plan, MACHINE), View(plan)
    refused = [d for d in plan.decision_records if d.outcome is Outcome.REFUSED]
    for decision in refused:
        asks = "" if decision.hint.startswith("nothing") else decision.hint
        where = f"{plan.name}: {decision.subject}: {asks}"
        steps = index.steps.get(decision.subject, [])
        if "quantize the input of this operation" in asks and steps:
            assert any(map(view.floats_read, steps)), where
        if "quantize the output of this operation" in asks and steps:
            assert any(map(view.floats_written, steps)), where
    names = {decision.subject for decision in refused if not decision.hint.startswith("nothing")}
    for name in names & set(index.node_names()):
        story = story_of(index, name, verdict)
        lines = rendered(story_report(plan, story, PIPE), PIPE)
        assert max(map(len, lines)) <= WIDTH, f"{plan.name}: {name}"
        advice = [line.split("fix", 1)[1].strip() for line in lines if line.startswith("     fix ")]
        if story.findings and all(finding.kind.no_remedy for finding in story.findings):
            assert all(text.startswith("nothing") for text in advice), f"{plan.name}: {name}"


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


def test_a_number_is_a_step_where_nothing_is_called_so(digits: Plan) -> None:
    index = Index(digits)
    assert index.matching("2") == ["2"]
    assert story_of(index, "2").answer == story_of(index, "#2").answer
    with pytest.raises(InvalidInput) as caught:
        index.matching("999")
    assert caught.value.what == "there is no step 999, and no node or value '999'"
    assert f"0 to {len(digits.steps) - 1}" in caught.value.hint
    net = Net()
    net.op("Sigmoid", net.op("Relu", "x", name="0"), name="1", out="y")
    assert tell(fqfuse.compile(net.proto()), "1").kind == "node"


def test_the_last_part_of_paths_is_enough() -> None:
    net = Net()
    hidden = net.conv(net.quantized("x"), "/one/conv")
    net.conv(net.quantized(hidden), "/two/conv", out="y")
    index = Index(fqfuse.compile(net.proto()))
    assert index.matching("conv") == ["/one/conv", "/two/conv"]
    assert index.matching("two/conv") == ["/two/conv"]
    with pytest.raises(InvalidInput):
        index.matching("onv")


def test_neighbours_with_one_ending_are_told_it_once(rendered) -> None:
    net = Net()
    hidden = net.op("Relu", net.op("Relu", "x", name="first"), name="second")
    net.conv(net.quantized(hidden), "conv", out="y")
    index = Index(fqfuse.compile(net.proto()))
    lines = rendered(matches_report(index, "*", index.matching("*"), PIPE), PIPE)
    endings = [line for line in lines if line.startswith("      ")]
    assert all(first != second for first, second in pairwise(endings))
    assert {line[2:] for line in lines[1:] if not line.startswith("      ")} == set(
        index.matching("*")
    )


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


@pytest.mark.parametrize("model_of", [*CASES, *NETWORKS])
def test_a_node_that_a_finding_names_is_told_of_it(model_of: str) -> None:
    """Also where the finding is about a step next to it: the softmax that reads an absurd scale."""
    proto = CASES[model_of](False) if model_of in CASES else NETWORKS[model_of]()
    plan = fqfuse.compile(proto)
    for finding in fqfuse.findings(plan):
        for layer in finding["layers"][:3] + finding["layers"][-3:]:
            told = fqfuse.why(plan, layer, model=proto)["findings"]
            assert finding["code"] in {found["code"] for found in told}, layer


SHAPES = {"flat": np.array([2, 60]), "back": np.array([2, 3, 20]), "same": np.array([2, 3, 4, 5])}


def test_a_reshape_that_another_one_does_the_work_of_is_in_its_step() -> None:
    nodes = [
        node("Reshape", ["x", "flat"], ["a"], name="first"),
        node("Reshape", ["a", "back"], ["b"], name="second"),
        node("Relu", ["b"], ["y"], name="relu"),
    ]
    proto = model(nodes, constants=SHAPES)
    told = fqfuse.why(fqfuse.compile(proto), "first", model=proto)
    assert told["answer"].startswith(
        "first has no step: move_reshape did away with it: second does its work, too."
    )
    assert told["answer"].endswith("step 0, the onnx.Reshape of second.")
    assert [(d["rule"], d["subject"]) for d in told["decisions"]] == [("move_reshape", "first")]
    assert told["unknown"] == []


def test_a_reshape_that_undoes_another_one_says_so() -> None:
    net = Net()
    first = net.quantized(net.matmul(net.quantized("x"), "first"))
    flat = net.op("Reshape", first, net.constant(np.array([8, 16])), name="flat")
    hidden = net.quantized(net.matmul(flat, "fc"))
    back = net.op("Reshape", hidden, net.constant(np.array([2, 4, 16])), name="back")
    net.matmul(net.quantized(back), "last", out="y")
    proto = net.proto(inputs={"x": [2, 4, 16]})
    told = fqfuse.why(fqfuse.compile(proto), "back", model=proto)
    assert told["answer"].startswith(
        "back has no step: move_reshape did away with it: it undoes flat, and the two cancel."
    )
    assert [d["subject"] for d in told["decisions"]] == ["back"]
    assert told["unknown"] == []


def test_the_product_of_scales_is_in_the_step_of_the_product_of_codes() -> None:
    proto = NETWORKS["bert-dynamic"]()
    name = "/encoder/layer.0/attention/self/query/Gemm_quant_scales_mul"
    told = fqfuse.why(fqfuse.compile(proto), name, model=proto)
    assert "scale_into_product did away with it: " in told["answer"]
    assert "has its scales" in told["answer"]
    assert [d["rule"] for d in told["decisions"]] == ["scale_into_product"]


def test_an_operator_on_codes_is_a_layer_and_not_what_is_fused_into_it() -> None:
    """MatMulNBits holds its weights' quantizer; the addition behind it is its bias."""
    net = Net()
    packed = np.random.default_rng(1).integers(0, 256, (16, 1, 8)).astype(np.uint8)
    operands = (net.constant(packed), net.constant(np.full(16, 0.1, np.float32)))
    sizes = {"K": 16, "N": 16, "bits": 4, "block_size": 16}
    hidden = net.op("MatMulNBits", "x", *operands, name="fc", domain="com.microsoft", **sizes)
    net.op("Add", hidden, net.constant(np.ones(16, np.float32)), name="bias", out="y")
    proto = net.proto(inputs={"x": [4, 16]}, domains={"com.microsoft": 1})
    plan = fqfuse.compile(proto)
    told = {name: fqfuse.why(plan, name, model=proto) for name in ("fc", "bias")}
    assert told["fc"]["answer"].startswith("fc runs in f32 as step 0, a matmul, with bias. ")
    assert "the codes save memory, not arithmetic" in told["fc"]["answer"]
    assert told["bias"]["answer"].startswith("bias has no step of its own: it is in step 0, ")
    (finding,) = plan.findings()[:1]
    assert (finding["code"], finding["layers"]) == ("weights-only", ["fc"])


def test_a_function_of_our_own_is_no_operator_of_the_model() -> None:
    nodes = [
        node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"], name="range"),
        node("DequantizeLinear", ["q", "s", "z"], ["y"], name="values"),
    ]
    proto = model(nodes)
    told = fqfuse.why(fqfuse.compile(proto), "range", model=proto)
    roles = {place["step"]: place["role"] for place in told["places"]}
    assert roles[0] == "fqfuse's own DynamicRange"


def test_where_no_rule_left_a_word_the_neighbours_are_told() -> None:
    """A plan of two steps, asked with a model that has a node between them."""
    nodes = [
        node("Relu", ["x"], ["a"], name="first"),
        node("Neg", ["a"], ["b"], name="between"),
        node("Tanh", ["b"], ["y"], name="last"),
    ]
    plan = fqfuse.compile(model([nodes[0], node("Tanh", ["a"], ["y"], name="last")]))
    told = fqfuse.why(plan, "between", model=model(nodes))
    assert "it was rewritten, and no step bears its name. Next to it: step" in told["answer"]
    assert told["unknown"][0].startswith("which rule rewrote it")


def test_what_a_terminal_cuts_is_told_and_the_document_has_it(rendered) -> None:
    """Twenty additions in one step, and long names: cut on a screen, whole with --all and as data."""
    net = Net()
    value = net.conv(net.quantized("x"), "conv")
    names = [f"/{'block/' * 14}{number}/Add" for number in range(20)]
    for name in names:
        value = net.op("Add", value, net.constant(np.float32(number_of(name))), name=name)
    net.conv(net.quantized(value), "last", out="y")
    proto = net.proto()
    plan = fqfuse.compile(proto)
    story = tell(plan, "conv", proto)
    told = {
        rows: "\n".join(
            rendered(story_report(plan, story, Layout(80, rows)), Layout(80, rows))
        ).replace("\n", "")
        for rows in (24, None)
    }
    place = story_data(plan, story)["places"][0]
    assert set(names) <= set(place["nodes"])
    left = len(place["nodes"]) - 12
    assert f"and {left} more: --all names them" in " ".join(told[24].split())
    assert "letters left out: --json has whole names" in told[24]
    assert all(name in "".join(told[None].split()) for name in names)
    assert "--all" not in told[None]


def number_of(name: str) -> float:
    return 0.1 * (1 + int(name.split("/")[-2]))


def test_a_change_that_names_few_says_where_the_others_are(rendered) -> None:
    plan = fqfuse.compile(CASES["f32-product"](False))
    (finding,) = (
        item for item in verdict_of(plan, MACHINE).findings if item.kind.code == "f32-product"
    )
    story = replace(tell(plan, "conv2"), findings=(replace(finding, layers=tuple("abcdef")),))
    for layout in (Layout(80, 24), Layout(80), PIPE):
        text = " ".join(" ".join(rendered(story_report(plan, story, layout), layout)).split())
        cut = "take 'a', 'b', 'c' and 3 more (--all names them) out of"
        assert (cut in text) == (layout.rows is not None)
        assert ("'f' out of" in text) == (layout.rows is None)


# -- names that people type ------------------------------------------------------------------------


@pytest.mark.parametrize("weights", ["", "lstm."])
def test_the_name_of_an_operator_lists_its_nodes_in_front_of_quantizers(weights: str) -> None:
    """ONNX Runtime names quantizers of weights after the parameters: `lstm.weight_DequantizeLinear`."""
    proto = NETWORKS["lstm-ort"]()
    for each in proto.graph.node:
        if weights and each.op_type == "DequantizeLinear":
            each.name = f"{weights}{each.name}"
    layers = ["/lstm/layer.0/LSTM", "/lstm/layer.1/LSTM"]
    found = Index(fqfuse.compile(proto), model_nodes(proto)).matching("lstm")
    assert found[:2] == layers
    assert len(found) > 2 if weights else found == layers


def test_layers_are_nearer_than_constants_and_quantizers_of_the_same_words() -> None:
    nodes = [
        node("Constant", [], ["c"], name="/body/Constant", value_float=1.0),
        node("Relu", ["x"], ["r"], name="/body/act"),
        node("Add", ["r", "c"], ["y"], name="/body/plus"),
    ]
    proto = model(nodes, inputs={"x": [2, 4]})
    index = Index(fqfuse.compile(proto), model_nodes(proto))
    with pytest.raises(InvalidInput) as told:
        index.matching("ody")
    assert str(told.value.hint).startswith("did you mean '/body/act' or '/body/plus'")


# -- names of the model ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["lstm-ort", "bert-ort", "bert-nncf", "yolo-ort"])
def test_reasons_name_nodes_of_the_model(name: str) -> None:
    """Not those that the compiler made of them, such as `/Gather_output_0_DequantizeLinear.1.1`."""
    networks = {**NETWORKS, "yolo-ort": lambda: yolo(Ort())}
    proto = networks[name]()
    known = {each.name for each in proto.graph.node} | {
        value for each in proto.graph.node for value in (*each.input, *each.output)
    }
    plan = fqfuse.compile(proto)
    said = {word.rstrip(",.:") for row in plan.decisions() for word in row["reason"].split()}
    said |= {word.rstrip(",.:") for row in plan.fates() for word in row["reason"].split()}
    inner = {
        word
        for word in said
        if (made := re.fullmatch(r"(.+?)(\.\d+)+", word)) and made[1] in known and word not in known
    }
    assert not inner
