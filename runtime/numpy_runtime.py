"""The NumPy runtime: binds a plan's steps to kernels for concrete shapes, and runs them.

It is the definition of the plan's numerics; other runtimes are held against it step by step
(`run_step`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from time import perf_counter_ns

import numpy as np

from ..aligned import aligned, aligned_bytes
from ..errors import InternalError
from ..ir.ops.spec import Array
from ..plan.arguments import AT_RUN_TIME, at_run_time
from ..plan.attributes import Scale, ZeroPoint
from ..plan.shapes import StaticShape, bound_otherwise, step_shapes
from ..plan.types import Plan, Step
from ..plan.verify_shapes import SCHEMAS
from .arena import Lifetimes, place, trace
from .bodies import BodyRunner, body_runners
from .budget import RunBudget
from .executor import StepTimes
from .footprint import SessionMemory, bytes_within, nothing_bound, steps_memory
from .kept import KEPT_BYTES, KEPT_BYTES_OF_BODY, KeptPrograms
from .kernels.base import Binding, Kernel, Layout, Operand, Result, Scratch
from .kernels.deconvolution import bind_deconvolution
from .kernels.elementwise import bind_binary, bind_concat, bind_eltwise, bind_reorder
from .kernels.fused_depthwise import bind_any_convolution
from .kernels.matmul import bind_matmul
from .kernels.pooling import Pooling
from .kernels.recurrent import bind_recurrent
from .kernels.table import EvaluatedKernel, bind_numbers, bind_row
from .numerics import VNNI_3_2, NumericsProfile
from .padding import bytes_by_position
from .pool import WorkerPool, single_threaded_blas
from .processors import default_threads, run_budget
from .program import StepProgram

KERNELS: dict[str, Callable[[Binding], Kernel]] = {
    "convolution": bind_any_convolution,
    "deconvolution": bind_deconvolution,
    "matmul": bind_matmul,
    "pooling": Pooling,
    "binary": bind_binary,
    "eltwise": bind_eltwise,
    "reorder": bind_reorder,
    "concat": bind_concat,
    "rnn": bind_recurrent,
    "dynamic_range": bind_numbers,
}
"""Primitive -> what binds its kernel; that of any other is its operator's row of the op table."""

_BYTES_OF_A_STEP = 16 << 10
"""Of a step's kernel and its recorded calls, beside what they compute on."""
_IDLE_LEASES = 8  # buffers kept for the next runs of one shape


@dataclass
class _Bound:
    """A plan, bound for one set of input shapes.

    Attributes:
        kernels: for each step its kernel, or None where its shapes are only known while it runs.
        buffers: every value that lives in the arena: what kernels write, and arrays of others that
            kernels read (those are copied in).
        shapes: of all values whose sizes follow from the feeds' shapes.
        offsets: buffer -> place in the arena.
        lives: when values die.
        arena_bytes, local_bytes: memory of one run, and of each worker in it.
        unsized: indices of steps whose outputs have sizes that depend on data.
        idle: leases that no run uses.
    """

    kernels: list[Kernel | EvaluatedKernel | None]
    buffers: dict[str, Result]
    shapes: Mapping[str, StaticShape]
    offsets: dict[str, int]
    lives: Lifetimes
    arena_bytes: int
    local_bytes: int
    unsized: frozenset[int]
    idle: list[_Lease] = field(default_factory=list)


class _Lease:
    """The buffers of one run, and the programs that were recorded for them: nobody else uses them
    meanwhile.
    """

    def __init__(self, plan: Plan, bound: _Bound, threads: int) -> None:
        arena = aligned_bytes(bound.arena_bytes)
        self.arrays = {
            name: result.view(arena[bound.offsets[name] :])
            for name, result in bound.buffers.items()
        }
        scratches = [Scratch(bound.local_bytes) for _ in range(threads)]
        values = {**plan.constants, **self.arrays}
        self.programs = [
            _program(kernel, step, values, scratches) if isinstance(kernel, Kernel) else None
            for step, kernel in zip(plan.steps, bound.kernels, strict=True)
        ]


def _program(
    kernel: Kernel, step: Step, arrays: Mapping[str, Array], scratches: Sequence[Scratch]
) -> StepProgram:
    return StepProgram(
        kernel.tasks(arrays, [arrays[name] for name in step.outputs if name]), scratches
    )


