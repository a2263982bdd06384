"""The calls of one step for fixed arrays: recorded once for each worker, run many times."""

from __future__ import annotations

from collections.abc import Sequence

from .kernels.base import Call, Recorder, Scratch, Tasks
from .pool import WorkerPool


class StepProgram:
    """A step's tasks as lists of ready NumPy calls.

    A task is taken down when a worker first meets it: the calls hold views of that worker's
    scratch.

    Args:
        tasks: the step's work.
        scratches: one for each worker; shared with the other steps of a plan, which run before or
            after.
    """

    def __init__(self, tasks: Tasks, scratches: Sequence[Scratch]) -> None:
        self._tasks = tasks
        self._scratches = scratches
        self._recorded: list[dict[int, list[Call]]] = [{} for _ in scratches]
        self._preparations: list[list[Call] | None] = [None] * len(scratches)
        self._marks = [0] * len(scratches)
        self._ready: list[bool] = []
        self._next = None if tasks.then is None else StepProgram(tasks.then, scratches)

    def run(self, pool: WorkerPool) -> None:
        """Runs every task. The arrays must be as they were when the program was made; one run at a
        time.
        """
        self._ready = [self._tasks.prepare is None] * len(self._scratches)
        pool.run(self._tasks.count, self._run_task)
        if self._next is not None:
            self._next.run(pool)

    def _run_task(self, index: int, slot: int) -> None:
        if not self._ready[slot]:
            for call in self._preparation(slot):
                call()
            self._ready[slot] = True
        calls = self._recorded[slot].get(index)
        if calls is None:
            self._preparation(slot)
            recorder = Recorder(self._scratches[slot])
            recorder.scratch.release(self._marks[slot])
            self._tasks.record(index, recorder)
            calls = self._recorded[slot][index] = recorder.calls
        for call in calls:
            call()

    def _preparation(self, slot: int) -> list[Call]:
        """What the worker does before its first task; its scratch stays below the tasks'."""
        calls = self._preparations[slot]
        if calls is None:
            recorder = Recorder(self._scratches[slot])
            recorder.scratch.release(0)
            if self._tasks.prepare is not None:
                self._tasks.prepare(recorder)
            self._marks[slot] = recorder.scratch.mark()
            calls = self._preparations[slot] = recorder.calls
        return calls
