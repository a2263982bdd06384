"""A plan bound for one set of input shapes: where its values lie, the actions of a run, in order,
and the memory that a run needs.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from ...ir.ops.spec import Array
from ...ir.types import DType
from ...onednn.enums import DataType
from ...onednn.memory import Memory, MemoryDesc
from ...onednn.primitive import Primitive
from ..arena import Lifetimes, place
from ..placement import Placement
from ..results import WORTHWHILE

_DATA_TYPES = {
    DType.F32: DataType.f32,
    DType.S32: DataType.s32,
    DType.S8: DataType.s8,
    DType.U8: DataType.u8,
}


class Owner(enum.Enum):
    """Who owns the memory of a buffer."""

    ARENA = "arena"
    """The program: a place in the arena of each run."""
    INPUT = "input"
    """The caller: the array that was fed."""
    HOST = "host"
    """A NumPy step: the array that it returned in this run."""
    RESULT = "result"
    """The caller: an array of this run that is handed out at its end."""


@dataclass(eq=False)
class Buffer:
    """Memory that one value, or several that never live at the same time, lie in.

    Attributes:
        name: the value that it was made for, for messages.
        owner: who has the memory.
        size: bytes.
        values: values of the plan whose data may lie in it.
    """

    name: str
    owner: Owner
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


class Action(Protocol):
    """Something that a run does: a `PrimitiveAction`, or a `HostAction`."""

    @property
    def tensors(self) -> list[Tensor]:
        """Everything that it touches."""
        ...

    @property
    def placed(self) -> list[Tensor]:
        """Those of them that it expects at one address in all runs with the same memory."""
        ...


@dataclass(frozen=True, eq=False)
class PrimitiveAction:
    """One execution of a primitive.

    Attributes:
        primitive: the primitive; all runs share it.
        args: execution argument -> tensor of the run, or a constant memory that all runs share.
    """

    primitive: Primitive
    args: Mapping[int, Tensor | Memory]

    @property
    def tensors(self) -> list[Tensor]:
        """Everything that it touches."""
        return [arg for arg in self.args.values() if isinstance(arg, Tensor)]

    @property
    def placed(self) -> list[Tensor]:
        """None."""
        return []


@dataclass(eq=False)
class Program:
    """A bound plan.

    Attributes:
        actions: in order of execution.
        steps: for each action the index of the step that it belongs to; that of what brings outputs
            into order behind the last step: how many steps there are.
        tensors: plan value -> the tensor that it was written as (absent where it lives on the host
            alone).
        outputs: output of the plan -> the tensor that holds it, row-major: to hand out where its
            buffer is a result and this output the first one in it, else to copy.
        shapes: plan value -> its shape, where it is known.
        written: index of an action -> the values that are there behind it; -1: before the first.
        placements: one for each step.
        reorders: how many actions only change a layout between two primitives that want different
            ones.
        host_views: value that only NumPy sees -> the value that it is another shape of.
        settled: value -> its data, where the sizes of the inputs decide that: no action makes it.
        lanes: value -> the number that was subtracted from its codes, which lie in f32.
        offsets: buffer -> place in the arena.
        arena_bytes, scratchpad_bytes: memory of one run.
        result_bytes: memory of the arrays that one run hands out without a copy.
    """

    actions: tuple[Action, ...]
    steps: tuple[int, ...]
    tensors: Mapping[str, Tensor]
    outputs: Mapping[str, Tensor]
    shapes: Mapping[str, tuple[int, ...]]
    written: Mapping[int, Sequence[str]]
    placements: tuple[Placement, ...]
    reorders: int
    host_views: Mapping[str, str]
    settled: Mapping[str, Array]
    lanes: Mapping[str, float]
    offsets: Mapping[Buffer, int]
    arena_bytes: int
    scratchpad_bytes: int
    result_bytes: int


def hand_out(actions: Sequence[Action], outputs: Iterable[Tensor]) -> int:
    """Makes results of the buffers that hold one large output each and nothing more, and that no
    action expects at an address known beforehand. The bytes of all.

    Args:
        actions: in order of execution.
        outputs: where the outputs lie, row-major.
    """
    placed = {tensor.buffer for action in actions for tensor in action.placed}
    found = 0
    for tensor in outputs:
        buffer = tensor.buffer
        whole = tensor.desc.is_plain and tensor.desc.size == buffer.size >= WORTHWHILE
        if whole and buffer.owner is Owner.ARENA and buffer not in placed:
            buffer.owner = Owner.RESULT
            found += buffer.size
    return found


def plan_buffers(
    actions: Sequence[Action], seen: Iterable[tuple[int, Tensor]], kept: Iterable[Tensor]
) -> tuple[dict[Buffer, int], int]:
    """An offset for each buffer of the arena, such that buffers in use at the same time do not
    overlap, and the size of the whole.

    Args:
        actions: in order of execution.
        seen: (index of an action, tensor that holds a value of the plan behind it): a view is no
            action, and must still find its bytes.
        kept: tensors that are read behind the last action.
    """
    lives = Lifetimes()
    buffers: dict[str, Buffer] = {}
    for index, action in enumerate(actions):
        for tensor in action.tensors:
            _extend(lives, buffers, tensor, index)
    for index, tensor in seen:
        _extend(lives, buffers, tensor, max(index, 0))
    for tensor in kept:
        _extend(lives, buffers, tensor, len(actions))
    offsets, size = place(lives, {name: buffer.size for name, buffer in buffers.items()})
    return {buffers[name]: offset for name, offset in offsets.items()}, size


def _extend(lives: Lifetimes, buffers: dict[str, Buffer], tensor: Tensor, index: int) -> None:
    buffer = tensor.buffer
    if buffer.owner is Owner.ARENA:
        key = f"{id(buffer)}"
        buffers[key] = buffer
        lives.first[key] = min(lives.first.get(key, index), index)
        lives.last[key] = max(lives.last.get(key, index), index)
