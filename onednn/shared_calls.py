"""Calls of functions of machine code whose work several threads share."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from ..errors import BackendUnavailable
from .enums import CpuRuntime
from .library import Library
from .openmp import openmp_function

__all__ = ["SharedCalls", "SharedWork", "team_of"]


class SharedWork(ctypes.Structure):
    """What the threads take parts of.

    Attributes:
        counters: the fields that functions count up by themselves, 0 in front of each call: the
            part that is next, and the threads that have taken a panel of their own.
    """

    counters: ClassVar[tuple[str, ...]] = ("next",)


@dataclass(frozen=True)
class SharedCalls:
    """Calls on the threads that oneDNN's own primitives use.

    Attributes:
        parallel: runs a function in several threads; None: in this one.
    """

    parallel: Any

    def plain(
        self, address: int, argument: ctypes.Structure, held: object = None
    ) -> Callable[[], None]:
        """A call without arguments, of a function that shares nothing. It holds what `call`
        holds.
        """
        function: Any = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(address)
        pointer = ctypes.c_void_p(ctypes.addressof(argument))

        def call(held: object = (argument, held)) -> None:  # noqa: ARG001
            function(pointer)

        return call

    def call(
        self, address: int, work: SharedWork, threads: int, held: object = None
    ) -> Callable[[], None]:
        """A call without arguments. It holds the work and what it is told to; of the other arrays it
        knows the addresses alone.
        """
        argument = ctypes.c_void_p(ctypes.addressof(work))
        counters = work.counters
        alone: Any = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(address)
        if threads > 1 and self.parallel is not None:
            run = functools.partial(
                self.parallel,
                ctypes.c_void_p(address),
                argument,
                ctypes.c_uint(threads),
                ctypes.c_uint(0),
            )
        else:
            run = functools.partial(alone, argument)

        def call(held: object = held) -> None:  # noqa: ARG001
            for counter in counters:
                setattr(work, counter, 0)
            run()

        return call


def team_of(library: Library) -> Any:
    """GNU OpenMP's way to run a function in several threads; None where the library has another
    runtime.
    """
    if library.version.cpu_runtime != CpuRuntime.openmp:
        return None
    kinds = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint]
    try:
        return openmp_function(library.c, "GOMP_parallel", kinds, None)
    except BackendUnavailable:  # another OpenMP than GNU's: one thread
        return None
