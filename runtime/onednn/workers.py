"""Threads that work for a session: in forked processes, and where the library must not spoil the caller's thread.

OpenMP's threads do not survive a fork: a thread that has used OpenMP in the parent waits for its lost team for ever when it does so again
in the child. A new thread has no team and makes one, so a child computes in a thread of its own.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

__all__ = ["generation", "in_child", "in_new_thread", "in_own_thread"]

T = TypeVar("T")


class _Process:
    """What this process knows of its ancestry."""

    def __init__(self) -> None:
        self.generation = 0
        self.worker: ThreadPoolExecutor | None = None

    def after_fork(self) -> None:
        self.generation += 1
        self.worker = ThreadPoolExecutor(1, thread_name_prefix="fqfuse")


_process = _Process()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_process.after_fork)


def generation() -> int:
    """How many forks lie between this process and the one that imported the module: objects of another generation are not ours."""
    return _process.generation


def in_child() -> bool:
    """True in a forked process."""
    return _process.worker is not None


def in_new_thread(work: Callable[[], T]) -> T:
    """Runs `work` in a thread that ends with it, and returns its result or raises its exception."""
    with ThreadPoolExecutor(1, thread_name_prefix="fqfuse") as once:
        return once.submit(work).result()


def in_own_thread(work: Callable[[], T]) -> T:
    """Runs `work` in the thread that computes for a forked process, and returns its result or raises its exception."""
    worker = _process.worker
    assert worker is not None
    return worker.submit(work).result()
