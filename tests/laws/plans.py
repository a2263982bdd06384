"""Compiling a small graph and looking at the plan: shared by the tests of what steps absorb."""

from __future__ import annotations

from laws.build import Net, Value

from fqfuse.composer.compose import plan_from_graph
from fqfuse.ir.decision import Decision, Outcome
from fqfuse.passes import optimize
from fqfuse.plan.attributes import Binary, Eltwise
from fqfuse.plan.types import Plan, Step


def compiled(n: Net, *outputs: Value, target: str = "onednn-v3") -> Plan:
    return plan_from_graph(optimize(n.done(*outputs)), target)


def refusals(plan: Plan, *parts: str) -> list[Decision]:
    """Refusals whose reason holds all parts."""
    refused = [
        decision for decision in plan.decision_records if decision.outcome is Outcome.REFUSED
    ]
    return [decision for decision in refused if all(part in decision.reason for part in parts)]


def steps(plan: Plan, primitive: str) -> list[Step]:
    return [step for step in plan.steps if step.primitive == primitive]


def kinds(step: Step) -> list[str]:
    return [
        op.algorithm if isinstance(op, Eltwise | Binary) else type(op).__name__.lower()
        for op in step.attr.post_ops
    ]


def block(n: Net, channels: int = 4) -> tuple[Value, Value]:
    """A quantized skip and a convolution of what is computed from it."""
    x = n.qdq(n.input(("N", channels, 4, 4)), 2**-5, 128)
    skip = n.qdq(n.op("Relu", n.conv(x, channels, scale=2**-8)), 2**-6)
    return skip, n.conv(
        n.qdq(n.op("Relu", n.conv(skip, channels, scale=2**-8)), 2**-6), channels, scale=2**-8
    )
