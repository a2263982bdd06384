"""A small thread pool for loops over tasks, and the rule that BLAS stays single-threaded inside it.

NumPy releases the GIL in its inner loops, so tasks of one step run side by side. The calling thread
works too: a loop with `threads` = 1 never leaves it.
"""

from __future__ import annotations

import itertools
import os
import queue
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np
from threadpoolctl import ThreadpoolController

from ..locks import ProcessLock

Body = Callable[[int, int], None]
"""(index of the task, slot of the worker: below `threads`, never shared by two workers at a time).
"""


class _Job:
    """One parallel loop. Every slot has its share of the indices, so that a task meets the same
    worker in every run; whoever has finished its own takes from the others'."""

    def __init__(self, count: int, slots: int, body: Body) -> None:
        # deque's methods are atomic under the GIL.
        self._shares = [
            deque(range(count * s // slots, count * (s + 1) // slots)) for s in range(slots)
        ]
        self._slots = itertools.count(1)
        self._body = body
        self._lock = threading.Lock()
        self._left = count
        self._finished = threading.Lock()  # held until the last task is done
        self._finished.acquire()
        self._error: BaseException | None = None

    def help(self) -> None:
        """Runs tasks on one of the free slots, if one is left."""
        slot = next(self._slots)
        if slot < len(self._shares):
            self.work(slot)

    def work(self, slot: int) -> None:
        """Runs tasks until none is left."""
        # infinities and NaN are values here; the error state is each thread's own
        with np.errstate(all="ignore"):
            own = self._shares[slot]
            done = 0
            while (index := self._next(own)) >= 0:
                try:
                    if self._error is None:
                        self._body(index, slot)
                except BaseException as error:  # noqa: BLE001 - handed to the thread that waits, which raises it
                    self._error = error
                done += 1
        if done == 0:  # too late: the lock may have been released
            return
        with self._lock:
            self._left -= done
            if self._left == 0:
                self._finished.release()

    def _next(self, own: deque[int]) -> int:
        try:
            return own.popleft()
        except IndexError:
            pass
        for share in self._shares:
            try:
                return share.pop()
            except IndexError:
                continue
        return -1

    def wait(self) -> None:
        """Returns when every task is done; raises what a task raised."""
        self._finished.acquire()
        if self._error is not None:
            raise self._error


class WorkerPool:
    """`threads` - 1 daemon threads, started at the first loop that needs them, stopped when the
    pool is garbage.

    Args:
        threads: how many tasks run at once, the caller's included.
    """

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self._queue: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._owner = 0
        self._start_lock = ProcessLock()

    def run(self, count: int, body: Body) -> None:
        """body(i, slot) for each i below `count`, in any order, on up to `threads` threads.

        Raises:
            BaseException: what a body raised; the tasks that were not begun are then skipped.
        """
        if count == 0:
            return
        slots = min(self.threads, count)
        if slots == 1:  # nobody to share with
            with np.errstate(all="ignore"):
                for index in range(count):
                    body(index, 0)
            return
        job = _Job(count, slots, body)
        self._start()
        for _ in range(slots - 1):
            self._queue.put(job)
        job.work(0)
        job.wait()

    def _start(self) -> None:
        if self._owner == os.getpid():
            return
        with self._start_lock:
            if self._owner == os.getpid():
                return
            # a forked child has the parent's queue, but none of its threads
            self._queue = queue.SimpleQueue()
            started = 0
            # where the system starts no more threads, the caller's does their work
            with suppress(RuntimeError):
                for number in range(self.threads - 1):
                    threading.Thread(
                        target=_serve, args=(self._queue,), name=f"fqfuse-{number}", daemon=True
                    ).start()
                    started += 1
            weakref.finalize(self, _stop, self._queue, started)
            self._owner = os.getpid()


def _serve(jobs: queue.SimpleQueue[_Job | None]) -> None:
    while (job := jobs.get()) is not None:
        job.help()
        del job  # a finished loop holds the buffers of its run


def _stop(jobs: queue.SimpleQueue[_Job | None], count: int) -> None:
    for _ in range(count):
        jobs.put(None)


class _BlasGuard:
    """Counts the runs under way: the first one limits BLAS to one thread, the last one gives the
    caller's setting back.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._controller: ThreadpoolController | None = None
        self._limit: Any = None
        self._runs = 0

    def reset(self) -> None:
        """In a forked child: the runs under way, and who held the lock, stayed in the parent."""
        self._lock = threading.Lock()
        self._runs = 0

    def enter(self) -> None:
        with self._lock:
            if self._runs == 0:
                if self._controller is None:
                    self._controller = ThreadpoolController()
                self._free_control(self._controller)
                self._limit = self._controller.limit(limits=1, user_api="blas")
            self._runs += 1

    def leave(self) -> None:
        with self._lock:
            self._runs -= 1
            if self._runs == 0 and self._controller is not None:
                self._free_control(self._controller)
                self._limit.restore_original_limits()
                self._limit = None
                self._free_control(self._controller)

    @staticmethod
    def _free_control(controller: ThreadpoolController) -> None:
        """Since threadpoolctl 3.8 the first thread that sets the limit of an OpenBLAS with threads
        of its own keeps the sole right to.

        The limit is the process's all the same, and runs begin and end on any thread.
        """
        for library in controller.lib_controllers:
            clear = getattr(library, "clear_controlling_thread", None)
            if clear is not None:
                clear(force=True)


_GUARD = _BlasGuard()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_GUARD.reset)


@contextmanager
def single_threaded_blas() -> Iterator[None]:
    """Inside, BLAS calls run on the calling thread alone: tasks are the parallelism, and idle BLAS
    threads spin.

    The setting is the process's own; runs that overlap share it, and the last one restores what was
    before.
    """
    _GUARD.enter()
    try:
        yield
    finally:
        _GUARD.leave()
