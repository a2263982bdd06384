"""Steps that say where the elements lie: another shape over the same bytes, another order of the
axes, carried by strides; shuffles, blocks of pixels as channels and back, boxes out of a tensor,
and what stands several times: one reorder, which reads the elements where they lie.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...ir.ops import OPS
from ...ir.ops.rows import integer, integers, text
from ...ir.ops.slicing import cut
from ...ir.ops.spec import Array
from ...onednn.capi import OneDnnError
from ...onednn.enums import Arg
from ...onednn.layouts import channels_last, relaid, row_major, viewed
from ...onednn.memory import MemoryDesc
from ...plan.types import Step
from .binding import Binder
from .program import Tensor
from .values import NotLowered, Offer, Wanted


def _source(binder: Binder, step: Step) -> str:
    """The value whose elements the step moves."""
    source = step.args[0][1]
    if binder.is_constant(source):
        raise NotLowered("it reads a constant")
    return source


def reshape(binder: Binder, step: Step) -> None:
    """Reshape, Flatten, Squeeze, Unsqueeze, Identity: a view where the layout allows it, else the
    view of a row-major copy.

    Raises:
        NotLowered: it reads a constant, or its axes or its shape come at run time, and may not fit.
    """
    if not binder.is_settled(step):
        raise NotLowered(f"{', '.join(role for role, _ in step.args[1:])} come at run time")
    source = _source(binder, step)
    lies, dims = binder.desc(source), binder.dims(step.output)
    view = viewed(lies, dims)
    if view is not None:
        binder.alias(step, view, source)
        return
    plain = row_major(binder.library, lies.dims, lies.dtype)
    copy = binder.describe(step, "reorder", lies, plain)
    binder.commit(step, Offer(copy, {Arg.SRC: Wanted(source, lies)}))


def transpose(binder: Binder, step: Step) -> None:
    """Transpose: the same bytes with permuted strides."""
    source = _source(binder, step)
    lies = binder.desc(source)
    rank = len(lies.dims)
    if not lies.is_plain:
        raise NotLowered("a layout that strides cannot describe")
    strides = lies.strides
    order = integers(OPS[step.op].known(step.params), "perm") or tuple(reversed(range(rank)))
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
    source = _source(binder, step)
    dims, dtype = binder.dims(source), binder.dtype(source)
    attrs = OPS[step.op].known(step.params)
    axis, size = integer(attrs, "axis") % len(dims), integer(attrs, "group_size")
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


def blocks_of_pixels(binder: Binder, step: Step) -> None:
    """DepthToSpace and SpaceToDepth: one reorder between the image, whose rows and columns are two
    dimensions each, and the same elements with the small ones among the channels.
    """
    source, attrs = _source(binder, step), OPS[step.op].known(step.params)
    block, dtype = integer(attrs, "blocksize"), binder.dtype(source)
    shapes = binder.dims(source), binder.dims(step.output)
    lies = binder.desc(source)
    deep, wide = shapes if step.op == "DepthToSpace" else reversed(shapes)
    ends = [
        relaid(lies, dims, dtype) or channels_last(binder.library, dims, dtype) for dims in shapes
    ]
    split = (wide[0], wide[1], deep[2], block, deep[3], block)
    rest, pixels = (1, wide[1]) if text(attrs, "mode") == "DCR" else (block * block, 1)

    def seen(end: MemoryDesc) -> MemoryDesc:
        image, channel, row, column = end.strides
        strides = (image, channel, row * block, row, column * block, column)
        if end.dims == deep:
            inner = channel * pixels
            strides = (image, channel * rest, row, inner * block, column, inner)
        return MemoryDesc.with_strides(binder.library, split, dtype, strides)

    tensor = binder.fetch(Wanted(source, ends[0]))
    assert isinstance(tensor, Tensor)
    binder.commit_move(step, tensor, seen(ends[0]), seen(ends[1]), ends[1])


def expand(binder: Binder, step: Step) -> None:
    """Expand: axes of one element, and new ones in front, are read again and again.

    Raises:
        NotLowered: it reads a constant, its shape comes at run time, or as `_repeated` has it.
    """
    _settled(binder, step, "shape")
    dims, given = binder.dims(step.output), binder.dims(_source(binder, step))
    given = (1,) * (len(dims) - len(given)) + given
    _repeated(
        binder,
        step,
        [(1, had) if had == size else (size, had) for had, size in zip(given, dims, strict=True)],
    )


def tile(binder: Binder, step: Step) -> None:
    """Tile: each axis is read as often as it says.

    Raises:
        NotLowered: the repeats come at run time, or as `_repeated` has it.
    """
    repeats = _settled(binder, step, "repeats").tolist()
    given = binder.dims(_source(binder, step))
    _repeated(binder, step, list(zip(repeats, given, strict=False)))


def _repeated(binder: Binder, step: Step, axes: Sequence[tuple[int, int]]) -> None:
    """Writes the step's first input so that each axis stands there several times: one reorder, whose
    source has axes of stride 0.

    Args:
        binder: the binder.
        step: the step.
        axes: how often each axis is read, and its length, from the output's first on.

    Raises:
        NotLowered: the source's layout has no strides, or the library has no primitive for it.
    """
    source, dims = step.args[0][1], binder.dims(step.output)
    if all(times == 1 for times, _ in axes):
        reshape(binder, step)
        return
    lies = binder.desc(source)
    if not lies.is_plain or lies.offset:
        lies = row_major(binder.library, lies.dims, lies.dtype)
    view = viewed(lies, [length for _, length in axes])
    assert view is not None  # the same but for ones in front
    split: list[int] = []
    strides: list[int] = []
    for (times, length), stride in zip(axes, view.strides, strict=True):
        # no axes of one element besides: a descriptor has few
        found = [(size, apart) for size, apart in ((times, 0), (length, stride)) if size > 1]
        split += [size for size, _ in found]
        strides += [apart for _, apart in found]
    tensor = binder.fetch(Wanted(source, lies))
    assert isinstance(tensor, Tensor)
    try:
        read = MemoryDesc.with_strides(binder.library, split, lies.dtype, strides)
        target = row_major(binder.library, split, lies.dtype)
    except OneDnnError as error:
        raise NotLowered(f"{len(split)} axes, some of them repeated: {error.what}") from error
    binder.commit_move(step, tensor, read, target, row_major(binder.library, dims, lies.dtype))


def gather(binder: Binder, step: Step) -> None:
    """Gather of one row, plane ... at an index that is settled, such as the first token of a sequence.

    Raises:
        NotLowered: there are several indices, they come at run time, or point outside.
    """
    dims = binder.desc(_source(binder, step)).dims
    index = _settled(binder, step, "indices")
    axis = integer(OPS[step.op].known(step.params), "axis")
    if index.size != 1:
        raise NotLowered("oneDNN has no primitive that gathers")
    axis, at = axis % len(dims), int(index.reshape(-1)[0])
    if not -dims[axis] <= at < dims[axis]:
        raise NotLowered(f"index {at} points outside of {list(dims)}")
    start, size = [0] * len(dims), list(dims)
    start[axis], size[axis] = at % dims[axis], 1
    binder.commit_box(step, step.args[0][1], size, start)


def slice_(binder: Binder, step: Step) -> None:
    """Slice with bounds that are constant or settled by the sizes of the inputs, forwards.

    Raises:
        NotLowered: it is another one.
    """
    dims = binder.desc(_source(binder, step)).dims
    starts, ends = (_settled(binder, step, role).tolist() for role in ("starts", "ends"))
    axes = _settled(binder, step, "axes").tolist() if step.arg("axes") else list(range(len(starts)))
    steps = _settled(binder, step, "steps").tolist() if step.arg("steps") else [1] * len(starts)
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


def _settled(binder: Binder, step: Step, role: str) -> Array:
    """What a step reads in a role: a constant, or settled by the sizes of the inputs.

    Raises:
        NotLowered: it is neither.
    """
    name = step.arg(role)
    data = None if name is None else binder.settled(name)
    if data is None:
        raise NotLowered(f"{role} come at run time")
    return data
