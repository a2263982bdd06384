"""The oneDNN runtime: a plan on the real library, bound once for each set of input shapes.

What a session holds of the library belongs to the process that made it: after a fork it is dropped,
and made again when it is needed.
"""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from ...errors import InternalError, InvalidInput
from ...ir.ops.recurrent import DYNAMIC
from ...ir.ops.spec import Array
from ...onednn import workers
from ...onednn.enums import CpuRuntime
from ...onednn.library import Engine, Stream
from ...onednn.loading import load
from ...plan.conversion.convert import convert_steps
from ...plan.shapes import StaticShape
from ...plan.types import Plan, Step
from ..bodies import body_runners
from ..budget import RunBudget
from ..executor import StepTimes
from ..footprint import SessionMemory, bytes_within, nothing_bound, steps_memory
from ..kept import KEPT_BYTES, KEPT_BYTES_OF_BODY, KeptPrograms, Shapes
from ..padding import bytes_by_position
from ..placement import Placement
from ..processors import default_threads, run_budget
from .binary import binary
from .binding import RESHAPES, Binder, Lowering, scratchpad_of
from .compute import convolution, deconvolution
from .constants import Constants
from .matmul import matmul
from .moves import blocks_of_pixels, expand, gather, reshape, shuffle, slice_, tile, transpose
from .normalization import (
    batch_normalization,
    layer_normalization,
    lrn,
    prelu,
    reduction,
    resampling,
    softmax,
)
from .pace import Pace, alike_with_any_threads, gives_the_same
from .pointwise import concat, eltwise, pooling
from .program import Program
from .recurrent import rnn
from .recurrent_dynamic import dynamic_lstm
from .reorder import quantizing_reorder
from .runs import Run
from .scales import MovedToNumPy
from .values import NotLowered

_BYTES_OF_AN_ACTION = 64 << 10
"""Of an action of a program, beside what it computes on: generated code, descriptors, arguments. Measured: 54 KB
for each of MobileNetV2's.
"""
_IDLE_RUNS = 4  # memories kept for the next runs of one program

_ALONE = 1 << 20
_BODY_ALONE = 1 << 22
"""The work of a run, in multiplications, up to which one thread is as fast as several, which have
to meet behind each primitive: on a busy machine they wait there a hundred times as long as they
compute. A body of a loop meets in each of its trips, so it gains later.
"""
_PER_ELEMENT = 16  # multiplications in the time that an element-wise step takes for an element


def _layer(binder: Binder, step: Step) -> None:
    if not binder.dims(step.output)[0]:
        raise NotLowered("it has no steps")
    (dynamic_lstm if step.op == DYNAMIC else rnn)(binder, step)


LOWERINGS: Mapping[str, Lowering] = {
    "convolution": convolution,
    "deconvolution": deconvolution,
    "matmul": matmul,
    "pooling": pooling,
    "binary": binary,
    "eltwise": eltwise,
    "reorder": quantizing_reorder,
    "concat": concat,
    "softmax": softmax,
    "layer_normalization": layer_normalization,
    "batch_normalization": batch_normalization,
    "lrn": lrn,
    "prelu": prelu,
    "reduction": reduction,
    "rnn": _layer,
    "resampling": resampling,
    "shuffle": shuffle,
    **dict.fromkeys(RESHAPES, reshape),
    "onnx.DepthToSpace": blocks_of_pixels,
    "onnx.SpaceToDepth": blocks_of_pixels,
    "onnx.Transpose": transpose,
    "onnx.Expand": expand,
    "onnx.Gather": gather,
    "onnx.Slice": slice_,
    "onnx.Tile": tile,
}
"""Which lowering serves which primitive of a plan; what is missing here runs on NumPy."""

T = TypeVar("T")


class _Bound:
    """A program, with how many threads it runs, and the memories of finished runs, for the next ones.

    Attributes:
        pace: chooses between it and `alone`; None where there is no choice.
        alone: the same for one thread, once it is needed.
    """

    def __init__(self, program: Program, threads: int, pace: Pace | None = None) -> None:
        self.program, self.threads = program, threads
        self.idle: list[Run] = []
        self.pace = pace
        self.alone: _Bound | None = None


