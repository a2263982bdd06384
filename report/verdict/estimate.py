"""The least time that a plan takes on a machine: a roofline, never a measurement.

A step takes as long as its multiply-adds at the peak rate of their type, or its bytes at the rate of
a shared cache, whichever is longer, and a call. What runs on NumPy has one core.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...plan.types import Plan, Step
from .machine import Machine
from .work import MOVES, RECURRENT, VIEWS, Work, operator_of, work_of

__all__ = ["Estimate", "Remedied", "estimate_of", "least_ms", "on_numpy", "step_ms", "step_work"]

_CALL = 0.004
"""Milliseconds to call a primitive: arguments, and a barrier of the threads."""

_NUMPY_CALL = 0.02
"""Milliseconds to call a step on NumPy."""

_NUMPY_SHARE = 0.25
"""Of a core's f32 peak, for products on NumPy: small ones, one after the other."""

_TEMPORARIES = 3
"""Times that NumPy moves an operation's bytes, which has no fused loops."""


@dataclass(frozen=True)
class Remedied:
    """A plan as it would be after a change: what differs.

    Attributes:
        narrow: values that would have 8 bits.
        int8: indices of steps that would multiply codes.
        gone: indices of steps that would not be there.
        primitives: indices of steps on NumPy that would be primitives.
    """

    narrow: frozenset[str] = frozenset()
    int8: frozenset[int] = frozenset()
    gone: frozenset[int] = frozenset()
    primitives: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Estimate:
    """Of a whole run: milliseconds and bytes that steps read and write."""

    ms: float
    bytes: int


_AS_IT_IS = Remedied()
_HAS_KERNEL = frozenset({"Gather", "Lookup"})


def on_numpy(step: Step) -> bool:
    """True for a step that no primitive computes or copies."""
    foreign = step.primitive.startswith("onnx.") and step.primitive not in MOVES
    return foreign and operator_of(step) not in _HAS_KERNEL


def step_work(plan: Plan, index: int, change: Remedied = _AS_IT_IS) -> Work:
    """The work of a step after the change."""
    found = work_of(plan, plan.steps[index], change.narrow)
    if index in change.gone:
        return Work(0, False, 0, 0)
    return Work(found.macs, found.int8 or index in change.int8, found.read, found.written)


def step_ms(plan: Plan, index: int, machine: Machine, change: Remedied = _AS_IT_IS) -> float:
    """Milliseconds of a step at best, after the change."""
    step = plan.steps[index]
    if index in change.gone or step.primitive in VIEWS:
        return 0.0
    work = step_work(plan, index, change)
    if on_numpy(step) and index not in change.primitives:
        macs = work.macs / (machine.macs_per_ms(int8=False, cores=1) * _NUMPY_SHARE)
        moved = work.bytes * _TEMPORARIES / machine.bytes_per_ms(cores=1)
        return max(macs, moved) + _NUMPY_CALL
    return _least(work, step, machine) + _CALL


def least_ms(plan: Plan, index: int, machine: Machine) -> float:
    """Milliseconds of a step's work at the peak rates, whatever runs it; a call costs nothing."""
    step = plan.steps[index]
    return 0.0 if step.primitive in VIEWS else _least(step_work(plan, index), step, machine)


def _least(work: Work, step: Step, machine: Machine) -> float:
    serial = (
        1 if operator_of(step) in RECURRENT else None
    )  # one step of the sequence after the other
    macs = work.macs / machine.macs_per_ms(int8=work.int8, cores=serial)
    return max(macs, work.bytes / machine.bytes_per_ms())


def estimate_of(plan: Plan, machine: Machine, change: Remedied = _AS_IT_IS) -> Estimate:
    """The time and bytes of all steps, after the change."""
    indices = range(len(plan.steps))
    return Estimate(
        sum(step_ms(plan, index, machine, change) for index in indices),
        sum(step_work(plan, index, change).bytes for index in indices),
    )
