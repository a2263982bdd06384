"""Steps that move no data: another shape over the same bytes, or another order of the axes, carried by strides."""

from __future__ import annotations

from ...composer.plan import Step
from .binding import Binder, NotLowered, Wanted
from .memory import MemoryDesc
from .pointwise import reorder
from .tensors import row_major, viewed

__all__ = ["reshape", "transpose"]


def _source(step: Step) -> str:
    return step.args[0][1]


def reshape(binder: Binder, step: Step) -> None:
    """Reshape, Flatten, Squeeze, Unsqueeze, Identity: a view where the layout allows it, else the view of a row-major copy."""
    source = _source(step)
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
        binder.library, [lies.dims[axis] for axis in order], lies.dtype, [strides[axis] for axis in order]
    )
    binder.alias(step, view, source)


def _copy(binder: Binder, step: Step, source: str, plain: MemoryDesc) -> None:
    """Writes the value row-major, as the output's own bytes."""
    made = reorder(binder.engine, binder.desc(source), plain, origin=binder.origin(step))
    binder.commit(step, made, {1: Wanted(source, binder.desc(source))})
