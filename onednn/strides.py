"""Strides of plain layouts in elements, from shapes alone: row-major, channels last, and those of
dimensions of length 1.
"""

from __future__ import annotations

from functools import lru_cache

Dims = tuple[int, ...]

_KEPT = 4096  # a binding asks for each many times


@lru_cache(_KEPT)
def row_major_strides(shape: Dims) -> Dims:
    """Strides of the dense row-major layout of `shape`; empty dimensions count as 1."""
    steps = [1] * len(shape)
    for axis in range(len(shape) - 1, 0, -1):
        steps[axis - 1] = steps[axis] * max(shape[axis], 1)
    return tuple(steps)


@lru_cache(_KEPT)
def channels_last_strides(shape: Dims) -> Dims:
    """Strides of the dense layout whose innermost dimension is 1 (rank 3 and more; row-major
    below).
    """
    if len(shape) < 3:
        return row_major_strides(shape)
    outer = row_major_strides((shape[0], *shape[2:], shape[1]))
    return (outer[0], outer[-1], *outer[1:-1])


def agree(shape: Dims, steps: Dims, others: Dims) -> bool:
    """True where two strides of one shape are the same layout: they differ for dimensions of length
    1 at most.
    """
    return all(
        length == 1 or step == other
        for length, step, other in zip(shape, steps, others, strict=True)
    )


@lru_cache(_KEPT)
def settled_strides(shape: Dims, steps: Dims) -> Dims:
    """The same layout with the one choice of strides for dimensions of length 1 that kernels can
    read a layout's name from.

    No element is ever reached by such a stride, and still oneDNN 3.2 decides by it: its binary
    walks [5,1,1,5] with strides (5,25,25,1) as neither row-major nor channels last, and reads
    beyond the tensor. Such strides come from permuted axes.

    Args:
        shape: the shape.
        steps: strides in elements.

    Returns:
        `steps` where they are row-major or channels last to the letter; those two where they are so
        but for dimensions of length 1; otherwise, those in front of all others outside of
        everything (batched products ask a batch of 1 for that), the rest directly outside of their
        right neighbours.
    """
    if 1 not in shape:
        return steps
    named = row_major_strides(shape), channels_last_strides(shape)
    if steps in named:
        return steps
    for known in named:
        if agree(shape, steps, known):
            return known
    found = list(steps)
    outside = 1
    leading = next((axis for axis, length in enumerate(shape) if length != 1), len(shape))
    for axis in range(len(shape) - 1, leading - 1, -1):
        if shape[axis] == 1:
            found[axis] = outside
        outside = found[axis] * max(shape[axis], 1)
    whole = max(
        (
            step * max(length, 1)
            for step, length in zip(found[leading:], shape[leading:], strict=True)
        ),
        default=1,
    )
    return (*(whole,) * leading, *found[leading:])
