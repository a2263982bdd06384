"""Steps that run on NumPy between primitives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from ...ir.ops import dims
from ...ir.ops.spec import Array
from ...ir.types import TensorType
from ...onednn.enums import CpuIsa
from ...plan.shapes import step_shapes
from ...plan.types import Plan, Step
from ..bodies import NO_BODIES, BodyRunner
from ..budget import RunBudget
from ..kernels.table import EvaluatedKernel
from ..numpy_runtime import NumpyExecutor
from .host_calls import FOLLOWERS, single_call
from .program import Tensor


class HostStep:
    """One step of a plan on NumPy.

    An `onnx.<Op>` step is the evaluation of its row. A primitive becomes a plan of its own for the
    NumPy runtime, which binds it for each shape that it meets.

    Args:
        plan: the plan.
        step: the step.
        threads: how many threads it may use.
        isa: the instruction sets that it may use.
        budget: how large its outputs may be, where their sizes depend on data; None: they were
            checked already.
        bodies: what runs steps with bodies, by their names.

    Attributes:
        step: the step.
        inputs: the values that it reads, without constants.
        outputs: the values that it writes.
        single_call: makes the one call that the step comes to, where it does: it reads the first
            input, and writes the outputs.
        follows: the first output may lie in memory as the first input does.
    """

    def __init__(
        self,
        plan: Plan,
        step: Step,
        threads: int,
        isa: CpuIsa,
        budget: RunBudget | None = None,
        bodies: Mapping[str, BodyRunner] = NO_BODIES,
    ) -> None:
        self.inputs = tuple(
            dict.fromkeys(value for value in step.inputs if value not in plan.constants)
        )
        self.outputs = tuple(value for value in step.outputs if value)
        self._names = step.outputs
        self._kernel: EvaluatedKernel | None = None
        self._plan, self.step, self._budget = plan, step, budget
        self._executor: NumpyExecutor | None = None
        self._constants = constants = {
            name: plan.constants[name] for name in step.inputs if name in plan.constants
        }
        self.single_call = single_call(plan, step, constants, isa)
        self.follows = self.single_call is not None and step.primitive in FOLLOWERS
        if step.primitive.startswith("onnx."):
            self._kernel = EvaluatedKernel(plan, step, bodies)
        else:
            values = {
                name: _without_symbols(plan.type(name)) for name in (*self.inputs, *self.outputs)
            }
            alone = Plan(
                plan.name, plan.target, self.inputs, self.outputs, values, constants, (step,)
            )
            self._executor = NumpyExecutor(alone, threads, budget=budget)

    def run(self, arrays: Mapping[str, Array]) -> dict[str, Array]:
        """The outputs, as C-contiguous arrays that share no memory with the inputs.

        Args:
            arrays: an array of the logical shape for each of `inputs`, in any strides.

        Raises:
            InvalidInput: the step cannot be computed on these arrays.
        """
        if self._kernel is not None:
            if self._budget is not None:
                self._budget.check(
                    self._plan, step_shapes(self._plan, self.step, {**self._constants, **arrays})
                )
            with np.errstate(all="ignore"):
                found = self._kernel.evaluate(arrays)
            return {
                name: _own(array, list(arrays.values()))
                for name, array in zip(self._names, found, strict=False)
                if name
            }
        assert self._executor is not None
        return dict(zip(self.outputs, self._executor.run(arrays), strict=True))


def _without_symbols(type_: TensorType) -> TensorType:
    """A type whose symbols are unknown sizes.

    What a symbol stands for follows from the inputs of the whole plan, not from those of one step:
    a size that a foreign op's `value_info` names wrongly, and that nobody was bound for, is no
    error (the NumPy runtime, which binds such a step in the run, does not look at it either).
    """
    if type_.shape is None:
        return type_
    return replace(
        type_, shape=tuple(dim if isinstance(dim, int) else dims.UNKNOWN for dim in type_.shape)
    )


class HostRunner(Protocol):
    """A step that runs by calls of its own; see `HostStep`."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    implementations: list[str]
    single_call: None
    follows: bool

    def run(self, arrays: Mapping[str, Array]) -> dict[str, Array]:
        """The outputs, as new arrays that share no memory with the inputs."""
        ...


@dataclass(frozen=True, eq=False)
class HostAction:
    """One step on NumPy.

    Attributes:
        runner: the bound step.
        inputs: value -> tensor that holds it; values that only live on the host (types that oneDNN
            lacks, unknown shapes) are absent.
        outputs: value -> tensor through which primitives read it.
    """

    runner: HostStep | HostRunner
    inputs: Mapping[str, Tensor]
    outputs: Mapping[str, Tensor]

    @property
    def tensors(self) -> list[Tensor]:
        """Everything that it touches."""
        return [*self.inputs.values(), *self.outputs.values()]

    @property
    def placed(self) -> list[Tensor]:
        """What its one call writes."""
        return [*self.outputs.values()]


def _own(array: Array, inputs: Sequence[Array]) -> Array:
    """The array, or a copy where it is a view of an input (whose memory another value may take
    next) or not contiguous.
    """
    if array.flags.c_contiguous and not any(np.may_share_memory(array, other) for other in inputs):
        return array
    return np.array(array, order="C")
