"""How often the plans in the bodies of If, Loop and Scan run, at which sizes.

Of the branches of an If the costlier one runs; a loop whose trips nobody knows before it runs takes one.
A body has the sizes of the first trip.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ...plan.types import Plan, Step
from ...plan.verify_bodies import given_to
from .work import at_sizes, macs_inside


@dataclass(frozen=True)
class Part:
    """A body of a step.

    Attributes:
        plan: its plan, all sizes known.
        times: how often it runs in a run of the step.
    """

    plan: Plan
    times: int


@dataclass(frozen=True)
class Parts:
    """The bodies of a step.

    Attributes:
        parts: each body.
        once: it is a loop whose trips nobody knows before it runs.
    """

    parts: tuple[Part, ...] = ()
    once: bool = False


def parts_of(plan: Plan, step: Step) -> Parts:
    """The bodies of a step that has plans for them; none of another one."""
    if step.bodies is None:
        return Parts()
    plans = [_sized(plan, step, body) for body in step.bodies.plans]
    if step.params.get("op_type") == "If":
        costs = [macs_inside(body) for body in plans]
        chosen = costs.index(max(costs))
        return Parts(tuple(Part(body, int(n == chosen)) for n, body in enumerate(plans)))
    trips = _trips(plan, step, plans[0])
    return Parts((Part(plans[0], 1 if trips is None else trips),), trips is None)


def _sized(plan: Plan, step: Step, body: Plan) -> Plan:
    """The plan of a body at the sizes of what it is given first."""
    sizes: dict[str, int] = {}
    values, constants = dict(body.values), dict(body.constants)
    if step.params.get("op_type") == "Loop":
        constants[body.inputs[1]] = np.array(True)  # or no trip begins
    for name, given in zip(body.inputs, given_to(plan, step, body), strict=False):
        own = body.values[name]
        if given is None or given.shape is None:
            continue
        if own.shape is None:
            values[name] = replace(own, shape=given.shape)
        pairs = zip(own.shape or (), given.shape, strict=False)
        sizes |= {a: b for a, b in pairs if isinstance(a, str) and isinstance(b, int)}
    return at_sizes(replace(body, values=values, constants=constants), sizes)


def _trips(plan: Plan, step: Step, body: Plan) -> int | None:
    """How often a Loop or Scan runs its body; None where data decide."""
    if step.params.get("op_type") == "Scan":
        assert step.bodies is not None
        rows = plan.find(step.args[step.bodies.states][1])
        first = rows.shape[0] if rows is not None and rows.shape else None
        return first if isinstance(first, int) else None
    most, going = (plan.constants.get(step.arg(role) or "") for role in ("x_0", "x_1"))
    if going is not None and not going.any():
        return 0
    if most is None or most.size != 1 or (step.arg("x_1") and going is None) or not _goes_on(body):
        return None
    return max(0, int(most.reshape(-1)[0]))


def _goes_on(body: Plan) -> bool:
    """True of a body that hands on its condition as it is, or as a constant that holds."""
    made = {name: step for step in body.steps for name in step.outputs}
    name = body.outputs[0]
    while name in made and made[name].op in ("Identity", "Cast") and made[name].args:
        name = made.pop(name).args[0][1]
    known = body.constants.get(name)
    return name == body.inputs[1] or (known is not None and bool(known.all()))
