"""What holds for every chain: how many primitives it is, and that a runtime's result lies within
the chain's interval.
"""

from __future__ import annotations

import numpy as np
from laws.chains import DrawnChain
from laws.contracts import GRANTED
from laws.intervals import Box, run_boxes

from fqfuse.composer.compose import plan_from_graph
from fqfuse.ir.decision import Outcome
from fqfuse.ir.graph import Graph
from fqfuse.ir.text_print import print_graph
from fqfuse.ir.types import DType
from fqfuse.passes import optimize
from fqfuse.plan.text import print_plan
from fqfuse.plan.types import Plan
from fqfuse.plan.verify import verify_plan

MOST_POST_OPS = 32

_BOUNDED = 1e30
"""Beyond it f32 overflows soon, and an interval of infinities says nothing."""


def shown(graph: Graph, plan: Plan) -> str:
    """A graph and its plan, for messages."""
    return (
        print_graph(graph, data="digest", explain=False)
        + "\n->\n"
        + print_plan(plan, data="digest", explain=False)
    )


def chain_plan(chain: DrawnChain, target: str = "onednn-v3") -> Plan:
    """The plan, which is one primitive, and one for each residual, where the chain's operations fit
    as many post-ops as there may be.

    A chain that is longer may be split, and then a decision says that it is too long. Where a
    rounding or comparison of the chain's own tells numbers from those next to them, operands may be
    decoded apart, as the model does.
    """
    plan = plan_from_graph(optimize(chain.graph.copy()), target)
    assert verify_plan(plan) == []
    told = any(node.spec.jumps for node in chain.graph.nodes())
    apart = sum(
        step.primitive == "reorder" and plan.type(step.output).dtype is DType.F32
        for step in plan.steps
    )
    if len(plan.steps) in (1 + chain.skips, 1 + chain.skips + (apart if told else 0)):
        return plan
    refused = [
        d.reason
        for d in plan.decision_records
        if d.outcome is Outcome.REFUSED and d.rule.startswith("fuse into")
    ]
    if target == "onednn-v2":  # its table refuses some operations; then a decision says so
        assert refused, shown(chain.graph, plan)
    else:
        assert chain.expansion > MOST_POST_OPS, shown(chain.graph, plan)
        assert "the chain is too long" in refused, shown(chain.graph, plan)
    return plan


def interval_of(
    chain: DrawnChain, feeds: dict[str, np.ndarray], polynomials: float = 0.0
) -> Box | None:
    """The interval of the chain's result, as `run_boxes` gives it; None where a value on the way
    outgrows f32.
    """
    with np.errstate(all="ignore"):
        boxes = run_boxes(chain.graph, feeds, GRANTED, polynomials)
    ends = np.concatenate([np.ravel(end) for box in boxes.values() for end in (box.low, box.high)])
    return boxes[chain.graph.outputs[0]] if bool((np.abs(ends) < _BOUNDED).all()) else None


def within(box: Box, found: np.ndarray, slack: float = 0.0) -> bool:
    """True when codes lie within `slack` codes of the interval, or f32 values within a polynomial's
    error of it.
    """
    if found.dtype.kind != "f":
        return box.outside(found) <= slack
    # NumPy's own exp and tanh, a few units in the last place
    return box.outside(found) <= 1e-6 * (1 + np.abs(found).max(initial=0))
