"""Locks that a forked child finds free."""

from __future__ import annotations

import os
import threading
import weakref


class ProcessLock:
    """A lock that is free in a forked child, whoever held it in the parent: that thread does not
    exist there.

    What it guards has to be whole whenever the interpreter changes threads.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        _LOCKS.add(self)

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def renew(self) -> None:
        """In a forked child, before it does anything."""
        self._lock = threading.Lock()


_LOCKS: weakref.WeakSet[ProcessLock] = weakref.WeakSet()


def _renew_locks() -> None:
    for lock in list(_LOCKS):
        lock.renew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_locks)
