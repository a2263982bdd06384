"""Calls of C functions that follow each other, made by one call: a run of 150 small primitives spends
2 to 4 % of its time in Python between them.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final

import numpy as np

from .capi import failure
from .kernels import kernels
from .library import Library
from .memory import Memory

_WORDS: Final = 1 + 4
"""Of a call: the address of its function, and what that takes."""


class CCall(functools.partial[int]):
    """A call of a C function that takes up to four words and returns a status (0: success). Its
    arguments are ctypes objects or integers, made beforehand.

    Like all that knows addresses alone it keeps nothing alive.
    """

    @property
    def words(self) -> tuple[int, ...]:
        """The function's address, and its arguments."""
        function: Any = self.func
        address = ctypes.cast(function, ctypes.c_void_p).value
        assert address is not None
        return address, *(getattr(word, "value", word) or 0 for word in self.args)


class Tried(CCall):
    """A call of a C function that may leave its work undone, with another status than 0: Python does
    it then.

    Attributes:
        otherwise: does so, and returns a status.
    """

    otherwise: Callable[[], int]

    @classmethod
    def of(cls, call: CCall, otherwise: Callable[[], int]) -> Tried:
        """Such a call."""
        found = cls(call.func, *call.args)
        found.otherwise = otherwise
        return found

    def __call__(self, *_: object) -> int:
        """Calls the one, and where that fails the other."""
        return super().__call__() and self.otherwise()


@dataclass(frozen=True)
class Stretch:
    """Calls that follow each other.

    Attributes:
        call: makes them, until one returns another status than 0, and returns that.
        failed: the place of the call that did so last, among all calls.
    """

    call: Callable[[], int]
    failed: Callable[[], int]


def joined(library: Library, calls: Sequence[Callable[[], int]]) -> list[Stretch]:
    """The calls, in their order, those of C functions that follow each other in one stretch; without
    our functions in C each is one.

    Args:
        library: the library.
        calls: what returns a status; those of C functions are each a `CCall`.
    """
    found: list[Stretch] = []
    for in_c, group in groupby(enumerate(calls), lambda each: isinstance(each[1], CCall)):
        places, members = zip(*group, strict=True)
        together = _together(library, places[0], members) if in_c and len(members) > 1 else None
        found += [together] if together is not None else map(_alone, places, members)
    return found


def _alone(place: int, call: Callable[[], int]) -> Stretch:
    return Stretch(call, lambda: place)


class _Record(ctypes.Structure):
    _fields_ = (("function", ctypes.c_void_p), ("words", ctypes.c_int64 * 4))


def _together(library: Library, first: int, calls: Sequence[CCall]) -> Stretch | None:
    found = kernels(library, "call_loop")
    if found is None:
        return None
    table = (_Record * len(calls))()
    for record, call in zip(table, calls, strict=True):
        record.function, *words = call.words
        record.words[: len(words)] = words
    start, size, count = ctypes.addressof(table), ctypes.sizeof(_Record), len(calls)
    work: Any = found.work("call_all")
    make = found.call("call_all", work, held=table)
    failed = first

    def call_all() -> int:
        nonlocal failed
        place = 0
        while place < count:
            work.calls, work.count = start + place * size, count - place
            make()
            status = int(work.status)
            if not status:
                break
            place += work.done
            call = calls[place]
            if isinstance(call, Tried):
                status = call.otherwise()
            if status:
                failed = first + place
                return status
            place += 1
        return 0

    return Stretch(call_all, lambda: failed)


def shared(library: Library, shares: Sequence[tuple[int, ...]], held: list[object]) -> CCall | None:
    """Functions whose work threads share, one after the other in one call; None without our
    functions in C.

    Args:
        library: the library.
        shares: of each call its `Kernels.share`.
        held: gets what must live as long as the call, beside the works.
    """
    found = kernels(library, "call_loop")
    if found is None:
        return None
    table = np.array(shares, np.int64)
    held.append(table)
    address = found.functions["share"].address
    kinds = (ctypes.c_void_p, ctypes.c_int64)
    function = ctypes.CFUNCTYPE(ctypes.c_int, *kinds)(address)
    return CCall(function, table.ctypes.data, len(shares))


class Pointers:
    """Memories that each run points to other addresses, all of them by one call.

    Args:
        library: the library.
        memories: what outlives this.

    Raises:
        OneDnnError: `point` does, where the library refuses.
    """

    def __init__(self, library: Library, memories: Sequence[Memory]) -> None:
        self._memories, self._set = memories, library.c.dnnl_memory_set_data_handle
        found = kernels(library, "call_loop")
        self._make: Callable[[], None] | None = None
        if found is not None:
            words = np.zeros((len(memories), _WORDS), np.int64)
            (words[:, 0],) = CCall(self._set).words
            words[:, 1] = [memory.pointer for memory in memories]
            self._addresses = words[:, 2]
            self._work: Any = found.work("call_all", calls=words.ctypes.data, count=len(memories))
            self._make = found.call("call_all", self._work, held=words)

    def point(self, addresses: Sequence[int]) -> None:
        """Points each to its address, at which its bytes are for as long as they are used."""
        if self._make is None:
            place, status = 0, 0
            for place, address in enumerate(addresses):
                status = self._set(self._memories[place], address)
                if status:
                    break
        else:
            self._addresses[:] = addresses
            self._make()
            place, status = self._work.done, self._work.status
        if status:
            raise failure(status, f"set_data_handle of a memory for {self._memories[place].desc}")
