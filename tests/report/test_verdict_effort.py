"""Law: the effort of a verdict is linear in the steps, whatever it finds.

Bytecode instructions are counted, not seconds: the same on every machine. Calls alone would not tell:
a comprehension over all fates, once for each step, is one call a step.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from types import FrameType
from typing import Any

import pytest
from support.large_plans import residual_plan

from fqfuse.plan.attributes import Scale
from fqfuse.plan.types import Plan, Step
from fqfuse.report.verdict.findings import verdict_of
from fqfuse.report.verdict.machine import machine_from

MACHINE = machine_from("flags\t\t: avx2\n", cores=2, clock=2.0)
SHORT = 80
LINEAR = 2.15
"""Twice; what each function does before its loops makes it less, sorting a little more."""


def instructions(work: Callable[[], object]) -> int:
    """How many bytecode instructions run."""
    count = 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal count
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        count += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


def absurd(plan: Plan) -> Plan:
    """Every convolution next to a quantizer with an absurd scale."""

    def mended(step: Step) -> Step:
        if step.primitive != "convolution":
            return step
        scales = {**step.attr.scales, "src": Scale((1e36,))}
        return replace(step, attr=replace(step.attr, scales=scales))

    return replace(plan, steps=tuple(map(mended, plan.steps)))


def in_floats(plan: Plan) -> Plan:
    """All values in f32."""
    floats = plan.values["mask"]
    return replace(plan, values=dict.fromkeys(plan.values, floats))


KINDS: dict[str, Callable[[Plan], Plan]] = {
    "residual": lambda plan: plan,
    "absurd scales": absurd,
    "f32": in_floats,
}


@pytest.mark.parametrize("kind", KINDS)
def test_twice_the_steps_take_twice_the_instructions(kind: str) -> None:
    verdict_of(KINDS[kind](residual_plan(SHORT)), MACHINE)  # fills caches
    plans = [KINDS[kind](residual_plan(size)) for size in (SHORT, 2 * SHORT)]
    first, second = (instructions(partial(verdict_of, plan, MACHINE)) for plan in plans)
    assert second <= LINEAR * first
