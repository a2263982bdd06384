"""Random plans of several steps, on both targets: each step of the bound program computes what
NumPy computes on the same data.
"""

from __future__ import annotations

import numpy as np
from hypothesis import assume, given
from laws.budget import examples
from support.plan_strategies import plans, tame
from support.steps_compared import compare_steps

from fqfuse.plan.attributes import DepthwiseConv
from fqfuse.plan.types import Plan
from fqfuse.runtime.lowering.executor import OneDnnExecutor


@examples(60)
@given(plans())
def test_random_plans(plan: Plan) -> None:
    plan = tame(plan)
    # Neither an operator that nothing can run nor a depthwise post-op, which no runtime has.
    assume(not any(step.op == "Onnx" for step in plan.steps))
    assume(
        not any(isinstance(op, DepthwiseConv) for step in plan.steps for op in step.attr.post_ops)
    )
    rng = np.random.default_rng(1)
    feeds = {}
    for name in plan.inputs:
        kind = plan.type(name)
        shape = [2 if isinstance(dim, str) else dim for dim in kind.shape or ()]
        feeds[name] = rng.normal(0, 3, shape).astype(kind.dtype.numpy)
    for difference in compare_steps(plan, OneDnnExecutor(plan, 2), feeds):
        # A sign of zero; one code behind a polynomial; rounding errors of f32 sums.
        excused = difference.largest == 0 or (
            difference.transcendental and (difference.largest <= 1 or difference.ulp <= 64)
        )
        assert excused, str(difference)
