"""The library's cache of primitives."""

from __future__ import annotations

import ctypes

from .capi import check
from .library import Library


def switch_off(library: Library) -> None:
    """Empty the cache of primitives, where there is one, and let it keep none from now on.

    For before the first creation that may fail. oneDNN 3.2 leaves an entry in its cache then whose
    key points into what it freed: `remove_if_invalidated` has its condition the wrong way round. The
    key is read when the same is asked for again, or when the entry has to make room, and the process
    ends. A descriptor that is kept (`PrimitiveDesc.abandon`) does not help where a primitive makes
    another one inside, as deconvolutions do: the inner one's key points into a copy.

    Raises:
        OneDnnError: the library refuses.
    """
    capacity = ctypes.c_int()
    status = library.c.dnnl_get_primitive_cache_capacity(ctypes.byref(capacity))
    check(status, "querying the capacity of the primitive cache")
    if capacity.value:
        status = library.c.dnnl_set_primitive_cache_capacity(ctypes.c_int(0))
        check(status, "setting the capacity of the primitive cache")
