"""Threads that work for a session: in forked processes, and where the library must not spoil the
caller's thread.

OpenMP's threads do not survive a fork: a thread that has used OpenMP in the parent waits for its
lost team for ever when it does so again in the child. A new thread has no team and makes one, so a
child computes in a thread of its own. Nor may the library's own locks be held
while the process forks: `making` keeps forks and the making of primitives apart.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from ..errors import BackendUnavailable

T = TypeVar("T")


class _Process:
    """What this process knows of its ancestry."""

    def __init__(self) -> None:
        self.generation = 0
        self.worker: ThreadPoolExecutor | None = None
        self.making = threading.RLock()

    def before_fork(self) -> None:
        self.making.acquire()

    def after_in_parent(self) -> None:
        self.making.release()

    def after_in_child(self) -> None:
        self.making = threading.RLock()
        self.generation += 1
        self.worker = ThreadPoolExecutor(1, thread_name_prefix="fqfuse")


_process = _Process()
_here = threading.local()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_process.before_fork,
        after_in_parent=_process.after_in_parent,
        after_in_child=_process.after_in_child,
    )


def generation() -> int:
    """How many forks lie between this process and the one that imported the module: objects of
    another generation are not ours.
    """
    return _process.generation


def in_child() -> bool:
    """True in a forked process."""
    return _process.worker is not None


def making() -> threading.RLock:
    """Held while the library makes primitives: it locks its cache of them, and a fork in between
    would leave the child a lock for ever.
    """
    return _process.making


def in_new_thread(work: Callable[[], T]) -> T:
    """Runs `work` in a thread that ends with it, and returns its result or raises its exception; in
    the caller's thread where the system starts no more threads.
    """
    with ThreadPoolExecutor(1, thread_name_prefix="fqfuse") as once:
        try:
            found = once.submit(work)
        except RuntimeError:
            return work()
        return found.result()


def may_start(count: int) -> bool:
    """True when the system starts so many threads at once: OpenMP ends the process where it does not."""
    gate, started = threading.Event(), list[threading.Thread]()
    try:
        for _ in range(count):
            thread = threading.Thread(target=gate.wait, daemon=True)
            thread.start()
            started.append(thread)
    except RuntimeError:
        return False
    finally:
        gate.set()
        for thread in started:
            thread.join()
    return True


def in_own_thread(work: Callable[[], T]) -> T:
    """Runs `work` in the thread that computes for a forked process, and returns its result or
    raises its exception.

    Raises:
        BackendUnavailable: the system starts no more threads.
    """
    worker = _process.worker
    assert worker is not None
    if getattr(_here, "is_worker", False):  # a plan in the body of a loop of another one
        return work()
    try:
        found = worker.submit(_as_worker, work)
    except RuntimeError as error:
        raise BackendUnavailable(
            f"a forked process computes in a thread of its own, and the system starts none: {error}",
            hint='raise the limit of processes (ulimit -u), or run with backend="numpy"',
        ) from error
    return found.result()


def _as_worker(work: Callable[[], T]) -> T:
    _here.is_worker = True
    return work()
