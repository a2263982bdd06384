"""Memory of results that is used again: the system gives new pages one by one, zeroed, at the first
touch of each, which for caches of keys and values took longer than the run.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ..aligned import aligned_bytes

WORTHWHILE: Final = 1 << 16
"""Bytes from which on a result's memory is kept: smaller ones the allocator keeps itself."""

_KEPT = 2  # of one result: callers hold that of the last run while the next one is computed


class ResultMemory:
    """The memory of one result.

    An array that was taken belongs to its holder, like any other. When the last one who sees its
    memory lets go, a view of it or of a part included, the next array may lie there.

    Args:
        shape, dtype: of the result.
    """

    def __init__(self, shape: Sequence[int], dtype: npt.DTypeLike) -> None:
        self._shape, self._dtype = tuple(shape), np.dtype(dtype)
        self._free: list[tuple[memoryview, int]] = []
        self._lent: dict[int, tuple[weakref.ref[Any], tuple[memoryview, int]]] = {}

    def take(self) -> tuple[npt.NDArray[Any], int]:
        """An array without content, C-contiguous, on a cache line, and its address."""
        try:
            lent = self._free.pop()
        except IndexError:
            made = aligned_bytes(math.prod(self._shape) * self._dtype.itemsize)
            lent = made.data, made.ctypes.data
        # Of memory that is no array's, this array is what all views of it refer to.
        array = np.frombuffer(lent[0], self._dtype)
        watch = weakref.ref(array, self._returned)
        self._lent[id(watch)] = watch, lent
        return array.reshape(self._shape), lent[1]

    def _returned(self, watch: weakref.ref[Any]) -> None:
        _, lent = self._lent.pop(id(watch))
        if len(self._free) < _KEPT:
            self._free.append(lent)
