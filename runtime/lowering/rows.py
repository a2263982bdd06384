"""Rows times packed weights, by functions in C that work on one work in turn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...onednn.call_loop import CCall, Tried, shared
from ...onednn.kernels import Kernels, Work
from ...onednn.library import Library


class RowsProduct:
    """What multiplies rows: called with them, or in C alone where they stay where they are.

    Args:
        kernels: has the functions.
        work: what they read and write, but for the rows, its `x`.
        steps: functions in turn, and in how many threads.
        shape: of the rows, f32 and C-contiguous.
        held: what the work has the addresses of.
        otherwise: multiplies the rows where the work says that a result is `beyond` f32; None: it
            never does.
    """

    def __init__(
        self,
        kernels: Kernels,
        work: Work,
        steps: Sequence[tuple[str, int]],
        shape: tuple[int, int],
        held: object,
        otherwise: Callable[[NDArray[np.float32]], None] | None = None,
    ) -> None:
        self._kernels, self._steps, self._shape = kernels, steps, shape
        self._work: Any = work
        self._held, self._otherwise = held, otherwise
        self._calls = [kernels.call(function, work, many, held) for function, many in steps]

    def __call__(self, sources: NDArray[np.float32]) -> None:
        """Multiplies these rows. Raises ValueError where they have another shape, or gaps."""
        self._aim(sources)
        for call in self._calls:
            call()
        if self._otherwise is not None and self._work.beyond:
            self._otherwise(sources)

    def in_c(
        self, library: Library, sources: NDArray[np.float32], held: list[object]
    ) -> CCall | None:
        """The same as a call of C, for rows that lie here in each run; None where there is none.

        Args:
            library: the library.
            sources: the rows; what has their memory outlives the call.
            held: gets what must live as long as the call.
        """
        self._aim(sources)
        held.append(self)
        shares = [self._kernels.share(function, self._work, many) for function, many in self._steps]
        call = shared(library, shares, held)
        if call is None or self._otherwise is None:
            return call
        otherwise = self._otherwise

        def in_python() -> int:
            otherwise(sources)
            return 0

        return Tried.of(call, in_python)

    def _aim(self, sources: NDArray[np.float32]) -> None:
        if sources.shape != self._shape or not sources.flags.c_contiguous:
            raise ValueError(f"rows must be {list(self._shape)}, row-major")
        self._work.x = sources.ctypes.data
