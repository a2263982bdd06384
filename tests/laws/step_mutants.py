"""Plans that are wrong in one number of one step: its scales and zero points, what its post-ops
compute, its constants.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from fqfuse.plan.attributes import Binary, Eltwise, Scale, Sum, ZeroPoint
from fqfuse.plan.types import Plan, Step

SLIGHTLY = 1 + 2.0**-6
"""What a factor is changed by: f32 results show it everywhere, codes where they are far from 0."""

Mutant = tuple[str, Step, Plan]
"""What was changed, the step, the plan."""


def mutants(plan: Plan) -> Iterator[Mutant]:
    """Each number of each step changed by 1/64 of it; zero points and weights by 1."""
    for index, step in enumerate(plan.steps):
        for what, other in (*_scales(step), *_zero_points(step), *_post_ops(step)):
            steps = (*plan.steps[:index], other, *plan.steps[index + 1 :])
            yield what, other, replace(plan, steps=steps)
        for value in dict.fromkeys(step.inputs):
            data = plan.constants.get(value)
            if data is not None and data.size and data.dtype in (np.int8, np.float32):
                yield (
                    "weights" if data.dtype == np.int8 else "operand",
                    step,
                    replace(plan, constants={**plan.constants, value: _changed(data)}),
                )


def _changed(data: np.ndarray) -> np.ndarray:
    if data.dtype == np.int8:
        return np.where(data > 0, data - 1, data + 1).astype(np.int8)
    return np.where(data == 0, SLIGHTLY - 1, data * np.float32(SLIGHTLY)).astype(np.float32)


def _scales(step: Step) -> Iterator[tuple[str, Step]]:
    for role, scale in step.attr.scales.items():
        values = tuple(value * SLIGHTLY for value in scale.values)
        scales = {**step.attr.scales, role: Scale(values, scale.mask)}
        yield "scale", replace(step, attr=replace(step.attr, scales=scales))


def _zero_points(step: Step) -> Iterator[tuple[str, Step]]:
    for role, zero in step.attr.zero_points.items():
        values = tuple(value + 1 for value in zero.values)
        zeros = {**step.attr.zero_points, role: ZeroPoint(values, zero.mask)}
        yield "zero point", replace(step, attr=replace(step.attr, zero_points=zeros))


def _post_ops(step: Step) -> Iterator[tuple[str, Step]]:
    ops = step.attr.post_ops
    for index, op in enumerate(ops):
        if isinstance(op, Eltwise) and op.algorithm == "linear":
            others = [
                ("factor", replace(op, alpha=op.alpha * SLIGHTLY)),
                ("shift", replace(op, beta=op.beta * SLIGHTLY or abs(op.alpha))),
            ]
        elif isinstance(op, Sum):
            others = [("factor", replace(op, scale=op.scale * SLIGHTLY))]
        elif isinstance(op, Binary) and op.algorithm in ("add", "sub"):
            others = [
                ("operation", replace(op, algorithm="sub" if op.algorithm == "add" else "add"))
            ]
        else:
            continue
        for what, other in others:
            changed = (*ops[:index], other, *ops[index + 1 :])
            yield what, replace(step, attr=replace(step.attr, post_ops=changed))
