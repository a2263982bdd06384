"""A plan bound for one set of input shapes: the actions of a run, in order, and the memory that a
run needs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ...onednn.memory import Memory
from ...onednn.primitive import Primitive
from ..arena import Lifetimes, place
from ..placement import Placement
from .host import HostStep
from .tensors import Buffer, Home, Tensor

__all__ = ["Action", "HostAction", "PrimitiveAction", "Program", "plan_buffers"]


@dataclass(frozen=True, eq=False)
class PrimitiveAction:
    """One execution of a primitive.

    Attributes:
        primitive: the primitive; all runs share it.
        args: execution argument -> tensor of the run, or a constant memory that all runs share.
        writes: the tensors among them that it writes.
        step: index of the step it serves.
        label: what it is, for profiles: `convolution`, or `reorder of <value>`.
    """

    primitive: Primitive
    args: Mapping[int, Tensor | Memory]
    writes: tuple[Tensor, ...]
    step: int
    label: str

    @property
    def tensors(self) -> list[Tensor]:
        """Everything that it touches."""
        return [arg for arg in self.args.values() if isinstance(arg, Tensor)]


@dataclass(frozen=True, eq=False)
class HostAction:
    """One step on NumPy.

    Attributes:
        runner: the bound step.
        inputs: value -> tensor that holds it; values that only live on the host (types that oneDNN
            lacks, unknown shapes) are absent.
        outputs: value -> tensor through which primitives read it.
        step: index of the step.
        label: what it is, for profiles.
    """

    runner: HostStep
    inputs: Mapping[str, Tensor]
    outputs: Mapping[str, Tensor]
    step: int
    label: str

    @property
    def tensors(self) -> list[Tensor]:
        """Everything that it touches."""
        return [*self.inputs.values(), *self.outputs.values()]


Action = PrimitiveAction | HostAction


@dataclass(eq=False)
class Program:
    """A bound plan.

    Attributes:
        actions: in order of execution.
        tensors: plan value -> the tensor that it was written as (absent where it lives on the host
            alone).
        outputs: output of the plan -> the tensor to copy it from.
        shapes: plan value -> its shape, where it is known.
        written: index of an action -> the values that are there behind it; -1: before the first.
        placements: one for each step.
        reorders: how many actions only change a layout between two primitives that want different
            ones.
        host_views: value that only NumPy sees -> the value that it is another shape of.
        offsets: buffer -> place in the arena.
        arena_bytes, scratchpad_bytes: memory of one run.
    """

    actions: tuple[Action, ...]
    tensors: Mapping[str, Tensor]
    outputs: Mapping[str, Tensor]
    shapes: Mapping[str, tuple[int, ...]]
    written: Mapping[int, Sequence[str]]
    placements: tuple[Placement, ...]
    reorders: int
    host_views: Mapping[str, str]
    offsets: Mapping[Buffer, int]
    arena_bytes: int
    scratchpad_bytes: int


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
    if buffer.home is Home.ARENA:
        key = f"{id(buffer)}"
        buffers[key] = buffer
        lives.first[key] = min(lives.first.get(key, index), index)
        lives.last[key] = max(lives.last.get(key, index), index)
