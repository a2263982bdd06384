"""GNU OpenMP, on which the wheel's oneDNN is built: its functions, and how long its threads wait
awake.

A thread that waits for the others at the end of a primitive spins before it sleeps, 300,000 turns
unless it is told otherwise: 17 ms on a Skylake-SP core, longer than most networks take. That is
free while each thread has a processor of its own. Where another program takes one
of them, or the system puts two of our threads on one, the thread that spins keeps the one that
works from working: with one busy program on one of two processors ResNet-50 took 220 ms instead of
11, and takes 29 with the number below. Fewer turns than some 5,000 cost time on
an idle machine: sleeping threads must be woken for the next primitive.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ..errors import BackendUnavailable

# 0.6 ms on a Skylake-SP core, some 0.15 ms on Zen: longer than what NumPy does between two
# primitives
SPINS = 10_000
_USERS_CHOICE = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")


@contextmanager
def short_waits() -> Iterator[None]:
    """GNU OpenMP reads its settings when it is loaded: what is loaded in here spins `SPINS` turns,
    unless the user's environment says.

    The environment is then what it was. An OpenMP that the process had loaded before keeps its
    setting.
    """
    if any(name in os.environ for name in _USERS_CHOICE):
        yield
        return
    os.environ["GOMP_SPINCOUNT"] = str(SPINS)
    try:
        yield
    finally:
        del os.environ["GOMP_SPINCOUNT"]


def openmp_function(cdll: ctypes.CDLL, name: str, arguments: list[Any], result: Any) -> Any:
    """An OpenMP function of the very runtime that libdnnl's own calls are bound to.

    The dynamic linker binds libdnnl to the process's global scope first and to libdnnl's own
    dependencies after it; the same two steps are taken here. Opening "libgomp.so.1" by name could
    hit a second copy, whose setting libdnnl ignores.

    Raises:
        BackendUnavailable: no library in the process exports it.
    """
    for scope in (ctypes.CDLL(None), cdll):
        try:
            function = getattr(scope, name)
        except AttributeError:
            continue
        function.argtypes = arguments
        function.restype = result
        return function
    raise BackendUnavailable(
        f"oneDNN is built on OpenMP, but no library in the process exports {name}",
        hint="install GNU OpenMP: `apt-get install libgomp1`",
    )
