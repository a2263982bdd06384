"""The library's cache of primitives."""

from __future__ import annotations

import ctypes

from .capi import check
from .library import Library

_UNLIMITED = 2**31 - 1


def never_evict(library: Library) -> None:
    """Let the cache of primitives, where there is one, keep all that it gets from now on.

    For after a failed creation. oneDNN 3.2 then leaves an entry in its cache whose key points into
    what it freed: `remove_if_invalidated` has its condition the wrong way round. The key is read
    when the entry has to make room for the 1,025th primitive, and the process ends. A descriptor
    that is kept (`PrimitiveDesc.abandon`) does not help where a primitive makes another one inside,
    as deconvolutions do: the inner one's key points into a copy.

    Raises:
        OneDnnError: the library refuses.
    """
    capacity = ctypes.c_int()
    status = library.c.dnnl_get_primitive_cache_capacity(ctypes.byref(capacity))
    check(status, "querying the capacity of the primitive cache")
    if 0 < capacity.value < _UNLIMITED:
        status = library.c.dnnl_set_primitive_cache_capacity(ctypes.c_int(_UNLIMITED))
        check(status, "setting the capacity of the primitive cache")
