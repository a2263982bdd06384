"""Scales of source and weights whose product f32 does not hold: the library forms it in front of all
else, so that it makes NaN of a sum of 0, or 0 of any sum. Such a step runs on NumPy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from ...ir.ops.spec import Array
from ...plan.arguments import AT_RUN_TIME, at_run_time
from ...plan.types import Plan
from ..numerics import factors_of

_TOO_FAR = "f32 does not hold the product of its scales, which oneDNN multiplies first"
_BESIDE_A_RANGE = 2.0**-30, 2.0**6
"""Constants whose product with the scale of a range, f32's largest / 127 at most, f32 holds: in full, but
where the values of the range are below 1e-26.
"""

_LOW, _HIGH = 1.2e-38, 3.4e38
"""Between them f32 holds a product of scales: most runs are told so, without arrays."""


class MovedToNumPy(Exception):
    """A step must run on NumPy after all: bind again.

    The library failed while it generated code for it; oneDNN 3.2's code generator never forgets such a
    failure, and fails for ever after in the same thread: bind in another one. Or a run has scales
    whose product f32 does not hold.

    Attributes:
        step: index of the step.
        reason: why.
    """

    def __init__(self, step: int, reason: str) -> None:
        super().__init__(step, reason)
        self.step = step
        self.reason = reason


class ScalesCheck:
    """Looks at the scales of a step in each run; arguments as of `scales_check`.

    Raises:
        MovedToNumPy: `run` does, where f32 does not hold their product.
    """

    outputs: tuple[str, ...] = ()
    single_call: None = None
    follows: bool = False

    def __init__(self, index: int, known: list[Array], inputs: tuple[str, ...]) -> None:
        self.inputs, self.implementations = inputs, list[str]()
        self._index, self._known = index, known
        self._ends = [_ends(each) for each in known]

    def run(self, arrays: Mapping[str, Array]) -> dict[str, Array]:
        """Nothing."""
        fed = [arrays[name].reshape(-1) for name in self.inputs]
        (low, high), (least, most) = (*self._ends, *map(_ends, fed))
        near = low * least >= _LOW and high * most <= _HIGH  # false of NaN
        if not near and not _held([*self._known, *fed]):
            raise MovedToNumPy(self._index, _TOO_FAR)
        return {}


def scales_check(
    plan: Plan, index: int, once: Callable[[str, Callable[[], set[str]]], set[str]]
) -> ScalesCheck | str | None:
    """What looks at the scales of a step in each run, or why constant ones take it to NumPy; None where neither
    is needed.

    Args:
        plan: the plan.
        index: the place of the step.
        once: keeps what follows from the plan alone, see `Constants.once`.
    """
    step = plan.steps[index]
    fed = {
        AT_RUN_TIME[role][1]: value
        for role, value in at_run_time(step.op, step.args).items()
        if AT_RUN_TIME[role][0] == "scales"
    }
    known = [plan.constants[value].reshape(-1) for value in fed.values() if value in plan.constants]
    known += [
        scale.array
        for role, scale in step.attr.scales.items()
        if role in ("src", "weights") and role not in fed
    ]
    computed = tuple(value for value in fed.values() if value not in plan.constants)
    if len(known) + len(computed) < len(("src", "weights")):
        return None
    if not computed:
        return None if _held(known) else _TOO_FAR
    ranges = once("ranges", lambda: {s.outputs[0] for s in plan.steps if s.op == "DynamicRange"})
    if known and computed[0] in ranges:
        ends, (low, high) = (known[0].min(), known[0].max()), _BESIDE_A_RANGE
        if low <= float(ends[0]) and float(ends[1]) <= high:
            return None
    return ScalesCheck(index, known, computed)


def _ends(scales: Array) -> tuple[float, float]:
    """The smallest and the largest magnitude."""
    if scales.size == 1:
        only = abs(float(scales[0]))
        return only, only
    sizes = np.abs(scales)
    return float(sizes.min(initial=np.inf)), float(sizes.max(initial=0))


def _held(scales: list[Array]) -> bool:
    """True where f32 holds the product of two scales; a scale alone is its own."""
    first, second = (np.asarray(each, np.float32) for each in scales)
    return len(factors_of(first, second)) == 1
