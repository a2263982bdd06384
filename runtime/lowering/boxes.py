"""Steps that copy a box out of a tensor: one reorder, which reads the box where it lies."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...ir.ops.slicing import cut
from ...plan.types import Step
from .binding import Binder, NotLowered

__all__ = ["gather", "slice_"]


def gather(binder: Binder, step: Step) -> None:
    """Gather of one row, plane ... at a constant index, such as the first token of a sequence.

    Raises:
        NotLowered: there are several indices, they come at run time, or point outside.
    """
    dims = _source_dims(binder, step)
    index = _constant(binder, step, "indices")
    axis = step.params.get("axis", 0)
    if index.size != 1 or not isinstance(axis, int):
        raise NotLowered("oneDNN has no primitive that gathers")
    axis, at = axis % len(dims), int(index.reshape(-1)[0])
    if not -dims[axis] <= at < dims[axis]:
        raise NotLowered(f"index {at} points outside of {list(dims)}")
    start, size = [0] * len(dims), list(dims)
    start[axis], size[axis] = at % dims[axis], 1
    binder.commit_box(step, step.args[0][1], size, start)


def slice_(binder: Binder, step: Step) -> None:
    """Slice with constant bounds, forwards.

    Raises:
        NotLowered: it is another one.
    """
    dims = _source_dims(binder, step)
    starts, ends = (_constant(binder, step, role).tolist() for role in ("starts", "ends"))
    axes = (
        _constant(binder, step, "axes").tolist() if step.arg("axes") else list(range(len(starts)))
    )
    steps = _constant(binder, step, "steps").tolist() if step.arg("steps") else [1] * len(starts)
    if any(stride < 1 for stride in steps):
        raise NotLowered("oneDNN has no primitive that goes backwards")
    start, size, apart = [0] * len(dims), list(dims), [1] * len(dims)
    for axis, first, last, stride in zip(axes, starts, ends, steps, strict=True):
        taken = cut(dims[axis], first, last, stride)
        start[axis], size[axis], apart[axis] = (
            taken.start,
            len(range(taken.start, taken.stop, stride)),
            stride,
        )
    binder.commit_box(step, step.args[0][1], size, start, apart)


def _source_dims(binder: Binder, step: Step) -> Sequence[int]:
    source = step.args[0][1]
    if binder.is_constant(source):
        raise NotLowered("it reads a constant")
    return binder.desc(source).dims


def _constant(
    binder: Binder, step: Step, role: str
) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    name = step.arg(role)
    if name is None or not binder.is_constant(name):
        raise NotLowered(f"{role} come at run time")
    return binder.constants.data(name)
