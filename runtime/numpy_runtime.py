"""The NumPy runtime: binds a plan's steps to kernels for concrete shapes, and runs them.

It is the definition of the plan's numerics; other runtimes are held against it step by step (`run_step`).
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from ..composer.plan import Plan, Step
from ..errors import InternalError
from ..ir.ops.spec import Array
from .arena import Lifetimes, place, trace
from .kernels.base import Binding, Kernel, Layout, Operand, Scratch, Workspace, aligned
from .kernels.foreign import ForeignKernel
from .kernels.registry import bind_kernel
from .kernels.table import EvaluatedKernel, OnnxKernel
from .numerics import VNNI_3_2, NumericsProfile
from .pool import WorkerPool, single_threaded_blas
from .shapes import StaticShape, bind_shapes, step_shapes

__all__ = ["NumpyExecutor", "default_threads", "run_step"]

_PROGRAMS = 8  # shapes of the inputs that stay bound
_IDLE_LEASES = 4  # workspaces kept for the next runs of one program


def default_threads() -> int:
    """The processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@dataclass
class _Program:
    """A plan, bound for one set of input shapes.

    Attributes:
        kernels: for each step its kernel, or None where its shapes are only known while it runs.
        offsets: buffer -> place in the arena.
        lives: when values die.
        arena_bytes, local_bytes, shared_bytes: memory of one run.
    """

    kernels: list[Kernel | None]
    offsets: dict[str, int]
    lives: Lifetimes
    arena_bytes: int
    local_bytes: int
    shared_bytes: int
    idle: list[_Lease] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)


class _Lease:
    """The memory of one run: nobody else uses it meanwhile."""

    def __init__(self, program: _Program, pool: WorkerPool) -> None:
        self.arena = np.empty(aligned(program.arena_bytes) + 64, np.uint8)
        start = -self.arena.ctypes.data % 64
        self.arena = self.arena[start:]
        self.work = _workspace(pool, program.local_bytes, program.shared_bytes)


def _workspace(pool: WorkerPool, local: int, shared: int) -> Workspace:
    return Workspace(pool, [Scratch(local) for _ in range(pool.threads)], Scratch(shared))


