"""`unified` against `onednn-v3`: what both can say means the same to the bit; said in another way,
codes are at most 1 apart.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis import assume, given
from laws.budget import examples
from laws.corpus import CORPUS
from laws.registry import feeds_for
from support.plan_strategies import plans
from support.steps_compared import compare_steps

from fqfuse.composer.compose import plan_from_graph
from fqfuse.errors import BackendUnavailable
from fqfuse.ir.types import DType
from fqfuse.onednn.loading import load
from fqfuse.passes import optimize
from fqfuse.plan.attributes import Binary
from fqfuse.plan.types import Plan, Step
from fqfuse.plan.verify import verify_plan
from fqfuse.runtime.lowering.executor import OneDnnExecutor
from fqfuse.runtime.numpy_runtime import run_step
from fqfuse.runtime.session import InferenceSession


@cache
def plan_of(name: str, target: str) -> Plan:
    return plan_from_graph(optimize(CORPUS[name]().copy()), target)


def result(plan: Plan, step: Step, live: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    given_ = {value: live[value] for value in step.inputs if value not in plan.constants}
    return dict(
        zip((name for name in step.outputs if name), run_step(plan, step, given_), strict=True)
    )


@examples(100)
@given(plans())
def test_any_plan_for_v3_means_the_same_bytes_as_a_unified_one(plan: Plan) -> None:
    """With NaN, infinity and numbers near them among the operands."""
    assume(plan.target == "onednn-v3")
    assume(not any(step.op == "Onnx" for step in plan.steps))
    unified = replace(plan, target="unified")
    assert verify_plan(unified) == []
    shape = [2 if isinstance(dim, str) else dim for dim in plan.type(plan.inputs[0]).shape or ()]
    feeds = {plan.inputs[0]: np.random.default_rng(1).normal(0, 3, shape).astype(np.float32)}
    mine, theirs = (InferenceSession(p, "numpy", 1).run_steps(feeds) for p in (unified, plan))
    assert mine.keys() == theirs.keys()
    for name, array in theirs.items():
        assert mine[name].dtype == array.dtype
        assert mine[name].tobytes() == array.tobytes(), name


@pytest.mark.parametrize("name", CORPUS)
def test_it_never_takes_more_steps(name: str) -> None:
    unified, v3 = plan_of(name, "unified"), plan_of(name, "onednn-v3")
    assert len(unified.steps) <= len(v3.steps)
    if len(unified.steps) == len(v3.steps):
        for mine, theirs in zip(unified.steps, v3.steps, strict=True):
            assert (mine.name, mine.primitive, mine.outputs) == (
                theirs.name,
                theirs.primitive,
                theirs.outputs,
            )


@pytest.mark.parametrize("name", CORPUS)
def test_the_same_value_by_both_is_at_most_one_code_apart(name: str) -> None:
    """Each step of `unified` on what the plan for `onednn-v3` computed in front of it, where both
    write the same value.
    """
    unified, v3 = plan_of(name, "unified"), plan_of(name, "onednn-v3")
    feeds = feeds_for(CORPUS[name]())
    live = {**feeds, **InferenceSession(v3, "numpy", 1).run_steps(feeds)}
    known = set(live) | set(unified.constants)
    compared = 0
    for step in unified.steps:
        if not set(step.inputs) <= known or not set(step.outputs) & set(live):
            continue  # what v3 holds in other steps
        for value, array in result(unified, step, live).items():
            if value not in live or unified.type(value) != v3.type(value):
                continue
            compared += 1
            if array.dtype.kind in "iu":
                assert (
                    np.abs(array.astype(np.int64) - live[value].astype(np.int64)).max(initial=0)
                    <= 1
                ), step.name
            else:  # factors are applied in another place: a few f32 roundings of the largest value
                np.testing.assert_allclose(
                    array,
                    live[value],
                    rtol=0,
                    atol=2e-6 * float(np.abs(array).max(initial=0)) + 1e-30,
                )
    assert compared, "both compute something alike"


@pytest.mark.parametrize("name", CORPUS)
def test_the_onednn_runtime_gives_numpy_what_only_unified_says(name: str) -> None:
    """And what oneDNN computes is what NumPy computes."""
    try:
        load()
    except BackendUnavailable as error:
        pytest.skip(f"no oneDNN 3: {error}")
    plan = plan_of(name, "unified")
    executor = OneDnnExecutor(plan, 2)
    for difference in compare_steps(plan, executor, feeds_for(CORPUS[name]())):
        if plan.type(difference.value).dtype.is_integer:
            assert difference.largest <= difference.transcendental, str(difference)
        else:  # an average's division, or a sum in the library's own order
            assert difference.largest < 1e-4 or difference.ulp <= 64, str(difference)
    sayable = {finding.subject for finding in verify_plan(replace(plan, target="onednn-v3"))}
    for placement in executor.placement():
        if placement.step.name in sayable:
            assert placement.runtime == "numpy"
            assert placement.reason


@pytest.mark.parametrize(("target", "decoded"), [("unified", 0), ("onednn-v3", 2)])
def test_operands_with_a_scale_for_each_channel_are_read_as_codes(
    target: str, decoded: int
) -> None:
    """Factors on every target; terms, of which there are two, where operands have scales."""
    plan = plan_of("operands_of_codes_with_a_scale_for_each_channel", target)
    found = [op for step in plan.steps for op in step.attr.post_ops if isinstance(op, Binary)]
    codes = [op for op in found if plan.type(op.operand).dtype in (DType.U8, DType.S8)]
    scaled = [op for op in codes if op.scale is not None]
    assert len(codes) == 4 - decoded
    assert [(op.algorithm, op.scale.mask, len(op.scale.values)) for op in scaled if op.scale] == [
        ("add", 2, 4)
    ] * (2 - decoded)
