"""Calls of our functions in C whose work several threads share."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

from ..errors import BackendUnavailable
from .enums import CpuRuntime
from .library import Library
from .native import LEVELS, Function, functions
from .openmp import openmp_function

Work = ctypes.Structure
"""What a function reads and writes: addresses and sizes, words of 64 bits by name."""

_TOLD = ("next", "entered", "beyond")
"""What functions tell each other and their callers, 0 in front of each call: the part that is next, so
that threads that are given the same work share it; how many threads have taken a panel of their own;
and whether a result is an infinity or NaN, where there is another way to make it, whose sums are
larger than f32 only where the result is.
"""


@dataclass(frozen=True)
class Kernels:
    """The functions of a kernel, on the threads that oneDNN's own primitives use.

    Attributes:
        functions: by name.
        parallel: runs a function in several threads; None: in this one.
    """

    functions: Mapping[str, Function]
    parallel: Any

    @property
    def level(self) -> str:
        """The instruction sets that they take, for the placement."""
        return max((each.level for each in self.functions.values()), key=list(LEVELS).index)

    def work(self, function: str, **values: int) -> Work:
        """A work for a function, and for those whose works have the same members. What is not given
        is 0; a name that is none of the members is an error, here and later.
        """
        return _structure(self.functions[function].members)(**values)

    def call(
        self, function: str, work: Work, threads: int = 1, held: object = None
    ) -> Callable[[], None]:
        """A call without arguments. It holds the work and what it is told to; of the other arrays it
        knows the addresses alone.
        """
        address, told = self._checked(function, work)
        argument = ctypes.c_void_p(ctypes.addressof(work))
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

        def call(held: object = (work, held)) -> None:  # noqa: ARG001
            for name in told:
                setattr(work, name, 0)
            run()

        return call

    def share(self, function: str, work: Work, threads: int = 1) -> tuple[int, ...]:
        """The same call as `call_loop.shared` makes it in C: addresses of what runs it in several threads
        (0: nothing), of the function, the work, how many threads, and addresses of `_TOLD` (0:
        it has none). It holds nothing.
        """
        address, told = self._checked(function, work)
        several = threads > 1 and self.parallel is not None
        team = ctypes.cast(self.parallel, ctypes.c_void_p).value if several else 0
        place = ctypes.addressof(work)
        at = [place + getattr(type(work), name).offset if name in told else 0 for name in _TOLD]
        return team or 0, address, place, threads, *at

    def _checked(self, function: str, work: Work) -> tuple[int, list[str]]:
        """The address of a function that takes this work, and what of `_TOLD` that has."""
        address, members, _ = self.functions[function]
        if not isinstance(work, _structure(members)):
            raise TypeError(f"{function} takes another work")
        return address, [name for name in _TOLD if name in members]


def kernels(library: Library, kernel: str) -> Kernels | None:
    """The functions of a kernel; None where there are none: see `functions`."""
    found = functions(kernel, library.effective_isa())
    return Kernels(found, _team_of(library)) if found else None


@functools.cache
def _structure(members: tuple[str, ...]) -> type[Work]:
    # without slots, a name that is no member would be taken for an attribute, and go unnoticed
    body = {"__slots__": (), "_fields_": [(name, ctypes.c_int64) for name in members]}
    return cast("type[Work]", type("Work", (ctypes.Structure,), body))


def _team_of(library: Library) -> Any:
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