class NumpyExecutor:
    """Runs a plan with NumPy.

    Args:
        plan: the plan, for any target.
        threads: how many tasks run at once (None: `default_threads`).
        profile: the float order.
        budget: how much memory a run may take (None: the machine's).
        kept_bytes: what the programs for all shapes of the inputs may take, see `KeptPrograms`.
    """

    def __init__(
        self,
        plan: Plan,
        threads: int | None = None,
        profile: NumericsProfile = VNNI_3_2,
        *,
        budget: RunBudget | None = None,
        kept_bytes: int = KEPT_BYTES,
    ) -> None:
        # kernels read f32 in each run: what lies in memory as half floats is widened once
        self._plan = plan = replace(plan, constants=dict(plan.constants))
        self._budget = budget or run_budget()
        self._profile = profile
        self._pool = WorkerPool(threads or default_threads())
        self._bodies = _numpy_bodies(plan, self._pool.threads, profile, self._budget)
        self._bound = KeptPrograms[_Bound](kept_bytes)

    def bind(self, shapes: Mapping[str, Sequence[int]]) -> None:
        """Prepares for these shapes of the inputs.

        Raises:
            InvalidInput: the shapes do not fit the model, or need more memory than a run may take.
        """
        self._bound_for({name: tuple(shapes[name]) for name in self._plan.inputs})

    def run(
        self, feeds: Mapping[str, Array], behind: Callable[[int], None] | None = None
    ) -> list[Array]:
        """The outputs of the plan for checked feeds, as new C-contiguous arrays."""
        if behind is None:
            return self._run(feeds, self._walk)
        return self._run(feeds, partial(self._walk_watched, lambda index, _: behind(index)))

    def run_all(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """Every value that a step writes, in execution order, as new C-contiguous arrays."""
        kept: dict[str, Array] = {}

        def keep(index: int, values: Mapping[str, Array]) -> None:
            outputs = self._plan.steps[index].outputs if index >= 0 else ()
            kept.update({name: _own(values[name]) for name in outputs if name})

        self._run(feeds, partial(self._walk_watched, keep))
        return kept

    def run_timed(self, feeds: Mapping[str, Array]) -> StepTimes:
        """Runs as `run` does, looks at the clock behind each step, and forgets the outputs."""
        stamps: list[int] = []

        def stamp(_index: int, _values: Mapping[str, Array]) -> None:
            stamps.append(perf_counter_ns())

        self._run(feeds, partial(self._walk_watched, stamp))
        return StepTimes(stamps[0], tuple(after - before for before, after in pairwise(stamps)))

    def memory(self) -> SessionMemory:
        """What the plan's constants take, and a run with the shapes that were bound last. Steps of
        ONNX's operators and steps whose shapes depend on data allocate their results themselves.

        Raises:
            InvalidInput: nothing is bound yet.
        """
        bound = self._bound.latest
        if bound is None:
            raise nothing_bound()
        threads, steps = self._pool.threads, self._plan.steps
        held = {name: data.nbytes for name, data in self._plan.constants.items()}
        written = [sum(self._bytes(name, bound.shapes) for name in step.outputs) for step in steps]
        kernels = [kernel if isinstance(kernel, Kernel) else None for kernel in bound.kernels]
        scratch = [k.local_bytes * threads + k.own_bytes if k else 0 for k in kernels]
        rows = steps_memory(steps, held, written, scratch)
        own = sum(kernel.own_bytes for kernel in kernels if kernel)
        return SessionMemory(
            sum(held.values()) + sum(map(bytes_within, steps)),
            bound.arena_bytes,
            bound.local_bytes * threads + own,
            rows,
        )

    def _bytes(self, value: str, shapes: Mapping[str, StaticShape]) -> int:
        """Of a value; 0 where it is absent, of strings, or only a run tells its size."""
        if value not in shapes or not value:
            return 0
        return Result(self._plan.type(value).dtype, shapes[value]).size

    # -- one run -----------------------------------------------------------------------------------

    def _run(
        self, feeds: Mapping[str, Array], walk: Callable[[_Bound, dict[str, Array], _Lease], None]
    ) -> list[Array]:
        bound = self._bound_for({name: feeds[name].shape for name in self._plan.inputs})
        try:
            lease = bound.idle.pop()  # atomic, as append is: no lock
        except IndexError:
            lease = _Lease(self._plan, bound, self._pool.threads)
        values: dict[str, Array] = {}
        with single_threaded_blas(), np.errstate(all="ignore"):
            for name, array in feeds.items():
                self._keep(name, array, values, lease)
            walk(bound, values, lease)
            outputs = [_own(self._value(name, values)) for name in self._plan.outputs]
        if len(bound.idle) < _IDLE_LEASES:
            bound.idle.append(lease)
        return outputs

    def _walk(self, bound: _Bound, values: dict[str, Array], lease: _Lease) -> None:
        for index in range(len(self._plan.steps)):
            self._run_step(bound, index, values, lease)
            for name in bound.lives.dead[index]:
                del values[name]

    def _walk_watched(
        self,
        behind: Callable[[int, Mapping[str, Array]], None],
        bound: _Bound,
        values: dict[str, Array],
        lease: _Lease,
    ) -> None:
        """As `_walk`; `behind` sees the values before the first step (-1), and behind each."""
        behind(-1, values)
        for index in range(len(self._plan.steps)):
            self._run_step(bound, index, values, lease)
            behind(index, values)
            for name in bound.lives.dead[index]:
                del values[name]

    def _run_step(self, bound: _Bound, index: int, values: dict[str, Array], lease: _Lease) -> None:
        step, kernel, program = self._plan.steps[index], bound.kernels[index], lease.programs[index]
        if program is not None:
            program.run(self._pool)
            values |= {name: lease.arrays[name] for name in step.outputs if name}
            return
        if isinstance(kernel, EvaluatedKernel):
            if index in bound.unsized:
                arrays = {name: self._value(name, values) for name in step.inputs}
                self._budget.check(self._plan, step_shapes(self._plan, step, arrays))
            produced = kernel.evaluate(values)
            self._check_foreign(bound, step, produced)
        else:  # shapes that depend on data: bound now, for this run alone
            arrays = {name: self._value(name, values) for name in step.inputs}
            produced = _run_once(
                self._plan, step, arrays, self._profile, self._pool, self._budget, self._bodies
            )
        for name, array in zip(step.outputs, produced, strict=False):
            if name:
                self._keep(name, array, values, lease)

    def _check_foreign(self, bound: _Bound, step: Step, produced: Sequence[Array]) -> None:
        """Refuses what a foreign op gives in another shape than its symbols have for these feeds:
        who reads it was bound for that.
        """
        if step.op != "Onnx":
            return
        for name, array in zip(step.outputs, produced, strict=True):
            expected = bound.shapes.get(name, array.shape)
            if name and array.shape != expected:
                raise bound_otherwise(self._plan, name, array, f"{array.dtype}{list(expected)}")

    def _keep(self, name: str, array: Array, values: dict[str, Array], lease: _Lease) -> None:
        """Adds an array that no kernel wrote; into its buffer, where a kernel will read it
        there.
        """
        buffer = lease.arrays.get(name)
        if buffer is not None:
            if (buffer.shape, buffer.dtype) != (array.shape, array.dtype):
                raise bound_otherwise(
                    self._plan, name, array, f"{buffer.dtype}{list(buffer.shape)}"
                )
            np.copyto(buffer, array)
            array = buffer
        values[name] = array

    def _value(self, name: str, values: Mapping[str, Array]) -> Array:
        return values[name] if name in values else self._plan.constants[name]

    # -- binding -----------------------------------------------------------------------------------

    def _bound_for(self, shapes: Mapping[str, StaticShape]) -> _Bound:
        key = tuple(shapes[name] for name in self._plan.inputs)
        return self._bound.get(key, lambda: self._bind(shapes))

    def _bind(self, shapes: Mapping[str, StaticShape]) -> tuple[_Bound, int]:
        """The plan bound for these shapes, and the bytes that it takes."""
        plan = self._plan
        known, _ = self._budget.bind(plan, shapes)
        made = bytes_by_position(plan, known)
        self._budget.check_run(plan, known, made)
        buffers: dict[str, Result] = {}
        kernels: list[Kernel | EvaluatedKernel | None] = []
        for step in plan.steps:
            layouts = {name: buffers[name].layout for name in step.inputs if name in buffers}
            kernel = _bind_step(
                plan, step, known, layouts, self._profile, self._pool.threads, self._bodies
            )
            kernels.append(kernel)
            if not isinstance(kernel, Kernel):
                continue
            for name in step.inputs:
                if name not in buffers and name not in plan.constants:
                    buffers[name] = Result(plan.type(name).dtype, known[name])
            buffers |= dict(zip(filter(None, step.outputs), kernel.results, strict=True))
        lives = trace(plan, buffers)
        offsets, size = place(lives, {name: result.size for name, result in buffers.items()})
        bound = [kernel for kernel in kernels if isinstance(kernel, Kernel)]
        local = max((kernel.local_bytes for kernel in bound), default=0)
        own = sum(kernel.own_bytes for kernel in bound)
        needed = size + made + own + local * self._pool.threads
        self._budget.check_run(plan, known, needed)
        unsized = frozenset(
            i
            for i, step in enumerate(plan.steps)
            if not all(value in known for value in step.outputs if value)
        )
        program = _Bound(
            kernels, buffers, known, offsets, lives, aligned(size), aligned(local), unsized
        )
        return program, needed + len(plan.steps) * _BYTES_OF_A_STEP


def _numpy_bodies(
    plan: Plan, threads: int, profile: NumericsProfile, budget: RunBudget
) -> dict[str, BodyRunner]:
    """What runs the bodies of the plan's steps with NumPy."""
    return body_runners(
        plan,
        lambda body: NumpyExecutor(
            body, threads, profile, budget=budget, kept_bytes=KEPT_BYTES_OF_BODY
        ),
        budget,
    )


def _own(array: Array) -> Array:
    return np.array(array, order="C", copy=True)


def _bind_step(
    plan: Plan,
    step: Step,
    shapes: Mapping[str, StaticShape],
    layouts: Mapping[str, Layout],
    profile: NumericsProfile,
    threads: int,
    bodies: Mapping[str, BodyRunner],
    given: Mapping[str, Array] | None = None,
) -> Kernel | EvaluatedKernel | None:
    """The kernel of a step; None where only a run tells a shape, a scale, or weights that a kernel
    packs. `given`: the values that the step reads in the one run that it is bound for.
    """
    if step.primitive.startswith("onnx."):
        return EvaluatedKernel(plan, step, bodies)
    weights = step.arg("weights")
    packed = step.primitive == "convolution" and weights not in plan.constants
    if given is None and (packed or at_run_time(step.op, step.args)):
        return None
    constants = plan.constants
    if given is not None and packed and weights is not None:
        constants = {**constants, weights: given[weights]}
    if any(value not in shapes for value in (*step.inputs, *filter(None, step.outputs))):
        return None
    operands = {
        value: Operand(
            value,
            plan.type(value).dtype,
            shapes[value],
            layouts.get(value, Layout.PLAIN),
            constants.get(value),
        )
        for value in step.inputs
    }
    dtypes = tuple(plan.type(value).dtype for value in step.outputs if value)
    found = tuple(shapes[value] for value in step.outputs if value)
    if step.primitive not in SCHEMAS:
        raise InternalError(f"step {step.name}: no kernel for the primitive {step.primitive}")
    binder = KERNELS.get(step.primitive, bind_row)
    return binder(Binding(step, plan.target, operands, dtypes, found, profile, threads))


def _run_once(
    plan: Plan,
    step: Step,
    arrays: Mapping[str, Array],
    profile: NumericsProfile,
    pool: WorkerPool,
    budget: RunBudget,
    bodies: Mapping[str, BodyRunner],
) -> Sequence[Array]:
    shapes = {
        **{name: array.shape for name, array in arrays.items()},
        **step_shapes(plan, step, arrays),
    }
    budget.check(plan, shapes)
    step = with_numbers(step, arrays)
    kernel = _bind_step(plan, step, shapes, {}, profile, pool.threads, bodies, arrays)
    if kernel is None:
        raise InternalError(f"the shapes of step {step.name} cannot be told from its inputs")
    if isinstance(kernel, EvaluatedKernel):
        return kernel.evaluate(arrays)
    outputs = [result.empty() for result in kernel.results]
    StepProgram(
        kernel.tasks(arrays, outputs), [Scratch(kernel.local_bytes) for _ in range(pool.threads)]
    ).run(pool)
    written = iter(outputs)
    return [next(written) if name else np.zeros(0, np.float32) for name in step.outputs]


def with_numbers(step: Step, arrays: Mapping[str, Array]) -> Step:
    """The step with its computed parameters as attributes, where a run has computed them."""
    scales, zero_points = dict(step.attr.scales), dict(step.attr.zero_points)
    computed = at_run_time(step.op, step.args)
    if not computed:
        return step
    for role, value in computed.items():
        field, argument = AT_RUN_TIME[role]
        numbers = arrays[value].reshape(-1).tolist()
        if field == "scales":
            # the kernels know along which dimension more than one run
            scales[argument] = Scale(tuple(numbers), 1 if len(numbers) > 1 else 0)
        else:
            zero_points[argument] = ZeroPoint(tuple(numbers))
    args = tuple(arg for arg in step.args if arg[0] not in computed)
    return replace(step, args=args, attr=replace(step.attr, scales=scales, zero_points=zero_points))


def run_step(
    plan: Plan,
    step: Step,
    inputs: Mapping[str, Array],
    *,
    profile: NumericsProfile = VNNI_3_2,
    threads: int = 1,
) -> tuple[Array, ...]:
    """Runs one step alone: the unit of comparison between runtimes.

    Args:
        plan: the plan that the step belongs to: gives the types of its values, and its constants.
        step: the step.
        inputs: an array for each value of `step.inputs` that is no constant, of its element type.
        profile: the float order.
        threads: how many tasks run at once.

    Returns:
        The outputs of the step, C-contiguous, sharing no memory with the inputs; where one is
        absent, any array.

    Raises:
        InvalidInput: the arrays do not fit the step.
    """
    arrays = {
        name: np.asarray(inputs[name]) if name in inputs else plan.constants[name]
        for name in step.inputs
    }
    with single_threaded_blas(), np.errstate(all="ignore"):
        bodies = _numpy_bodies(replace(plan, steps=(step,)), threads, profile, run_budget())
        outputs = _run_once(plan, step, arrays, profile, WorkerPool(threads), run_budget(), bodies)
    return tuple(_own(array) for array in outputs)
