"""Plans with bodies that are not sound are refused, and files that hold them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import pytest
from support.body_cases import Writer, branched, in_each_other, looped, scanned

import fqfuse
from fqfuse.errors import PlanError
from fqfuse.ir.types import DType, TensorType
from fqfuse.plan.file import plan_bytes, read_plan
from fqfuse.plan.seal import seal
from fqfuse.plan.types import MOST_DEPTH, Bodies, Plan, Step
from fqfuse.plan.verify import check_plan


def loop() -> Plan:
    return fqfuse.compile(looped(Writer(["matmul"], "inside", 1), 3, how="constant"))


def scan() -> Plan:
    return fqfuse.compile(scanned(Writer(["matmul"], "inside", 1)))


def choice() -> Plan:
    return fqfuse.compile(branched(Writer(["matmul"], "inside", 1), Writer(["relu"], "inside", 1)))


def bodied(plan: Plan) -> tuple[int, Step, Bodies]:
    index, step = next((n, step) for n, step in enumerate(plan.steps) if step.bodies is not None)
    assert step.bodies is not None
    return index, step, step.bodies


def with_step(plan: Plan, **changes: Any) -> Plan:
    index, step, _ = bodied(plan)
    steps = (*plan.steps[:index], replace(step, **changes), *plan.steps[index + 1 :])
    return replace(plan, steps=steps)


def with_body(plan: Plan, change: Callable[[Plan], Plan]) -> Plan:
    _, _, bodies = bodied(plan)
    plans = (change(bodies.plans[0]), *bodies.plans[1:])
    return with_step(plan, bodies=replace(bodies, plans=plans))


def typed(body: Plan, value: str, type_: TensorType) -> Plan:
    return replace(body, values={**body.values, value: type_})


CASES: dict[str, tuple[Callable[[], Plan], str]] = {
    "too many bodies": (
        lambda: with_step(
            loop(), bodies=replace(bodied(loop())[2], plans=bodied(loop())[2].plans * 2)
        ),
        "has 2 bodies, and Loop has 1",
    ),
    "another operator": (
        lambda: with_step(loop(), params={**bodied(loop())[1].params, "op_type": "Tan"}),
        "no If, Loop or Scan|is of the op",
    ),
    "more states than inputs": (
        lambda: with_step(loop(), bodies=replace(bodied(loop())[2], states=9)),
        "and needs 11",
    ),
    "fewer states": (
        lambda: with_step(loop(), bodies=replace(bodied(loop())[2], states=0)),
        "has",
    ),
    "a scan without rows": (
        lambda: with_step(scan(), bodies=replace(bodied(scan())[2], scanned=0)),
        "takes rows of 0",
    ),
    "rows of a loop": (
        lambda: with_step(loop(), bodies=replace(bodied(loop())[2], scanned=1)),
        "takes rows of 1",
    ),
    "negative states": (
        lambda: with_step(scan(), bodies=replace(bodied(scan())[2], states=-1)),
        "hands on -1 values",
    ),
    "another target": (
        lambda: with_body(loop(), lambda body: replace(body, target="unified")),
        "is for onednn-v3, and its body loop.body for unified",
    ),
    "a condition that is no truth": (
        lambda: with_body(
            loop(), lambda body: replace(body, outputs=(body.outputs[1], *body.outputs[1:]))
        ),
        "bool",
    ),
    "a counter of another type": (
        lambda: with_body(
            loop(), lambda body: typed(body, body.inputs[0], TensorType(DType.F32, ()))
        ),
        "s64",
    ),
    "an unsound body": (
        lambda: with_body(loop(), lambda body: replace(body, steps=body.steps[1:])),
        "has a body that is not sound",
    ),
    "an input too few": (
        lambda: with_body(choice(), lambda body: replace(body, inputs=())),
        "its body",
    ),
}


@pytest.mark.each_case
@pytest.mark.parametrize("case", CASES)
def test_bodies_that_do_not_fit_are_refused(case: str) -> None:
    make, told = CASES[case]
    plan = make()
    with pytest.raises(PlanError, match=told):
        check_plan(plan)
    with pytest.raises(PlanError):
        plan_bytes(plan)


def test_bodies_lie_in_each_other_only_so_deep() -> None:
    """A plan in a body of itself lies twice as deep."""
    half = fqfuse.compile(in_each_other(MOST_DEPTH // 2))
    check_plan(half)
    whole = fqfuse.compile(in_each_other(MOST_DEPTH))
    check_plan(whole)
    within = with_body(half, lambda body: replace(whole, name=body.name, inputs=body.inputs))
    with pytest.raises(PlanError, match=f"lies in more than {MOST_DEPTH} bodies"):
        check_plan(within)


def changed(plan: Plan, change: Callable[[onnx.ModelProto], object]) -> bytes:
    """The file of a plan after a change, sealed again."""
    model = onnx.ModelProto.FromString(plan_bytes(plan))
    kept = [entry for entry in model.metadata_props if entry.key != "fqfuse.digest"]
    del model.metadata_props[:]
    model.metadata_props.extend(kept)
    change(model)
    data = model.SerializeToString(deterministic=True)
    return data + seal(data)


def body_of(model: onnx.ModelProto) -> onnx.GraphProto:
    return next(a.g for node in model.graph.node for a in node.attribute if a.HasField("g"))


def told(held: Any, key: str, value: str) -> None:
    next(entry for entry in held.metadata_props if entry.key == key).value = value


FILES: dict[str, tuple[Callable[[onnx.ModelProto], object], str]] = {
    "a constant that is not there": (
        lambda model: told(body_of(model), "fqfuse.constants", '{"w0":"gone"}'),
        "a constant of its body is not there",
    ),
    "constants of its own": (
        lambda model: body_of(model).initializer.add(name="own"),
        "the constants of its body lie where no plan has them",
    ),
    "no list of constants": (
        lambda model: told(body_of(model), "fqfuse.constants", "[]"),
        "the constants of its body lie where no plan has them",
    ),
    "no numbers": (
        lambda model: told(model.graph.node[-1], "fqfuse.bodies", '["1", 0]'),
        "its metadata is malformed",
    ),
    "no body": (
        lambda model: model.graph.node[-1].attribute.pop(),
        "has 0 bodies",
    ),
}


@pytest.mark.each_case
@pytest.mark.parametrize("case", FILES)
def test_files_with_broken_bodies_are_refused(case: str) -> None:
    change, said = FILES[case]
    assert read_plan(changed(loop(), lambda _: None)) == loop()
    with pytest.raises(PlanError, match=said):
        read_plan(changed(loop(), change))


def endless() -> onnx.ModelProto:
    return looped(Writer(["relu"], "inside", 1), 1, how="fed")


def test_a_loop_without_an_end_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fqfuse.runtime.bodies.MOST_TRIPS", 50)
    x = np.zeros((2, 4), np.float32)
    session = fqfuse.InferenceSession(fqfuse.compile(endless()), backend="numpy")
    last, kept = session.run(None, {"x": x, "around": x, "n": np.array(50)})
    assert kept.shape == (50, 2, 4)
    with pytest.raises(fqfuse.InvalidInput, match="it takes more than 50 trips"):
        session.run(None, {"x": x, "around": x, "n": np.array(51)})
    np.testing.assert_array_equal(last, x)


def test_rows_keep_within_the_budget_of_a_run() -> None:
    x = np.zeros((2, 4), np.float32)
    budgets = fqfuse.Budgets(run_bytes=4096)
    with fqfuse.InferenceSession(
        fqfuse.compile(endless()), backend="numpy", budgets=budgets
    ) as session:
        session.run(None, {"x": x, "around": x, "n": np.array(100)})
        with pytest.raises(fqfuse.InvalidInput, match="the rows of 129 trips take 4,128 bytes"):
            session.run(None, {"x": x, "around": x, "n": np.array(200)})
