"""A loaded libdnnl, and the C objects that it makes: every one belongs to one Python object, which
frees it.

A handle is freed when its Python object is collected, in a reference cycle or not. At interpreter
exit nothing is freed: the process ends anyway, and a daemon thread may still be running a
primitive. Objects keep what they depend on alive.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from operator import attrgetter
from typing import Any

from ..errors import BackendUnavailable, InvalidInput
from .capi import Version, failure
from .enums import CpuIsa, CpuRuntime
from .openmp import openmp_function
from .workers import generation

CPU = 1  # dnnl_cpu
_IN_ORDER = 1  # dnnl_stream_in_order


class Library:
    """A loaded libdnnl.

    Attributes:
        c: the declared C functions (`library.c.dnnl_memory_create`, ...).
        path: the file that the dynamic linker mapped.
        source: `user`, `wheel` or `system`.
        version: the `Version`.
        descs: memory descriptors that were made, see `MemoryDesc`.
    """

    __slots__ = ("_generation", "_omp_get", "_omp_set", "c", "descs", "path", "source", "version")

    def __init__(self, cdll: ctypes.CDLL, path: str, source: str, version: Version) -> None:
        self.c = cdll
        self.path = path
        self.source = source
        self.version = version
        self.descs: dict[object, Any] = {}
        self._generation = generation()
        self._omp_set = self._omp_get = None
        if version.cpu_runtime == CpuRuntime.openmp:
            self._omp_set = openmp_function(cdll, "omp_set_num_threads", [ctypes.c_int], None)
            self._omp_get = openmp_function(cdll, "omp_get_max_threads", [], ctypes.c_int)

    def set_threads(self, count: int) -> None:
        """Let the primitives that the *calling* thread creates and executes use `count` OpenMP
        threads.

        OpenMP keeps this number per thread: call it in every thread that runs a session. A
        primitive is laid out for the number in force when its descriptor is made; use the same
        number to create and to execute.

        A sequential library uses one thread, whatever the number; one on SYCL those of its device.

        Raises:
            InvalidInput: `count` is below 1.
        """
        if count < 1:
            raise InvalidInput(
                f"the number of threads must be at least 1, not {count}", hint="give 1 or more"
            )
        if self._omp_set is not None:
            self._omp_set(count)

    def max_threads(self) -> int:
        """OpenMP threads that the calling thread's next primitive may use; 1 where the library is
        not built on OpenMP, although one on SYCL may use more.
        """
        return int(self._omp_get()) if self._omp_get is not None else 1

    def check_process(self) -> None:
        """Refuses a library on SYCL in a process that was forked since it was loaded: its threads stayed
        in the parent, and a primitive would wait for them for ever.

        Raises:
            BackendUnavailable: it is one.
        """
        if self.version.cpu_runtime == CpuRuntime.sycl and self._generation != generation():
            raise BackendUnavailable(
                "oneDNN on SYCL cannot compute in a forked process",
                where=self.path,
                hint='start processes by multiprocessing.get_context("spawn"), or use a build on OpenMP',
            )

    def effective_isa(self) -> CpuIsa:
        """The instruction sets that oneDNN generates code for: the CPU's, limited by
        ONEDNN_MAXCPU_ISA.
        """
        return CpuIsa(int(self.c.dnnl_get_effective_cpu_isa()))


def create(function: Any, what: Callable[[], str], *arguments: Any, origin: str = "") -> int:
    """Call a C function whose first parameter is an out-pointer to a handle, and return the handle.

    Args:
        function: the function.
        what: gives the call in words, for the error.
        arguments: behind the out-pointer.
        origin: what in the user's model the call serves.

    Raises:
        OneDnnError: the call failed.
    """
    out = ctypes.c_void_p()
    status = function(ctypes.byref(out), *arguments)
    if status:
        raise failure(status, what(), origin)
    return out.value or 0


class Handle:
    """Owner of one C object. ctypes passes its address on where a C function takes a handle.

    Args:
        library: the library that made the object.
        kind: its name in the C API, `memory_desc` for objects that `dnnl_memory_desc_destroy`
            frees.
        pointer: its address.
    """

    __slots__ = ("_destroy", "library", "pointer")

    _as_parameter_ = property(attrgetter("pointer"))

    def __init__(self, library: Library, kind: str, pointer: int) -> None:
        self.library = library
        self.pointer = pointer
        self._destroy: Any = getattr(library.c, f"dnnl_{kind}_destroy")

    def __del__(self, ending: Callable[[], bool] = sys.is_finalizing) -> None:
        # there is none where the library refused to make the object
        destroy = getattr(self, "_destroy", None)
        if destroy is not None and not ending():
            destroy(self.pointer)

    def abandon(self) -> None:
        """Leave the C object to the library for good: something in there still points to it."""
        self._destroy = None


class Engine(Handle):
    """The CPU engine.

    Raises:
        OneDnnError: it cannot be created.
    """

    __slots__ = ()

    def __init__(self, library: Library) -> None:
        super().__init__(
            library,
            "engine",
            create(library.c.dnnl_engine_create, lambda: "creating the CPU engine", CPU, 0),
        )


class Stream(Handle):
    """An in-order stream of an engine. Execution ends before `execute` returns; on SYCL that is a wait
    for the stream.

    Raises:
        OneDnnError: it cannot be created.
    """

    __slots__ = ("engine",)

    def __init__(self, engine: Engine) -> None:
        library = engine.library
        super().__init__(
            library,
            "stream",
            create(library.c.dnnl_stream_create, lambda: "creating a stream", engine, _IN_ORDER),
        )
        self.engine = engine
