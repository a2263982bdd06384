"""Data of constants by name. Large f32 constants that half floats hold exactly, as those of a model of
half floats are, lie in memory as half floats, and are widened for whoever asks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final
from weakref import WeakValueDictionary, ref

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import as_strided

from .ops.spec import Array

LARGE: Final = 1 << 16
"""Bytes in f32 from which on it is worth while."""

_CHUNK: Final = 1 << 20  # elements that are looked at in one go
_F32: Final = np.dtype(np.float32)
_LOWER: Final = 16  # bits of an f32 that bf16 has not


class Halves:
    """Stands for an f32 array as the half floats that hold it exactly; sizes are those of the f32 array.

    Args:
        stored: f16, or bf16 as u16.
    """

    dtype = _F32

    def __init__(self, stored: Array) -> None:
        self._stored = stored
        self._wide: ref[npt.NDArray[np.float32]] | None = None
        self.shape, self.ndim, self.size = stored.shape, stored.ndim, stored.size
        self.nbytes = stored.size * _F32.itemsize

    def wide(self) -> Array:
        """The f32 array, read-only; one and the same as long as somebody holds it."""
        found = None if self._wide is None else self._wide()
        if found is None:
            found = _widened(self._stored)
            found.setflags(write=False)
            self._wide = ref(found)
            _GIVEN[id(found)] = self
        return found

    def view_of(self, part: Array) -> Halves | None:
        """The half floats behind a view of the f32 array; None where it is a view of another array."""
        wide = None if self._wide is None else self._wide()
        flat = self._stored.ravel(order="K")
        dense = np.may_share_memory(flat, self._stored)
        if wide is not part.base or wide is None or not dense:
            return None
        start = _address(part) - _address(wide)
        of = flat[start // _F32.itemsize :]
        half = [stride // 2 for stride in part.strides]
        return Halves(as_strided(of, part.shape, half, writeable=False))

    def pieces(self, size: int) -> Iterator[Array]:
        """The elements in C order as f32, so many bytes at a time."""
        flat, step = self._stored.reshape(-1), max(1, size // _F32.itemsize)
        for start in range(0, flat.size, step):
            yield _widened(flat[start : start + step])

    def __reduce__(self) -> tuple[type[Halves], tuple[Array]]:
        return Halves, (self._stored,)


_GIVEN: WeakValueDictionary[int, Halves] = WeakValueDictionary()
"""What was widened, by the f32 array's identity."""


class Constants(Mapping[str, Array]):
    """A view of constants by name: a mapping to arrays.

    Args:
        held: the arrays, or the half floats that stand for one.
    """

    __slots__ = ("held",)

    def __init__(self, held: Mapping[str, Array | Halves]) -> None:
        self.held = held

    def __getitem__(self, name: str) -> Array:
        return array_of(self.held[name])

    def get(self, name: str, default: Array | None = None) -> Array | None:  # type: ignore[override]
        """The data of a constant."""
        found = self.held.get(name)
        return default if found is None else array_of(found)

    def __contains__(self, name: object) -> bool:
        return name in self.held

    def __iter__(self) -> Iterator[str]:
        return iter(self.held)

    def __reversed__(self) -> Iterator[str]:
        return reversed(list(self.held))

    def __len__(self) -> int:
        return len(self.held)

    def __repr__(self) -> str:
        return f"Constants({', '.join(map(repr, self.held))})"

    def __reduce__(self) -> tuple[type[Constants], tuple[dict[str, Array | Halves]]]:
        return Constants, (dict(self.held),)


def as_held(constants: Mapping[str, Array]) -> Mapping[str, Array | Halves]:
    """Constants as they lie in memory, for who asks for their sizes alone or hands them on."""
    return constants.held if isinstance(constants, Constants) else constants


def for_types(constants: Mapping[str, Array], name: str) -> Array | None:
    """The data of a constant that types may follow from; None of what is none, and of half floats."""
    found = as_held(constants).get(name)
    return None if isinstance(found, Halves) else found


def array_of(data: Array | Halves) -> Array:
    """A constant as an array."""
    return data.wide() if isinstance(data, Halves) else data


def halved(data: Array) -> Array | Halves:
    """A large f32 array as half floats, where these hold it bit for bit; else the array itself."""
    if data.dtype != _F32 or data.nbytes < LARGE or 0 in data.strides:
        return data
    known = _GIVEN.get(id(data.base))
    if known is not None and (seen := known.view_of(data)) is not None:
        return seen  # a weight that was transposed is in memory once
    for narrow in (np.float16, np.uint16):
        if (found := _narrowed(data, np.dtype(narrow))) is not None:
            return Halves(found)
    return data


def _narrowed(data: Array, dtype: np.dtype[Any]) -> Array | None:
    """The array as f16 or, u16, bf16; None where these do not hold it. In memory as it lies there."""
    result = np.empty_like(data, dtype)
    rows = max(1, _CHUNK * len(data) // data.size)
    for start in range(0, len(data), rows):
        part = data[start : start + rows]
        if dtype == np.uint16:
            narrow = (part.view(np.uint32) >> np.uint32(_LOWER)).astype(np.uint16)
        else:
            with np.errstate(over="ignore", invalid="ignore"):
                narrow = part.astype(np.float16)
        if not (_widened(narrow).view(np.uint32) == part.view(np.uint32)).all():
            return None
        result[start : start + rows] = narrow
    return result


def _address(data: Array) -> int:
    return int(data.__array_interface__["data"][0])


def _widened(stored: Array) -> npt.NDArray[np.float32]:
    if stored.dtype == np.uint16:
        result = np.empty_like(stored, np.float32)  # which owns its memory, see `view_of`
        np.left_shift(stored, _LOWER, out=result.view(np.uint32), dtype=np.uint32)
        return result
    return stored.astype(np.float32)
