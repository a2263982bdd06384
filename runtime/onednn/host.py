"""Steps that run on NumPy between primitives."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ...composer.plan import Plan, Step
from ...ir.ops.spec import Array
from ..numpy_runtime import NumpyExecutor

__all__ = ["HostStep"]


class HostStep:
    """One step of a plan, as a plan of its own for the NumPy runtime, which binds it for each shape that it meets.

    Args:
        plan: the plan.
        step: the step.
        threads: how many threads it may use.
    """

    def __init__(self, plan: Plan, step: Step, threads: int) -> None:
        self.inputs = tuple(dict.fromkeys(value for value in step.inputs if value not in plan.constants))
        self.outputs = tuple(value for value in step.outputs if value)
        values = {name: plan.type(name) for name in (*self.inputs, *self.outputs)}
        constants = {name: plan.constants[name] for name in step.inputs if name in plan.constants}
        alone = Plan(plan.name, plan.target, self.inputs, self.outputs, values, constants, (step,))
        self._executor = NumpyExecutor(alone, threads)

    def run(self, arrays: Mapping[str, Array]) -> dict[str, Array]:
        """The outputs, as new C-contiguous arrays, for arrays of the logical shapes in any strides.

        Raises:
            InvalidInput: the step cannot be computed on these arrays.
        """
        found = self._executor.run({name: arrays[name] for name in self.inputs})
        return {name: np.ascontiguousarray(array) for name, array in zip(self.outputs, found, strict=True)}
