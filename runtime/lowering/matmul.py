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
from dataclasses import dataclass, replace
from itertools import product

from ...onednn import primitives
from ...onednn.enums import Arg, DataType
from ...onednn.layouts import row_major, viewed
from ...onednn.memory import Memory, MemoryDesc, numpy_dtype
from ...onednn.primitive_desc import PrimitiveDesc
from ...plan.attributes import Binary, Prelu
from ...plan.types import Step
from .binding import Binder, NotLowered, Wanted, first_accepted
from .compute import Weights, commit_summed
from .joining import Groups, alike, join_axes, joined, joined_frame, wide
from .pointwise import need
from .translation import translate

__all__ = ["matmul"]

_LARGEST_JOINED = 3
"""Dimensions of a destination to which one of length 1 is put in front: the kernels' forms have at
most four.
"""


@dataclass(frozen=True)
class _View:
    """How the primitive sees the product.

    Attributes:
        groups: the dimensions but the last.
        written_out: write constant operands of post-ops out in full.
    """

    groups: Groups
    written_out: bool = False


def matmul(binder: Binder, step: Step) -> None:
    """A matrix product. A weights matrix serves all leading dimensions of the source at once, which
    are flattened where post-ops allow it."""
    refusals: list[str] = []
    tried: set[_View] = set()
    for view in _views(binder, step):
        if view in tried:
            continue
        tried.add(view)
        try:
            _product(binder, step, view)
        except NotLowered as refusal:
            refusals += str(refusal).split("; ")
        else:
            return
    raise NotLowered("; ".join(dict.fromkeys(refusals)))


def _views(binder: Binder, step: Step) -> Iterator[_View]:
    """How to see the product, best first."""
    shape, given = binder.dims(need(step, "src")), binder.dims(need(step, "weights"))
    rank = len(binder.dims(step.output))
    plain = [_View(tuple((axis,) for axis in range(rank - 1)))]
    if len(given) == 2 and len(shape) == rank:
        plain.insert(0, _View((tuple(range(rank - 1)),)))
    yield from plain
    if rank < 2:
        return
    views = _joined_views(binder, step, written_out=False)
    if not _large_constants(binder, step):
        yield from views
        return
    written = [replace(view, written_out=True) for view in plain] + _joined_views(
        binder, step, written_out=True
    )
    yield from (
        views + written
        if _copied(binder, step, views[0]) <= _written(binder, step)
        else written + views
    )


def _joined_views(binder: Binder, step: Step, *, written_out: bool) -> list[_View]:
    groups = _joined_axes(binder, step, written_out=written_out)
    found = (groups, ((), *groups)) if len(groups) < _LARGEST_JOINED else (groups,)
    return [_View(one, written_out) for one in found]


def _copied(binder: Binder, step: Step, view: _View) -> int:
    """Bytes that move where the factors must be brought into another layout first to be seen so."""
    factors = _factors(binder, step, view)
    lying = [(binder.desc(name), dims) for name, dims in factors if not binder.is_constant(name)]
    return sum(2 * lies.size for lies, dims in lying if viewed(lies, dims) is None)


def _written(binder: Binder, step: Step) -> int:
    """Bytes of an operand that is written out in full."""
    return math.prod(binder.dims(step.output)) * numpy_dtype(DataType.f32).itemsize


def _large_constants(binder: Binder, step: Step) -> set[str]:
    """Constant operands of binary post-ops, but for single numbers and those along the last
    dimension, which every kernel takes.
    """
    names = {op.operand for op in step.attr.post_ops if isinstance(op, Binary)}
    return {
        name
        for name in names
        if binder.is_constant(name) and math.prod(binder.dims(name)) != binder.dims(name)[-1]
    }


