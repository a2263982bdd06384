"""The oneDNN runtime: a plan on the real library, bound once for each set of input shapes.

A session's programs, packed weights and memories belong to the process that made them: after a fork they are dropped, and made again when they
are needed. OpenMP's threads do not survive a fork either, and GNU's runtime would wait for them for ever, so a forked process computes in a
thread of its own.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

from ...composer.plan import Plan
from ...errors import InvalidInput
from ...ir.ops.spec import Array
from ..numpy_runtime import default_threads
from ..shapes import StaticShape, bind_shapes
from .binding import Binder
from .constants import Constants
from .handles import Engine, Stream
from .library import load
from .lowering import LOWERINGS
from .program import Action, Placement, Program
from .runs import Run

__all__ = ["OneDnnExecutor"]

_PROGRAMS = 8  # shapes of the inputs that stay bound
_IDLE_RUNS = 4  # memories kept for the next runs of one program

T = TypeVar("T")


class _State:
    """What one process holds of the library for one plan."""

    def __init__(self, plan: Plan, engine: Engine) -> None:
        self.engine = engine
        self.constants = Constants(plan, engine, Stream(engine))
        self.programs: OrderedDict[tuple[StaticShape, ...], Program] = OrderedDict()
        self.latest: Program | None = None
        self.lock = threading.Lock()


class OneDnnExecutor:
    """Runs a plan on oneDNN; steps that it has no good implementation for run on NumPy in between, see `placement`.

    Args:
        plan: the plan, for target `onednn-v3` or `onednn-v2`.
        threads: how many OpenMP threads a run uses (None: one a processor).
        exact: give a step to NumPy where the CPU's instructions may saturate on its weights, as those without VNNI do.
        library: the path of a libdnnl; None: the installed one.

    Raises:
        BackendUnavailable: there is no usable library; the message says how to install it.
    """

    def __init__(self, plan: Plan, threads: int | None = None, *, exact: bool = True, library: str | None = None) -> None:
        self._plan = plan
        self._threads = threads or default_threads()
        self._exact = exact
        self._library = load(library)
        self._process = os.getpid()
        self._start()

    def _start(self) -> None:
        self._state = _State(self._plan, Engine(self._library))

    def bind(self, shapes: Mapping[str, Sequence[int]]) -> None:
        """Prepares for these shapes of the inputs: makes primitives, packs weights, and lays out the memory of a run.

        Raises:
            InvalidInput: the shapes do not fit the model.
        """
        with self._threaded():
            program = self._program({name: tuple(shapes[name]) for name in self._plan.inputs})
            with self._leased(program):
                pass

    def run(self, feeds: Mapping[str, Array]) -> list[Array]:
        """The outputs of the plan for checked feeds, as new C-contiguous arrays."""
        with self._threaded(), self._leased(self._program(_shapes(feeds))) as run:
            return run.execute(feeds)

    def run_all(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """Every value that a step writes, in execution order, as new C-contiguous arrays."""
        with self._threaded(), self._leased(self._program(_shapes(feeds))) as run:
            return run.execute_all(feeds)

    def profile(self, feeds: Mapping[str, Array], rounds: int = 10) -> list[tuple[Action, float]]:
        """Each action of a run (primitives, reorders between them, NumPy steps) with the median of its times in seconds."""
        with self._threaded(), self._leased(self._program(_shapes(feeds))) as run:
            return run.timings(feeds, rounds)

    def placement(self) -> tuple[Placement, ...]:
        """Where each step runs, for the shapes that were bound last.

        Raises:
            InvalidInput: nothing is bound yet.
        """
        if self._state.latest is None:
            raise InvalidInput("nothing is bound yet", hint="run the session once: where a step runs may depend on the shapes")
        return self._state.latest.placements

    # -- programs --------------------------------------------------------------------------------------------------------------

    @contextmanager
    def _threaded(self) -> Iterator[None]:
        """OpenMP's number of threads belongs to the calling thread: ours for the time of a call."""
        before = self._library.max_threads()
        self._library.set_threads(self._threads)
        try:
            yield
        finally:
            self._library.set_threads(before)

    @contextmanager
    def _leased(self, program: Program) -> Iterator[Run]:
        """The memory of a run, which nobody else uses meanwhile."""
        with program.lock:
            run = program.idle.pop() if program.idle else None
        if run is None:
            run = Run(self._plan, program, self._state.engine)
        try:
            yield run
        finally:
            with program.lock:
                if len(program.idle) < _IDLE_RUNS:
                    program.idle.append(run)

    def _program(self, shapes: Mapping[str, StaticShape]) -> Program:
        state = self._state
        key = tuple(shapes[name] for name in self._plan.inputs)
        with state.lock:
            program = state.programs.get(key)
            if program is None:
                known = bind_shapes(self._plan, shapes)
                binder = Binder(self._plan, known, state.engine, state.constants, self._threads, exact=self._exact)
                program = state.programs[key] = binder.bind(LOWERINGS)
                if len(state.programs) > _PROGRAMS:
                    state.programs.popitem(last=False)
            state.programs.move_to_end(key)
            state.latest = program
            return program


def _shapes(feeds: Mapping[str, Array]) -> dict[str, StaticShape]:
    return {name: array.shape for name, array in feeds.items()}
