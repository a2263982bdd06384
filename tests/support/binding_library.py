"""What only tests ask of the library: layouts in blocks by name, and no cache of primitives."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager

from fqfuse.onednn.capi import int64_array
from fqfuse.onednn.enums import DataType
from fqfuse.onednn.library import Library, create
from fqfuse.onednn.memory import MemoryDesc

NCHW8C = 102  # dnnl_nChw8c: blocked, with padding where C is no multiple of 8
NCHW16C = 78  # dnnl_nChw16c


def tagged(library: Library, dims: tuple[int, ...], dtype: DataType, tag: int) -> MemoryDesc:
    """A descriptor in the layout of a `dnnl_format_tag_t`."""
    arguments = len(dims), int64_array(dims), dtype, tag
    return MemoryDesc(
        library,
        create(library.c.dnnl_memory_desc_create_with_tag, lambda: f"tag {tag}", *arguments),
        dims,
        dtype,
    )


@contextmanager
def no_primitive_cache(library: Library) -> Iterator[None]:
    """Every primitive is compiled anew, and `next_impl` does not come back to what is in the
    cache.
    """
    kept = ctypes.c_int()
    library.c.dnnl_get_primitive_cache_capacity(ctypes.byref(kept))
    library.c.dnnl_set_primitive_cache_capacity(0)
    try:
        yield
    finally:
        library.c.dnnl_set_primitive_cache_capacity(kept.value)
