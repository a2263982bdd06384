"""Plans for `onednn-v2` converted to `onednn-v3`, on the real library: what the v2 plan gives there, and what NumPy says of each step."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from laws.corpus import CORPUS, feeds_for

from fqfuse.composer.compose import plan_from_graph
from fqfuse.ir.types import DType
from fqfuse.passes import optimize
from fqfuse.plan.conversion.convert import Conversion, convert
from fqfuse.plan.types import Plan
from fqfuse.runtime.compare import compare_steps
from fqfuse.runtime.lowering.executor import OneDnnExecutor
from fqfuse.runtime.numpy_runtime import run_step

pytestmark = pytest.mark.usefixtures("vnni")


@cache
def plan_of(name: str) -> Plan:
    return plan_from_graph(optimize(CORPUS[name]().copy()), "onednn-v2")


def plan_type(plan: Plan, value: str) -> DType:
    return plan.type(value).dtype


@pytest.mark.parametrize("how", ["mechanical", "semantic"])
@pytest.mark.parametrize("name", CORPUS)
def test_converted_plans_agree_with_numpy_step_by_step(name: str, how: Conversion) -> None:
    converted = convert(plan_of(name), how=how)
    for difference in compare_steps(converted, OneDnnExecutor(converted, 2), feeds_for(CORPUS[name]())):
        # One code behind a polynomial; among real numbers an average's division or a sum in the library's own order.
        if plan_type(converted, difference.value).is_integer:
            assert difference.largest <= difference.transcendental, str(difference)
        else:
            assert difference.largest < 1e-4 or difference.ulp <= 64, str(difference)


@pytest.mark.parametrize("name", CORPUS)
def test_the_library_gives_the_same_for_a_v2_plan_and_its_mechanical_conversion(name: str) -> None:
    """The v2 plan on the oneDNN runtime; then the converted steps on the inputs that the library's steps had."""
    plan = plan_of(name)
    converted, feeds = convert(plan), feeds_for(CORPUS[name]())
    live = {**feeds, **OneDnnExecutor(plan, 2).run_all(feeds)}
    for step in converted.steps:
        given = {value: live[value] for value in step.inputs if value not in converted.constants}
        for value, array in zip((v for v in step.outputs if v), run_step(converted, step, given), strict=True):
            if array.dtype.kind in "iu":
                assert np.abs(array.astype(np.int64) - live[value]).max(initial=0) <= 1, step.name  # 1 behind a polynomial
            else:
                np.testing.assert_allclose(array, live[value], rtol=0, atol=1e-5 * float(np.abs(array).max(initial=0)) + 1e-30)