def _joined_axes(binder: Binder, step: Step, *, written_out: bool) -> Groups:
    """The destination's axes but the last, joined where all arguments vary along both of two
    neighbours or along none of them.
    """
    dims, src, weights, bias = (
        binder.dims(step.output),
        need(step, "src"),
        need(step, "weights"),
        step.arg("bias"),
    )
    rows, rank = len(dims) - 2, len(dims)
    operands = [op for op in step.attr.post_ops if isinstance(op, Binary | Prelu)]
    absent = _large_constants(binder, step) if written_out else set()
    kept = [op.operand for op in operands if isinstance(op, Prelu) or op.operand not in absent]
    shapes = [wide(binder.dims(name), rank) for name in ([] if bias is None else [bias]) + kept]
    left = wide(binder.dims(src), rank)
    right = (*wide(binder.dims(weights), rank)[:rows], 1, 1)
    shapes += [left, right]

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
    binder: Binder, step: Step, view: _View
) -> tuple[tuple[str, tuple[int, ...]], tuple[str, tuple[int, ...]]]:
    """Source and weights, and their shapes in the primitive."""
    src, weights, rank = need(step, "src"), need(step, "weights"), len(binder.dims(step.output))
    left, right = wide(binder.dims(src), rank), wide(binder.dims(weights), rank)
    return (src, (*joined(left, view.groups), left[-1])), (
        weights,
        (*joined(right, view.groups[:-1]), *right[-2:]),
    )


def _product(binder: Binder, step: Step, view: _View) -> None:
    src, name, bias = need(step, "src"), need(step, "weights"), step.arg("bias")
    dims = binder.dims(step.output)
    dtype, kind = binder.dtype(step.output), binder.dtype(name)
    library = binder.library
    target = row_major(library, (*joined(dims, view.groups), dims[-1]), dtype)
    frame = joined_frame(
        dims,
        (*view.groups, (len(dims) - 1,)),
        target,
        _large_constants(binder, step) if view.written_out else (),
    )
    (_, inner), (_, matrix) = _factors(binder, step, view)
    weights = Weights(name, matrix, kind, lambda array: array.reshape(matrix))
    bias_desc = None
    if bias is not None:
        full = frame.operand(wide(binder.dims(bias), len(dims)))
        if full is None:
            raise NotLowered(f"a bias {list(binder.dims(bias))} for {list(dims)}")
        bias_desc = row_major(library, full, binder.dtype(bias))
    translated = translate(binder, step.attr, frame, dtype, {"weights": 1 << (len(frame.dims) - 1)})

    def make(source: MemoryDesc, factor: MemoryDesc) -> PrimitiveDesc:
        return primitives.matmul(
            binder.engine,
            source,
            factor,
            bias_desc,
            target,
            attributes=translated.attributes,
            origin=binder.origin(step),
        )

    sources = _layouts(binder, src, inner)
    matrices = [MemoryDesc.any(library, weights.dims, kind)]
    if not binder.is_constant(name):
        matrices = _layouts(binder, name, weights.dims)
    found = first_accepted(
        binder, product(sources, matrices), lambda pair: make(*pair), lambda: weights.data(binder)
    )
    args: dict[int, Wanted | Memory] = {
        **translated.args,
        Arg.SRC: Wanted(src, found.src_md()),
        Arg.WEIGHTS: weights.argument(binder, found.weights_md()),
    }
    if bias is not None and bias_desc is not None:
        args[Arg.BIAS] = Wanted(bias, bias_desc)
    commit_summed(binder, step, found, args, translated)


def _layouts(binder: Binder, value: str, dims: tuple[int, ...]) -> list[MemoryDesc]:
    """How an operand may be handed over: as it lies, row-major, or as the library likes it."""
    dtype = binder.dtype(value)
    lies = viewed(binder.desc(value), dims)
    plain = row_major(binder.library, dims, dtype)
    found = [] if lies is None or not lies.is_plain else [lies]
    if plain not in found:
        found.append(plain)
    return [*found, MemoryDesc.any(binder.library, dims, dtype)]
