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
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import chain, product
from typing import Any

from numpy.typing import NDArray

from ...onednn.enums import AlgKind, Arg, DataType
from ...onednn.layouts import row_major, viewed
from ...onednn.memory import Memory, MemoryDesc, numpy_dtype
from ...plan.arguments import PACKED
from ...plan.attributes import Binary, Prelu, PrimitiveAttr
from ...plan.types import Step
from .binding import Binder, first_accepted, first_lowered, need
from .convolving import check_sums
from .faster import faster_dots, faster_product
from .in_f32 import Factors, commit_in_f32, operand_in_f32, product_in_f32
from .joining import Frame, Groups, Way, alike, join_axes, joined, joined_frame, wide
from .packed import packed_matmul
from .translation import Added, Scaled, translate
from .values import Args, NotLowered, Offer, Wanted, Weights, distinct

_PANEL = 32
_WORTH_PANELS = 1 << 18
"""Numbers of a matrix from which on it is read from memory, not from the nearest cache: 1 MiB."""

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
    first = step.name in binder.constants.in_f32
    ways = ((in_f32, view) for in_f32 in (first, not first) for view in _views(binder, step))

    def lower(way: tuple[bool, Way] | None) -> None:
        if way is None:
            _of_one_row(binder, step)
        elif way[0]:
            _in_f32(binder, step, way[1])
        else:
            _product(binder, step, way[1])

    first_lowered(chain([None], ways), lower)


def _of_one_row(binder: Binder, step: Step) -> None:
    """A row of f32 times a constant matrix, as a batch of products with 32 columns each.

    The kernel for a single row goes through 64 columns four times, 16 at a time: read from memory, a
    matrix of 768 x 2048 takes 400 us, and 280 where 32 columns lie by themselves, one row of them
    after the other. (In the cache the latter takes 7 % longer; 16 columns take 250, and 60 % longer.)

    Raises:
        NotLowered: it is another product, or oneDNN has no such kernel for it.
    """
    (src, name), dims = (need(step, role) for role in ("src", "weights")), binder.dims(step.output)
    given, library, f32 = binder.dims(name), binder.library, DataType.f32
    types = {binder.dtype(src), binder.dtype(name), binder.dtype(step.output)}
    if types != {f32} or len(given) != 2 or not binder.is_constant(name):
        raise NotLowered("no product of f32 with a constant matrix")
    depth, columns = given
    if math.prod(dims) != columns or columns % _PANEL or depth * columns < _WORTH_PANELS:
        raise NotLowered("more than one row, or a small matrix")
    if step.attr.scales or step.attr.zero_points:
        raise NotLowered("a product of f32 with scales")
    if any(isinstance(op, Prelu) for op in step.attr.post_ops):
        raise NotLowered("slopes for each column, which are none of a batch")
    panels = columns // _PANEL
    source, target = (
        row_major(library, whole, f32) for whole in ((1, 1, depth), (panels, 1, _PANEL))
    )
    matrix = row_major(library, (panels, depth, _PANEL), f32)

    def operand(shape: tuple[int, ...]) -> tuple[int, ...] | None:
        return {1: (1, 1, 1), columns: target.dims}.get(math.prod(shape))

    def attempt(frame: Frame) -> Offer:
        # the library adds the same bias to each of a batch
        bias = step.arg("bias")
        added = () if bias is None else (Binary("add", bias),)
        attr = replace(step.attr, post_ops=(*added, *step.attr.post_ops))
        translated = translate(binder, attr, frame, f32)
        attributes = translated.attributes
        desc = binder.describe(step, "matmul", source, matrix, None, target, attributes=attributes)
        if not desc.impl_info.startswith("brg"):
            raise NotLowered(f"{desc.impl_info} has no panels")
        return translated.offer(desc, {Arg.SRC: Wanted(src, source)})

    offer = first_accepted(binder, [Frame(dims, target.dims, operand, target)], attempt)

    def in_panels(data: NDArray[Any]) -> NDArray[Any]:
        return data.reshape(depth, panels, _PANEL).transpose(1, 0, 2)

    weights = Weights.of(binder, name, matrix.dims, in_panels, "panels")
    binder.commit(step, offer.reading({Arg.WEIGHTS: weights.argument(binder, matrix)}))


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
    if large:
        written = [replace(view, written_out=large) for view in plain]
        written += _joined_views(binder, step, large)
        cheap = _copied(binder, step, views[0]) <= _written(binder, step)
        views = views + written if cheap else written + views
    yield from views
    operands = frozenset(op.operand for op in step.attr.post_ops if isinstance(op, Binary))
    if operands:  # last, since operands that a run computes are broadcast in each run
        yield from (replace(view, written_out=operands) for view in plain)


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

    binder.commit(step, _multiplied(binder, (src, inner), weights, attempt))


