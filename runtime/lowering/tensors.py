"""Where the values of a plan lie while a bound program runs: buffers, and tensors (a buffer seen
through a memory descriptor).
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

from ...ir.types import DType
from ...onednn.enums import DataType
from ...onednn.memory import MemoryDesc

__all__ = ["Buffer", "Home", "Tensor", "data_type"]

_DATA_TYPES = {
    DType.F32: DataType.f32,
    DType.S32: DataType.s32,
    DType.S8: DataType.s8,
    DType.U8: DataType.u8,
}


class Home(enum.Enum):
    """Who owns the memory of a buffer."""

    ARENA = "arena"
    """The program: a place in the arena of each run."""
    INPUT = "input"
    """The caller: the array that was fed."""
    HOST = "host"
    """A NumPy step: the array that it returned in this run."""


@dataclass(eq=False)
class Buffer:
    """Memory that one value, or several that never live at the same time, lie in.

    Attributes:
        name: the value that it was made for, for messages.
        home: who owns it.
        size: bytes.
        values: values of the plan whose data may lie in it.
    """

    name: str
    home: Home
    size: int = 0
    values: set[str] = field(default_factory=set)


@dataclass(frozen=True, eq=False)
class Tensor:
    """A buffer seen through a descriptor; one object for each memory handle that a run needs.

    Attributes:
        buffer: the memory.
        desc: shape (0-d values have shape [1]), type and layout.
    """

    buffer: Buffer
    desc: MemoryDesc


def data_type(dtype: DType) -> DataType | None:
    """oneDNN's type, or None where its primitives take none of that."""
    return _DATA_TYPES.get(dtype)
