"""Owned handles: every C object belongs to exactly one Python object, which frees it.

A handle is freed by `close()`, by leaving its `with` block, or when its Python object is collected (`weakref.finalize`,
so reference cycles do not keep it). At interpreter exit nothing is freed: the process ends anyway, and a daemon thread may
still be running a primitive. Objects keep what they depend on alive.
"""

from __future__ import annotations

import ctypes
import weakref
from types import TracebackType
from typing import Any, Self

from ..errors import InternalError
from .capi import check
from .enums import EngineKind, StreamFlags
from .library import Library

__all__ = ["Engine", "Handle", "Stream"]


class Handle:
    """Owner of one C object.

    Args:
        library: the library that made the object.
        kind: its name in the C API, `memory_desc` for objects that `dnnl_memory_desc_destroy` frees.
        pointer: its address.
    """

    __slots__ = ("__weakref__", "_finalizer", "_pointer", "library")

    def __init__(self, library: Library, kind: str, pointer: int) -> None:
        self.library = library
        self._pointer: int | None = pointer
        self._finalizer = weakref.finalize(self, getattr(library.c, f"dnnl_{kind}_destroy"), pointer)
        self._finalizer.atexit = False

    @property
    def pointer(self) -> int:
        """The C handle. Raises InternalError after `close`."""
        if self._pointer is None:
            raise InternalError(f"use of a closed oneDNN {type(self).__name__}")
        return self._pointer

    @property
    def closed(self) -> bool:
        """True once the C object is freed."""
        return self._pointer is None

    def close(self) -> None:
        """Free the C object now; further calls do nothing. No thread may be using it.

        Raises:
            OneDnnError: the library refused.
        """
        self._pointer = None
        status = self._finalizer()  # None when it has run before
        if status:
            check(status, f"freeing a {type(self).__name__}")

    def abandon(self) -> None:
        """Leave the C object to the library for good: something in there still points to it."""
        self._finalizer.detach()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def create(function: Any, *arguments: Any) -> tuple[int, int]:
    """Call a C function whose first parameter is an out-pointer to a handle.

    Returns:
        The status, and the handle (0 when the call failed).
    """
    out = ctypes.c_void_p()
    status = function(ctypes.byref(out), *arguments)
    return int(status), out.value or 0


class Engine(Handle):
    """The CPU engine.

    Raises:
        OneDnnError: it cannot be created.
    """

    __slots__ = ()

    def __init__(self, library: Library) -> None:
        status, pointer = create(library.c.dnnl_engine_create, EngineKind.cpu, 0)
        check(status, "creating the CPU engine")
        super().__init__(library, "engine", pointer)


class Stream(Handle):
    """An in-order stream of an engine. On an OpenMP or sequential library execution ends before `execute` returns.

    Raises:
        OneDnnError: it cannot be created.
    """

    __slots__ = ("engine", "raw")

    def __init__(self, engine: Engine) -> None:
        status, pointer = create(engine.library.c.dnnl_stream_create, engine.pointer, StreamFlags.in_order)
        check(status, "creating a stream")
        super().__init__(engine.library, "stream", pointer)
        self.engine = engine
        self.raw = ctypes.c_void_p(pointer)  # what prepared calls pass on

    def close(self) -> None:
        """Free the stream; a later `Primitive.execute` on it fails with invalid_arguments."""
        self.raw = ctypes.c_void_p()
        super().close()

    def wait(self) -> None:
        """Return when everything submitted has ended. Raises OneDnnError when the library reports a failure."""
        check(self.library.c.dnnl_stream_wait(self.pointer), "waiting for a stream")