def _multiplied(
    binder: Binder,
    source: tuple[str, tuple[int, ...]],
    weights: Weights,
    attempt: Callable[[tuple[MemoryDesc, MemoryDesc]], Offer],
) -> Offer:
    """The product of a value, seen under a shape, with weights: of the layouts that both may have, the
    first that goes.
    """
    (src, inner), library = source, binder.library
    anything = MemoryDesc.any(library, weights.dims, weights.dtype)
    constant = weights.data is not None
    matrices = [anything] if constant else _layouts(binder, weights.name, weights.dims)
    candidates = product(_layouts(binder, src, inner), matrices)
    offer = first_accepted(binder, candidates, attempt, weights, src)
    faster = faster_product if constant else faster_dots
    offer = replace(offer, desc=faster(binder, offer.desc))
    factors: Args = {
        Arg.SRC: Wanted(src, offer.desc.src_md()),
        Arg.WEIGHTS: weights.argument(binder, offer.desc.weights_md()),
    }
    return offer.reading(factors)


def _in_f32(binder: Binder, step: Step, view: Way) -> None:
    """See `in_f32.py`."""
    dims, library = binder.dims(step.output), binder.library
    target = row_major(library, (*joined(dims, view.groups), dims[-1]), DataType.f32)
    frame = joined_frame(dims, (*view.groups, (len(dims) - 1,)), target, view.written_out)
    (_, inner), (name, matrix) = _factors(binder, step, view)
    along = (*(1 for _ in frame.dims[1:]), dims[-1])
    rows = len(matrix) - 2
    weights = Weights.of(binder, name, matrix)
    found = product_in_f32(binder, step, weights, (rows,), along)

    def offer(attr: PrimitiveAttr, part: Factors, added: Added | None, scaled: Scaled) -> Offer:
        leading = () if added is None else ((AlgKind.binary_add, added(frame)),)
        translated = translate(binder, attr, frame, DataType.f32, 0, step, leading, scaled)

        def attempt(factors: tuple[MemoryDesc, MemoryDesc]) -> Offer:
            attributes = translated.attributes
            desc = binder.describe(step, "matmul", *factors, None, target, attributes=attributes)
            return translated.offer(desc, {})

        seen = (*inner[:-1], part.weights.dims[rows])
        return _multiplied(binder, (part.source, seen), part.weights, attempt)

    bias, shape = step.arg("bias"), None
    if bias is not None:
        shape = frame.operand(wide(binder.dims(bias), len(dims)))
        if shape is None:
            raise NotLowered(f"a bias {list(binder.dims(bias))} for {list(dims)}")
    operand = operand_in_f32(binder, bias, shape or ())
    flat = (tuple(range(len(dims) - 1)), (len(dims) - 1,))
    rows_of = row_major(library, joined(dims, flat), DataType.f32)
    frames = frame, joined_frame(dims, flat, rows_of, view.written_out)
    commit_in_f32(binder, step, found, operand, offer, lambda _: frames)


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
