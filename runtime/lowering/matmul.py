"""Matrix products as oneDNN primitives: dimensions are joined so that the compiled kernels take the
operands of post-ops.

oneDNN 3.2's `brg` kernels broadcast an operand along all of the dimensions, all but the last, or
all but the first and the last one or two; everything else has the reference implementation
`ref:any`, a thousand times as slow. A causal mask [1, 1, M, N] for [B, H, M, N] has none, but for
[1, B*H, M, N] it has. What no joining brings into such a form, the bias [1, H, M, N] of window
attention, say, is written out in full where it is a constant.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from itertools import product

from ...onednn.enums import Arg, DataType
from ...onednn.layouts import row_major, viewed
from ...onednn.memory import Memory, MemoryDesc, numpy_dtype
from ...plan.arguments import PACKED
from ...plan.attributes import Binary, Prelu
from ...plan.types import Step
from .binding import Binder, distinct, first_accepted, first_lowered, need
from .convolving import Weights, check_sums
from .joining import Frame, Groups, Way, alike, join_axes, joined, joined_frame, wide
from .packed import packed_matmul
from .translation import translate
from .values import Args, NotLowered, Offer, Wanted

_LARGEST_JOINED = 3
"""Dimensions of a destination to which one of length 1 is put in front: the kernels' forms have at
most four.
"""


def matmul(binder: Binder, step: Step) -> None:
    """A matrix product. A weights matrix serves all leading dimensions of the source at once, which
    are flattened where post-ops allow it."""
    if step.op == PACKED:
        packed_matmul(binder, step, _views(binder, step))
        return
    check_sums(binder, step)
    first_lowered(_views(binder, step), lambda view: _product(binder, step, view))


def _views(binder: Binder, step: Step) -> Iterator[Way]:
    """How to see the product, best first: the groups are the dimensions but the last."""
    shape, given = binder.dims(need(step, "src")), binder.dims(need(step, "weights"))
    rank = len(binder.dims(step.output))
    plain = [Way(tuple((axis,) for axis in range(rank - 1)))]
    if len(given) == 2 and len(shape) == rank:
        plain.insert(0, Way((tuple(range(rank - 1)),)))
    yield from plain
    if rank < 2:
        return
    views = _joined_views(binder, step, frozenset())
    large = _large_constants(binder, step)
    if not large:
        yield from views
        return
    written = [replace(view, written_out=large) for view in plain]
    written += _joined_views(binder, step, large)
    cheap = _copied(binder, step, views[0]) <= _written(binder, step)
    yield from views + written if cheap else written + views


def _joined_views(binder: Binder, step: Step, written_out: frozenset[str]) -> list[Way]:
    groups = _joined_axes(binder, step, written_out)
    found = (groups, ((), *groups)) if len(groups) < _LARGEST_JOINED else (groups,)
    return [Way(one, written_out) for one in found]


def _copied(binder: Binder, step: Step, view: Way) -> int:
    """Bytes that move where the factors must be brought into another layout first to be seen so."""
    factors = _factors(binder, step, view)
    lying = [(binder.desc(name), dims) for name, dims in factors if not binder.is_constant(name)]
    return sum(2 * lies.size for lies, dims in lying if viewed(lies, dims) is None)


def _written(binder: Binder, step: Step) -> int:
    """Bytes of an operand that is written out in full."""
    return math.prod(binder.dims(step.output)) * numpy_dtype(DataType.f32).itemsize


def _large_constants(binder: Binder, step: Step) -> frozenset[str]:
    """Constant operands of binary post-ops, but for single numbers and those along the last
    dimension, which every kernel takes.
    """
    names = {op.operand for op in step.attr.post_ops if isinstance(op, Binary)}
    return frozenset(
        name
        for name in names
        if binder.is_constant(name) and math.prod(binder.dims(name)) != binder.dims(name)[-1]
    )


def _joined_axes(binder: Binder, step: Step, written_out: frozenset[str]) -> Groups:
    """The destination's axes but the last, joined where all arguments vary along both of two
    neighbours or along none of them.
    """
    dims, bias = binder.dims(step.output), step.arg("bias")
    rows, rank = len(dims) - 2, len(dims)
    kept = [] if bias is None else [bias]
    kept += [
        op.operand
        for op in step.attr.post_ops
        if isinstance(op, Prelu) or (isinstance(op, Binary) and op.operand not in written_out)
    ]
    left, right = (wide(binder.dims(need(step, role)), rank) for role in ("src", "weights"))
    right = (*right[:rows], 1, 1)
    shapes = [*(wide(binder.dims(name), rank) for name in kept), left, right]
    groups = join_axes(dims[:rows], shapes)
    # Weights that differ from one batch to the next have no rows of the destination to serve.
    last = groups[-1][-1] if groups else rows
    if (
        groups
        and right[last] == 1
        and left[last] != 1
        and (dims[rows] == 1 or alike(last, rows, shapes))
    ):
        return (*groups[:-1], (*groups[-1], rows))
    return (*groups, (rows,))


def _factors(
    binder: Binder, step: Step, view: Way
) -> tuple[tuple[str, tuple[int, ...]], tuple[str, tuple[int, ...]]]:
    """Source and weights, and their shapes in the primitive."""
    src, weights, rank = need(step, "src"), need(step, "weights"), len(binder.dims(step.output))
    left, right = wide(binder.dims(src), rank), wide(binder.dims(weights), rank)
    return (src, (*joined(left, view.groups), left[-1])), (
        weights,
        (*joined(right, view.groups[:-1]), *right[-2:]),
    )


def _product(binder: Binder, step: Step, view: Way) -> None:
    dims, dtype, bias = binder.dims(step.output), binder.dtype(step.output), step.arg("bias")
    library = binder.library
    target = row_major(library, (*joined(dims, view.groups), dims[-1]), dtype)
    frame = joined_frame(dims, (*view.groups, (len(dims) - 1,)), target, view.written_out)
    (src, inner), (name, matrix) = _factors(binder, step, view)
    weights = Weights.of(binder, name, matrix)
    biased, shift = (None, None) if bias is None else _bias(binder, bias, dims, frame)
    translated = translate(binder, step.attr, frame, dtype, 1 << (len(frame.dims) - 1), step)

    def attempt(factors: tuple[MemoryDesc, MemoryDesc]) -> Offer:
        desc = binder.describe(
            step, "matmul", *factors, biased, target, attributes=translated.attributes
        )
        return translated.offer(desc, {} if shift is None else {Arg.BIAS: shift})

    anything = MemoryDesc.any(library, matrix, weights.dtype)
    matrices = [anything] if binder.is_constant(name) else _layouts(binder, name, matrix)
    candidates = product(_layouts(binder, src, inner), matrices)
    offer = first_accepted(binder, candidates, attempt, weights.known, src)
    factors: Args = {
        Arg.SRC: Wanted(src, offer.desc.src_md()),
        Arg.WEIGHTS: weights.argument(binder, offer.desc.weights_md()),
    }
    binder.commit(step, offer.reading(factors))


def _bias(
    binder: Binder, name: str, dims: tuple[int, ...], frame: Frame
) -> tuple[MemoryDesc, Memory | Wanted]:
    """A bias in the primitive's shape. Of one number for all columns, which the plan has where it does
    not know how many there are, the library has its reference implementation only: it is written out.
    """
    full = frame.operand(wide(binder.dims(name), len(dims)))
    if full is None:
        raise NotLowered(f"a bias {list(binder.dims(name))} for {list(dims)}")
    if math.prod(full) == 1 and binder.is_constant(name):
        full = (*full[:-1], frame.dims[-1])
        desc = row_major(binder.library, full, binder.dtype(name))
        return desc, binder.written_out(name, full, desc)
    desc = row_major(binder.library, full, binder.dtype(name))
    return desc, Wanted(name, desc)


def _layouts(binder: Binder, value: str, dims: tuple[int, ...]) -> list[MemoryDesc]:
    """How an operand may be handed over: as it lies, row-major, or as the library likes it."""
    dtype, lies = binder.dtype(value), viewed(binder.desc(value), dims)
    plain = None if lies is None or not lies.is_plain else lies
    library = binder.library
    return distinct(plain, row_major(library, dims, dtype), MemoryDesc.any(library, dims, dtype))
