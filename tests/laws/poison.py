"""Memory that shows who reads what was never written, and who writes beyond: poisoned inside and
around, for the runs of a test.

A run computes in memory of one source (`fqfuse.aligned`), cut into buffers by one function
(`fqfuse.runtime.arena.place`).
Both are replaced: fresh memory is full of one byte, each lease is fresh, and buffers lie apart,
with the byte in between.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from unittest import mock

import numpy as np
import numpy.typing as npt

from fqfuse import aligned
from fqfuse.runtime import arena, numpy_runtime
from fqfuse.runtime.lowering import executor, program, runs
from fqfuse.runtime.results import WORTHWHILE

BYTES = (0xFF, 0x7F, 0x80)
"""As f32: NaN, 3.4e38 and -1.2e-38; as codes 255 and -1, 127, 128 and -128. What nobody may read
may be anything: results must not tell.
"""

_GUARD = 4 * aligned.aligned(1)


class _Source:
    """Hands out memory full of one byte, with more of it around."""

    def __init__(self, byte: int) -> None:
        self.byte = byte
        self.spans: dict[
            int, list[tuple[int, int]]
        ] = {}  # of an arena, by its size: the buffers in it
        self._given: list[npt.NDArray[np.uint8]] = []

    def take(self, count: int) -> npt.NDArray[np.uint8]:
        raw = np.full(count + 2 * _GUARD, self.byte, np.uint8)
        self._given.append(raw)
        return raw[_GUARD : _GUARD + count]

    def check(self) -> None:
        """Fails where somebody wrote around what he got."""
        for raw in self._given:
            around = np.ones(raw.size, np.bool_)
            size = raw.size - 2 * _GUARD
            start = _GUARD + -raw[_GUARD:].ctypes.data % aligned.aligned(1)
            for first, last in self.spans.get(
                size - aligned.aligned(1), [(_GUARD - start, _GUARD - start + size)]
            ):
                around[start + first : start + last] = False
            written = np.count_nonzero(raw[around] != self.byte)
            assert not written, f"{written} bytes were written around buffers, in a piece of {size}"


def guarded(array: npt.NDArray[np.generic], byte: int) -> npt.NDArray[np.generic]:
    """A copy in the middle of bytes of that value."""
    raw = np.full(array.nbytes + 2 * _GUARD, byte, np.uint8)
    copy: npt.NDArray[np.generic] = (
        raw[_GUARD : _GUARD + array.nbytes].view(array.dtype).reshape(array.shape)
    )
    copy[...] = array
    return copy


@contextmanager
def poisoned(byte: int, *, apart: bool) -> Iterator[None]:
    """Inside, what runs compute in is full of `byte` before them, and so is everything around it,
    behind them too.

    Args:
        byte: one of `BYTES`.
        apart: no two buffers share memory, and every result that can be is handed out without a
            copy, however small; otherwise as ever, where a buffer may hold what another left there.
    """
    source = _Source(byte)
    worthwhile = 0 if apart else WORTHWHILE

    def place(lives: arena.Lifetimes, sizes: Mapping[str, int]) -> tuple[dict[str, int], int]:
        if not apart:
            return arena.place(lives, sizes)
        offsets, top = {}, _GUARD
        for name in lives.first:
            if name in sizes:
                offsets[name] = top
                top += aligned.aligned(sizes[name]) + _GUARD
        top += 1  # odd: a size that nothing else has, no scratchpad either
        while top in source.spans:
            top += 2
        source.spans[top] = [(offset, offset + sizes[name]) for name, offset in offsets.items()]
        return offsets, top

    with (
        mock.patch.object(aligned, "_uninitialised", source.take),
        mock.patch.object(numpy_runtime, "place", place),
        mock.patch.object(program, "place", place),
        mock.patch.object(program, "WORTHWHILE", worthwhile),
        mock.patch.object(runs, "WORTHWHILE", worthwhile),
        mock.patch.object(numpy_runtime, "_IDLE_LEASES", 0),
        mock.patch.object(executor, "_IDLE_RUNS", 0),
    ):
        yield
    source.check()
