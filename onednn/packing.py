"""An array in the layout that a primitive wants: packed weights, blocks of channels."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .attributes import Attributes
from .capi import Status, failure
from .defects import defect_of
from .enums import Arg
from .library import Stream
from .memory import Memory, MemoryDesc
from .primitive import run_once
from .primitive_desc import PrimitiveDesc, describe

_PLAIN = Attributes()


def pack(
    stream: Stream,
    array: NDArray[Any],
    given: MemoryDesc,
    target: Memory,
    attributes: Attributes = _PLAIN,
    origin: str = "",
) -> None:
    """Fills a memory with an array, by a reorder of the library. Where that is known to compute wrongly,
    the array is handed over with gaps, for which the library has other code.

    Args:
        stream: of the target's engine.
        array: what it is filled with.
        given: how that lies.
        target: of the same shape.
        attributes: of the primitive that reads it, where the reorder must have them, too.
        origin: what it serves; part of every message.

    Raises:
        OneDnnError: the library refuses, or is known to compute it wrongly with gaps, too.
    """

    def reorder() -> PrimitiveDesc:
        return describe(
            stream.engine, "reorder", given, target.desc, attributes=attributes, origin=origin
        )

    desc = reorder()
    if defect_of(desc) is not None:
        array = with_gaps(array)
        steps = [step // array.itemsize for step in array.strides]
        given = MemoryDesc.with_strides(stream.engine.library, array.shape, given.dtype, steps)
        desc = reorder()
        defect = defect_of(desc)
        if defect is not None:
            told = f"{desc.request}, which {desc.impl_info} computes wrongly ({defect.name}),"
            raise failure(Status.unimplemented, told, origin)
    run_once(stream, desc, {Arg.SRC: Memory(stream.engine, given, array), Arg.DST: target})


def with_gaps(array: NDArray[Any]) -> NDArray[Any]:
    """The same array, of whose elements no two lie side by side."""
    wide = np.zeros((*array.shape, 2), array.dtype)
    wide[..., 0] = array
    return wide[..., 0]
