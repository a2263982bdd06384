"""Two plans step by step: what is the same is said to be so, what differs is found, and counted right."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace

import pytest
from support.finding_cases import CASES
from support.finding_networks import U8, Net, codes
from support.json_documents import problems
from support.plan_corpus import every_plan

import fqfuse
from fqfuse.errors import InvalidInput
from fqfuse.models.digits import digits_model_path
from fqfuse.plan.attributes import Eltwise
from fqfuse.plan.targets import TARGETS
from fqfuse.plan.types import Plan, Step
from fqfuse.report.diff.align import aligned, plain_names
from fqfuse.report.diff.compare import Difference, _pairs, difference_of
from fqfuse.report.diff.document import difference_data
from fqfuse.report.diff.screen import answer_of, diff_report
from fqfuse.report.layout import PIPE, Layout
from fqfuse.report.lines import WIDTH
from fqfuse.report.verdict.machine import machine_from

MACHINE = machine_from("flags\t\t: avx512_vnni\n", cores=4, clock=3.0)


def compared(first: Plan, second: Plan) -> Difference:
    return difference_of(first, second, MACHINE)


def chain(scale: float = 0.1, *, second: bool = True, weights: int = 1, relu: bool = True) -> Plan:
    """conv1, relu, conv2; the second one quantized or not."""
    net = Net()
    hidden = net.conv(
        net.quantized("x"), "conv1", weights=net.weights(codes((8, 8, 3, 3)) // weights)
    )
    hidden = net.op("Relu", hidden, name="relu") if relu else hidden
    net.conv(net.quantized(hidden, scale, U8(0)) if second else hidden, "conv2", out="y")
    return fqfuse.compile(net.proto())


# -- law -------------------------------------------------------------------------------------------


def check_document(found: Difference, where: str) -> None:
    """It is what the schema says, as a reader gets it."""
    told = json.loads(json.dumps(difference_data(found), allow_nan=False))
    assert problems(told) == [], where


@pytest.mark.slow
def test_a_plan_equals_itself_and_every_step_is_somewhere(rendered) -> None:
    before: Plan | None = None
    for name, plan in every_plan():
        same = compared(plan, replace(plan))
        assert same.is_empty, name
        assert same.equal == len(plan.steps)
        assert not same.decisions
        assert answer_of(same).startswith("A and B are the same")
        if before is not None and before.inputs:
            found = compared(before, plan)
            check_complete(found)
            check_document(found, name)
        before = plan
    assert before is not None
    for layout in (PIPE, Layout(60)):
        lines = rendered(diff_report(compared(chain(), before), ("a", "b"), layout), layout)
        assert max(map(len, lines)) <= min(layout.width or WIDTH, WIDTH)


def check_complete(found: Difference) -> None:
    """Each step of either plan is in one pair, or alone."""
    alignment = aligned(found.first, found.second)
    for side, plan in enumerate((found.first, found.second)):
        alone = (alignment.only_first, alignment.only_second)[side]
        strange = (alignment.strange_first, alignment.strange_second)[side]
        numbers = [pair[side] for pair in alignment.pairs] + [*alone, *strange]
        assert sorted(numbers) == list(range(len(plan.steps)))
    assert found.equal + len(found.pairs) == len(alignment.pairs)


def changed_steps(plan: Plan, index: int) -> Iterator[tuple[str, Plan]]:
    """The plan with one thing of one step changed."""
    step = plan.steps[index]

    def put(new: Step) -> Plan:
        return replace(plan, steps=(*plan.steps[:index], new, *plan.steps[index + 1 :]))

    attr = step.attr
    for role, scale in attr.scales.items():
        other = replace(scale, values=(scale.values[0] * 2, *scale.values[1:]))
        yield (
            f"scale {role}",
            put(replace(step, attr=replace(attr, scales={**attr.scales, role: other}))),
        )
    for place, op in enumerate(attr.post_ops):
        rest = (*attr.post_ops[:place], *attr.post_ops[place + 1 :])
        yield f"no {op.kind}", put(replace(step, attr=replace(attr, post_ops=rest)))
        if isinstance(op, Eltwise):
            ops = (
                *attr.post_ops[:place],
                replace(op, alpha=op.alpha + 1),
                *attr.post_ops[place + 1 :],
            )
            yield "alpha", put(replace(step, attr=replace(attr, post_ops=ops)))
    for name, value in step.params.items():
        if isinstance(value, int | float) and not isinstance(value, bool):
            yield f"param {name}", put(replace(step, params={**step.params, name: value + 1}))
    for role, value in step.args:
        data = plan.constants.get(value)
        if data is not None and data.size and data.dtype.kind in "iuf":
            other = data.copy()
            other.reshape(-1)[-1] += 1
            yield f"constant {role}", replace(plan, constants={**plan.constants, value: other})
    quant = plan.values[step.output].quant if step.outputs and step.output else None
    if quant is not None:
        other = replace(quant, scale=(quant.scale[0] * 2, *quant.scale[1:]))
        type_ = plan.values[step.output].with_quant(other)
        yield "result", replace(plan, values={**plan.values, step.output: type_})
    yield "gone", replace(plan, steps=(*plan.steps[:index], *plan.steps[index + 1 :]))


def test_documents_are_what_the_schema_says() -> None:
    for code, make in CASES.items():
        wrong, mended = (fqfuse.compile(make(cured)) for cured in (False, True))
        for one, other in ((wrong, mended), (mended, wrong)):
            check_document(compared(one, other), code)


def test_every_change_of_one_step_is_found() -> None:
    models = [*(digits_model_path(form) for form in ("qdq", "f32")), CASES["f32-residual"](False)]
    kinds = set()
    for model in models:
        for target in TARGETS:
            plan = fqfuse.compile(model, target=target)
            for index in range(len(plan.steps)):
                for what, other in changed_steps(plan, index):
                    found = list(_pairs(plan, other, aligned(plan, other)))
                    changed = [pair for pair in found if pair.changes]
                    if what == "gone":
                        assert len(found) == len(plan.steps) - 1
                        continue
                    assert changed, f"{target} {index} {what}"
                    kinds.add(what.split()[0])
    assert {"scale", "no", "alpha", "param", "constant", "result"} <= kinds


def test_differences_are_the_same_from_either_side() -> None:
    first, second = chain(), chain(second=False)
    there, back = compared(first, second), compared(second, first)
    assert [(p.second, p.first) for p in there.pairs] == sorted(
        (p.first, p.second) for p in back.pairs
    )
    assert [item.name for item in there.only_first] == [item.name for item in back.only_second]


# -- changes ---------------------------------------------------------------------------------------


def changes(found: Difference, name: str) -> dict[str, tuple[str, str]]:
    (pair,) = [pair for pair in found.pairs if pair.name == name]
    return {change.what: (change.first, change.second) for change in pair.changes}


def test_a_layer_that_left_int8() -> None:
    found = compared(chain(), chain(second=False))
    assert found.moved() == [("convolution", 1, 2, "left int8")]
    assert changes(found, "conv2")["precision"] == ("in int8", "in f32")
    assert "1 of 2 convolution steps left int8" in answer_of(found)
    assert "Multiply-adds in int8: 100 % -> 50 %" in answer_of(found)
    assert any(row.rule == "convolution in int8" for row in found.decisions)


def test_another_scale_is_a_difference_in_numbers_only() -> None:
    found = compared(chain(0.1), chain(0.2))
    assert {pair.name for pair in found.pairs} == {"conv1", "conv2"}
    assert all(pair.only_numbers for pair in found.pairs)
    assert changes(found, "conv2")["scales"] == ("src 0.1", "src 0.2")
    assert "2 steps differ in numbers only, 1 is equal" in answer_of(found)


def test_other_weights_are_a_difference() -> None:
    found = compared(chain(), chain(weights=2))
    assert changes(found, "conv1") == {"constants": ("weights", "")}


def test_other_wiring_is_a_difference() -> None:
    def made(turned: bool) -> Plan:
        net = Net()
        source = net.quantized("x")
        parts = [net.op("Exp", source, name="exp"), net.op("Tanh", source, name="tanh")]
        net.op("Sub", *(reversed(parts) if turned else parts), name="sub", out="y")
        return fqfuse.compile(net.proto())

    assert compared(made(False), made(False)).is_empty
    assert not compared(made(False), made(True)).is_empty


def test_other_quantizers_and_equal_steps_are_the_same(rendered) -> None:
    """One quantizer for two readers, or one for each: nothing of that is left in the steps."""

    def made(*, each: bool) -> Plan:
        net = Net()
        weights = net.weights(codes((8, 8, 3, 3)))
        shared = net.quantized("x")
        net.conv(shared, "conv1", out="y", weights=weights)
        net.conv(net.quantized("x") if each else shared, "conv2", out="z", weights=weights)
        return fqfuse.compile(net.proto(outputs=["y", "z"]))

    found = compared(made(each=True), made(each=False))
    assert found.quantizers == (1, 0)
    assert found.is_empty
    assert not found.is_silent
    assert difference_data(found)["same"]
    assert answer_of(found).startswith("A and B are the same")
    lines = rendered(diff_report(found, ("a", "b"), PIPE), PIPE)
    told = "Quantizers: 3 in A, 2 in B, of values of the same name 2; nothing of the difference"
    assert told in " ".join(" ".join(lines).split())
    other = compared(made(each=True), made(each=True))
    assert other.is_silent
    assert not any(
        "Quantizers" in line for line in rendered(diff_report(other, ("a", "b"), PIPE), PIPE)
    )


@pytest.mark.parametrize("target", [name for name in TARGETS if name != "onednn-v3"])
def test_another_target(target: str) -> None:
    model = digits_model_path("qdq")
    found = compared(fqfuse.compile(model), fqfuse.compile(model, target=target))
    assert [(c.what, c.first, c.second) for c in found.interface] == [
        ("target", "onednn-v3", target)
    ]
    assert not found.strange_first
    assert not found.strange_second


def test_two_dialects_of_one_network_are_aligned() -> None:
    first, second = (fqfuse.compile(digits_model_path(form)) for form in ("qdq", "fakequantize"))
    alignment = aligned(first, second)
    for a, b in alignment.pairs:
        assert first.steps[a].primitive == second.steps[b].primitive
    assert len(alignment.pairs) >= len(second.steps) - 1


def test_names_with_something_behind_them_are_aligned() -> None:
    def made(name: str) -> Plan:
        net = Net()
        net.conv(net.quantized("x"), name, out="y")
        return fqfuse.compile(net.proto())

    alignment = aligned(made("/fc/MatMul"), made("/fc/MatMul/MatMulAddFusion"))
    assert not alignment.strange_first
    assert not alignment.strange_second
    assert aligned(made("/fc/MatMul"), made("/other/MatMul")).strange_second


def test_operators_on_codes_are_aligned_with_the_nodes_they_replace() -> None:
    """QOperator files of ONNX Runtime beside its QDQ files."""
    plan = chain()
    called = {name: f"{name}_quant" for step in plan.steps for name in plain_names(plan, step)}
    renamed = replace(
        plan,
        steps=tuple(
            replace(step, origin=tuple(called.get(name, name) for name in step.origin))
            for step in plan.steps
        ),
        decision_records=(),
        fate_records=tuple(
            replace(fate, consumer=called.get(fate.consumer, fate.consumer))
            for fate in plan.fate_records
        ),
    )
    assert called
    for first, second in ((plan, renamed), (renamed, plan)):
        found = aligned(first, second)
        assert len(found.pairs) == len(plan.steps)
        assert not found.strange_first
        assert not found.strange_second


def test_wrong_arguments() -> None:
    with pytest.raises(InvalidInput, match="no plan"):
        fqfuse.diff(chain(), "plan")
    told = fqfuse.diff(chain(), chain())
    assert told["same"]


def test_names_that_differ_in_their_middles_stay_apart(rendered) -> None:
    plans = []
    for quantized in (True, False):
        net = Net()
        for layer in (1, 2):
            name = f"/model/encoder/a_rather_long_name/layers.{layer}/self_attention/projection/output/dense/long/MatMul"
            source = net.quantized("x") if quantized else "x"
            net.conv(source, name, out=f"y{layer}")
        plans.append(fqfuse.compile(net.proto(outputs=["y1", "y2"])))
    layout = Layout(80)
    text = "\n".join(rendered(diff_report(compared(*plans), ("a", "b"), layout), layout))
    for layer in (1, 2):
        assert f"layers.{layer}" in text
