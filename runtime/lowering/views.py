"""Steps that say where the elements lie: another shape over the same bytes, another order of the
axes, carried by strides; and shuffles.
"""

from __future__ import annotations

from ...onednn.layouts import channels_last, relaid, row_major, viewed
from ...onednn.memory import MemoryDesc
from ...onednn.primitives import reorder
from ...plan.types import Step
from .binding import Binder, NotLowered, Wanted
from .tensors import Tensor

__all__ = ["reshape", "shuffle", "transpose"]


def _source(step: Step) -> str:
    return step.args[0][1]


def reshape(binder: Binder, step: Step) -> None:
    """Reshape, Flatten, Squeeze, Unsqueeze, Identity: a view where the layout allows it, else the
    view of a row-major copy.

    Raises:
        NotLowered: it reads a constant, or its axes or its shape come at run time, and may not fit.
    """
    source = _source(step)
    if not binder.is_settled(step):
        raise NotLowered(f"{', '.join(role for role, _ in step.args[1:])} come at run time")
    if binder.is_constant(source):
        raise NotLowered("it reads a constant")
    lies, dims = binder.desc(source), binder.dims(step.output)
    view = viewed(lies, dims)
    if view is not None:
        binder.alias(step, view, source)
        return
    plain = row_major(binder.library, lies.dims, lies.dtype)
    _copy(binder, step, source, plain)


def transpose(binder: Binder, step: Step) -> None:
    """Transpose: the same bytes with permuted strides."""
    source = _source(step)
    if binder.is_constant(source):
        raise NotLowered("it reads a constant")
    lies = binder.desc(source)
    rank = len(lies.dims)
    perm = step.params.get("perm") or tuple(reversed(range(rank)))
    if not isinstance(perm, tuple) or not lies.is_plain:
        raise NotLowered("a layout that strides cannot describe")
    strides = lies.strides
    order = [axis for axis in perm if isinstance(axis, int)]
    view = MemoryDesc.with_strides(
        binder.library,
        [lies.dims[axis] for axis in order],
        lies.dtype,
        [strides[axis] for axis in order],
    )
    binder.alias(step, view, source)


def shuffle(binder: Binder, step: Step) -> None:
    """Channel shuffle: one reorder, from the groups where they lie to the same layout with the two
    axes of the groups swapped.

    oneDNN's shuffle primitive is compiled for blocked layouts only: channels last and row-major it
    has the reference implementation, which took 1.0 to 2.5 times as long as this reorder (3.2,
    ShuffleNet's maps, u8, s8 and f32).
    """
    source = _source(step)
    if binder.is_constant(source):
        raise NotLowered("it reads a constant")
    dims, dtype = binder.dims(source), binder.dtype(source)
    axis, size = step.params.get("axis"), step.params.get("group_size")
    if not isinstance(axis, int) or not isinstance(size, int):
        raise NotLowered("it names no axis and group size")
    axis %= len(dims)
    lies = binder.desc(source)
    dense = relaid(lies, dims, dtype) or channels_last(binder.library, dims, dtype)
    tensor = binder.fetch(Wanted(source, dense))
    assert isinstance(tensor, Tensor)
    groups, strides = dims[axis] // size, dense.strides
    split = (*dims[:axis], size, groups, *dims[axis + 1 :])
    read, written = (
        MemoryDesc.with_strides(
            binder.library, split, dtype, (*strides[:axis], *pair, *strides[axis + 1 :])
        )
        for pair in ((strides[axis], strides[axis] * size), (strides[axis] * groups, strides[axis]))
    )
    binder.commit_move(step, tensor, read, written, dense)


def _copy(binder: Binder, step: Step, source: str, plain: MemoryDesc) -> None:
    """Writes the value row-major, as the output's own bytes."""
    made = reorder(binder.engine, binder.desc(source), plain, origin=binder.origin(step))
    binder.commit(step, made, {1: Wanted(source, binder.desc(source))})