class NumpyExecutor:
    """Runs a plan with NumPy.

    Args:
        plan: the plan, for any target.
        threads: how many tiles are computed at once (None: one a processor).
        profile: the float order.
    """

    def __init__(self, plan: Plan, threads: int | None = None, profile: NumericsProfile = VNNI_3_2) -> None:
        self._plan = plan
        self._profile = profile
        self._pool = WorkerPool(threads or default_threads())
        self._programs: OrderedDict[tuple[StaticShape, ...], _Program] = OrderedDict()
        self._lock = threading.Lock()

    def bind(self, shapes: Mapping[str, Sequence[int]]) -> None:
        """Prepares for these shapes of the inputs.

        Raises:
            InvalidInput: the shapes do not fit the model.
        """
        self._program({name: tuple(shapes[name]) for name in self._plan.inputs})

    def run(self, feeds: Mapping[str, Array]) -> list[Array]:
        """The outputs of the plan for checked feeds, as new C-contiguous arrays."""
        program = self._program({name: feeds[name].shape for name in self._plan.inputs})
        lease = self._lease(program)
        try:
            values = dict(feeds)
            with single_threaded_blas(), np.errstate(all="ignore"):
                for index, kernel in enumerate(program.kernels):
                    self._step(program, index, kernel, values, lease)
                    for value in program.lives.dead[index]:
                        del values[value]
                return [np.array(self._value(name, values), order="C", copy=True) for name in self._plan.outputs]
        finally:
            with program.lock:
                if len(program.idle) < _IDLE_LEASES:
                    program.idle.append(lease)

    def run_all(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """Every value that a step writes, in execution order, as new C-contiguous arrays."""
        program = self._program({name: feeds[name].shape for name in self._plan.inputs})
        lease = self._lease(program)
        values = dict(feeds)
        result: dict[str, Array] = {}
        with single_threaded_blas(), np.errstate(all="ignore"):
            for index, kernel in enumerate(program.kernels):
                self._step(program, index, kernel, values, None if kernel is None else lease, keep=True)
                for value in filter(None, self._plan.steps[index].outputs):
                    result[value] = np.array(values[value], order="C", copy=True)
        return result

    # -- one run ---------------------------------------------------------------------------------------------------------------

    def _value(self, name: str, values: Mapping[str, Array]) -> Array:
        return values[name] if name in values else self._plan.constants[name]

    def _lease(self, program: _Program) -> _Lease:
        with program.lock:
            if program.idle:
                return program.idle.pop()
        return _Lease(program, self._pool)

    def _step(
        self, program: _Program, index: int, kernel: Kernel | None, values: dict[str, Array], lease: _Lease | None, *, keep: bool = False
    ) -> None:
        step = self._plan.steps[index]
        if isinstance(kernel, EvaluatedKernel):
            produced: Sequence[Array] = kernel.evaluate(values)
        elif kernel is not None and lease is not None:
            produced = [
                result.empty() if keep or name not in program.offsets else result.view(lease.arena[program.offsets[name] :])
                for result, name in zip(kernel.results, step.outputs, strict=False)
            ]
            kernel.run(values, produced, lease.work)
        else:
            produced = self._run_unbound(step, values)
        values |= {name: array for name, array in zip(step.outputs, produced, strict=False) if name}

    def _run_unbound(self, step: Step, values: Mapping[str, Array]) -> Sequence[Array]:
        """A step whose shapes depend on data: bound now, for this run alone."""
        arrays = {name: self._value(name, values) for name in step.inputs}
        return _run_once(self._plan, step, arrays, self._profile, self._pool)

    # -- binding ---------------------------------------------------------------------------------------------------------------

    def _program(self, shapes: Mapping[str, StaticShape]) -> _Program:
        key = tuple(shapes[name] for name in self._plan.inputs)
        with self._lock:
            program = self._programs.get(key)
            if program is None:
                program = self._programs[key] = self._bind_program(shapes)
                if len(self._programs) > _PROGRAMS:
                    self._programs.popitem(last=False)
            self._programs.move_to_end(key)
            return program

    def _bind_program(self, shapes: Mapping[str, StaticShape]) -> _Program:
        plan = self._plan
        known = bind_shapes(plan, shapes)
        layouts: dict[str, Layout] = {}
        kernels: list[Kernel | None] = []
        for step in plan.steps:
            kernel = _bind_step(plan, step, known, layouts, self._profile, self._pool.threads)
            kernels.append(kernel)
            if kernel is not None:
                layouts |= {name: result.layout for name, result in zip(step.outputs, kernel.results, strict=False)}
        lives = trace(plan, [kernel is not None and not isinstance(kernel, EvaluatedKernel) for kernel in kernels])
        sizes = {
            name: result.size
            for step, kernel in zip(plan.steps, kernels, strict=True)
            if kernel is not None
            for name, result in zip(step.outputs, kernel.results, strict=False)
        }
        offsets, size = place(lives, sizes)
        bound = [kernel for kernel in kernels if kernel is not None]
        local = max((kernel.local_bytes for kernel in bound), default=0)
        shared = max((kernel.shared_bytes for kernel in bound), default=0)
        return _Program(kernels, offsets, lives, size, local, shared)


def _bind_step(
    plan: Plan, step: Step, shapes: Mapping[str, StaticShape], layouts: Mapping[str, Layout], profile: NumericsProfile, threads: int
) -> Kernel | None:
    """The kernel of a step; None when a shape is not known yet."""
    if step.op == "Onnx":
        return ForeignKernel(step, plan.constants)
    if step.primitive.startswith("onnx."):
        return OnnxKernel(step, plan.constants)
    if any(value not in shapes for value in (*step.inputs, step.output)):
        return None
    operands = {
        value: Operand(value, plan.type(value).dtype, shapes[value], layouts.get(value, Layout.PLAIN), plan.constants.get(value))
        for value in step.inputs
    }
    dtypes = tuple(plan.type(value).dtype for value in step.outputs if value)
    found = tuple(shapes[value] for value in step.outputs if value)
    return bind_kernel(Binding(step, plan.target, operands, dtypes, found, profile, threads))


def _run_once(plan: Plan, step: Step, arrays: Mapping[str, Array], profile: NumericsProfile, pool: WorkerPool) -> Sequence[Array]:
    shapes = {**{name: array.shape for name, array in arrays.items()}, **step_shapes(plan, step, arrays)}
    kernel = _bind_step(plan, step, shapes, {}, profile, pool.threads)
    if kernel is None:
        raise InternalError(f"the shapes of step {step.name} cannot be told from its inputs")
    if isinstance(kernel, EvaluatedKernel):
        return kernel.evaluate(arrays)
    outputs = [result.empty() for result in kernel.results]
    kernel.run(arrays, outputs, _workspace(pool, kernel.local_bytes, kernel.shared_bytes))
    return outputs


def run_step(
    plan: Plan, step: Step, inputs: Mapping[str, Array], *, profile: NumericsProfile = VNNI_3_2, threads: int = 1
) -> tuple[Array, ...]:
    """Runs one step alone: the unit of comparison between runtimes.

    Args:
        plan: the plan that the step belongs to: gives the types of its values, and its constants.
        step: the step.
        inputs: an array for each value of `step.inputs` that is no constant, of its element type.
        profile: the float order.
        threads: how many tiles are computed at once.

    Returns:
        The outputs of the step, C-contiguous, sharing no memory with the inputs.

    Raises:
        InvalidInput: the arrays do not fit the step.
    """
    arrays = {name: np.asarray(inputs[name]) if name in inputs else plan.constants[name] for name in step.inputs}
    with single_threaded_blas(), np.errstate(all="ignore"):
        outputs = _run_once(plan, step, arrays, profile, WorkerPool(threads))
    return tuple(np.array(array, order="C", copy=True) for array in outputs)
