"""Constants of a plan as oneDNN memories, made once and shared by all programs of a session: packed
weights, scales, operands.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from ...ir.constants import as_held
from ...ir.ops.blocks import middle
from ...onednn.attributes import Attributes
from ...onednn.coded_kernels import in_panels
from ...onednn.library import Engine, Stream
from ...onednn.memory import Memory, MemoryDesc
from ...onednn.primitive import pack
from ...onednn.slabs import Slabs
from ...plan.arguments import BLOCKS_OF_WEIGHTS
from ...plan.types import Plan
from ..kernels.block_gemm import Blocks

_PLAIN = Attributes()

T = TypeVar("T")


class Constants:
    """The constants of one plan. Not for several threads at once: programs are bound under a lock.

    Args:
        plan: whose constants.
        engine: the engine of the memories.
        stream: runs the reorders that pack.

    Attributes:
        in_f32: steps whose codes were multiplied in f32 for other shapes: their int8 kernels are not asked for first.
    """

    def __init__(self, plan: Plan, engine: Engine, stream: Stream) -> None:
        self._data = plan.constants
        self._derived: dict[str, NDArray[Any]] = {}
        self._engine = engine
        self._stream = stream
        self._slabs = Slabs(sum(data.nbytes for data in as_held(plan.constants).values()))
        self._packed: dict[tuple[str, str], list[Memory]] = {}
        self._vectors: dict[tuple[str, bytes], Memory] = {}
        self._arrays: dict[tuple[str, str], NDArray[Any]] = {}
        self._known: dict[Hashable, Any] = {}
        self.in_f32 = set[str]()

    def __contains__(self, name: str) -> bool:
        return name in self._data or name in self._derived

    def data(self, name: str) -> NDArray[Any]:
        """The array of a constant."""
        found = self._derived.get(name)
        return self._data[name] if found is None else found

    def derive(self, name: str, data: NDArray[Any]) -> None:
        """Adds a constant that is made of one of the plan's; the name says how."""
        self._derived.setdefault(name, data)

    def held(self, name: str) -> int:
        """Bytes of a constant in the forms that primitives and our functions read; where none does,
        as the plan has it.
        """
        packed = [m.desc.size for (of, _), made in self._packed.items() for m in made if of == name]
        arranged = [made.nbytes for (of, _), made in self._arrays.items() if of == name]
        return sum(packed) + sum(arranged) or as_held(self._data)[name].nbytes

    @property
    def total(self) -> int:
        """Bytes of all constants, and of the scales, zero points and biases made from them."""
        vectors = sum(memory.desc.size for memory in self._vectors.values())
        return vectors + sum(map(self.held, self._data))

    def packed(
        self,
        name: str,
        form: str,
        array: NDArray[Any],
        desc: MemoryDesc,
        attributes: Attributes = _PLAIN,
    ) -> Memory:
        """A constant in a layout, made by one reorder and kept.

        Args:
            name: the constant.
            form: what `array` is of it; with the name it identifies the content.
            array: the data in the logical shape of `desc`, any strides.
            desc: the wanted type and layout; it may carry compensation for the kernel that reads
                it.
            attributes: of the primitive that reads it, where the reorder must have them, too.
        """
        kept = self._packed.setdefault((name, form), [])
        for memory in kept:
            if memory.desc == desc:
                return memory
        memory = self._made(array, desc, attributes)
        kept.append(memory)
        return memory

    def arranged(self, name: str, form: str, make: Callable[[], NDArray[Any]]) -> NDArray[Any]:
        """A constant as a kernel of our own reads it, made once and kept in memory aligned to a
        cache line.

        Args:
            name: the constant.
            form: with the name it identifies the content.
            make: makes the array.
        """
        kept = self._arrays.get((name, form))
        if kept is None:
            made = make()
            kept = self._slabs.take(made.nbytes).view(made.dtype).reshape(made.shape)
            kept[...] = made
            self._arrays[name, form] = kept
        return kept

    def once(self, key: Hashable, make: Callable[[], T]) -> T:
        """What follows from the plan alone, and not from shapes: made for the first of them, and kept.

        Args:
            key: identifies it.
            make: makes it.
        """
        if key not in self._known:
            self._known[key] = make()
        found: T = self._known[key]
        return found

    def vector(self, values: NDArray[Any], dims: tuple[int, ...] = (-1,)) -> Memory:
        """A small memory: scales (f32), zero points (s32), biases; one for each content and shape, by
        default of one dimension.
        """
        shaped = np.array(values).reshape(dims)
        key = (f"{shaped.dtype.str}{shaped.shape}", shaped.tobytes())
        if key not in self._vectors:
            self._vectors[key] = Memory.wrap(self._engine, shaped)
        return self._vectors[key]

    def _made(self, array: NDArray[Any], desc: MemoryDesc, attributes: Attributes) -> Memory:
        library = self._engine.library
        given = MemoryDesc.like(library, array)
        if given == desc:
            return Memory(self._engine, desc, array)
        memory = Memory(self._engine, desc, self._slabs.take(desc.size))
        pack(self._stream, array, given, memory, attributes, "packing constants")
        return memory


Arranged = Callable[[str, Callable[[], NDArray[Any]]], NDArray[Any]]
"""Of a role of the step, and what makes an array of its constant: that array, made once."""


def panels_of(
    blocks: Blocks, arranged: Arranged
) -> tuple[NDArray[np.uint32], NDArray[np.float32], NDArray[np.uint8] | None]:
    """Words of codes, scales and zero points in panels of columns; no zero points where all are the
    middle code.
    """
    scales, zeros = BLOCKS_OF_WEIGHTS
    words, points = np.ascontiguousarray(blocks.codes).view(np.uint32), blocks.zero_points
    plain = points is None or bool((points == middle(blocks.bits)).all())
    return (
        arranged("weights", lambda: in_panels(words)),
        arranged(scales, lambda: in_panels(blocks.scales.astype(np.float32))),
        None if plain else arranged(zeros, lambda: in_panels(np.asarray(points, np.uint8))),
    )