class _State:
    """What one process holds of the library for one plan."""

    def __init__(self, plan: Plan, engine: Engine, kept_bytes: int) -> None:
        self.generation = workers.generation()
        self.engine = engine
        self.constants = Constants(plan, engine, Stream(engine))
        self.programs = KeptPrograms[_Bound](kept_bytes)
        # what was asked for last, which needs no lock
        self.recent: tuple[Shapes, _Bound | None] = (), None


class OneDnnExecutor:
    """Runs a plan on oneDNN; steps that it has no good implementation for run on NumPy in between,
    see `placement`.

    Args:
        plan: the plan. One for `onednn-v2` is converted mechanically for the library, which takes
            the attributes of `onednn-v3`; its steps that run on NumPy do so as they are.
        threads: how many OpenMP threads a run uses (None: `default_threads`).
        exact: on a CPU without VNNI, compute products whose pairs may saturate in f32. A CPU with VNNI
            never runs a saturating implementation.
        library: the path of a libdnnl; None: the installed one.
        budget: how much memory a run may take (None: the machine's).
        kept_bytes: what the programs for all shapes of the inputs may take, see `KeptPrograms`.
        is_body: the plan runs in trips: small ones keep to one thread.

    Raises:
        BackendUnavailable: there is no usable library; the message says how to install it.
    """

    def __init__(
        self,
        plan: Plan,
        threads: int | None = None,
        *,
        exact: bool = True,
        library: str | None = None,
        budget: RunBudget | None = None,
        kept_bytes: int = KEPT_BYTES,
        is_body: bool = False,
    ) -> None:
        self._plan = plan
        self._kept_bytes, self._is_body = kept_bytes, is_body
        self._lowered, kept = convert_steps(plan) if plan.target == "onednn-v2" else (plan, {})
        self._kept = {index: refusal.reason for index, refusal in kept.items()}
        self._budget = budget or run_budget()
        self._threads = threads or default_threads()
        self._library = load(library)
        self._exact = exact or self._library.effective_isa().has_vnni
        make = functools.partial(
            OneDnnExecutor,
            threads=self._threads,
            exact=self._exact,
            library=library,
            budget=self._budget,
            kept_bytes=KEPT_BYTES_OF_BODY,
            is_body=True,
        )
        self._bodies = body_runners(plan, make, self._budget)
        self._state = self._new_state()

    def _new_state(self) -> _State:
        with workers.making():
            return _State(self._lowered, Engine(self._library), self._kept_bytes)

    @property
    def description(self) -> str:
        """The library and what it may do here, in words."""
        text = f"oneDNN {self._library.version} at {self._library.path}"
        if self._library.effective_isa().has_vnni:
            return text
        kept = (
            "products of codes that may saturate are computed in f32"
            if self._exact
            else "int8 products may saturate"
        )
        return f"{text}, on a CPU without VNNI: {kept}"

    def bind(self, shapes: Mapping[str, Sequence[int]]) -> None:
        """Prepares for these shapes of the inputs: makes primitives, packs weights, and lays out
        the memory of a run.

        Raises:
            InvalidInput: the shapes do not fit the model.
        """
        self._with_run({name: tuple(shapes[name]) for name in self._plan.inputs}, lambda _: None)

    def run(
        self, feeds: Mapping[str, Array], behind: Callable[[int], None] | None = None
    ) -> list[Array]:
        """The outputs of the plan for checked feeds, as new C-contiguous arrays."""
        return self._with_run(_shapes(feeds), lambda run: run.execute(feeds, behind))

    def run_all(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """Every value that a step writes, in execution order, as new C-contiguous arrays."""
        return self._with_run(_shapes(feeds), lambda run: run.execute_all(feeds))

    def run_timed(self, feeds: Mapping[str, Array]) -> StepTimes:
        """Runs as `run` does, looks at the clock behind each primitive, and forgets the outputs."""
        return self._with_run(_shapes(feeds), lambda run: run.execute_timed(feeds))

    def placement(self) -> tuple[Placement, ...]:
        """Where each step runs, for the shapes that were bound last.

        Raises:
            InvalidInput: nothing is bound yet.
        """
        return self._latest().placements

    def memory(self) -> SessionMemory:
        """What the library holds of constants, and a run takes, for the shapes that were bound last.

        Raises:
            InvalidInput: nothing is bound yet.
        """
        program, constants = self._latest(), self._state.constants
        steps, scratch = self._lowered.steps, [0] * (len(self._lowered.steps) + 1)
        for action, index in zip(program.actions, program.steps, strict=True):
            scratch[index] = max(scratch[index], scratchpad_of(action))
        views = [where.runtime == "view" for where in program.placements]
        written = [
            0 if view else sum(self._bytes(program, name) for name in step.outputs)
            for view, step in zip(views, steps, strict=True)
        ]
        held = {name: constants.held(name) for name in self._lowered.constants}
        rows = steps_memory(steps, held, written, scratch[:-1])
        total = constants.total + sum(map(bytes_within, steps))
        values = program.arena_bytes + program.result_bytes
        return SessionMemory(total, values, program.scratchpad_bytes, rows)

    def _bytes(self, program: Program, value: str) -> int:
        tensor = program.tensors.get(value)
        return 0 if tensor is None else tensor.desc.size

    @property
    def reorders(self) -> int:
        """How many primitives of the program that was bound last only change a layout."""
        return self._latest().reorders

    def _latest(self) -> Program:
        bound = self._state.recent[1]
        if bound is None:
            raise nothing_bound()
        return bound.program

    # -- runs --------------------------------------------------------------------------------------

    def _with_run(self, shapes: Mapping[str, StaticShape], work: Callable[[Run], T]) -> T:
        """Calls `work` with the memory of a run, which nobody else uses meanwhile, and with our
        number of OpenMP threads; again where a step has to run on NumPy.
        """
        while True:
            try:
                if workers.in_child():
                    self._library.check_process()
                    return workers.in_own_thread(lambda: self._with_run_here(shapes, work))
                return self._with_run_here(shapes, work)
            except MovedToNumPy as moved:
                self._kept[moved.step] = moved.reason
                self._state = self._new_state()

    def _with_run_here(self, shapes: Mapping[str, StaticShape], work: Callable[[Run], T]) -> T:
        bound, library = self._bound(shapes), self._library
        # OpenMP's number belongs to the calling thread, who may want his own back
        before = library.max_threads()
        if before == bound.threads:
            return self._in_memory(bound, work)
        library.set_threads(bound.threads)
        try:
            return self._in_memory(bound, work)
        finally:
            library.set_threads(before)

    def _in_memory(self, bound: _Bound, work: Callable[[Run], T]) -> T:
        """Calls `work` with the memory of a run of the program."""
        try:
            run = bound.idle.pop()  # atomic, as append is: no lock
        except IndexError:
            run = Run(self._plan, bound.program, self._state.engine)
        try:
            return _paced(bound, run, work)
        finally:
            if len(bound.idle) < _IDLE_RUNS:
                bound.idle.append(run)

    def _bound(self, shapes: Mapping[str, StaticShape]) -> _Bound:
        state = self._state
        if state.generation != workers.generation():
            state = self._state = self._new_state()
        key = tuple([shapes[name] for name in self._plan.inputs])
        recent, bound = state.recent
        if recent == key and bound is not None:
            pace = bound.pace  # which another caller may drop meanwhile
            if pace is None or not pace.alone:
                return bound
        bound = state.programs.get(key, lambda: self._first(shapes, state))
        state.recent = key, bound
        pace = bound.pace
        if pace is None or not pace.alone:
            return bound
        with state.programs.binding:
            return self._alone(bound, shapes, state)

    def _first(self, shapes: Mapping[str, StaticShape], state: _State) -> tuple[_Bound, int]:
        """The program for all the threads that it gains by, and the bytes that it takes."""
        started = time.perf_counter()
        program, threads = self._made(shapes, state)
        price = time.perf_counter() - started
        actions = len(program.actions)
        needed = _memory_of(program) + actions * _BYTES_OF_AN_ACTION
        waits = threads > 1 and self._library.version.cpu_runtime == CpuRuntime.openmp
        if self._is_body or not (waits and alike_with_any_threads(self._lowered, program)):
            return _Bound(program, threads), needed
        return _Bound(program, threads, Pace(price, actions)), 2 * needed  # with one for one thread

    def _alone(self, bound: _Bound, shapes: Mapping[str, StaticShape], state: _State) -> _Bound:
        """The program for one thread; the given one, from now on, where that has other bytes or takes
        more memory than a run may.
        """
        if bound.alone is None:
            try:
                program, _ = self._made(shapes, state, threads=1)
            except InvalidInput:
                bound.pace = None
                return bound
            if not gives_the_same(self._lowered, bound.program, program):
                bound.pace = None
                return bound
            bound.alone = _Bound(program, 1, bound.pace)
        return bound.alone

    def _made(
        self, shapes: Mapping[str, StaticShape], state: _State, threads: int | None = None
    ) -> tuple[Program, int]:
        """A program, and for how many threads: those given, or as `_threads_for` has it."""
        known, settled = self._budget.bind(self._lowered, shapes)
        threads = threads or self._threads_for(known)
        with workers.making():
            return self._bind(known, settled, state, threads), threads

    def _threads_for(self, shapes: Mapping[str, StaticShape]) -> int:
        """How many threads a program uses: one where the system starts no others."""
        alone = _BODY_ALONE if self._is_body else _ALONE
        wanted = 1 if _work(self._lowered, shapes) <= alone else self._threads
        # one more: it is bound in a thread of its own
        return wanted if wanted == 1 or workers.may_start(wanted) else 1

    def _bind(
        self,
        known: Mapping[str, StaticShape],
        settled: Mapping[str, Array],
        state: _State,
        threads: int,
    ) -> Program:
        """The program, bound in a thread of its own: see `MovedToNumPy`. A step whose code cannot be
        generated runs on NumPy.
        """
        refused = dict(self._kept)

        def bind() -> Program:
            constants, exact = state.constants, self._exact
            plans = self._plan, self._lowered
            binder = Binder(
                *plans,
                known,
                settled,
                state.engine,
                constants,
                threads,
                self._budget,
                self._bodies,
                exact=exact,
                refused=refused,
            )
            self._budget.check_run(self._plan, known, bytes_by_position(self._plan, known))
            program = binder.bind(LOWERINGS)
            self._budget.check_run(self._plan, known, _memory_of(program) + binder.made_bytes)
            return program

        def work() -> Program:
            # the number is the thread's, which may be the caller's
            before = self._library.max_threads()
            self._library.set_threads(threads)
            try:
                return bind()
            finally:
                self._library.set_threads(before)

        while True:
            try:
                return workers.in_new_thread(work)
            except MovedToNumPy as failure:
                if failure.step in refused:
                    raise InternalError(
                        f"step {failure.step} fails on NumPy: {failure.reason}"
                    ) from failure
                refused[failure.step] = failure.reason


def _memory_of(program: Program) -> int:
    """Bytes of values and scratchpads of one run."""
    return program.arena_bytes + program.result_bytes + program.scratchpad_bytes


def _paced(bound: _Bound, run: Run, work: Callable[[Run], T]) -> T:
    """Calls `work` with the memory of a run of the program, and tells its pace how long that took."""
    pace = bound.pace  # which another caller may drop meanwhile
    if pace is None:
        return work(run)
    started, busy = time.perf_counter(), time.thread_time()
    result = work(run)
    busy = time.thread_time() - busy
    now = time.perf_counter()
    seconds = now - started
    pace.took(alone=bound.threads == 1, seconds=seconds, waited=seconds - busy, now=now)
    return result


def _shapes(feeds: Mapping[str, Array]) -> dict[str, StaticShape]:
    return {name: array.shape for name, array in feeds.items()}


def _work(plan: Plan, shapes: Mapping[str, StaticShape]) -> float:
    """Of a run, in multiplications; infinite with a layer over steps, or where a size is unknown."""
    found = 0
    for step in plan.steps:
        if step.primitive == "rnn" or any(name not in shapes for name in step.outputs):
            return math.inf
        weights = step.arg("weights")
        if step.primitive not in ("matmul", "convolution", "deconvolution") or weights is None:
            found += sum(math.prod(shapes[name]) for name in step.outputs) * _PER_ELEMENT
            continue
        if weights not in shapes:
            return math.inf
        shape = shapes[weights]
        depth = shape[-2] if step.primitive == "matmul" else math.prod(shape[1:])
        found += math.prod(shapes[step.output]) * depth
    return found
